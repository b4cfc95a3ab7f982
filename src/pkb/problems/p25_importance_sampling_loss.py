"""Policy loss of reinforcement learning with importance sampling, from hidden states to the mean over all ranks.

xorl (Tinker-style). Rank r holds the hidden states (M, N) of its tokens, the whole vocabulary projection `weight` (V, N),
equal on all ranks, the tokens that were sampled, the log-probabilities under the policy that sampled them, and
advantages. Labels equal to ignore_index do not count. With c = -log softmax(hidden @ weight.T)[label] (logits rounded to
the dtype, c again) and d = clamp(-c - old_logprobs, -20, 20), ratio = exp(d), the token's loss is -ratio * advantage.
Returned are: the mean loss over the valid tokens of all ranks (float32, equal on all ranks); None; this rank's -c; this
rank's token losses (both zero where ignored); and five float32 metrics of all valid tokens of all ranks: mean, minimum
and maximum of the ratio, the mean of ratio - d - 1 (a KL estimate), and the mean of c. A rank may have no valid token.
(In training a surrogate gives the loss its gradient; its value is the mean loss.)

Seven numbers travel, none depends on another: one exchange. The work is the vocabulary projection: a good kernel keeps a
running maximum and sum beside the matrix product and never writes the (M, V) logits.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.blocks import BLOCKS
from pkb.problems.compare import Close, Context
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 40, "n": 32, "vocab": 96},
    "paper": {"m": 1024, "n": 1024, "vocab": 32000},
    "real": {"m": 4096, "n": 4096, "vocab": 151936},  # Qwen3-8B, 4096 tokens a rank
    "odd": {"m": 37, "n": 29, "vocab": 101},
}
IGNORE_INDICES = (-100, -1)
IGNORED = 0.2
SIDES = ("both", "both", "both", "both", "above", "below", "above, one idle", "below, one idle")
"""Where the ratios of a call lie: to both sides of 1, as in training; or all to one, so that a ratio of 1, which an ignored
token or a rank without valid ones may leave behind, shows as the smallest or largest of all."""
CALLS_WITH_CLAMPED_TOKENS = 0.5
CLAMPED = 0.05
LARGEST_LOG_RATIO = 2.6
"""Of the rank with the largest; that of the rank with the smallest largest one is 1 below it."""


def peaked_states(draw: Draw, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states of which each has one likely token, as a trained model's have, and which it is: another one for each.
    It weighs a quarter to nearly all of the sum over the vocabulary, so that no part of that can be left out."""
    m, n, vocab = draw.size["m"], draw.size["n"], draw.size["vocab"]
    peak = draw.permutation("peaks", vocab).repeat(-(-m // vocab))[:m]
    height = draw.uniform("height", (m, 1), -1.0, 2.0, dtype=torch.float32) + math.log(vocab) + 0.5
    states = draw.normal("hidden_states", (m, n), dtype=torch.float32)
    rows = weight[peak].float()
    states += (height - (states * rows).sum(1, keepdim=True)) * rows / rows.square().sum(1, keepdim=True)
    return states.to(draw.dtype), peak


def inputs(draw: Draw) -> Arguments:
    m, n, vocab = draw.size["m"], draw.size["n"], draw.size["vocab"]
    plan = draw.random("plan", key="all")
    ignore_index = plan.choice(IGNORE_INDICES)
    weight = draw.normal("weight", (vocab, n), scale=n**-0.5, key="all")
    labels = draw.integers("labels", (m,), 0, vocab)
    # On shapes alone, arithmetic would import torch's compiler: seconds, in every evaluation.
    if draw.device.type == "meta":
        return {
            "hidden_states": draw.normal("hidden_states", (m, n)),
            "weight": weight,
            "labels": labels,
            "old_logprobs": draw.normal("noise", (m,)),
            "advantages": draw.normal("advantages", (m,)),
            "ignore_index": ignore_index,
        }
    hidden, peak = peaked_states(draw, weight)
    # The sampled token is the likeliest one in half of the cases.
    labels = torch.where(draw.uniform("likely", (m,), 0, 1, dtype=torch.float32) < 0.5, peak, labels)
    noise = draw.normal("noise", (m,), scale=0.4, dtype=torch.float32)
    side = draw.in_turn("sides of 1", SIDES)
    above, below = side.startswith("above"), side.startswith("below")
    if above:
        noise = -0.8 - noise.abs() / 2
    if below:
        noise = 1.8 + noise.abs()
    # Downwards only: one ratio of exp(20) would drown all others.
    if plan.random() < CALLS_WITH_CLAMPED_TOKENS and not above:
        noise += 30.0 * (draw.uniform("clamped", (m,), 0.0, 1.0, dtype=torch.float32) < CLAMPED)
    # One token with a large ratio on each rank, of another size on each: without the peers' largest, a rank has its own.
    place = draw.random("largest ratios", key="all").sample(range(draw.world_size), draw.world_size)[draw.rank]
    largest = draw.random("token with the largest ratio").randrange(m)
    noise[largest] = -(-0.5 if below else LARGEST_LOG_RATIO) + place / max(1, draw.world_size - 1)
    # What the model would give the label, without the product with all of `weight`: its columns are independent normal
    # vectors, so the sum of V exponentials is close to V times their mean, beside the peak's.
    wide = hidden.to(torch.float32)
    label_logit, peak_logit = ((wide * weight[rows].to(torch.float32)).sum(dim=1) for rows in (labels, peak))
    logprob = label_logit - torch.logaddexp(peak_logit, math.log(vocab) + wide.square().sum(dim=1) / (2 * n))

    ignored = draw.uniform("ignored", (m,), 0.0, 1.0, dtype=torch.float32) < (0.0 if draw.even else IGNORED)
    ignored[largest] = False
    if draw.world_size > 1 and side.endswith("idle") and draw.rank == plan.randrange(draw.world_size):
        ignored = torch.ones_like(ignored)
    old_logprobs = logprob + noise
    if above:  # as padding has it: with c = 0, a ratio of 1
        old_logprobs = old_logprobs.masked_fill(ignored, 0.0)
    # Another mean on each rank: the loss of one rank says little about the loss of all.
    mean_advantage = draw.random("mean advantage").uniform(0.5, 2.0) * (1 if draw.rank % 2 else -1)
    advantages = draw.normal("advantages", (m,), scale=0.5, dtype=torch.float32) + mean_advantage
    if above:  # losses no larger than in other calls, whose tolerance is absolute
        advantages *= 0.33
    return {
        "hidden_states": hidden,
        "weight": weight,
        "labels": labels.masked_fill(ignored, ignore_index),
        "old_logprobs": old_logprobs.to(draw.dtype),
        "advantages": advantages.to(draw.dtype),
        "ignore_index": ignore_index,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Unscaled normal numbers, another weight on each rank, and uniform labels, all valid: nearly every ratio is exp(-20)."""
    m, n, vocab = draw.size["m"], draw.size["n"], draw.size["vocab"]
    return {
        "hidden_states": draw.normal("hidden_states, published", (m, n)),
        "weight": draw.normal("weight, published", (vocab, n)),
        "labels": draw.integers("labels, published", (m,), 0, vocab),
        "old_logprobs": draw.normal("old_logprobs, published", (m,)),
        "advantages": draw.normal("advantages, published", (m,)),
    }


def solution(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    if hidden_states.shape[:-1] != labels.shape or hidden_states.shape[-1] != weight.shape[-1]:
        raise ValueError(
            f"hidden_states {tuple(hidden_states.shape)} do not fit labels {tuple(labels.shape)} "
            f"and weight {tuple(weight.shape)}"
        )
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    flat_labels = labels.reshape(-1)
    logits = torch.matmul(hidden_states.reshape(-1, hidden_states.shape[-1]), weight.t())
    nll = torch.nn.functional.cross_entropy(logits, flat_labels, ignore_index=ignore_index, reduction="none")

    valid = flat_labels != ignore_index
    old = old_logprobs.reshape(-1)
    log_ratio = torch.where(valid, -nll - old, torch.zeros_like(old)).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    loss = -torch.where(valid, ratio * advantages.reshape(-1), torch.zeros_like(ratio))
    kl = torch.where(valid, ratio - log_ratio - 1, torch.zeros_like(ratio))

    def total(values: torch.Tensor) -> torch.Tensor:
        return values.sum(dtype=wide)

    sums = torch.stack([total(valid), total(loss), total(ratio * valid), total(kl), total(nll)])
    infinity = torch.full_like(ratio, float("inf"))
    smallest = torch.where(valid, ratio, infinity).amin().to(wide)
    largest = torch.where(valid, ratio, -infinity).amax().to(wide)
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)

    mean_loss, ratio_mean, kl_mean, nll_mean = sums[1:] / sums[0].clamp(min=1.0)
    metrics = torch.stack([ratio_mean, smallest, largest, kl_mean, nll_mean])
    return mean_loss, None, -nll.view(labels.shape), loss.view(labels.shape), metrics


def exact(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The logits of a few tokens at a time."""
    wide = torch.promote_types(hidden_states.dtype, torch.float32)
    flat, valid = labels.reshape(-1), labels.reshape(-1) != ignore_index
    blocks = zip(hidden_states.flatten(0, -2).chunk(BLOCKS), flat.chunk(BLOCKS), strict=True)
    nll = torch.cat(
        [
            torch.nn.functional.cross_entropy(some @ weight.t(), label, ignore_index=ignore_index, reduction="none")
            for some, label in blocks
        ]
    )
    log_ratio = (-nll - old_logprobs.reshape(-1)).masked_fill(~valid, 0).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    loss = (-ratio * advantages.reshape(-1)).masked_fill(~valid, 0)
    kl = (ratio - log_ratio - 1).masked_fill(~valid, 0)
    sums = torch.stack([x.sum(dtype=wide) for x in (valid, loss, ratio * valid, kl, nll)])
    extremes = torch.stack(
        [ratio.masked_fill(~valid, math.inf).amin(), ratio.masked_fill(~valid, -math.inf).amax()]
    ).to(wide)
    dist.all_reduce(sums)
    dist.all_reduce(extremes[0], op=dist.ReduceOp.MIN)
    dist.all_reduce(extremes[1], op=dist.ReduceOp.MAX)
    mean_loss, ratio_mean, kl_mean, nll_mean = sums[1:] / sums[0].clamp(min=1.0)
    metrics = torch.stack([ratio_mean, *extremes, kl_mean, nll_mean])
    return mean_loss, None, -nll.view(labels.shape), loss.view(labels.shape), metrics


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, n, vocab, w = size["m"], size["n"], size["vocab"], world_size
    scalars = 7 * 4
    return Cost.all_reduce(
        scalars,
        w,
        phases=1,
        flops=2 * (1 - 1.5 * IGNORED) * m * n * vocab,
        hbm_bytes=(m * n + vocab * n + 4 * m) * element_bytes + 8 * m,
        note="ignored tokens need no logits; the logits need not be written",
    )


@dataclass(frozen=True)
class InSteps:
    """A tolerance in rounding steps of the arguments' dtype, relative and absolute.

    -c is near 12 and carries half a step of its own size, 2^-8 * 8 in bf16, beside the error of the label's logit; the
    ratio is the exponential of a difference, so that absolute error is its relative one.
    """

    relative: float
    absolute: float

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        # Wider dtypes are not limited by storage, but by the sums over N and V.
        step = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-19, torch.float64: 2**-44}[
            context.dtype
        ]
        rule = Close(rtol={output.dtype: self.relative * step}, atol={output.dtype: self.absolute * step})
        return rule(truth, output, context)


@dataclass(frozen=True)
class UnbiasedLogprobs:
    """-c in rounding steps, and its mean error over the valid tokens near zero: 0.01 + 0.1 / sqrt(n) in bf16.

    Rounding errs to both sides; a kernel that leaves out 3 % of the vocabulary errs to one, by 0.03 nearly everywhere.
    """

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        # Half a step of its own size, four steps of logits up to 16 and one of the sum; twice that is allowed.
        ratio = InSteps(relative=1, absolute=10)(truth, output, context)
        unit = {torch.bfloat16: 1.0, torch.float16: 2**-3}.get(context.dtype)
        valid = truth != 0
        count = int(valid.sum())
        if unit is None or ratio > 1 or not count:
            return ratio
        bias = float((output.double() - truth.double())[valid].mean().abs())
        return max(ratio, bias / (unit * (0.01 + 0.1 / math.sqrt(count))))


@dataclass(frozen=True)
class Metrics:
    """In rounding steps; the smallest ratio, which may be exp(-20), relative to itself. In float16 that is zero."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        # 2^-24 in steps of 2^-10: no ratio in float16 is smaller.
        least = 2**-14 if context.dtype is torch.float16 else 0
        smallest = InSteps(relative=20, absolute=least)(truth[1:2], output[1:2], context)
        return max(smallest, InSteps(relative=20, absolute=3)(truth, output, context))


PROBLEM = Problem(
    id=25,
    name="importance_sampling_loss",
    source="xorl, importance-sampling policy loss",
    taxonomy=Taxonomy(
        parallelism=("dp",),
        layer="loss",
        stage=("rl", "training-forward"),
        pattern=("all-reduce",),
        system="RL post-training",
        fusable="vocabulary projection, cross entropy, ratio, reductions",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    exact=exact,
    baseline_reason="a GEMM and torch's cross entropy; seven numbers travel",
    tried=(
        Alternative("the logits of 1024 tokens at a time, in less memory", us=86445),
        Alternative("log-sum-exp less one logit in one pass by torch.compile: no log-probabilities are written"),
    ),
    cost=cost,
    compare=(
        InSteps(relative=0, absolute=8),
        UnbiasedLogprobs(),
        InSteps(relative=20, absolute=0.1),
        Metrics(),
    ),
    version=7,  # calls whose ratios are all above 1, or all below
)
