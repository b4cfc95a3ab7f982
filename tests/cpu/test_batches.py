"""A batch of calls on one rank: ranks meet, and arguments are opened directly before the call that uses them."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from pkb.rank.devices import CpuDevice, RankBarrier
from pkb.rank.execute import Batch, run_batch
from pkb.rank.window.seals import Seals
from pkb.types.protocol.commands import Schedule

RANKS = 3
KEY = bytes(range(32))


class Recorded(CpuDevice):
    """Says in which order it was asked for what."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def spin(self, microseconds: float) -> None:
        self.steps.append("spin")

    def flush_cache(self) -> None:
        self.steps.append("flush")

    def align(self) -> None:
        self.steps.append("align")

    def stamp(self) -> int:
        self.steps.append("stamp")
        return super().stamp()


class RecordedSeals(Seals):
    def __init__(self, device: Recorded) -> None:
        super().__init__(device.window, 0)
        self._device = device

    def open(self, slot: int, key: bytes) -> bool:
        opened = super().open(slot, key)
        self._device.steps.append("open" if opened else "open already")
        return opened

    def commit(self, trees: Any, key: bytes) -> Any:
        trees = list(trees)
        self._device.steps.append(f"commit {len(trees)}")
        return super().commit(trees, key)


def together(act: Callable[[int, RankBarrier], Any]) -> list[Any]:
    """What each rank returns; ranks are threads, which share a page as processes do."""
    page = mmap.mmap(-1, RANKS * RankBarrier.SLOT_BYTES)
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(lambda rank: act(rank, RankBarrier(page, rank, RANKS)), range(RANKS)))


def run(schedule: Schedule, arguments: dict[int, torch.Tensor]) -> tuple[Batch, list[str]]:
    """One rank, whose arguments came sealed."""
    device = Recorded()
    seals = RecordedSeals(device)
    for slot, tensor in arguments.items():
        seals.seal(slot, {"x": tensor}, KEY)

    def double(x: torch.Tensor) -> torch.Tensor:
        device.steps.append("call")
        return 2 * x

    batch = run_batch(
        double,
        {slot: {"x": tensor} for slot, tensor in arguments.items()},
        schedule,
        device=device,
        barrier=RankBarrier(mmap.mmap(-1, RankBarrier.SLOT_BYTES), 0, 1),
        seals=seals,
        mutates=(),
        returns_input=False,
        on_step=lambda text, *, waiting=False: None,
    )
    return batch, device.steps


def test_nobody_leaves_a_barrier_before_all_are_there() -> None:
    inside: list[int] = []

    def act(rank: int, barrier: RankBarrier) -> list[int]:
        seen = []
        for step in range(20):
            inside.append(step)
            barrier.wait(timeout_s=20)
            seen.append(inside.count(step))
        return seen

    assert together(act) == [[RANKS] * 20] * RANKS


def test_stamped_calls_are_opened_behind_the_cover_and_are_cold() -> None:
    arguments = {5: torch.tensor([1.0, 2.0]), 6: torch.tensor([3.0, 4.0])}
    batch, steps = run(Schedule((5, 6), aligned=True, cover_us=5.0, digests=True, key=KEY.hex()), arguments)
    assert steps == ["spin", "open", "flush", "align", "stamp", "call", "stamp", "commit 1", "stamp"] * 2
    assert batch.outputs[6]["returned"].tolist() == [6.0, 8.0]
    assert (len(batch.records), len(batch.digests)) == (2, 2)
    output = {"returned": torch.tensor([2.0, 4.0]), "mutated": {}}
    assert batch.digests[0] == Seals(CpuDevice().window, 0).digest(output, KEY)


def test_queued_calls_are_opened_one_by_one_and_committed_to_at_the_end() -> None:
    arguments = {5: torch.tensor([1.0]), 6: torch.tensor([3.0])}
    batch, steps = run(Schedule((5, 6, 5), digests=True, key=KEY.hex()), arguments)
    assert steps == ["open", "call", "open", "call", "open already", "call", "commit 3"]
    assert batch.digests[0] == batch.digests[2] != batch.digests[1]
    assert batch.records == []


def test_a_wrong_key_gives_wrong_arguments() -> None:
    batch, _ = run(Schedule((5,), key=KEY[::-1].hex()), {5: torch.tensor([1.0, 2.0])})
    assert batch.outputs[5]["returned"].tolist() != [2.0, 4.0]


def test_who_waits_for_others_to_begin_says_so() -> None:
    steps: list[tuple[str, bool]] = []
    page = mmap.mmap(-1, 2 * RankBarrier.SLOT_BYTES)
    device = CpuDevice()
    with pytest.raises(TimeoutError, match="rank 0 waited 0 s for rank 1"):
        run_batch(
            lambda: None,
            {0: {}},
            Schedule((0,), aligned=True, barrier_timeout_s=0.1),
            device=device,
            barrier=RankBarrier(page, 0, 2),
            seals=Seals(device.window, 0),
            mutates=(),
            returns_input=False,
            on_step=lambda text, *, waiting=False: steps.append((text, waiting)),
        )
    assert steps == [("waiting for the other ranks to begin the batch", True)]
