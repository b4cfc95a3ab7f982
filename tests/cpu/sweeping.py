"""What tests of sweeps share: cheap candidates with known verdicts, and an account of what is left running."""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence, Set
from itertools import cycle, islice
from pathlib import Path

import psutil

from pkb.cluster.planning import plan_candidates
from pkb.store import Run, Store, Task
from pkb.types.case import Case

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = {"allreduce": 1, "allgather": 2, "broadcast": 3, "reduce": 4, "scatter": 5, "gather": 6, "alltoall": 8}
REAL = (ROOT / "src" / "pkb" / "cli" / "demo_candidates" / "1_allreduce_symmetric.py").read_text()
LIKE = Case("", "cpu", 2, "tiny", "bf16", "quick")
# None of these starts a rank, so each verdict takes a fraction of a second.
CHEAP = {
    "compile_error": "def solution(:\n",
    "load_error": "answer = 42\n",
    "rejected": "import pkb.judge\n\ndef solution(tensor):\n    return tensor\n",
}
PR_SET_CHILD_SUBREAPER = 36


def write_candidates(folder: Path, *, cheap: int, real_at: Sequence[int] = ()) -> dict[str, str]:
    """Candidate files, real ones at these places; the verdict that each must get, by collection."""
    folder.mkdir(parents=True)
    texts = list(islice(cycle(CHEAP.items()), cheap))
    for place in real_at:
        texts.insert(place, ("correct", REAL))
    expected = {}
    for n, (verdict, text) in enumerate(texts):
        name = f"{n:02d}/1_allreduce_torch.py"  # a folder each, so a collection each
        (folder / name).parent.mkdir()
        (folder / name).write_text(f"# number {n}\n{text}")
        expected[f"{n:02d}"] = verdict
    return expected


def store_run(store: Store, folder: Path, **changes: object) -> Run:
    plan = plan_candidates([folder], problems=PROBLEMS, like=LIKE)
    return store.create_run("sweep", config={"settings": dict(changes)}, tasks=plan.tasks, candidates=plan.candidates)


def verdicts(store: Store, run: Run) -> dict[str, list[str]]:
    """By collection: every verdict that is there."""
    found: dict[str, list[str]] = {}
    for row in store.evaluations([run.id]):
        found.setdefault(row.collection, []).append(row.verdict)
    return found


class Silent:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.done: list[str] = []
        self.losses: list[tuple[str, bool]] = []

    def stage(self, task: Task, text: str) -> None:
        self.stages.append(text)

    def judged(self, task: Task, verdict: str, detail: str) -> None:
        self.done.append(verdict)

    def failed(self, task: Task, why: str, *, again: bool) -> None:
        self.losses.append((why, again))


def pkb(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "pkb.cli.main", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


@contextlib.contextmanager
def adopt_orphans() -> Iterator[None]:
    """Processes whose parent dies become ours, so that none can hide."""
    mine = {child.pid for child in psutil.Process().children()}
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for child in psutil.Process().children():
            if child.pid not in mine:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)


def running_below_us(but: Set[int] = frozenset()) -> list[str]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.pid not in but and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
        except psutil.NoSuchProcess:
            continue
    return found
