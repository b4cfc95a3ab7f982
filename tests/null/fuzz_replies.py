"""The judge's side of a fuzz run, in a process of its own: `python fuzz_replies.py SEED COUNT` prints what came of it as JSON.

Each case runs one stage of the judge as it is (`Exchange`, `Crew.collect`, conduct, times, profile) against fake ranks, one of
whose replies is spoilt. It may go well, or end in a `CrewFailure` or `Decided`; anything else is a traceback that a candidate
could cause.
"""

import collections
import contextlib
import json
import os
import random
import re
import shutil
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import fake_ranks
from fake_ranks import RANKS, Spoil

from pkb.candidates.source import read
from pkb.candidates.source_lines import SourceLines
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind, CrewSpec
from pkb.judge.crew.limits import Limits
from pkb.judge.decision import Decided, from_failure
from pkb.judge.exchange import Exchange
from pkb.judge.profile.calls import profile_calls
from pkb.judge.profile.roles import Expected
from pkb.judge.stages.correctness import check_calls
from pkb.judge.stages.race_proof import Recorder
from pkb.judge.timing.rounds import timed_batch
from pkb.judge.timing.sides import Workload
from pkb.judge.timing.statistics import Claim, mean
from pkb.judge.timing.verify import verify_timed
from pkb.platforms.cpu import CpuPlatform
from pkb.types.protocol.commands import (
    CheckExact,
    DrawSpec,
    Effort,
    Lint,
    Load,
    LookForCompany,
    MeasureMemory,
    Open,
    ProbeMatrix,
    ProbeOpen,
    Schedule,
)
from pkb.types.protocol.settings import CandidateOptions, OracleOptions
from pkb.types.verdict import Stage, Verdict

SPEC = DrawSpec("1", "tiny", "bf16")
LIMIT_S = 20.0
WEIGHTS = {"BatchReport": 12, "OutputReply": 4, "RecordingReply": 4, "Comparison": 2}
"""How often replies of these kinds are spoilt beside the others: what is computed with most deserves most."""


class FakeCrew(Crew):
    """A crew whose ranks' ends are handed to the fake ranks instead of a warden."""

    ends: list[int]

    def _start_warden(self, settings: int, output: int) -> None:
        self.ends = [os.dup(fd) for fd in self._settings.channels]

    def kill(self) -> None:
        self._drain()
        self._close_ends()
        shutil.rmtree(self._folder, ignore_errors=True)


def say_nothing(text: str) -> None: ...


def correctness(exchange: Exchange) -> None:
    check_calls(exchange, SPEC, trials=1, words="", progress=say_nothing, observe=True)


def queued(exchange: Exchange) -> None:
    slots = exchange.deliver(SPEC, 2)
    late = Schedule(slots, late_host_us=(0.0, 5.0), overwrite=True)
    exchange.run_candidate(Schedule(slots, overwrite=True), late={1: late})
    exchange.wake(exchange.oracle)
    exchange.wake(exchange.candidate)
    exchange.check(slots, words="queued")


def timed(exchange: Exchange) -> None:
    work = Workload(exchange, SPEC, 3, 0.5, random.Random(1))
    slots = work.deliver()
    schedule = Schedule(slots, aligned=True, digests=True, cover_us=50.0)
    reports, times = timed_batch(partial(exchange.run_candidate, schedule), judged=True)
    verify_timed(work, slots, reports)
    Claim(mean([times.calls_us]), mean([times.host_us]), [])


def profiled(exchange: Exchange) -> None:
    profile_calls(exchange, SPEC, expected=Expected({"push": ("tma",)}), progress=say_nothing)


def oracle_only(exchange: Exchange) -> None:
    exchange.oracle.ask(MeasureMemory(reset=True), timeout_s=LIMIT_S)
    exchange.oracle.ask(LookForCompany(), timeout_s=LIMIT_S)
    exchange.oracle.ask(Lint(SPEC), timeout_s=LIMIT_S)
    exchange.oracle.ask(CheckExact(SPEC, 0), timeout_s=LIMIT_S)
    exchange.check_baseline(SPEC, exchange.new_slots(2))
    exchange.oracle.ask(ProbeOpen(Effort(1, 1.0, 1), 1024, ("fp32",)), timeout_s=LIMIT_S)
    exchange.oracle.ask(ProbeMatrix("fp32", (64,), "alone"), timeout_s=LIMIT_S)


