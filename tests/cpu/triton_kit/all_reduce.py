"""One-shot all-reduce by the kit's Triton side: publish, meet, add what all published, meet."""

from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from pkb import kit
from pkb.kit import triton_kit

PROGRAMS = 4
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
STATE: dict[int, Any] = {}


@triton.jit
def all_reduce(
    table: "Any", counts: "Any", multicast: "Any", source: "Any", out: "Any", n: "Any", dtype: tl.constexpr, rank: tl.constexpr,
    world: tl.constexpr, NVLS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    program = tl.program_id(0)
    for start in range(program * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        triton_kit.put(table, rank, at, tl.load(source + at, mask=at < n), at < n)
    triton_kit.barrier(counts, program, rank, world)  # all have published
    for start in range(program * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total = triton_kit.load_sum(table, multicast, at, at < n, dtype, world, NVLS)
        tl.store(out + at, total.to(dtype), mask=at < n)
    triton_kit.barrier(counts, program, rank, world)  # all have read


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor, world = tensor.contiguous(), dist.get_world_size()
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes not in STATE:
        stage = kit.staging(nbytes, tensor.device)
        counts = kit.staging(4 * PROGRAMS * world, tensor.device, name="counts")
        STATE[nbytes] = stage, triton_kit.tables(stage.handle), triton_kit.tables(counts.handle)
    stage, table, counts = STATE[nbytes]
    switch = tensor.dtype == torch.float32 and kit.nvls(stage.handle, links=world - 1, switch=1)
    out = torch.empty_like(tensor)
    multicast = int(stage.handle.multicast_ptr)
    all_reduce[(PROGRAMS,)](
        table, counts, multicast, tensor, out, tensor.numel(), TYPES[tensor.dtype], dist.get_rank(), world, switch, 256
    )
    return out
