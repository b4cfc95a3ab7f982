"""Fixtures of the tests that run real ranks on the CPU."""

from collections.abc import Callable, Iterator

import pytest
from world import World


@pytest.fixture(scope="session")
def world() -> Iterator[Callable[[int], World]]:
    """`world(4)`: a running group of four ranks, started at its first use and shared by all tests of the session."""
    pools: dict[int, World] = {}

    def of_size(size: int) -> World:
        if size not in pools:
            pools[size] = World(size)
        return pools[size]

    yield of_size
    for pool in pools.values():
        pool.close()
