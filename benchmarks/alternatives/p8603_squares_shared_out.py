"""86: each rank squares its share of the rows of the Gram matrix, and the polynomial's rows are gathered: the square is more
than half of all products, and in the baseline every rank computes all of it."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.p86_tp_muon_orthogonalization import TABLES, baseline


def alternative(
    x: torch.Tensor,
    steps: int = 5,
    coefficient_type: str = "quintic",
    partition_dim: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if x.dtype is not torch.bfloat16 or coefficient_type not in TABLES or x.shape[1 - partition_dim] % world_size:
        return baseline(x, steps, coefficient_type, partition_dim, group)
    X = x
    for step in range(steps):
        a, b, c = TABLES[coefficient_type][step % len(TABLES[coefficient_type])]
        G = torch.matmul(X, X.t()) if partition_dim == 1 else torch.matmul(X.t(), X)
        dist.all_reduce(G, op=dist.ReduceOp.SUM, group=group)
        if step == 0:
            scale = G.diagonal().sum(dtype=torch.float32).rsqrt().clamp(max=1e7)
            X, G = ((t.to(torch.float32) * factor).to(x.dtype) for t, factor in ((X, scale), (G, scale.square())))
        own, Y = G.chunk(world_size)[rank], torch.empty_like(G)
        dist.all_gather_into_tensor(Y, torch.addmm(own, own, G, beta=b, alpha=c), group=group)
        X = torch.addmm(X, Y, X, beta=a) if partition_dim == 1 else torch.addmm(X, X, Y, beta=a)
    return X


PROBLEM = replace(get(86), id=8603, name="squares_shared_out", baseline=alternative)
