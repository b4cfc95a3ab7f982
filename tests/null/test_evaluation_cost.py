"""The launches that an evaluation is compared with: one rank that fails ends them all, and soon."""

import subprocess
import sys
import time
from collections.abc import Callable

from program_files import program

cost = program("benchmarks/evaluation_cost.py")


def python(text: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", text])


def test_all_that_end_well_are_waited_for() -> None:
    assert (
        cost.first_bad([python("pass"), python("import time; time.sleep(0.3)")], give_up=time.monotonic() + 60) is None
    )


def told(give_up_s: float, *texts: str) -> tuple[int | None, Callable[[], bool]]:
    processes = [python(text) for text in texts]
    bad = cost.first_bad(processes, give_up=time.monotonic() + give_up_s)
    return bad, lambda: all(process.poll() is not None for process in processes)


def test_nobody_waits_for_peers_of_one_that_failed() -> None:
    began = time.monotonic()
    bad, ended = told(100.0, "import time; time.sleep(100)", "raise SystemExit(3)")
    assert (bad, ended()) == (1, True)
    assert time.monotonic() - began < 50


def test_one_that_hangs_is_given_up() -> None:
    bad, ended = told(3.0, "pass", "import time; time.sleep(100)")
    assert (bad, ended()) == (1, True)
