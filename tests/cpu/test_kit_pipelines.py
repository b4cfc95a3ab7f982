"""Pipelines and exchanges of the kit: their host side, between real ranks."""

import ctypes
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pkb import kit
from world import World


@pytest.mark.parametrize("unit", [16, 48])
@pytest.mark.parametrize("nbytes", [0, 1, 511, 512, 1000, 12345, 2**20, 2**31 + 7])
def test_turns_share_out_everything_in_equal_pieces(nbytes: int, unit: int) -> None:
    most = 10 * unit
    for limit in (1, 7, 64):
        blocks, turns, chunk = kit.turns(nbytes, blocks=limit, least=512, most=most, unit=unit)
        assert 1 <= blocks <= max(1, min(limit, nbytes // 512))
        assert turns >= 1
        assert chunk % unit == 0
        assert chunk <= most
        assert blocks * turns * chunk >= nbytes
        assert turns == 1 or blocks * (turns - 1) * most < nbytes  # not a turn too many


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two ranks of our own with symmetric memory: its module is patched, which other tests must not inherit."""
    world = World(2)
    world.call(install_symmetric, str(tmp_path_factory.mktemp("symmetric")))
    yield world
    world.close()


def install_symmetric(rank: int, size: int, folder: str) -> None:
    from pkb.rank.symmetric import memory as symmetric

    symmetric.install(Path(folder), timeout_s=30.0)


def words_at(table: int, peer: int, count: int) -> list[int]:
    """What a kernel would read of a peer's buffer through a table of pointers."""
    address = (ctypes.c_uint64 * (peer + 1)).from_address(table)[peer]
    return list((ctypes.c_uint32 * count).from_address(address))


def use_a_pipeline(rank: int, size: int) -> dict[str, Any]:
    pipe = kit.pipeline("test", blocks=3, slot_bytes=100, device="cpu")
    again = kit.pipeline("test", blocks=3, slot_bytes=100, device="cpu")
    others = [kit.pipeline("test", blocks=3, slot_bytes=200, device="cpu")]
    others += [kit.pipeline("test", blocks=4, slot_bytes=100, device="cpu")]
    others += [kit.pipeline("other", blocks=3, slot_bytes=100, device="cpu")]
    bases = [pipe.base(turns).value for turns in (3, 0, 2**32 - 5, 4, 1)]
    pipe.stage.buffer.fill_(rank + 1)
    pipe.stage.handle.barrier(channel=1)
    slots, counts = (table.value for table in pipe.tables[:2])
    found = {
        "same": again is pipe,
        "different": len({id(p) for p in (pipe, *others)}),
        "bases": bases,
        "another's base": others[0].base(1).value,
        "rank and world": [value.value for value in pipe.tables[2:]] == [rank, size],
        "slots": [words_at(slots, peer, 25) for peer in range(size)],
        "counts": [words_at(counts, peer, 3 * size) for peer in range(size)],
    }
    pipe.stage.handle.barrier(channel=1)
    return found


def test_a_pipeline_is_kept_and_counts_its_turns(ranks: World) -> None:
    for found in ranks.call(use_a_pipeline):
        assert found == {
            "same": True,
            "different": 4,
            "bases": [0, 3, 3, 2**32 - 2, 2],  # around at 2**32, as the device's counts
            "another's base": 0,
            "rank and world": True,
            "slots": [[0x01010101 * (peer + 1)] * 25 for peer in range(2)],
            "counts": [[0] * 6] * 2,
        }


def use_an_exchange(rank: int, size: int) -> list[Any]:
    module: Any = sys.modules["pkb.kit.exchange"]  # `kit.exchange` is the function
    calls = [kit.exchange("test", region_bytes=64, device="cpu") for _ in range(3)]
    ((key, (stage, _)),) = module._CALLS.items()
    module._CALLS[key] = stage, itertools.count(2**32)
    single = kit.exchange("test", region_bytes=64, regions=1, device="cpu")
    calls.append(kit.exchange("test", region_bytes=64, device="cpu"))
    right = all((call.peers.rank, call.peers.world) == (rank, size) for call in (*calls, single))
    calls[0].buffer[1024:] = rank + 1  # as a kernel would, in its own stage; peers read by their tables
    same = all(call.peers.stages == calls[0].peers.stages != single.peers.stages for call in calls)
    signals = words_at(calls[0].peers.stages, 1 - rank, 256)
    return [right, same, [(call.peers.epoch, call.region) for call in (*calls, single)], sum(signals)]


def test_an_exchange_counts_calls_and_uses_regions_in_turn(ranks: World) -> None:
    expected = [(1, 1024 + 64), (2, 1024), (3, 1024 + 64), (0, 1024), (1, 1024)]
    assert ranks.call(use_an_exchange) == [[True, True, expected, 0]] * 2
