"""`node` on machines that do not exist: what is noted of their GPUs, who is blamed, and that nothing hides on a peer's GPU."""

import ctypes
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from fake_nvml import FakeGpu, box, install
from typer.testing import CliRunner
from verdict_examples import example

from pkb.cli import doctor_node
from pkb.cli.machine_facts import Fact
from pkb.cli.main import app
from pkb.judge import worlds
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.crew.sides import candidate_crew, oracle_crew
from pkb.judge.decision import Decided
from pkb.judge.worlds import World
from pkb.platforms import short_folder
from pkb.platforms.conditions import conditions
from pkb.platforms.cpu import CpuPlatform
from pkb.platforms.cuda import gpus
from pkb.platforms.node import MEMORY_SHARE, NodePlatform
from pkb.problems import get
from pkb.problems.registry import default_registry
from pkb.rank import devices
from pkb.rank.contexts import Contexts, wait_asleep
from pkb.rank.devices import CudaDevice
from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.failure import Cause
from pkb.types.job import Job
from pkb.types.protocol.replies import ErrorReport
from pkb.types.verdict import FailureKind, RankState, Stage, Standing, Verdict

GIB = 1 << 30


def test_what_is_noted_of_a_quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(4))
    noted = conditions(gpus())
    assert noted["driver"] == "580.95"
    assert noted["NVLink"] == "18 links to a switch"
    assert noted["peer access"] == "all pairs"
    assert noted["power limit"] == "700 W"
    assert noted["clocks"] == "unknown", "a call that this NVML lacks is no reason to fail"
    assert [noted[name] for name in ("throttling", "other processes on the GPU", "compute mode")] == [
        "none", "none", "default",
    ]  # fmt: skip


def test_what_is_noted_of_one_where_much_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = box(3, links=0, to_switch=False)
    cards[0].unreachable = (cards[2].uuid,)
    cards[1].throttling, cards[1].power_w = 0x1 | 0x4 | 0x40, 350
    cards[2].processes = {4711: 3 * GIB, 4712: GIB}
    install(monkeypatch, cards)
    noted = conditions(gpus())
    assert noted["peer access"] == "not between GPU 0 and GPU 2 (not supported)"
    assert noted["throttling"] == "GPU 0: none; GPU 1: power cap, heat (hardware); GPU 2: none"
    assert noted["power limit"] == "GPU 0: 700 W; GPU 1: 350 W, by default 700 W; GPU 2: 700 W"
    assert noted["other processes on the GPU"].endswith("GPU 2: 2 with 4.00 GiB")
    assert noted["NVLink"] == "none"


def test_ranks_stay_on_the_cores_near_their_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(40)) | {70})
    cards = box(3)
    cards[0].cores, cards[1].cores, cards[2].cores = (0, 1, 39), (2, 3, 70, 99), (100,)
    install(monkeypatch, cards)
    assert NodePlatform().cores(3) == [(0, 1, 39), (2, 3, 70), ()]


# -- who has taken the memory -------------------------------------------------------------------------------------------


class FakeCrew:
    """A candidate's side that still works."""

    warden_pid = 1

    def __init__(self, cards: list[FakeGpu], pids: set[int]) -> None:
        self._cards, self._pids = cards, pids

    def ask(self, command: object, *, timeout_s: float) -> dict[int, object]:
        return {}

    def kill(self) -> None:
        for card in self._cards:
            for pid in self._pids:
                card.processes.pop(pid, None)


def oracle_failure(kind: str, message: str) -> CrewFailure:
    report = ErrorReport(kind, message, "", None, Cause.CANDIDATE, 0)
    return CrewFailure(CrewFailureKind.RAISED, [0], message, role="oracle", error=report)


def blamed(cards: list[FakeGpu], pids: set[int], failure: CrewFailure, monkeypatch: pytest.MonkeyPatch) -> Exception:
    install(monkeypatch, cards)
    monkeypatch.setattr(worlds, "BETWEEN_READINGS_S", 0)
    job = Job(Path("x.py"), Case("1", "node", 2, "tiny", "bf16", "quick"))
    world = World(job, NodePlatform(), default_registry().get("1"), ranks=2, build=Path(), backend="torch")
    world._candidate = cast(Crew, FakeCrew(cards, pids))
    with pytest.raises((Decided, CrewFailure)) as raised, world.blame(Stage.CORRECTNESS):
        raise failure
    return raised.value


