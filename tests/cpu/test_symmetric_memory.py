"""Symmetric memory between real processes: every test is one that a wrong pointer, order or signal makes fail."""

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from pkb.rank.symmetric.poisoning import poison_data
from world import World, world_group

ROUNDS = 50


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], World]]:
    """Groups of our own: these ranks have torch's module patched, which other tests must not inherit."""
    pools: dict[int, World] = {}

    def of_size(size: int) -> World:
        if size not in pools:
            pools[size] = World(size)
            pools[size].call(install, str(tmp_path_factory.mktemp(f"symmetric{size}")))
        return pools[size]

    yield of_size
    for pool in pools.values():
        pool.close()


def install(rank: int, size: int, folder: str, timeout_s: float = 30.0) -> None:
    from pkb.rank.symmetric import memory as symmetric

    symmetric.install(Path(folder), timeout_s=timeout_s)


def contribution(rank: int, turn: int, count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) * (rank + 1) + 1000.0 * turn


def expected(ranks: range | list[int], turn: int, count: int) -> torch.Tensor:
    return torch.stack([contribution(rank, turn, count) for rank in ranks]).sum(0)


# --- data ---


def reduce_by_peers(rank: int, size: int, count: int) -> list[bool]:
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(count, dtype=torch.float32, device=f"cuda:{rank}")  # type: ignore[call-overload]
    handle = symm_mem.rendezvous(buffer, world_group())
    right = []
    late = random.Random(rank)
    for turn in range(ROUNDS):
        time.sleep(late.choice([0, 0, 0.002]))  # without a barrier that waits, a late rank's old data would be summed
        buffer.copy_(contribution(rank, turn, count))
        handle.barrier(channel=turn % 3)
        time.sleep(late.choice([0, 0, 0.002]))  # ... and without the second one, its next data
        total = sum((handle.get_buffer(peer, (count,), torch.float32) for peer in range(size)), torch.zeros(count))
        handle.barrier(channel=turn % 3)
        right.append(torch.equal(total, expected(range(size), turn, count)))
    return right


@pytest.mark.parametrize("size", [2, 4])
def test_all_reduce_through_peers_on_changing_data(ranks: Callable[[int], World], size: int) -> None:
    assert ranks(size).call(reduce_by_peers, 1000) == [[True] * ROUNDS] * size


def reduce_in_groups(rank: int, size: int) -> tuple[int, int, bool, bool]:
    from torch.distributed import _symmetric_memory as symm_mem

    pairs = [dist.new_group([0, 1]), dist.new_group([3, 2])]
    group, members = (pairs[0], [0, 1]) if rank < 2 else (pairs[1], [2, 3])
    buffer = symm_mem.empty((4, 5), dtype=torch.float32)
    mine = symm_mem.rendezvous(buffer, group)
    everyone = symm_mem.rendezvous(buffer, world_group().group_name)  # by name, and the same memory in two groups
    buffer.copy_(contribution(rank, 7, 20).view(4, 5))
    mine.barrier()
    pair = mine.get_buffer(0, [20], torch.float32) + mine.get_buffer(1, [20], torch.float32)
    everyone.barrier(channel=1)
    world = sum((everyone.get_buffer(peer, [20], torch.float32) for peer in range(size)), torch.zeros(20))
    everyone.barrier(channel=1)
    return (
        mine.rank,
        mine.world_size,
        torch.equal(pair, expected(members, 7, 20)),
        torch.equal(world, expected(range(4), 7, 20)),
    )


def test_sub_groups_have_their_own_ranks_and_memory(ranks: Callable[[int], World]) -> None:
    answers = ranks(4).call(reduce_in_groups)
    assert [answer[1:] for answer in answers] == [(2, True, True)] * 4
    assert [answer[0] for answer in answers] == [0, 1, 0, 1]  # torch sorts the ranks of a new group


