"""`make node`: everything that a machine with GPUs can say about this project, in one command and one archive of records.

    python tools/validate_node.py                                       # under an hour on eight GPUs
    python tools/validate_node.py --only probe,control,kernels,references --budget 4
    pkb records show out/node/NAME.tar.gz

Steps run one after another, each within its share of the budget. What one has found is kept whatever happens to the next,
and an interrupted run goes on where it was when it is started again. docs/contribute-a-machine.md says what to do then.
Where `pkb doctor --node` finds that several GPUs do not work together, it ends at once and says why: every later step would
wait for the same ranks. `--only` names steps that are to run all the same.
"""

import os
import signal

INTERRUPTED, NOT_USABLE = 130, 2
"""The exit status of a program that Ctrl-C has ended, and of this one where the machine cannot do what is asked for."""


def _end_at_once(number: int, frame: object) -> None:
    """No exception: one that is raised in the middle of an import may be lost there, or print a page."""
    os.write(2, b"interrupted before the first step: nothing was begun\n")
    os._exit(INTERRUPTED)


# The imports below take seconds. Who starts this with Ctrl-C ignored, as nohup does, keeps it so.
if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_at_once)

# ruff: noqa: E402
import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pkb
from pkb.analysis.machine_archive import files_of, judge_sha256
from pkb.platforms.base import PlatformFacts
from pkb.platforms.registry import traits
from pkb.types.errors import UserError
from pkb.types.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import frontier_kernels
import node_records
from node_platform import settled, usual_ranks

BUDGET_MINUTES = 58.0
QUICK_ROUNDS = 1
"""Of the control: the judge takes up to six times as many where the noise is large, as it is on a CPU."""
LEAST_S = 45.0
"""What a step gets as long as there is any: less is no use to it."""
GRACE_S = 20.0
"""What a step gets to end by itself after an interrupt."""
PYTHON, PKB = sys.executable, (sys.executable, "-m", "pkb.cli.main")
Command = Sequence[str | Path]


@dataclass
class Kit:
    """What the steps need to know."""

    facts: PlatformFacts
    ranks: int
    quick: bool
    work: Path
    limit_s: float = 0.0
    """Of the present step."""

    @property
    def platform(self) -> str:
        return self.facts.name

    @property
    def on_gpu(self) -> bool:
        return traits(self.platform).device == "cuda"

    @property
    def solutions(self) -> list[Path]:
        if self.on_gpu:
            return sorted((ROOT / "solutions").glob("*_cuda.py"))
        return [ROOT / "tests" / "adversaries" / "honest" / "all_reduce_symmetric.py"]  # ours need a GPU

    def verdicts(self, name: str, files: Sequence[Path], *, sizes: str, plan: str = "standard") -> Command:
        """Judged files; the verdicts so far are kept beside `name`, and are not judged again."""
        if not self.on_gpu:
            sizes = "tiny"
        return [
            PYTHON, ROOT / "benchmarks" / "verdict_table.py", *files, "--platform", self.platform, "--ranks",
            str(self.ranks), "--size", sizes, "--plan", plan, "--no-second-world", "--limit", f"{self.limit_s * 0.8:.0f}",
            "--out", self.work / f"{name}.md",
        ]  # fmt: skip


Make = Callable[[Kit], Iterator[Command]]


def doctor(kit: Kit) -> Iterator[Command]:
    asked = subprocess.run([*PKB, "doctor", "--help"], capture_output=True, text=True, check=False).stdout
    node = ["--node"] if not kit.facts.shares_device and "--node" in asked else []
    yield [*PKB, "doctor", "--json", *node]


def probe(kit: Kit) -> Iterator[Command]:
    quick = ["--quick"] if kit.quick or kit.limit_s < 100 else []
    yield [*PKB, "probe", "--platform", kit.platform, "--ranks", str(max(2, kit.ranks)), *quick,
           "--json", kit.work / "probe.json", "--out", kit.work / "hardware.toml"]  # fmt: skip