OUT_OF_MEMORY = oracle_failure("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_candidate_that_starves_the_oracle_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = box(2)
    cards[1].processes = {10: 50 * GIB, 11: 20 * GIB, 99: 5 * GIB}
    found = blamed(cards, {10, 11}, OUT_OF_MEMORY, monkeypatch)
    assert isinstance(found, Decided)
    assert found.verdict is Verdict.CRASH
    assert "70.0 GiB of the memory of rank 1's GPU" in found.detail
    assert found.evidence.failure is not None
    assert found.evidence.failure.kind is FailureKind.MEMORY_LIMIT


@pytest.mark.parametrize(
    ("held", "pids", "failure"),
    [
        ({10: 30 * GIB}, {10}, OUT_OF_MEMORY),
        ({99: 70 * GIB}, {10}, OUT_OF_MEMORY),
        ({10: 70 * GIB}, {10}, oracle_failure("ValueError", "a bug of ours")),
    ],
    ids=["within its share", "somebody else's", "another failure"],
)
def test_no_other_candidate_is(
    held: dict[int, int], pids: set[int], failure: CrewFailure, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = box(2)
    cards[0].processes = held
    assert blamed(cards, pids, failure, monkeypatch) is failure
    assert MEMORY_SHARE * 80 > 30


# -- nothing hides on a peer's GPU --------------------------------------------------------------------------------------


class FakeDriver:
    """`cuDevicePrimaryCtxGetState` of a process that has contexts on some devices."""

    def __init__(self, active: set[int], *, status: int = 0) -> None:
        self.active, self._status = active, status

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:
        ctypes.cast(active, ctypes.POINTER(ctypes.c_int))[0] = int(device in self.active)
        return self._status


@pytest.mark.parametrize(("status", "asked"), [(0, [(1, 4)]), (100, [])])
def test_hosts_are_asked_to_sleep_before_there_is_a_context(status: int, asked: list[tuple[int, int]]) -> None:
    calls: list[tuple[int, int]] = []
    driver = SimpleNamespace(
        cuInit=lambda flags: status, cuDevicePrimaryCtxSetFlags_v2=lambda *said: calls.append(said)
    )
    wait_asleep(driver, 1)
    wait_asleep(None, 1)
    assert calls == asked


@pytest.mark.parametrize("timed", [True, False])
def test_hosts_of_both_sides_sleep_only_if_nothing_is_timed(tmp_path: Path, timed: bool) -> None:
    """A candidate that could tell stages apart by it would be another one when it is timed."""
    job = Job(tmp_path / "candidate.py", Case("01_allreduce", "cpu", 2, "tiny", "bf16"), timing=timed)
    sides = (oracle_crew(job, CpuPlatform(), 2), candidate_crew(job, CpuPlatform(), 2, build=tmp_path, backend="torch"))
    assert [side.spec.timed for side in sides] == [timed, timed]


def test_every_device_with_a_context_is_found() -> None:
    driver = FakeDriver({0, 2})
    contexts = Contexts(driver, own=0, count=4)
    assert contexts.others() == [2]
    driver.active.add(3)
    assert contexts.others() == [2, 3], "asked anew: a candidate makes them when it likes"
    assert Contexts(FakeDriver(set(), status=3), own=1, count=3).others() == [0, 2], (
        "what cannot be asked is waited for"
    )
    assert Contexts(None, own=0, count=4).others() == []
    assert Contexts(driver, own=0, count=1).others() == []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> tuple[CudaDevice, list[str]]:
    """GPU 1 of four; GPU 3 is in use by this process too. What is asked of torch is noted."""
    said: list[str] = []

    def note(name: str, answer: Any = None) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            said.append(f"{name} {given[0] if given else 'of whatever is current'}")
            return answer

        return call

    made = object.__new__(CudaDevice)
    made.torch_device = torch.device("cuda", 1)
    made._contexts = Contexts(FakeDriver({0, 3}), own=1, count=4)
    made._events, made._used, made._handle, made._cycles_per_us = [cast(Any, "event")], 0, None, 1.0
    monkeypatch.setattr(devices, "_SYNCHRONIZE", note("synchronize"))
    monkeypatch.setattr(devices, "_CURRENT_STREAM", note("stream", "stream"))
    monkeypatch.setattr(devices, "_SET_DEVICE", note("set"))
    monkeypatch.setattr(devices, "_RECORD", lambda event, stream: None)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    return made, said


def test_marks_and_waits_name_their_device(device: tuple[CudaDevice, list[str]]) -> None:
    gpu, said = device
    gpu.stamp()
    gpu.make_current()
    gpu.synchronize()
    assert [text for text in said if "stream" in text] == ["stream cuda:1"]
    assert "set cuda:1" in said
    assert said[-3:] == ["synchronize cuda:1", "synchronize 0", "synchronize 3"]


def test_work_on_a_peers_gpu_counts_and_asking_an_idle_one_does_not(
    device: tuple[CudaDevice, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, _ = device
    clock, busy = [0.0], {0: 0.0, 3: 0.0}

    def synchronize(index: int) -> None:
        clock[0] += 8e-6 + busy[index]
        busy[index] = 0.0

    monkeypatch.setattr(devices, "_SYNCHRONIZE", synchronize)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert gpu.wait_elsewhere() == pytest.approx(0)
    busy[3] = 500e-6
    assert gpu.wait_elsewhere() == pytest.approx(500)
    gpu._contexts = Contexts(FakeDriver(set()), own=1, count=4)
    busy[3] = 500e-6
    assert gpu.wait_elsewhere() == 0, "no context of ours: somebody else's work"


# -- doctor ------------------------------------------------------------------------------------------------------------


def doctor(*options: str) -> tuple[dict[str, dict[str, Any]], int]:
    done = CliRunner().invoke(app, ["doctor", "--json", "--node", *options])
    facts = json.loads(done.stdout)["facts"]
    return {f"{fact['section']}: {fact['name']}": fact for fact in facts}, done.exit_code


def test_doctor_says_why_there_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(1))
    facts, status = doctor()
    assert status == 2
    assert "2 GPUs" in facts["node: node"]["found"]
    assert not any(name.startswith("trial") for name in facts), "nothing is started where it cannot work"


def test_doctor_says_what_to_do_about_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = box(3, links=0)
    cards[0].unreachable = (cards[1].uuid,)
    cards[2].processes = {1: GIB}
    install(monkeypatch, cards)
    tried: list[int] = []

    def trial(ranks: int) -> Fact:
        tried.append(ranks)
        return Fact("all-reduce", ok=True, found="")

    monkeypatch.setattr(doctor_node, "trial", trial)
    facts, status = doctor()
    assert (status, tried) == (0, [3])
    assert "no access to GPU 1 (not supported)" in facts["links: GPU 0"]["found"]
    assert "no access to GPU 0" in facts["links: GPU 1"]["found"]
    assert "reads all peers" in facts["links: GPU 2"]["found"]
    lacking = [fact for fact in facts.values() if fact["section"] in ("node", "links", "trial") and not fact["ok"]]
    assert len(lacking) == 5, [fact["name"] for fact in lacking]
    assert all(fact["to_do"] for fact in lacking)


@pytest.mark.parametrize(("cards", "ranks"), [(2, 2), (6, 4), (8, 8), (16, 8)])
def test_a_trial_has_as_many_ranks_as_problems_have(cards: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No problem runs on six GPUs, and four of them work together."""
    install(monkeypatch, box(cards))
    tried: list[int] = []

    def trial(asked: int) -> Fact:
        tried.append(asked)
        return Fact("all-reduce", ok=True, found="")

    monkeypatch.setattr(doctor_node, "trial", trial)
    assert doctor()[1] == 0
    assert tried == [ranks]
    assert get(1).why_not("tiny", ranks, "bf16") is None


def test_a_trial_that_fails_says_where_its_ranks_stand() -> None:
    """NCCL that cannot meet and peers that cannot be read both end as ranks that do not answer."""
    where = "starting: meeting the other ranks in symmetric memory"
    stuck = tuple(RankState(rank, Standing.WAITING, where) for rank in range(8))
    found = example(
        Verdict.HARNESS_ERROR, detail="no answer within 180 s", rank_states=stuck, output_tail="a\nNCCL WARN b\n"
    )
    said = doctor_node.trial_fact(found, 8)
    assert not said.ok
    assert said.found.endswith(f"no answer within 180 s (a rank stands at {where!r}) (a | NCCL WARN b)")
    assert said.found.count(where) == 1


# -- sockets fit -------------------------------------------------------------------------------------------------------


def test_temporary_files_that_ranks_cannot_see_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm/somewhere")
    with pytest.raises(UserError, match="which ranks cannot see"):
        short_folder.check_temporary_folder()
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    short_folder.check_temporary_folder()


def test_a_long_temporary_directory_is_not_used_for_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    assert short_folder.short_parent() == Path("/tmp")
    deep = tmp_path / ("x" * 80)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    place = short_folder.short_parent()
    assert len(str(place)) + short_folder.NEEDED_BYTES <= short_folder.SOCKET_PATH_BYTES
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    somebody = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: somebody)
    Path(f"/tmp/pkb-{somebody}").mkdir()
    try:
        with pytest.raises(UserError, match="somebody else's"):
            short_folder.short_parent()
    finally:
        Path(f"/tmp/pkb-{somebody}").rmdir()


def test_a_kind_of_gpu_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built for is asked of the driver: names such as GH200 and H20 contain those of other GPUs."""
    for name, capability, architecture in (
        ("NVIDIA GH200 480GB", (9, 0), "9.0a"), ("NVIDIA H20", (9, 0), "9.0a"), ("NVIDIA A10", (8, 6), "8.6"),
        ("NVIDIA L40S", (8, 9), "8.9"), ("NVIDIA B300", (10, 3), "10.3a"), ("NVIDIA A800-SXM4-80GB", (8, 0), "8.0"),
    ):  # fmt: skip
        install(monkeypatch, [replace(card, name=name, capability=capability) for card in box(2)])
        assert NodePlatform().facts().architecture == architecture