def reduce_in_triton(rank: int, size: int, count: int, turns: int) -> list[bool]:
    os.environ["TRITON_INTERPRET"] = "1"
    import symmetric_kernels
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(count, dtype=torch.float32)
    handle = symm_mem.rendezvous(buffer, world_group())
    right = []
    for turn in range(turns):
        buffer.copy_(contribution(rank, turn, count))
        out = torch.zeros(count)
        symmetric_kernels.all_reduce[(1,)](
            handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, out, count, rank=rank, world_size=size, block=64
        )
        right.append(torch.equal(out, expected(range(size), turn, count)))
    return right


@pytest.mark.parametrize("size", [2, 4])
def test_a_triton_kernel_reaches_its_peers_by_pointer(ranks: Callable[[int], World], size: int) -> None:
    pytest.importorskip("triton")
    assert ranks(size).call(reduce_in_triton, 50, 8, timeout=120.0) == [[True] * 8] * size


def reduce_by_operator(rank: int, size: int, dtype: torch.dtype) -> list[Any]:
    import torch.distributed._symmetric_memory as symm_mem

    from pkb.rank.symmetric.memory import ACTIVITY

    name = world_group().group_name
    before = replace(ACTIVITY)
    buffer = symm_mem.empty(1003, dtype=dtype)  # a count that no number of ranks divides
    symm_mem.rendezvous(buffer, name)
    right: list[Any] = []
    for turn in range(5):
        mine = torch.arange(1003).remainder(17).add(rank + turn).to(dtype)
        parts = [torch.arange(1003).remainder(17).add(peer + turn) for peer in range(size)]
        total = torch.stack(parts).sum(0).to(dtype)
        buffer.copy_(mine)
        right.append(torch.equal(torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name), total))
        out = torch.empty_like(mine)
        torch.ops.symm_mem.one_shot_all_reduce_out(buffer, "sum", name, out)
        right.append(torch.equal(out, total))
        right.append(torch.equal(torch.ops.symm_mem.two_shot_all_reduce_(buffer, "sum", name), total))
        right.append(torch.equal(buffer, total))
    try:
        torch.ops.symm_mem.multimem_all_reduce_(buffer, "sum", name)
    except RuntimeError as error:
        right.append(str(error).splitlines()[0])
    reductions = ACTIVITY.library_reductions - before.library_reductions
    right.append([reductions, ACTIVITY.peer_accesses - before.peer_accesses])
    return right


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operators_of_torch(ranks: Callable[[int], World], dtype: torch.dtype) -> None:
    for answer in ranks(4).call(reduce_by_operator, dtype):
        assert answer[:20] == [True] * 20
        assert answer[20] == "symm_mem::multimem_all_reduce_: no multicast on this platform"
        assert answer[21] == [15, 0], "the work of the library is not the candidate's"


# --- signals ---


def ping_pong(rank: int, size: int) -> list[float]:
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(8, dtype=torch.float32)
    handle = symm_mem.rendezvous(buffer, world_group())
    peer, seen = 1 - rank, []
    for turn in range(ROUNDS):
        if rank == turn % 2:
            handle.get_buffer(peer, (8,), torch.float32).fill_(turn)
            handle.put_signal(peer, channel=2)
        else:
            handle.wait_signal(peer, channel=2)
            seen.append(float(buffer.sum() / 8))
    return seen


def test_signals_carry_data(ranks: Callable[[int], World]) -> None:
    answers = ranks(2).call(ping_pong)
    assert answers == [list(range(1, ROUNDS, 2)), list(range(0, ROUNDS, 2))]


def time_out(rank: int, size: int) -> tuple[list[str], list[str | None], list[int]]:
    import torch.distributed._symmetric_memory as symm_mem

    from pkb.rank.symmetric import memory as symmetric

    handle = symm_mem.rendezvous(symm_mem.empty(4), world_group())
    told: list[str | None] = []
    symmetric.ACTIVITY.on_wait = told.append
    errors: list[str] = []

    def attempt(call: Callable[..., None], *arguments: int, **options: int) -> None:
        try:
            call(*arguments, **options)
        except RuntimeError as error:
            errors.append(str(error))

    if rank == 0:
        attempt(handle.wait_signal, 1, channel=5, timeout_ms=30)
        attempt(handle.put_signal, 1, channel=6)
        attempt(handle.put_signal, 1, channel=6, timeout_ms=30)  # nobody has taken the first one
        attempt(handle.barrier, 1, 30)
        attempt(handle.put_signal, 2)
        attempt(handle.barrier, channel=100_000)
    dist.barrier()
    symmetric.ACTIVITY.on_wait = None
    pad = handle.get_signal_pad(rank)
    left = [index for index, word in enumerate(pad.tolist()) if word]
    pad.zero_()
    return errors, told, left


