"""Others' candidates judged by one command that can be cut off: every pass, the records, the exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py"
FOREIGN = "a_name_of_somebody_elses"


def test_one_command_goes_through_all_passes_and_quotes_nobody(tmp_path: Path) -> None:
    tree, out = tmp_path / "somebody-cuda", tmp_path / "out"
    tree.mkdir()
    (tree / "1_allreduce_cuda.py").write_text(f"{FOREIGN} = 1\n{DEMO.read_text()}")
    (tree / "2_allgather_cuda.py").write_text(f"def solution(x):\n    raise ValueError('{FOREIGN}')\n")
    (tree / "3_broadcast_cuda.py").write_text("")

    def run(*more: str) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            [
                sys.executable, str(ROOT / "benchmarks" / "frontier.py"), str(tree), "--out", str(out), "--have", str(out),
                "--platform", "cpu", "--ranks", "2", "--size", "tiny", "--plans", "quick,published", "--lanes", "2", *more,
            ],
            env=os.environ | {"PKB_CACHE": str(tmp_path / "cache")}, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def records() -> dict[tuple[int, str], dict[str, object]]:
        lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
        return {(line["problem"], line["evaluation"]["plan"]): line for line in lines}

    status, said = run("--passes", "words")
    assert (status, said["left"]) == (3, {"words": 0, "times": 2, "doubts": 0, "near": 0, "reused": 0})
    first = records()
    assert {key: line["evaluation"]["verdict"] for key, line in first.items()} == {  # type: ignore[index]
        (1, "quick"): "correct", (2, "quick"): "runtime_error", (1, "published"): "correct", (2, "published"): "runtime_error",
    }  # fmt: skip
    assert {key for key, line in first.items() if line.get("provisional")} == {(1, "published"), (1, "quick")}
    status, said = run()
    assert (status, said["verdicts"]) == (0, {"correct": 2})
    assert not any(line.get("provisional") for line in records().values())
    assert records()[2, "quick"] == first[2, "quick"]
    assert not any(FOREIGN in path.read_text() for path in out.iterdir())
