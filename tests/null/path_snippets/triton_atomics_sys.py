"""A hand-written barrier in Triton: compare-and-swap at system scope."""
# expect: sm_load_store
# kernels: barrier=sm_load_store send=sm_load_store main=sm_load_store

import triton
import triton.language as tl


@triton.jit
def send(slot):
    while tl.atomic_cas(slot, 0, 1, sem="release", scope="sys") != 0:  # <- sm_load_store
        pass


@triton.jit
def barrier(pads, rank, world: tl.constexpr):
    for peer in tl.static_range(world):
        send(tl.load(pads + peer).to(tl.pointer_type(tl.uint32)) + rank)


@triton.jit
def main(pads, rank, world: tl.constexpr):
    barrier(pads, rank, world)
