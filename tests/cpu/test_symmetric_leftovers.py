"""What symmetric memory leaves behind: nothing, whether tensors are dropped, ranks exit, or memory runs out."""

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from world import RankError, World, world_group


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("symmetric")


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[World]:
    world = World(2)
    world.call(install, str(folder))
    yield world
    world.close()


def install(rank: int, size: int, folder: str) -> None:
    from pkb.rank.symmetric import memory as symmetric

    symmetric.install(Path(folder), timeout_s=30.0)


def allocate_on_every_call(rank: int, size: int, folder: str, turns: int) -> tuple[int, bool]:
    import torch.distributed._symmetric_memory as symm_mem

    kept = None
    for _ in range(turns):
        buffer = symm_mem.empty(1 << 20, dtype=torch.float32)
        handle = symm_mem.rendezvous(buffer, world_group())
        kept = handle.get_buffer(1 - rank, (1 << 20,), torch.float32)
        kept[0] = rank
        handle.barrier()
    del buffer, handle
    most = len(list(Path(folder).iterdir()))
    gc.collect()
    dist.barrier()
    assert kept is not None
    return most, bool(kept[0] == rank)  # a peer's memory that is still in use here outlives the peer's tensor


def test_memory_is_given_back_while_the_ranks_live(pair: World, folder: Path) -> None:
    turns = 150
    answers = pair.call(allocate_on_every_call, str(folder), turns)
    assert all(most < 2 * turns for most, _ in answers), "600 MiB a rank: some must go before anybody collects"
    assert all(valid for _, valid in answers)
    assert list(folder.iterdir()) == []


def drop_at_once(rank: int, size: int) -> float:
    import torch.distributed._symmetric_memory as symm_mem

    from pkb.rank.symmetric import rendezvous as symmetric_rendezvous
    from pkb.rank.symmetric.region import Region, attach

    def attach_late(path: Path, **what: Any) -> Region:
        time.sleep(0.2)
        return attach(path, **what)

    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(symmetric_rendezvous, "attach", attach_late)
        buffer = symm_mem.empty(4)
        buffer.fill_(rank + 1)
        handle = symm_mem.rendezvous(buffer, world_group())
    if rank == 0:
        del buffer, handle
        gc.collect()
        return 1.0
    return float(handle.get_buffer(0, (4,), torch.float32)[0])


def test_a_rank_may_drop_its_memory_before_a_slow_peer_has_mapped_it(pair: World) -> None:
    assert pair.call(drop_at_once) == [1.0, 1.0]


def full(rank: int, size: int) -> None:
    import torch.distributed._symmetric_memory as symm_mem

    symm_mem.empty(1 << 50, dtype=torch.uint8)


def test_memory_that_is_not_there_is_an_error_and_no_crash(pair: World, folder: Path) -> None:
    before = set(folder.iterdir())
    with pytest.raises(RankError, match="no room for"):
        pair.call(full)
    assert set(folder.iterdir()) <= before


EXITS = """
import pathlib, sys, torch, torch.distributed as dist
from pkb.rank.symmetric import memory as symmetric
import torch.distributed._symmetric_memory as symm_mem
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
symmetric.install(pathlib.Path(sys.argv[1], "symmetric"))
buffer = symm_mem.empty(4)
handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
handle.barrier()
print(len(list(pathlib.Path(sys.argv[1], "symmetric").iterdir())))
"""


def test_no_file_outlives_its_rank(tmp_path: Path) -> None:
    (tmp_path / "symmetric").mkdir()
    done = subprocess.run([sys.executable, "-c", EXITS, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
    assert list((tmp_path / "symmetric").iterdir()) == []
