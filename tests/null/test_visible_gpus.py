"""Which GPUs are ours, on machines that do not exist: what the user has chosen, what may not be opened, MIG, modes, locks."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from fake_nvml import FakeGpu, box, install
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.judge.session import devices_for
from pkb.judge.settling import why_not
from pkb.platforms.cuda import gpus, visible, visible_environment
from pkb.platforms.device_lock import devices_of, hold
from pkb.platforms.node import NodePlatform
from pkb.platforms.nvml import Gpu
from pkb.platforms.virtual import VirtualPlatform
from pkb.problems.registry import default_registry
from pkb.types.case import Case
from pkb.types.job import Job

KNOWN = [
    Gpu("H100", 80 << 30, "580", uuid, index) for index, uuid in enumerate(("GPU-aa1", "GPU-aa2", "GPU-b", "GPU-c"))
]


@pytest.mark.parametrize(
    ("asked", "indices"),
    [
        ("0", [0]),
        ("2,3", [2, 3]),
        ("3,0", [3, 0]),
        (" 1 , 2 ", [1, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,2", [1]),
        ("1,9,2", [1]),
        ("1,,2", [1]),
        ("1,1", []),
        ("1gpu,2", [1, 2]),
        ("GPU-b", [2]),
        ("GPU-aa2,GPU-c", [1, 3]),
        ("GPU-aa", []),
        ("GPU-b,GPU-aa,GPU-c", [2]),
        ("GPU-b,GPU-b", []),
        ("GPU-b,0", [2]),
        ("0,GPU-b", [0]),
        ("MIG-1234", []),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(asked: str, indices: list[int]) -> None:
    """By torch's own reading of it too, where torch has GPUs to count: numbers are cut at the first that is none, a name that
    fits two is none, and one that comes twice leaves nothing."""
    assert [gpu.index for gpu in visible(asked, KNOWN)] == indices


@pytest.mark.parametrize(
    ("shown", "ranks"),
    [(None, 8), ("4,5", 2), ("7", 1), ("", 0), ("-1", 0), ("GPU-33,GPU-44,GPU-66", 3), ("0,1,2,99", 3)],
)
def test_ranks_are_as_many_as_gpus_are_visible(shown: str | None, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(8), visible=shown)
    facts = NodePlatform().facts()
    assert facts.max_ranks == ranks
    assert facts.available is (ranks >= 2)
    assert facts.memory_bytes == ranks * 80 << 30
    if not ranks:
        assert "CUDA_VISIBLE_DEVICES" in facts.why_not
        assert "CUDA_VISIBLE_DEVICES" in VirtualPlatform().facts().why_not


def test_ranks_are_told_their_gpus_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(8), visible="5,3,2")
    environment = NodePlatform().environment(2)
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-55aa-5,GPU-33aa-3"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert NodePlatform().device_indices(2) == [0, 1]
    assert devices_of("node", 3) == ["GPU-55aa-5", "GPU-33aa-3", "GPU-22aa-2"]
    assert devices_of("virtual", 8) == ["GPU-55aa-5"]
    assert visible_environment(gpus()[:1])["CUDA_VISIBLE_DEVICES"] == "GPU-55aa-5", (
        "a candidate sees one GPU and no other"
    )


def test_numbers_count_along_the_bus_and_what_may_not_be_opened_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = box(4)
    cards[0].forbidden = True
    install(monkeypatch, [cards[3], cards[0], cards[2], cards[1]], visible="0,1")
    assert [gpu.uuid for gpu in gpus()] == ["GPU-11aa-1", "GPU-22aa-2"]
    done = CliRunner().invoke(app, ["doctor"])
    assert not isinstance(done.exception, Exception) or isinstance(done.exception, SystemExit)
    assert "cannot be opened: Insufficient Permissions" in " ".join(done.stdout.split())


def test_split_gpus_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = box(3)
    cards[0].mig = True
    install(monkeypatch, cards)
    assert [gpu.index for gpu in gpus()] == [1, 2]
    install(monkeypatch, cards[:1])
    assert "MIG" in VirtualPlatform().facts().why_not
    assert "-mig 0" in NodePlatform().facts().why_not


@pytest.mark.parametrize(("runs", "works"), [(13000, True), (13020, True), (12080, False), (0, True)])
def test_a_driver_older_than_torchs_cuda(runs: int, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch for CUDA 13 finds no GPU with a driver for CUDA 12: said before ranks start and fail. Not if the driver does not
    say what it runs."""
    install(monkeypatch, box(8), runs=runs)
    assert NodePlatform().facts().available is works
    for kind in (NodePlatform, VirtualPlatform):
        assert ("runs CUDA 12.8 at most, and torch is built for 13.0" in kind().facts().why_not) is not works


