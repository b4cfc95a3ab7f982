"""Runs honest files on the race detector: examples that models are shown, and the honest candidates of tests/adversaries.

    python tests/races/honest.py --world 2 --world 3                # all of them
    python tests/races/honest.py --world 4 tests/adversaries/honest/broadcast.py

In a process of its own: Triton must be told before it is imported that it is interpreted.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch
import torch.distributed as dist
from race_world import run

from pkb.problems import get
from pkb.problems.base import DTYPES
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.emulate.cuda import wanted
from pkb.rank.emulate.races.recording import recorded_calls
from pkb.rank.emulate.triton_interpreter import mend_bfloat16

ROOT = Path(__file__).parents[2]
CALLS = 3
NOT_HERE = {
    "all_reduce_cpp.py": "what C++ on the host does to memory is not recorded",
    "cpp_built_at_run_time.py": "as above",
    "cpp_with_options.py": "as above",
    "all_reduce_slow.py": "slow on purpose",
    "all_reduce_cuda_flags.py": "needs the build's cache of options",
}


def files() -> list[Path]:
    examples = ROOT / "src" / "pkb" / "generate" / "examples"
    return [*sorted(examples.glob("*/*.py")), *sorted((ROOT / "tests" / "adversaries" / "honest").glob("*.py"))]


def problem_of(path: Path, text: str) -> str:
    found = re.search(r"^# problem: (\S+)", text, re.M)
    return found[1] if found else str(int(path.name[:2]))


def dtype_of(text: str) -> str:
    found = re.search(r"^# dtype: (\S+)", text, re.M)
    return found[1] if found else "bf16"


def judge(path: Path, world: int) -> dict[str, object]:
    text = path.read_text()
    problem = get(problem_of(path, text))

    def program(rank: int) -> bytes:
        sys.path.insert(0, str(ROOT / "src" / "pkb" / "kit" / "upstream"))
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        solution = recorded_calls(module.solution)
        for call in range(CALLS):
            draw = Draw(
                b"0" * 16,
                call,
                rank,
                world,
                problem.sizes["tiny"],
                DTYPES[dtype_of(text)],
                torch.device("cpu"),
                problem.layout,
            )
            values = [dist.group.WORLD if isinstance(v, GroupRef) else v for v in problem.inputs(draw).values()]
            solution(*values)
        return b""

    ran = run(program, world=world, cuda=text if wanted.wanted(text) else "")
    report = ran.report
    return {
        "file": str(path.relative_to(ROOT)), "world": world, "events": report["events"], "trouble": ran.trouble[-600:],
        "broken": report["broken"] or report["truncated"], "findings": report["findings"][:3],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--world", type=int, action="append")
    options = parser.parse_args()
    mend_bfloat16()
    for path in [given.resolve() for given in options.files] or files():
        for world in options.world or [3]:
            if path.name not in NOT_HERE:
                print(json.dumps(judge(path, world)), flush=True)


if __name__ == "__main__":
    main()