def test_a_wait_that_ends_in_time_says_who_waited_for_whom(ranks: Callable[[int], World]) -> None:
    (errors, told, left), (_, _, left_on_1) = ranks(2).call(time_out)
    assert len(errors) == 5
    assert "rank 0 timed out on channel 5 waiting for rank 1" in errors[0]
    assert "rank 0 timed out on channel 6: rank 1 did not consume" in errors[1]
    assert "barrier: rank 0 timed out on channel 1 waiting for rank 1" in errors[2]
    assert "rank 2 is not in a group of 2" in errors[3]
    assert errors[4].startswith("channel must be in 0 ... 1151 ")
    assert told[0] == "wait_signal(channel=5) waiting for rank 1"
    assert told[1::2] == [None] * (len(told) // 2), "every wait ends with None"
    assert left == []
    assert left_on_1 == [2, 12]  # channel 1 from rank 0: 1 * 2 + 0, and channel 6 from rank 0


# --- rendezvous ---


def mismatch(rank: int, size: int) -> str:
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(100 + rank, dtype=torch.float32)
    try:
        symm_mem.rendezvous(buffer, world_group())
    except RuntimeError as error:
        return str(error)
    return "none"


def test_unequal_sizes_are_named(ranks: Callable[[int], World]) -> None:
    for rank, message in enumerate(ranks(2).call(mismatch)):
        assert f"on rank {rank}" in message
        assert "rank 0 allocated 400 bytes, rank 1 allocated 404 bytes" in message


def absent(rank: int, size: int) -> str:
    import torch.distributed._symmetric_memory as symm_mem

    if rank != 1:
        return "did not come"
    try:
        symm_mem.rendezvous(symm_mem.empty(4), world_group())
    except RuntimeError as error:
        return str(error)
    return "none"


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    world = World(3)
    world.call(install, str(tmp_path), 0.3)
    assert "rank 1 waited 0.3 s, and rank(s) [0, 2] did not come" in world.call(absent)[1]
    world.close()


def interface(rank: int, size: int) -> dict[str, Any]:
    import torch.distributed._symmetric_memory as symm_mem
    from torch._C._distributed_c10d import _SymmetricMemory

    from pkb.rank.symmetric import memory as symmetric

    before = symmetric.ACTIVITY.peer_accesses
    buffer = symm_mem.empty(6, 4, dtype=torch.int32, device=torch.device("cpu"))
    handle = symm_mem.rendezvous(buffer, world_group())
    untouched = symmetric.ACTIVITY.peer_accesses - before
    handle.get_buffer(rank, (24,), torch.int32)
    own = symmetric.ACTIVITY.peer_accesses - before
    handle.get_buffer(1 - rank, (24,), torch.int32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stranger = symm_mem.rendezvous(torch.empty(4), world_group())
    part = handle.get_buffer(rank, (2, 4), torch.int32, 16)
    buffer[4:].fill_(7)
    name = world_group().group_name
    workspace = symm_mem.get_symm_mem_workspace(name, 1000)
    direct = _SymmetricMemory.empty_strided_p2p((3, 2), (1, 3), torch.float16, torch.device("cpu"), "0")
    try:
        handle.get_buffer(1 - rank, (25,), torch.int32)
        beyond = ""
    except RuntimeError as error:
        beyond = str(error)
    return {
        "same": symm_mem.rendezvous(buffer[2:].view(-1)[3:], world_group()) is handle,
        "is": (symm_mem.is_symm_mem_tensor(buffer.view(-1)), symm_mem.is_symm_mem_tensor(torch.empty(3))),
        "isinstance": isinstance(handle, _SymmetricMemory) and vars(symm_mem)["_SymmetricMemory"] is _SymmetricMemory,
        "fresh": bool((buffer[:4] == 0).all()),
        "part": part.flatten().tolist(),
        "pointer": handle.buffer_ptrs[rank] == buffer.data_ptr(),
        "accesses": (untouched, own, symmetric.ACTIVITY.peer_accesses - before),
        "stranger": (
            stranger,
            "not within any SymmetricMemory allocation" in str(caught[0].message),
        ),
        "workspace": (
            workspace.buffer_size,
            symm_mem.get_symm_mem_workspace(name, 10) is workspace,
            symm_mem.get_symm_mem_workspace(name, 5000).buffer_size,
        ),
        "strides": direct.stride(),
        "empty": symm_mem.rendezvous(symm_mem.empty(0, 3), world_group()).buffer_size,
        "beyond": beyond,
        "facts": (
            handle.multicast_ptr,
            handle.has_multicast_support(DeviceType.CPU, 0),
            symm_mem.is_nvshmem_available(),
        ),
        "pad": (
            handle.signal_pad_size,
            symm_mem.get_signal_pad_size(),
            handle.get_signal_pad(rank).dtype == torch.uint32,
        ),
    }


def test_the_interface_of_torch(ranks: Callable[[int], World]) -> None:
    for seen in ranks(2).call(interface):
        assert seen.pop("beyond").endswith("the requested size (100 bytes) exceeds the allocated size (96 bytes)")
        assert seen.pop("accesses")[:2] == (0, 0), "one's own memory is no access to a peer"
        assert seen == {
            "same": True, "is": (True, False), "isinstance": True, "fresh": True, "part": [7] * 8, "pointer": True,
            "stranger": (None, True), "workspace": (1000, True, 5000), "strides": (1, 3), "empty": 0,
            "facts": (0, False, False), "pad": (9216, 9216, True),
        }  # fmt: skip


# --- the race stage ---


def poisoned(rank: int, size: int) -> dict[str, Any]:
    import torch.distributed._symmetric_memory as symm_mem

    from pkb.rank.symmetric import memory as symmetric

    floats, flags = symm_mem.empty(10, dtype=torch.bfloat16), symm_mem.empty(10, dtype=torch.int32)
    name = world_group().group_name
    handle, others = symm_mem.rendezvous(floats, name), symm_mem.rendezvous(flags, name)
    floats.fill_(1), flags.fill_(3)
    handle.put_signal(1 - rank)
    handle.barrier(channel=1)
    if rank == 0:
        symmetric.poison()
    others.barrier()
    result = {
        "floats": [bool(handle.get_buffer(peer, (10,), torch.bfloat16).isnan().all()) for peer in range(2)],
        "finite": [bool(handle.get_buffer(peer, (10,), torch.bfloat16).isfinite().all()) for peer in range(2)],
        "flags": flags.tolist(),
    }
    handle.wait_signal(1 - rank, timeout_ms=1000)  # the signal that was pending is still there
    others.barrier()
    return result


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.complex64],
    ids=str,
)
def test_poison_takes_all_data_and_no_flag(dtype: torch.dtype) -> None:
    """Flags in an integer view of the same memory: counted up, reset, negative; and data beside them, an odd tail included."""
    workspace = torch.zeros(1027, dtype=dtype)
    flags = workspace[:64].view(torch.int32)
    flags.copy_(torch.arange(flags.numel(), dtype=torch.int32) * 300 - 1)
    before = flags.clone()
    workspace[64:] = torch.randn(963).to(dtype)
    workspace[100:110] = 1
    assert poison_data(workspace) == 1027 * dtype.itemsize
    assert flags.equal(before)
    # A zero among data may be a flag, with what shares its word: it happens in the smallest of types, and seldom there.
    assert workspace[64:].to(torch.complex64).isnan().float().mean() > 0.98


def test_poison_spares_flags_signals_and_other_ranks(ranks: Callable[[int], World]) -> None:
    for seen in ranks(2).call(poisoned):
        assert seen == {"floats": [True, False], "finite": [False, True], "flags": [3] * 10}
