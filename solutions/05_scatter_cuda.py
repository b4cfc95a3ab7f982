"""Scatter: the source publishes all W pieces, each rank pulls its own. No algorithm beats the source's egress of (W-1) S.

The buffer is sized by the piece, which is the same on all ranks, although the arguments are not.
"""

import torch

from pkb import kit

SOURCE = r"""
#include "pkb.cuh"
using namespace pkb;

extern "C" __global__ void scatter(char* const* buffers, u32* const* pads, int rank, int world, const char* in, char* out,
                                   u64 piece, int source) {
  const Part part = part_of_block(piece);
  if (rank == source)
    for (int peer = 0; peer < world; ++peer)
      if (peer != rank) copy_block(buffers[rank] + peer * piece + part.begin, in + peer * piece + part.begin, part.bytes);
  barrier_block(pads, rank, world, blockIdx.x);  // the source has published
  const char* from = (rank == source ? in : buffers[source]) + rank * piece;
  copy_block(out + part.begin, from + part.begin, part.bytes);
  barrier_block(pads, rank, world, blockIdx.x);  // all have read
}

"""
KERNEL = kit.compile(SOURCE, name="scatter").kernel("scatter")


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    tensor = tensor.contiguous()
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    if not 0 <= src < world:
        raise ValueError(f"src {src} is not a rank")
    if rank == src:
        if tensor.shape[0] % world:
            raise ValueError(f"axis 0 of {tuple(tensor.shape)} is not divisible by {world}")
        rows = tensor.shape[0] // world
        shape = tensor.shape[1:] if rows == 1 else (rows, *tensor.shape[1:])
        out = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    else:
        out = torch.empty_like(tensor)
    piece = out.numel() * out.element_size()
    stage = kit.staging(world * piece, tensor.device)
    KERNEL[24, 512](kit.buffers(stage.handle), *kit.barrier_pads(stage.handle), tensor, out, piece, kit.i32(src))
    return out
