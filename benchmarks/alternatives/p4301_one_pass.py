"""43: Adam in one pass by torch.compile, which changes no argument and so copies none."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.compiled import compiled


@compiled
def adam_into(
    place: torch.Tensor, g: torch.Tensor, weight: torch.Tensor, m: torch.Tensor, v: torch.Tensor, factors: torch.Tensor
) -> None:
    g, weight, m, v = (t.to(factors.dtype) for t in (g, weight, m, v))
    keep_m, add_m, keep_v, add_v, rate, unbias, eps = factors.unbind()
    root = ((keep_v * v + add_v * g * g) * unbias).sqrt() + eps
    place.copy_(weight - rate * (keep_m * m + add_m * g) / root)


def alternative(
    grad_shard: torch.Tensor,
    master_shard: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> torch.Tensor:
    p, rank, wide = master_shard.numel(), dist.get_rank(), torch.promote_types(master_shard.dtype, torch.float32)
    gathered = master_shard.new_empty(dist.get_world_size() * p)
    own = gathered[rank * p : (rank + 1) * p]
    # In a tensor: torch.compile would make another kernel for other numbers.
    numbers = [beta1, 1 - beta1, beta2, 1 - beta2, lr / (1 - beta1**step), 1 / (1 - beta2**step), eps]
    factors = torch.tensor(numbers, dtype=wide, device=own.device)
    adam_into(own, *(t.reshape(-1) for t in (grad_shard, master_shard, exp_avg, exp_avg_sq)), factors)
    dist.all_gather_into_tensor(gathered, own)
    return gathered


PROBLEM = replace(get(43), id=4301, name="one_pass", baseline=alternative)
