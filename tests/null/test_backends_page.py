"""The tables of docs/backends.md, from verdicts."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pkb.candidates.source import read
from pkb.generate import prompt_examples
from program_files import program

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def backends() -> Any:
    return program("benchmarks/backends.py")


def row(
    backend: str, *, ranks: int = 4, verdict: str = "correct", us: float | None = 20.0, problem: int = 1
) -> dict[str, Any]:
    timing = None
    if us is not None:
        timing = {"candidate_us": us, "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "first_call_us": 9e5}
    return {
        "platform": "virtual", "hardware": "a GPU", "problem": {"id": problem}, "benchmark": backend, "ranks": ranks,
        "size": "paper", "candidate": {"sha256": backend}, "verdict": verdict, "detail": "why", "timing": timing, "lines": 70,
        "built_s": 3.0, "short": False, "started_at": "2026-01-02T03:04", "environment": {},
    }  # fmt: skip


def test_a_problem_stands_side_by_side_and_beside_the_kits_time(backends: Any) -> None:
    page = backends.page([row("cuda", us=10.0), row("cute"), row("cute", ranks=8, verdict="wrong", us=None)])
    assert "| CuTe DSL | 70 | 3.0 | 0.90 | 20.0 | wrong | " in page
    assert "| 01_allreduce | 4 | paper | CuTe DSL | correct | 20.0 | 10.0 | 2.00 (1.90 to 2.10) |" in page
    assert "| 01_allreduce | 8 | paper | CuTe DSL | wrong: why | wrong | none | - |" in page


def test_what_is_of_an_earlier_text_or_kit_is_counted(backends: Any) -> None:
    kits, cute = (next(e for e in backends.candidates([name], [1]) if e.backend == name) for name in ("cuda", "cute"))
    present = [row(each.backend) | {"candidate": {"sha256": read(each.path).sha256}} for each in (kits, cute)]
    assert "Taken on 2026-01-02; 1 of an earlier text" in backends.page(present), (
        "a kit that is not named is another one"
    )
    present[0]["environment"] = {"kit": backends.fingerprint()}
    assert "0 of an earlier text" in backends.page(present)


def test_all_that_the_kit_compiles_are_of_another_text_with_another_kit(backends: Any) -> None:
    compiled = {
        each.backend
        for each in backends.candidates([*backends.BACKENDS], [])
        if "kit.compile(" in each.path.read_text()
    }
    assert compiled == set(backends.WITH_KIT)


def test_the_page_says_what_the_record_says(backends: Any) -> None:
    """`python benchmarks/backends.py --seconds 0 --out docs/records/backends.jsonl --page docs/backends.md` makes it anew."""
    _, _, tables = (ROOT / "docs" / "backends.md").read_text().partition(backends.MARK)
    assert tables.strip() == backends.page(backends.read_rows(ROOT / "docs" / "records" / "backends.jsonl")).strip()


def test_what_a_machine_lacks_does_not_hide_what_another_has_shown(backends: Any) -> None:
    page = backends.page([row("cute"), row("cute", verdict="unsupported", us=None)])
    assert "| correct | 20.0 |" in page
    assert "unsupported" not in page


def test_lines_that_are_no_code_are_not_counted(backends: Any) -> None:
    text = '"""Says\nmuch."""\n\n# a comment\nS = r"""\n// in CUDA\nint f();\n"""\n\n\ndef g():\n    """Too."""\n    return S\n'
    assert backends.lines_of_code(text) == 5


def test_files_are_told_apart_by_the_end_of_their_names(backends: Any) -> None:
    assert backends.backend_of("01_allreduce_nvshmem_triton") == "nvshmem_triton"
    assert backends.backend_of("01_allreduce_nvshmem") == "nvshmem"
    found = backends.candidates([*backends.BACKENDS], [1, 2, 3])
    assert {(each.problem, each.backend) for each in found} >= {
        (1, "cuda"),
        (1, "triton"),
        (1, "cute"),
        (2, "cute"),
        (2, "cuda"),
    }
    assert 3 not in {each.problem for each in found}, (
        "a problem that only the kit has solved says nothing about backends"
    )


def test_the_page_is_written_below_its_mark(backends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, page = tmp_path / "b.jsonl", tmp_path / "p.md"
    record.write_text(json.dumps(row("cute")) + "\n" + '{"platform": "vir')  # cut off while it was written
    page.write_text(f"Text.\n\n{backends.MARK}\n\nold\n")
    monkeypatch.setattr(sys, "argv", ["backends.py", "--out", str(record), "--page", str(page), "--seconds", "0"])
    assert backends.main() == 0
    assert page.read_text().startswith(f"Text.\n\n{backends.MARK}\n\n## On `virtual`: a GPU\n")
    assert "old" not in page.read_text()
    assert backends.MARK in (ROOT / "docs" / "backends.md").read_text()


def test_a_case_is_judged_if_it_will_end_in_time(
    backends: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "b.jsonl"
    took = {"cuda": 9.0, "triton": 99.0}
    rows = (row(backend) | {"stage_seconds": {"start": seconds}} for backend, seconds in took.items())
    record.write_text("".join(json.dumps(one) + "\n" for one in rows))
    begun = []

    def evaluate(job: Any) -> Any:
        begun.append(job.candidate.name)
        raise backends.UserError("no GPU", "")

    monkeypatch.setattr(backends, "evaluate", evaluate)
    monkeypatch.setattr(backends, "built", lambda chosen, platform, workers: dict.fromkeys(chosen, 0.0))
    monkeypatch.setenv("PKB_CACHE", "")  # it is set
    asked = ["--platform", "cpu", "--ranks", "4", "--problems", "1", "--backends", ",".join(took), "--seconds", "60"]
    monkeypatch.setattr(sys, "argv", ["backends.py", "--out", str(record), *asked])
    backends.main()
    assert begun == ["01_allreduce_cuda.py"]
    assert "would not end within 60 s" in capsys.readouterr().out


@pytest.mark.parametrize("backend", ["nccl-device", "nvshmem", "cute"])
def test_examples_of_prompts_have_been_called_correct_as_they_are(backend: str) -> None:
    """By the record: on a GPU, in this very text."""
    rows = [json.loads(line) for line in (ROOT / "docs" / "records" / "backends.jsonl").read_text().splitlines()]
    correct = {
        row["candidate"]["sha256"] for row in rows if row["verdict"] == "correct" and row["platform"] == "virtual"
    }
    shown = prompt_examples.examples(backend)
    assert shown
    assert {read(each.path).sha256 for each in shown} <= correct
