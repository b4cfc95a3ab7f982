"""The kit for Triton: signals, barriers and sums over peers, for kernels that take tables of peers' addresses.

    from pkb.kit import triton_kit
    stage = kit.staging(nbytes, device); counts = kit.staging(4 * programs * world, device, name="counts")
    tables = triton_kit.tables(stage.handle), triton_kit.tables(counts.handle)

Tables are int64 tensors on the device. Everything runs in Triton's interpreter too, on CPU ranks; there programs of a
grid run one after another, so that program p may only wait for the programs p of its peers. NVLS is inline assembly,
which the interpreter has not: `load_sum` takes it where `NVLS` says so, and else adds what it loads from each peer.

As in pkb.cuh, counts only rise and live in memory: nothing is reset, and CUDA graphs may replay such kernels. All ranks
make the same calls on a channel. Memory with counts is zeroed at first and used for nothing else.

Annotations are quoted: Triton's compiler (not its interpreter) refuses names in them that are no constexpr.
"""

from typing import Any

import triton
import triton.language as tl


def tables(handle: Any) -> Any:
    """The addresses of all ranks' buffers, as kernels here take them. Make it once: it costs a copy to the device."""
    import torch

    from pkb.kit.pads import check_offset

    check_offset(handle)
    return torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=handle.device)


@triton.jit
def peer_pointer(table: "Any", peer: "Any", dtype: tl.constexpr) -> Any:
    """A peer's buffer as a pointer to elements of this type."""
    return tl.load(table + peer).to(tl.pointer_type(dtype))


@triton.jit
def put(table: "Any", peer: "Any", at: "Any", values: "Any", mask: "Any") -> None:
    """Stores to a peer. A signal must follow before it is read there."""
    tl.store(peer_pointer(table, peer, values.dtype) + at, values, mask=mask)


@triton.jit
def signal(counts: "Any", channel: "Any", count: "Any", rank: tl.constexpr, world: tl.constexpr) -> None:
    """Tells the programs `channel` of all peers that this rank has come to `count`. What this program wrote comes before."""
    tl.debug_barrier()
    for peer in tl.static_range(world):
        if peer != rank:
            slot = peer_pointer(counts, peer, tl.int32) + channel * world + rank
            tl.atomic_xchg(slot, count, sem="release", scope="sys")


@triton.jit
def wait(counts: "Any", channel: "Any", count: "Any", rank: tl.constexpr, world: tl.constexpr) -> None:
    """Waits until the programs `channel` of all peers have come to `count`. What they wrote before may then be read."""
    for peer in tl.static_range(world):
        if peer != rank:
            slot = peer_pointer(counts, rank, tl.int32) + channel * world + peer
            while tl.atomic_add(slot, 0, sem="acquire", scope="sys") - count < 0:
                pass
    tl.debug_barrier()


@triton.jit
def barrier(counts: "Any", channel: "Any", rank: tl.constexpr, world: tl.constexpr) -> None:
    """The programs `channel` of all ranks meet. How often they did is kept in the count that a rank has for itself."""
    own = peer_pointer(counts, rank, tl.int32) + channel * world + rank
    count = tl.atomic_add(own, 0, sem="relaxed", scope="sys") + 1
    signal(counts, channel, count, rank, world)
    wait(counts, channel, count, rank, world)
    tl.atomic_xchg(own, count, sem="relaxed", scope="sys")
    tl.debug_barrier()


@triton.jit
def load_sum(
    table: "Any", multicast: "Any", at: "Any", mask: "Any", dtype: tl.constexpr, world: tl.constexpr, NVLS: tl.constexpr
) -> Any:
    """The sum over all ranks of elements `at`, in float32 and in rank order; through NVLS where `NVLS`, for float32."""
    if NVLS:
        tl.static_assert(dtype == tl.float32, "NVLS: only float32 is summed one element at a time")
        address = multicast.to(tl.int64) + tl.where(mask, at, 0).to(tl.int64) * 4
        total = tl.inline_asm_elementwise(
            "multimem.ld_reduce.relaxed.sys.global.add.f32 $0, [$1];", "=r,l", [address], dtype=tl.float32, is_pure=False,
            pack=1,
        )  # fmt: skip
    else:
        total = tl.zeros(at.shape, tl.float32)
        for peer in tl.static_range(world):
            total += tl.load(peer_pointer(table, peer, dtype) + at, mask=mask, other=0.0).to(tl.float32)
    return total
