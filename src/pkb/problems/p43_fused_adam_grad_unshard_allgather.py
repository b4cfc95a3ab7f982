"""Sharded optimizer step: every rank applies Adam to its shard of the weights, then the weights are gathered.

The last part of a step of ZeRO and of Megatron-LM's distributed optimizer. Rank r holds p elements each of the weights
(`master_shard`), of their gradient, already reduced (`grad_shard`: nothing is summed or divided here), and of the two
Adam moments. Afterwards every rank holds the new weights of all ranks in rank order, (W * p,) in the weights' dtype.
The new moments are not returned, and no argument changes.

Adam with bias correction and no weight decay, element by element, in the dtype or wider:
m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g;
weight = weight - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).

Nothing has to arrive before a rank can begin, and every new weight is final as soon as it is computed: a good kernel
is one pass over the shard that stores each new weight directly into the results of all ranks, by multicast where the
switch has it. What it returns must not be a shared buffer that the next call overwrites.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.mlp_adam import exact_adam_, fused_adam_
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # elements of a shard
    "tiny": {"p": 512},
    "paper": {"p": 4096},
    "real": {"p": 154_476_800},  # an eighth of Llama-3.2-1B
    "odd": {"p": 1009},
}


def inputs(draw: Draw) -> Arguments:
    shape = (draw.size["p"],)
    choice = draw.random("hyperparameters", key="all")
    beta1, beta2, step = choice.choice([0.8, 0.9]), choice.choice([0.95, 0.99, 0.999]), choice.randrange(1, 8)
    # Moments as large as after a few steps: old state and new gradient both show in the update. With moments of zero
    # the update is little more than the sign of the gradient.
    return {
        "grad_shard": draw.normal("grad_shard", shape),
        "master_shard": draw.normal("master_shard", shape),
        "exp_avg": draw.normal("exp_avg", shape, scale=3 * (1 - beta1)),
        "exp_avg_sq": draw.uniform("exp_avg_sq", shape, 0.9 * (1 - beta2), 6.0 * (1 - beta2)),
        # Updates of a third of a weight, where 1e-3 would be lost in rounding, and an eps that is felt.
        "lr": choice.uniform(0.2, 0.5),
        "beta1": beta1,
        "beta2": beta2,
        "eps": choice.uniform(0.2, 0.5),
        "step": step,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Moments are zeros, and the hyperparameters are Adam's usual ones: no weight changes by more than 1e-3."""
    zeros = torch.zeros((draw.size["p"],), dtype=draw.dtype, device=draw.device)
    moments: Arguments = {"exp_avg": zeros, "exp_avg_sq": torch.zeros_like(zeros)}
    return {**moments, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "step": 1 + draw.call % 7}


def solution(
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
    if step < 1:
        raise ValueError(f"step counts from 1, not from {step}")
    p = master_shard.numel()
    if p == 0 or not grad_shard.numel() == exp_avg.numel() == exp_avg_sq.numel() == p:
        raise ValueError("gradient, weights and moments must have the same number of elements, and at least one")
    g, weight = grad_shard.reshape(-1), master_shard.reshape(-1)

    m = exp_avg.reshape(-1).mul(beta1).add(g, alpha=1 - beta1)
    v = exp_avg_sq.reshape(-1).mul(beta2).addcmul(g, g, value=1 - beta2)
    root = (v / (1 - beta2**step)).sqrt().add(eps)
    weight = (weight - lr * ((m / (1 - beta1**step)) / root)).to(master_shard.dtype)

    gathered = torch.empty(dist.get_world_size() * p, dtype=weight.dtype, device=weight.device)
    dist.all_gather_into_tensor(gathered, weight)
    return gathered


def baseline(
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
    """torch's fused Adam, on the place of the result that is this rank's own."""
    p, rank = master_shard.numel(), dist.get_rank()
    gathered = master_shard.new_empty(dist.get_world_size() * p)
    own = gathered[rank * p : (rank + 1) * p].copy_(master_shard.reshape(-1))
    g, m, v = (t.reshape(-1).to(own.dtype, copy=True) for t in (grad_shard, exp_avg, exp_avg_sq))
    fused_adam_(own, g, m, v, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)
    dist.all_gather_into_tensor(gathered, own)
    return gathered


def exact(
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
    """Adam over its arguments; beside them there is the result alone."""
    weight, others = master_shard.reshape(-1), (grad_shard.reshape(-1), exp_avg.reshape(-1), exp_avg_sq.reshape(-1))
    exact_adam_(weight, *others, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)
    gathered = weight.new_empty(dist.get_world_size() * weight.numel())
    dist.all_gather_into_tensor(gathered, weight)
    return gathered


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    shard, w = size["p"] * element_bytes, world_size
    return Cost.all_gather(
        w * shard,
        w,
        flops=12 * size["p"],
        hbm_bytes=(4 + w) * shard,
    )


PROBLEM = Problem(
    id=43,
    name="fused_adam_grad_unshard_allgather",
    source="ZeRO and Megatron-LM's distributed optimizer",
    taxonomy=Taxonomy(
        parallelism=("fsdp", "dp"),
        layer="optimizer",
        stage=("optimizer",),
        pattern=("all-gather",),
        system="LLM training",
        fusable="Adam, which produces what is gathered",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    exact=exact,
    # The gathered parameters are 10 GB of float64 for each of eight ranks.
    fits_one_gpu={"real": (1, 2, 3, 4)},
    baseline=baseline,
    tried=(Alternative("Adam in one pass by torch.compile, which copies no argument"),),
    cost=cost,
    # Element-wise work with a handful of roundings: tighter than sums over ranks.
    compare=NormGate(tau={torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 2e-6}),
    version=3,  # 2: real is the whole shard; 3: twice what honest roundings take
)
