"""16: the product in four pieces, each with rows of every rank, scattered while the next is computed."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    by_rank = A_local.view(world_size, -1, A_local.shape[1])
    out = A_local.new_empty((by_rank.shape[1], B_local.shape[1]))
    works = []
    for rows, piece in zip(by_rank.chunk(4, dim=1), out.chunk(4), strict=True):
        product = torch.matmul(rows, B_local)  # (ranks, rows, columns)
        works.append(
            (dist.reduce_scatter_tensor(piece, product.flatten(0, 1), op=dist.ReduceOp.SUM, async_op=True), product)
        )
    for work, _ in works:
        work.wait()
    return out


PROBLEM = replace(get(16), id=1601, name="pieces_that_overlap", baseline=alternative)