def recorded(exchange: Exchange) -> None:
    """The analyser is another process, whose report is spoilt elsewhere (`test_races.py`)."""
    no_source = read(Path(__file__))
    nothing = json.dumps(
        {"events": 1, "threads": 1, "truncated": False, "broken": False, "findings": [], "timeline": []}
    )
    recorder = Recorder(exchange, SPEC, SourceLines(no_source), lambda trace: nothing.encode(), say_nothing)
    proof = recorder.prove(1).proof
    assert proof.why_not or proof.traces == 1


def started(exchange: Exchange) -> None:
    exchange.open(Open.of("world", {"world": [[0, 1]]}, mutates=("x",)))
    exchange.candidate.ask(Load("/candidate.py"), timeout_s=LIMIT_S)
    exchange.drop()


STAGES: dict[str, Callable[[Exchange], None]] = {
    stage.__name__: stage for stage in (started, correctness, queued, recorded, timed, profiled, oracle_only)
}


def run_case(control: socket.socket, stage: str, spoil: Spoil) -> tuple[str, dict[str, object]]:
    """How it ended, and what the fake ranks have to say about it."""
    oracle = FakeCrew(CrewSpec(OracleOptions("00"), RANKS), CpuPlatform(), Limits(1 << 62))
    candidate = FakeCrew(CrewSpec(CandidateOptions((), (), 1, 60.0), RANKS), CpuPlatform(), Limits(1 << 62))
    try:
        for crew in (oracle, candidate):
            crew.launch()
        ends = [*oracle.ends, *candidate.ends]
        socket.send_fds(control, [json.dumps(asdict(spoil)).encode()], ends)
        for fd in ends:
            os.close(fd)
        ended = verdict_of(partial(whole, oracle, candidate, STAGES[stage]))
    finally:
        oracle.kill()
        candidate.kill()
    return ended, json.loads(control.recv(4096))


def whole(oracle: Crew, candidate: Crew, stage: Callable[[Exchange], None]) -> None:
    for crew in (oracle, candidate):
        crew.await_ready(timeout_s=LIMIT_S)
    stage(Exchange(oracle, candidate, limit_s=LIMIT_S))


def verdict_of(run: Callable[[], None]) -> str:
    try:
        run()
    except Decided as decided:
        return _told(decided)
    except CrewFailure as failure:
        if failure.kind is CrewFailureKind.TIMEOUT:
            raise  # every fake rank answers, so the judge has missed it
        if failure.role == "oracle":
            return _told(Decided(Verdict.HARNESS_ERROR, Stage.START, str(failure)))
        return _told(from_failure(failure, Stage.CORRECTNESS, CpuPlatform().facts()))
    return "no verdict"


def _told(decided: Decided) -> str:
    """A verdict that can be written down."""
    json.dumps([decided.detail, str(decided), repr(decided.evidence)]).encode()
    decided.detail.encode()
    return decided.verdict.value


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def main(seed: int, count: int) -> None:
    pid, control = fake_ranks.start()
    dice = random.Random(seed)
    untouched = {name: run_case(control, name, Spoil("nobody", 0, 0, seed)) for name in STAGES}
    said = {name: dict(seen["said"]) for name, (_, seen) in untouched.items()}  # type: ignore[call-overload]
    endings: collections.Counter[str] = collections.Counter()
    spoilt: collections.Counter[str] = collections.Counter()
    broken: list[str] = []
    before, peak_before = len(os.listdir("/proc/self/fd")), peak_bytes()  # noqa: PTH208
    for number in range(count):
        stage = dice.choice([*STAGES, "timed", "timed", "profiled", "oracle_only"])
        side = "oracle" if stage == "oracle_only" or dice.random() < 0.3 else "candidate"
        weights = [WEIGHTS.get(kind, 1) for kind in said[stage][side]]
        spoil = Spoil(side, 1, dice.choices(range(len(weights)), weights)[0], dice.getrandbits(32))
        try:
            ended, seen = run_case(control, stage, spoil)
        except Exception:
            broken.append(f"{stage}, {spoil}: {traceback.format_exc()[-1500:]}")
            break  # what is left in the control channel belongs to this case
        endings[ended] += 1
        spoilt[str(seen["spoilt"])] += 1
        if seen["complaint"]:
            broken.append(f"{number}: {stage}, {spoil}: {seen['complaint']}")
    control.close()
    with contextlib.suppress(ChildProcessError):
        _, status = os.waitpid(pid, 0)
    print(
        json.dumps(
            {
                "untouched": {name: ended for name, (ended, _) in untouched.items()},
                "endings": endings,
                "spoilt": spoilt,
                "broken": broken,
                "peak_bytes_before": peak_before,
                "peak_bytes": peak_bytes(),
                "descriptors_left": len(os.listdir("/proc/self/fd")) - before + 1,  # noqa: PTH208
                "fake_ranks_status": status,
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
