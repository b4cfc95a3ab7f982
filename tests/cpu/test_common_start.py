"""The common start of a batch: ranks meet, agree whether all were in time, and try again if one was not."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pkb.rank.devices import CpuDevice, RankBarrier
from pkb.rank.execute import ORIGIN_ATTEMPTS, run_batch
from pkb.types.protocol.commands import Schedule

RANKS = 3


def together(act: Callable[[int, RankBarrier], Any]) -> list[Any]:
    """What each rank returns; ranks are threads, which share a page as processes do."""
    page = mmap.mmap(-1, RANKS * RankBarrier.SLOT_BYTES)
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(lambda rank: act(rank, RankBarrier(page, rank, RANKS)), range(RANKS)))


def test_one_no_is_heard_by_all_and_counts_once() -> None:
    votes = [[True, True, True], [True, False, True], [True, True, True], [False, False, False], [True, True, True]]

    def act(rank: int, barrier: RankBarrier) -> list[bool]:
        return [barrier.wait(timeout_s=20, vote=vote[rank]) for vote in votes]

    assert together(act) == [[True, False, True, False, True]] * RANKS


@pytest.mark.parametrize("first", [False, True])
def test_a_peer_at_the_next_barrier_has_left_its_vote_behind(first: bool) -> None:
    page = mmap.mmap(-1, 2 * RankBarrier.SLOT_BYTES)
    ahead, behind = RankBarrier(page, 0, 2), RankBarrier(page, 1, 2)
    # As if the other rank had arrived in time, which lets `ahead` through to the next barrier while `behind` sleeps.
    RankBarrier(page, 1, 2)._arrive(vote=True)
    assert ahead.wait(timeout_s=20, vote=first) is first
    ahead._arrive(vote=not first)
    assert behind.wait(timeout_s=20) is first
    assert behind.wait(timeout_s=20) is not first


class Late(CpuDevice):
    """A device whose host is late at its first tries."""

    def __init__(self, late: int) -> None:
        super().__init__()
        self.begins, self._late = 0, late

    def begin(self) -> bool:
        self.begins += 1
        return self.begins > self._late


@pytest.mark.parametrize(("late", "expected"), [(0, (1, True)), (2, (3, True)), (1000, (ORIGIN_ATTEMPTS, False))])
def test_all_ranks_begin_anew_while_one_is_late(late: int, expected: tuple[int, bool]) -> None:
    def act(rank: int, barrier: RankBarrier) -> tuple[int, bool]:
        device = Late(late if rank == 1 else 0)
        batch = run_batch(
            lambda: None,
            {0: {}},
            Schedule((0,), aligned=True, barrier_timeout_s=20),
            device=device,
            barrier=barrier,
            mutates=(),
            returns_input=False,
            on_step=lambda text, *, waiting=False: None,
        )
        assert len(batch.records) == 1
        return device.begins, batch.common_origin

    assert together(act) == [expected] * RANKS


def test_who_waits_for_others_to_begin_says_so() -> None:
    steps: list[tuple[str, bool]] = []
    page = mmap.mmap(-1, 2 * RankBarrier.SLOT_BYTES)
    with pytest.raises(TimeoutError, match="rank 0 waited 0 s for rank 1"):
        run_batch(
            lambda: None,
            {0: {}},
            Schedule((0,), aligned=True, barrier_timeout_s=0.1),
            device=CpuDevice(),
            barrier=RankBarrier(page, 0, 2),
            mutates=(),
            returns_input=False,
            on_step=lambda text, *, waiting=False: steps.append((text, waiting)),
        )
    assert steps == [("waiting for the other ranks to begin the batch", True)]
