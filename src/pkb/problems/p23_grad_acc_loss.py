"""Normalises a loss by the number of valid tokens of all ranks, with the gradient of that step.

Gradient accumulation in xorl and VeOmni: ranks see different numbers of valid tokens, so the mean of their mean losses is
not the mean loss. Every argument is a scalar tensor. Rank r holds its mean `loss`, its count of valid tokens and the
count of all ranks. It returns, in the loss' dtype, the normalised loss (sum over ranks of loss * local count, divided by
the global count) and that sum, both equal on all ranks, and its own gradient
grad_normalized_loss * local / global + grad_loss_sum * local (no second term if grad_loss_sum is None). A rank without
valid tokens has the mean of nothing, often NaN, as its loss: it must count as zero, not poison the sum.

One number travels: this is latency and nothing else. A good kernel is a single launch that writes its product to all
peers, computes its gradient while it waits, and never asks the host whether the count is zero.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Close, Context
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the largest count of a rank; the arguments are scalars at every size
    "tiny": {"tokens": 64},
    "paper": {"tokens": 1024 * 1024},
    "real": {"tokens": 8192},  # Llama-3-8B fine-tuning, packed sequences
    "odd": {"tokens": 997},
}
CALLS_WITH_EMPTY_RANK = 0.5
KINDS = {"both_gradients": 0.75, "no_sum_gradient": 0.25}


def inputs(draw: Draw) -> Arguments:
    w, tokens = draw.world_size, draw.size["tokens"]
    plan = draw.random("plan", key="all")
    counts = [plan.randint(tokens // 3, tokens) for _ in range(w)]
    no_loss = plan.choice([float("nan"), float("inf"), -float("inf")])
    if w > 1 and plan.random() < CALLS_WITH_EMPTY_RANK:
        counts[plan.randrange(1, w)] = 0
    local, total = counts[draw.rank], sum(counts)
    # Losses and gradients are positive, so that no sum cancels and relative errors make sense.
    loss = draw.uniform("loss", (), 0.5, 4.0)
    return {
        "loss": loss if local else torch.full_like(loss, no_loss),
        "local_valid_tokens": torch.tensor(local, device=draw.device),
        "global_valid_tokens": torch.tensor(total, device=draw.device),
        "grad_normalized_loss": draw.uniform("grad_normalized_loss", (), 0.5, 2.0, key="all"),
        "grad_loss_sum": draw.uniform("grad_loss_sum", (), 0.2 / total, 1.0 / total, key="all")
        if draw.kind_of(KINDS) == "both_gradients"
        else None,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """A normal number as the loss, all tokens valid on every rank, and gradients of 1 and 0."""
    tokens = draw.size["tokens"]
    one = torch.ones((), dtype=draw.dtype, device=draw.device)
    return {
        "loss": draw.normal("loss, published", ()),
        "local_valid_tokens": torch.tensor(tokens, device=draw.device),
        "global_valid_tokens": torch.tensor(draw.world_size * tokens, device=draw.device),
        "grad_normalized_loss": one,
        "grad_loss_sum": None if drawn["grad_loss_sum"] is None else torch.zeros_like(one),
    }


def solution(
    loss: torch.Tensor,
    local_valid_tokens: torch.Tensor,
    global_valid_tokens: torch.Tensor,
    grad_normalized_loss: torch.Tensor,
    grad_loss_sum: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # Before the product: NaN times zero is NaN.
    loss = torch.where(local_valid_tokens == 0, torch.nan_to_num(loss), loss)
    loss_sum = loss * local_valid_tokens
    dist.all_reduce(loss_sum, op=dist.ReduceOp.SUM)
    normalized_loss = loss_sum / global_valid_tokens

    grad_loss = grad_normalized_loss * local_valid_tokens / global_valid_tokens
    if grad_loss_sum is not None:
        grad_loss = grad_loss + grad_loss_sum * local_valid_tokens
    return normalized_loss, loss_sum, grad_loss


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    return Cost.all_reduce(
        element_bytes,
        w,
        phases=1,
        flops=6,
        hbm_bytes=2 * 8 + 6 * element_bytes,
        note="scalars: latency decides",
    )


@dataclass(frozen=True)
class SumOverRanks:
    """Relative error of a sum of positive terms that may be rounded, in any order, after every addition.

    In bf16 a product, its count, each of W - 1 additions, the global count and the quotient may each be off by 2^-9.
    """

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        half_steps = (context.world_size + 3) * 2**-9
        limit = {torch.bfloat16: 1.5 * half_steps, torch.float32: 1e-6, torch.float64: 1e-12}
        return Close(rtol=limit)(truth, output, context)


# Three products or quotients, two rounded counts and a sum.
GRADIENT = Close(rtol={torch.bfloat16: 3 * 2**-7, torch.float32: 1e-6, torch.float64: 1e-12})

PROBLEM = Problem(
    id=23,
    name="grad_acc_loss",
    source="xorl and VeOmni, loss normalisation for gradient accumulation",
    taxonomy=Taxonomy(
        parallelism=("dp", "fsdp", "sp"),
        layer="loss",
        stage=("training-forward", "training-backward"),
        pattern=("all-reduce",),
        system="RL post-training",
        fusable="scalar arithmetic",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline_reason="a handful of operations on single numbers around one all-reduce",
    cost=cost,
    compare=(SumOverRanks(), SumOverRanks(), GRADIENT),
    dtypes=("bf16", "fp32", "fp64"),  # a sum of losses over tokens does not fit fp16
    version=2,  # calls without a gradient of the sum are a kind
)
