"""The pool itself: results by rank, failures with their rank, and a group that works again after each failure."""

import os
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from world import RankError, World

Worlds = Callable[[int], World]


def total(rank: int, world_size: int, factor: int) -> tuple[int, torch.Tensor]:
    tensor = torch.tensor([float(rank)]) * factor
    dist.all_reduce(tensor)
    return rank, tensor


def fail_on(rank: int, world_size: int, bad: list[int]) -> None:
    if rank in bad:
        raise ValueError(f"no good on {rank}")
    dist.barrier()


def die(rank: int, world_size: int) -> None:
    if rank == 1:
        os._exit(7)


def sleep(rank: int, world_size: int) -> None:
    if rank == 0:
        time.sleep(60)


def test_results_come_by_rank(world: Worlds) -> None:
    assert world(3).call(total, 10) == [(r, torch.tensor([30.0])) for r in range(3)]


def test_an_exception_names_its_rank_and_the_group_goes_on(world: Worlds) -> None:
    with pytest.raises(RankError, match="ValueError: no good on 1") as caught:
        world(2).call(fail_on, [0, 1])
    assert set(caught.value.failures) == {0, 1}
    assert world(2).call(total, 1)[1] == (1, torch.tensor([1.0]))


def test_ranks_that_wait_for_a_failed_one_are_given_up(world: Worlds) -> None:
    with pytest.raises(RankError, match="rank 1: ValueError: no good on 1"):
        world(2).call(fail_on, [1])
    assert world(2).call(total, 1)[1] == (1, torch.tensor([1.0]))


def test_a_dead_rank_is_named(world: Worlds) -> None:
    with pytest.raises(RankError, match="rank 1: died with exit code 7"):
        world(2).call(die)
    assert world(2).call(total, 1)[1] == (1, torch.tensor([1.0]))


def test_a_hang_is_cut_short(world: Worlds) -> None:
    start = time.monotonic()
    with pytest.raises(RankError, match="rank 0: no answer"):
        world(2).call(sleep, timeout=1)
    assert time.monotonic() - start < 20
    assert world(2).call(total, 1)[1] == (1, torch.tensor([1.0]))