@pytest.mark.parametrize(("mode", "node", "virtual"), [(0, True, True), (3, False, True), (2, False, False)])
def test_compute_modes(mode: int, node: bool, virtual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of our processes share a GPU on a node; on `virtual` only the MPS server has it."""
    install(monkeypatch, box(2, compute_mode=mode))
    assert NodePlatform().facts().available is node
    assert node or "-c DEFAULT" in NodePlatform().facts().why_not
    assert ("compute mode" in VirtualPlatform().facts().why_not) is not virtual


def test_a_card_for_the_display_is_not_the_first_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    small = FakeGpu("GPU-small", name="NVIDIA T400", bus="0000:00:01.0", memory_bytes=4 << 30, capability=(7, 5))
    large = FakeGpu("GPU-large", name="NVIDIA RTX PRO 6000", bus="0000:09:00.0", capability=(12, 0))
    install(monkeypatch, [small, large])
    assert VirtualPlatform().facts().hardware == "NVIDIA RTX PRO 6000"
    assert VirtualPlatform().facts().architecture == "12.0a"
    assert NodePlatform().facts().max_ranks == 1, "two kinds are no node"
    install(monkeypatch, [small, large], visible="0")
    assert VirtualPlatform().facts().hardware == "NVIDIA T400", "unless it was asked for"


@pytest.mark.parametrize(
    ("links", "to_switch", "capability", "multicast"),
    [(18, True, (9, 0), True), (18, True, (8, 0), False), (4, False, (9, 0), False), (0, False, (9, 0), False)],
)
def test_multicast_needs_a_switch_and_hopper(
    links: int, to_switch: bool, capability: tuple[int, int], multicast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, box(4, links=links, to_switch=to_switch, capability=capability))
    assert ("multicast" in NodePlatform().facts().capabilities) is multicast


# -- what an evaluation takes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "ranks", "plan", "taken"),
    [
        (None, 2, "standard", 3),
        (None, 4, "standard", 4),
        (None, 8, "standard", 8),
        ("4,5", 2, "standard", 2),
        ("4,5,6", 2, "standard", 3),
        (None, 2, "quick", 2),
    ],
)
def test_the_second_world_is_locked_from_the_start(
    shown: str | None, ranks: int, plan: str, taken: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, box(8), visible=shown)
    job = Job(tmp_path / "x.py", Case("1", "node", ranks, "tiny", "fp32", plan))
    assert devices_for(job) == [gpu.uuid for gpu in gpus()][:taken]


def queue_up(number: int, told: int) -> int:
    """A process that stands in line, and says when it begins to wait and when it has the device."""
    if child := os.fork():
        return child
    try:
        with (
            os.fdopen(told, "w", buffering=1) as line,
            hold(["GPU-a"], wait_s=60, say=lambda text: print(text, file=line)),
        ):
            print(f"{number} has it", file=line)
    finally:
        os._exit(0)


def test_the_queue_is_served_in_order_and_the_dead_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PKB_LOCK_DIR", str(tmp_path))
    heard, told = os.pipe()
    waiting = []
    with os.fdopen(heard) as lines:
        with hold(["GPU-a"]):
            for number in range(5):
                waiting.append(queue_up(number, told))
                before = f", {number} more before this one" if number else ""
                # It is in line before the next one comes.
                assert lines.readline() == f"waiting for GPU-a, in use by process {os.getpid()}{before}\n"
            os.kill(waiting[1], signal.SIGKILL)
            with hold(["GPU-b"], wait_s=0):
                pass  # other queues are none of its business
        os.close(told)
        assert lines.read().splitlines() == [f"{number} has it" for number in (0, 2, 3, 4)]
    for process in waiting:
        os.waitpid(process, 0)
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size > 64] == [], "its file does not grow"


def test_capability_is_read_and_not_guessed_from_a_name() -> None:
    gpu = KNOWN[0]
    assert [replace(gpu, capability=c).architecture for c in ((8, 0), (8, 9), (9, 0), (10, 3), (12, 0), (0, 0))] == [
        "8.0", "8.9", "9.0a", "10.3a", "12.0a", "",
    ]  # fmt: skip


# -- cards that people have ---------------------------------------------------------------------------------------------


def test_a_card_with_24_gb_runs_every_problem_at_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """With contexts of all ranks; a card that is too small says so before anything starts."""
    install(monkeypatch, box(1, name="NVIDIA L4", memory_bytes=24 << 30, capability=(8, 9)))
    card = VirtualPlatform().facts()
    small = replace(card, memory_bytes=6 << 30)
    refused = []
    for problem in default_registry().all():
        for ranks in (4, 8):
            case = Case(problem.stem, "virtual", ranks, "paper", problem.default_dtype, "standard")
            if problem.why_not("paper", ranks, problem.default_dtype) is None:
                assert why_not(case, problem, card) is None
                if (refusal := why_not(case, problem, small)) is not None:
                    refused.append(refusal)
    assert refused
    assert "GiB" in refused[0].message
    assert "fewer ranks" in refused[0].fix
