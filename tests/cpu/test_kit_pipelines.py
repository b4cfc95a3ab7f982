"""Pipelines and exchanges of the kit: their host side, between real ranks."""

import ctypes
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pkb import kit
from pkb.kit import pads
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
        assert chunk % (8 * unit) == 0 or -(-chunk // (8 * unit)) * 8 * unit > most  # whole lines where they fit
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


def words_at(addresses: Sequence[int], peer: int, count: int) -> list[int]:
    """What a kernel would read of a peer's buffer."""
    return list((ctypes.c_uint32 * count).from_address(addresses[peer]))


def use_a_pipeline(rank: int, size: int) -> dict[str, Any]:
    pipe = kit.pipeline("test", blocks=3, slot_bytes=32, ahead=1, device="cpu")
    again = kit.pipeline("test", blocks=3, slot_bytes=32, ahead=1, device="cpu")
    others = [kit.pipeline("test", blocks=3, slot_bytes=64, ahead=1, device="cpu")]
    others += [kit.pipeline("test", blocks=3, slot_bytes=48, ahead=1, device="cpu")]
    others += [kit.pipeline("test", blocks=3, slot_bytes=32, device="cpu")]
    others += [kit.pipeline("other", blocks=3, slot_bytes=32, ahead=1, device="cpu")]
    now = pipe(7)
    pipe.stage.buffer.fill_(rank + 1)
    pipe.stage.handle.barrier(channel=1)
    found = {
        "same": again is pipe and pipe(7) is now,
        "different": len({pipe.stage.buffer.data_ptr(), *(p.stage.buffer.data_ptr() for p in others)}),
        "rank and world": [now.rank, now.world] == [rank, size],
        "shape": [now.blocks, now.slot_bytes, now.slots_each, now.ahead, now.turns, now.multicast],
        "room": pipe.stage.buffer.numel() >= 3 * 4 * 32,
        "slots": [words_at(now.slots, peer, 24) for peer in range(size)],
        "counts": [words_at(now.counts, peer, 3 * size) for peer in range(size)],
    }
    pipe.stage.handle.barrier(channel=1)
    ctypes.c_uint32.from_address(now.own_counts + 8).value = 5 + rank
    pipe.stage.handle.barrier(channel=1)
    found["own counts"] = [words_at(now.counts, peer, 3)[2] for peer in range(size)]
    pipe.stage.handle.barrier(channel=1)
    return found


def test_a_pipeline_is_kept_and_counts_nothing_on_the_host(ranks: World) -> None:
    for found in ranks.call(use_a_pipeline):
        assert found == {
            "same": True,
            "different": 5,
            "rank and world": True,
            "shape": [3, 32, 4, 1, 7, 0],
            "room": True,
            "slots": [[0x01010101 * (peer + 1)] * 24 for peer in range(2)],
            "counts": [[0] * 6] * 2,
            "own counts": [5, 6],
        }


def misuse_a_pipeline(rank: int, size: int) -> list[str]:
    pipe = kit.pipeline("misused", blocks=3, slot_bytes=32, device="cpu")
    shifted = types.SimpleNamespace(offset=64, buffer_ptrs_dev=0)
    many = types.SimpleNamespace(offset=0, buffer_ptrs=range(65))
    wrong: list[Callable[[], object]] = [
        lambda: kit.pipeline("misused", blocks=3, slot_bytes=32, ahead=2, device="cpu"),
        lambda: kit.pipeline("misused", blocks=3, slot_bytes=24, device="cpu"),
        lambda: pipe(0),
        lambda: pipe(1, nvls=True),
        lambda: kit.exchange("misused", device="cpu").region,
        lambda: kit.buffers(shifted),
        lambda: pads.addresses(shifted),
        lambda: pads.addresses(many),
    ]
    said = []
    for call in wrong:
        try:
            call()
        except (ValueError, RuntimeError) as error:
            said.append(str(error))
    return said


def test_misuse_is_refused_in_words(ranks: World) -> None:
    for said in ranks.call(misuse_a_pipeline):
        expected = ["look-ahead of 2", "multiple of 16", "0 steps", "no NVLS", "known on the device"]
        expected += ["64 bytes into", "64 bytes into", "addresses of 64"]
        assert [word in text for word, text in zip(expected, said, strict=True)] == [True] * len(expected), said


def use_an_exchange(rank: int, size: int) -> dict[str, Any]:
    now = kit.exchange("test", region_bytes=100, device="cpu")
    single = kit.exchange("test", region_bytes=100, regions=1, device="cpu")
    wide = kit.exchange("test", region_bytes=100, regions=1, exchanges=200, device="cpu")
    peers = now.peers
    return {
        "same": kit.exchange("test", region_bytes=127, device="cpu") is now,
        "peers": [peers.rank, peers.world, peers.regions, peers.exchanges] == [rank, size, 2, 2],
        "sizes": [peers.head, peers.region_bytes, single.region],
        "room": now.buffer.numel() >= peers.head + 2 * peers.region_bytes,
        "own": words_at(peers.stages, rank, 1) == [0] and now.buffer.data_ptr() == peers.stage,
        "apart": len({peers.stage, single.peers.stage, wide.peers.stage}),
        "head for many signals": wide.region >= 4 * 200 * (size + 1),
    }


def test_an_exchange_is_kept_and_has_room_for_its_signals(ranks: World) -> None:
    for found in ranks.call(use_an_exchange):
        assert found == {
            "same": True,
            "peers": True,
            "sizes": [128, 192, 128],
            "room": True,
            "own": True,
            "apart": 3,
            "head for many signals": True,
        }


def ask_for_many_shapes(rank: int, size: int) -> list[int]:
    taken = {kit.staging(1000 + 37 * n, "cpu", name="shapes").buffer.data_ptr(): 0 for n in range(200)}
    sizes = {kit.staging(1000 + 37 * n, "cpu", name="shapes").buffer.numel() for n in range(200)}
    return [len(taken), sum(sizes)]


def test_memory_does_not_grow_with_the_number_of_shapes(ranks: World) -> None:
    largest = 1000 + 37 * 199
    for stages, nbytes in ranks.call(ask_for_many_shapes):
        assert stages <= 5
        assert nbytes <= 4 * largest


def count_sms(rank: int, size: int) -> int:
    staging: Any = sys.modules["pkb.kit.staging"]  # `kit.staging` is the function
    kept, staging.sm_count = staging.sm_count, lambda device: 100 - 30 * rank
    try:
        return kit.staging(64, "cpu", name="uneven").sms
    finally:
        staging.sm_count = kept


def test_ranks_agree_on_the_fewest_sms(ranks: World) -> None:
    assert ranks.call(count_sms) == [70, 70]


def make_the_group_anew(rank: int, size: int, rendezvous: str) -> list[Any]:
    import torch.distributed as dist

    pipe = kit.pipeline("group", blocks=1, device="cpu")
    first = kit.staging(64, "cpu", name="group")
    dist.destroy_process_group()
    said = ""
    store = dist.FileStore(rendezvous, size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    try:
        pipe(1)
    except RuntimeError as error:
        said = str(error)
    second = kit.staging(64, "cpu", name="group")
    second.buffer[0] = rank + 1
    second.handle.barrier(channel=0)
    seen = [int(second.handle.get_buffer(peer, (1,), torch.uint8).item()) for peer in range(size)]
    second.handle.barrier(channel=0)
    return [
        said,
        first.buffer.data_ptr() != second.buffer.data_ptr(),
        seen,
        kit.pipeline("group", blocks=1, device="cpu")(1).world,
    ]


def test_a_group_made_anew_gets_memory_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(2)
    try:
        world.call(install_symmetric, str(tmp_path_factory.mktemp("symmetric")))
        for said, fresh, seen, size in world.call(make_the_group_anew, str(tmp_path_factory.mktemp("store") / "file")):
            assert "destroyed" in said
            assert (fresh, seen, size) == (True, [1, 2], 2)
    finally:
        world.close()