def control(kit: Kit) -> Iterator[Command]:
    """A/A: the reference's own text as a candidate. Off by chance once in twenty, so it is repeated where it is off."""
    adversaries = ROOT / "tests" / "adversaries"
    file = adversaries / ("gpu/library_nccl.py" if kit.on_gpu else "honest/all_reduce_library.py")
    rounds = ["--rounds", str(QUICK_ROUNDS)] if kit.quick else []
    for attempt in (1, 2, 3):
        yield [*kit.verdicts(f"control-{attempt}", [file], sizes="paper,real"), "--against", "reference", *rounds]
        if not node_records.controls_off(kit.work):
            return


def tests(kit: Kit) -> Iterator[Command]:
    """The GPU tests, without those of our kernels: a step of their own judges them."""
    yield pytest_command("--gpu", "tests/gpu", "--ignore", "tests/gpu/test_solutions_gpu.py")


def adversaries(kit: Kit) -> Iterator[Command]:
    chosen = "gpu/" if kit.on_gpu else "honest/broadcast or mistakes/hard_coded_root" if kit.quick else ""
    yield pytest_command(*(["--gpu"] if kit.on_gpu else []), "tests/adversaries/test_adversaries.py", "-k", chosen)


def pytest_command(*arguments: str) -> Command:
    return [PYTHON, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short", *arguments]


def build(kit: Kit) -> Iterator[Command]:
    """Several compilers at once, so that no timed step waits for one. What does not compile gets its verdict later."""
    files = frontier_kernels.write(kit.work / "frontier")
    listed = kit.work / "files-to-build"
    listed.write_text("".join(f"{path}\n" for path in [*files, *kit.solutions]))
    jobs = max(1, len(os.sched_getaffinity(0)) // 2)
    yield ["xargs", "-a", listed, "-d", "\n", "-n", "1", "-P", str(jobs), *PKB, "check"]


def kernels(kit: Kit) -> Iterator[Command]:
    yield kit.verdicts("kernels", kit.solutions, sizes="paper,real", plan="standard" if kit.on_gpu else "quick")


def kernels_nvls_off(kit: Kit) -> Iterator[Command]:
    """Those that have an NVLS variant; without multicast they have run without it already."""
    files = [path for path in kit.solutions if re.search("multicast|nvls", path.read_text(), re.IGNORECASE)]
    yield kit.verdicts("kernels-nvls-off", files, sizes="paper,real")


def references(kit: Kit) -> Iterator[Command]:
    sizes = ["paper", "real", "odd", "tiny"] if kit.on_gpu else ["tiny"]
    yield [PYTHON, ROOT / "benchmarks" / "references.py", "--platform", kit.platform, "--out", kit.work,
           "--functions", "reference", "--ids", "1-3" if kit.quick else "all",
           "--cases", ",".join(f"{size}:{kit.ranks}" for size in sizes)]  # fmt: skip


def frontier(kit: Kit) -> Iterator[Command]:
    yield kit.verdicts("frontier", frontier_kernels.write(kit.work / "frontier"), sizes="paper")


@dataclass(frozen=True)
class Step:
    name: str
    minutes: float
    """Its share of the budget; what a step leaves goes to the later ones."""
    commands: Make
    environment: dict[str, str] = field(default_factory=dict)
    needs: str = ""
    """A capability of the platform, without which there is nothing to do."""


STEPS = (
    Step("doctor", 5, doctor),
    Step("probe", 4, probe),
    Step("control", 2, control),
    Step("tests", 6, tests, needs="cuda"),
    Step("adversaries", 8, adversaries),
    Step("build", 6, build, needs="cuda"),
    Step("kernels", 10, kernels, {"PKB_NVLS": "1"}),
    Step("kernels-nvls-off", 5, kernels_nvls_off, {"PKB_NVLS": "0"}, needs="multicast"),
    Step("references", 6, references),
    Step("frontier", 6, frontier, needs="cuda"),
)


# -- running -----------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, minutes: float) -> None:
        self._started, self._budget_s = time.monotonic(), 60 * minutes

    @property
    def left_s(self) -> float:
        return self._budget_s - (time.monotonic() - self._started)

    def say(self, text: str) -> None:
        left = max(0.0, self.left_s)
        print(f"[{left // 60:2.0f}:{left % 60:02.0f} left] {text}", file=sys.stderr, flush=True)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: a process must not be started and then be forgotten."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(came[0], None)


def run_step(step: Step, kit: Kit, clock: Clock) -> node_records.StepRecord:
    began, last, status = time.monotonic(), "", None
    with (kit.work / f"{step.name}.log").open("a", encoding="utf-8") as log:
        for command in step.commands(kit):
            left = kit.limit_s - (time.monotonic() - began)
            status, last = run_command(command, step, kit, clock, log.write, limit_s=left)
            if status is None or status > 1:
                break
    seconds = time.monotonic() - began
    if status is None:
        return node_records.StepRecord(step.name, "stopped", seconds, f"after its limit of {kit.limit_s:.0f} s: {last}")
    # Of the programs here, 1 says that something was not as expected, which the records show; more, that they broke.
    broke = status not in (0, 1) and step.name != "build"
    return node_records.StepRecord(step.name, "failed" if broke else "done", seconds, last)


def run_command(
    command: Command, step: Step, kit: Kit, clock: Clock, log: Callable[[str], object], *, limit_s: float
) -> tuple[int | None, str]:
    """Its exit status, None if it was stopped at its limit, and the last line it said."""
    environment = os.environ | step.environment | {"PYTHONUNBUFFERED": "1", "PKB_TEST_PLATFORM": kit.platform}
    to_file = (kit.work / "doctor.json").open("w") if step.name == "doctor" else None
    process: subprocess.Popen[str] | None = None
    stopped = threading.Event()

    def end() -> None:
        stopped.set()
        if process is not None:
            stop(process)

    timer = threading.Timer(max(1.0, limit_s), end)
    last = "it said nothing"
    try:
        with interrupts_held():
            process = subprocess.Popen(
                [str(part) for part in command], cwd=ROOT, env=environment, start_new_session=True, text=True,
                errors="replace", stdout=to_file or subprocess.PIPE, stderr=subprocess.PIPE if to_file else subprocess.STDOUT,
                preexec_fn=partial(die_with_parent, os.getpid()),  # else it would hold the GPUs until it says something
            )  # fmt: skip
        timer.start()
        for line in (process.stdout or process.stderr) or ():
            log(line)
            if line.startswith("stopped after "):  # a program that keeps to its limit by itself, with work left
                stopped.set()
            if line.strip():
                last = line.strip()
                clock.say(f"{step.name}: {last[:150]}")
        status = process.wait()
    except BaseException:
        if process is not None:
            stop(process)
        raise
    finally:
        timer.cancel()
        if to_file is not None:
            to_file.close()
    # The archive leaves this machine: its folders are nobody's business.
    return (None if stopped.is_set() else status), last.replace(f"{kit.work}/", "").replace(f"{ROOT}/", "")


def stop(process: "subprocess.Popen[str]") -> None:
    """As Ctrl-C does, so that it ends its ranks; then for good."""
    for sent, patience in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, sent)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return


def run_all(kit: Kit, clock: Clock, chosen: Sequence[Step]) -> int:
    """Steps that are done already are not done again. The exit status."""
    state = node_records.read_state(kit.work)
    for step in chosen:
        if step.needs and step.needs not in kit.facts.capabilities:
            state[step.name] = node_records.StepRecord(step.name, "skipped", 0.0, f"no {step.needs} on {kit.platform}")
    node_records.write_state(kit.work, state)
    todo = [step for step in chosen if step.name not in state or state[step.name].outcome in ("stopped", "failed")]
    running: Step | None = None
    began = time.monotonic()
    try:
        for number, step in enumerate(todo):
            share = clock.left_s * step.minutes / sum(later.minutes for later in todo[number:])
            kit.limit_s = min(max(share, LEAST_S), clock.left_s)
            if kit.limit_s < 1:
                clock.say(f"the budget is used up before {step.name}")
                return 0
            running, began = step, time.monotonic()
            clock.say(f"step {number + 1} of {len(todo)}: {step.name}, at most {kit.limit_s:.0f} s")
            node_records.cut_partial_lines(kit.work)
            found = run_step(step, kit, clock)
            state[step.name], running = found, None
            node_records.write_state(kit.work, state)
            clock.say(f"{step.name}: {found.outcome}, {found.seconds:.0f} s")
            if step.name == "doctor" and found.outcome != "done" and not kit.facts.shares_device:
                why = node_records.lacking(kit.work) or ["`pkb doctor --node` did not come to its end"]
                for words in [*why, "so nothing else is begun: mend that, and start this again"]:
                    clock.say(words)
                return NOT_USABLE
    except KeyboardInterrupt:
        if running is not None:
            seconds = time.monotonic() - began
            state[running.name] = node_records.StepRecord(running.name, "stopped", seconds, "interrupted")
        node_records.write_state(kit.work, state)
        clock.say("interrupted: what there is goes into the archive, and the same command goes on from here")
        return INTERRUPTED
    return 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--platform", default="auto")
    options.add_argument("--ranks", type=int, help="default: 8, 4 or 2 on a node; 4 that share a GPU; 2 on a CPU")
    options.add_argument("--only", default=",".join(step.name for step in STEPS), metavar="STEPS")
    options.add_argument("--budget", type=float, default=BUDGET_MINUTES, metavar="MINUTES")
    options.add_argument("--quick", action="store_true", help="little of everything, to try the kit itself")
    options.add_argument("--name", help="of this machine in tables: small letters, digits and hyphens")
    options.add_argument("--out", type=Path, default=ROOT / "out" / "node")
    args = options.parse_args()
    unknown = set(args.only.split(",")) - {step.name for step in STEPS}
    if unknown:
        options.error(f"no step is called {', '.join(sorted(unknown))}")
    facts = settled(args.platform)
    if args.ranks is not None and not 1 <= args.ranks <= facts.max_ranks:
        options.error(f"--ranks {args.ranks}: platform {facts.name} has 1 to {facts.max_ranks} here")
    judge = judge_sha256(files_of(Path(pkb.__file__).parent))
    name = args.name or node_records.machine_name(facts)
    ranks = args.ranks or usual_ranks(facts)
    # A judge of its own: records of two judges are never mixed.
    label = f"{name}-{judge[:12]}" + ("-quick" if args.quick else "")
    kit = Kit(facts, ranks, args.quick, args.out / label)
    kit.work.mkdir(parents=True, exist_ok=True)
    clock = Clock(args.budget)
    clock.say(f"{facts.hardware}, platform {facts.name}, {ranks} ranks; records in {kit.work}")
    status = run_all(kit, clock, [step for step in STEPS if step.name in args.only.split(",")])
    archive = args.out / f"{label}.tar.gz"
    node_records.pack(archive, kit.work, facts=facts, ranks=ranks, machine=name, judge=judge)
    print(json.dumps({"archive": str(archive), "steps": node_records.summary(kit.work)}, indent=2))
    return status


if __name__ == "__main__":
    try:
        if signal.getsignal(signal.SIGINT) is _end_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in (signal.SIGTERM, signal.SIGHUP):  # the latter comes when a connection is lost
            if signal.getsignal(end) is signal.SIG_DFL:
                signal.signal(end, signal.default_int_handler)
        sys.exit(main())
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(NOT_USABLE)
    except KeyboardInterrupt:  # before the first step, or once more while the archive is written
        print("interrupted: the same command goes on with what is left, and writes the archive", file=sys.stderr)
        sys.exit(INTERRUPTED)
