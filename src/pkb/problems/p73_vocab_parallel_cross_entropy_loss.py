"""Cross-entropy of vocabulary-parallel logits: row maximum, sum of exponentials and target logit over all ranks.

The forward pass of Megatron-LM's vocab_parallel_cross_entropy, without its float32 copy. Rank r holds the logits of
vocabulary entries [r Vp, (r + 1) Vp) for all tokens; targets are the same on all ranks. Every step is rounded to the
logits' dtype: m is the row maximum over all ranks; the logits become logits - m **in place**; p is the shifted logit
of the target (0 where another rank owns it), summed over the ranks; s is the sum of exp(logits), summed over the
ranks; the loss is log(s) - p, the same on all ranks. A target outside the vocabulary, such as -100, is not ignored
and not clamped: it belongs to nobody, p is 0, and its loss is log(s).

Three numbers a token travel. A good kernel reads its logits once with a running maximum, exchanges (m, s, p) in one
step and merges them in one order everywhere; the shift in place costs a second pass once m is known, or none
where rows wait on chip for it.
"""

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close, Context, Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # vocab // W entries a rank
    "tiny": {"batch": 2, "seq": 16, "vocab": 96},
    "paper": {"batch": 8, "seq": 1024, "vocab": 512},
    "real": {"batch": 1, "seq": 8192, "vocab": 128256},  # Llama-3
    "odd": {"batch": 3, "seq": 17, "vocab": 331},
}
NOBODYS_TARGETS = 0.05
PEAKED = 0.75
"""Share of the tokens whose probability is mostly one entry's, as a trained model's is; of half of them it is the target."""


def inputs(draw: Draw) -> Arguments:
    tokens = (draw.size["batch"], draw.size["seq"])
    width = draw.size["vocab"] // draw.world_size
    vocab = width * draw.world_size
    target = draw.integers("target", tokens, 0, vocab, key="all")
    logits = draw.normal("vocab_parallel_logits", (*tokens, width))
    # On shapes alone, arithmetic would import torch's compiler: seconds, in every evaluation.
    if draw.device.type != "meta":
        target = with_peaks(draw, logits, target)
    return {
        "vocab_parallel_logits": logits,
        "target": target,
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Logits without peaks, and targets that go through the vocabulary in steps of 13, from a place that differs by call."""
    batch, seq, vocab = draw.size["batch"], draw.size["seq"], draw.size["vocab"]
    first = draw.random("target, published", key="all", values=True).randrange(vocab)
    target = (torch.arange(batch * seq, device=draw.device) * 13 + first) % vocab
    width = vocab // draw.world_size
    return {
        "vocab_parallel_logits": draw.normal("vocab_parallel_logits, published", (batch, seq, width)),
        "target": target.view(batch, seq),
    }


def with_peaks(draw: Draw, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Puts the peaks into this rank's logits, and returns the targets, some of them peaks and some nobody's."""
    tokens, width = target.shape, logits.shape[-1]
    vocab, count = width * draw.world_size, target.numel()
    # Peaks stand in as many different columns as there are, the last one of every shard among them, so that none can be
    # left out. They weigh a quarter to nearly all of the sum over the vocabulary.
    ends = torch.arange(1, draw.world_size + 1, device=draw.device) * width - 1
    peak = torch.cat([ends, draw.permutation("peaks", vocab, key="all").repeat(-(-count // vocab))])[:count]
    kind = draw.uniform("peaked", (count,), 0, 1, key="all", dtype=torch.float32)
    kind[: draw.world_size] = 0.0
    place = draw.permutation("places", count, key="all")
    peak, kind = peak[place].view(tokens), kind[place].view(tokens)
    target = torch.where(kind < PEAKED / 2, peak, target)
    height = draw.uniform("height", tokens, -1.0, 3.0, key="all", dtype=torch.float32) + math.log(vocab) + 0.5
    column = peak - draw.rank * width
    mine = (kind < PEAKED) & (column >= 0) & (column < width)
    logits[mine] = logits[mine].scatter(-1, column[mine][:, None], height[mine][:, None].to(draw.dtype))
    # Padding as Megatron's data sets mark it, and ids that a padded vocabulary would have.
    nobodys = draw.uniform("nobody's", tokens, 0, 1, key="all", dtype=torch.float32)
    target = target.masked_fill(nobodys < NOBODYS_TARGETS / 2, -100)
    return torch.where(nobodys > 1 - NOBODYS_TARGETS / 2, target + vocab, target)


def solution(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    if target.shape != vocab_parallel_logits.shape[:-1]:
        raise ValueError(f"targets {tuple(target.shape)} for logits {tuple(vocab_parallel_logits.shape)}")
    width = vocab_parallel_logits.shape[-1]
    first = dist.get_rank(group) * width

    row_max = vocab_parallel_logits.amax(dim=-1)
    dist.all_reduce(row_max, op=dist.ReduceOp.MAX, group=group)
    vocab_parallel_logits.sub_(row_max[..., None])  # in place: the caller's logits stay shifted

    mine = (target >= first) & (target < first + width)
    column = (target - first).masked_fill(~mine, 0)
    predicted = vocab_parallel_logits.gather(-1, column[..., None])[..., 0].masked_fill(~mine, 0.0)
    dist.all_reduce(predicted, op=dist.ReduceOp.SUM, group=group)

    exp_sum = vocab_parallel_logits.exp().sum(dim=-1)
    dist.all_reduce(exp_sum, op=dist.ReduceOp.SUM, group=group)
    return exp_sum.log() - predicted


def baseline(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Both sums travel in one message."""
    width = vocab_parallel_logits.shape[-1]
    column = target - dist.get_rank(group) * width
    elsewhere = (column < 0) | (column >= width)
    row_max = vocab_parallel_logits.amax(dim=-1)
    dist.all_reduce(row_max, op=dist.ReduceOp.MAX, group=group)
    vocab_parallel_logits.sub_(row_max[..., None])
    predicted = vocab_parallel_logits.gather(-1, column.masked_fill_(elsewhere, 0)[..., None])[..., 0]
    sums = torch.stack([predicted.masked_fill_(elsewhere, 0.0), vocab_parallel_logits.exp().sum(dim=-1)])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=group)
    return sums[1].log() - sums[0]


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, tokens = world_size, size["batch"] * size["seq"]
    slice_ = tokens * (size["vocab"] // w)
    values = 3 * tokens * element_bytes
    return Cost.all_reduce(
        values,
        w,
        phases=1,
        flops=4 * slice_,
        hbm_bytes=2 * slice_ * element_bytes + 8 * tokens + tokens * element_bytes,
        note="one exchange of maximum, sum and target logit; a row stays on chip until its maximum is known: logits are read "
        "once and written once",
    )


def requires(size: Size, world_size: int) -> str | None:
    return None if size["vocab"] >= world_size else f"{size['vocab']} entries are too few for {world_size} ranks"


# Losses lie between 0 and 20. The shifted logit of the target, the logarithm and their difference are each rounded.
ELEMENT = Close(
    rtol={torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 0.0, torch.float64: 1e-12},
    atol={torch.bfloat16: 2**-4, torch.float16: 2**-7, torch.float32: 2e-5},
)


@dataclass(frozen=True)
class LossAndBias:
    """Every loss within rounding (rtol 2^-6, atol 2^-4 in bf16), and their mean error near zero: at most 0.01 + 0.1 / sqrt(n)
    for n losses in bf16.

    Rounding errs to both sides. A kernel that leaves out columns errs to one: 3 % of them lower a loss by 0.03, half a unit
    in the last place of bf16.
    """

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        ratio = ELEMENT(truth, output, context)
        unit = {torch.bfloat16: 1.0, torch.float16: 2**-3}.get(output.dtype)
        if unit is None or ratio > 1 or not output.numel():
            return ratio
        bias = float((output.double() - truth.double()).mean().abs())
        return max(ratio, bias / (unit * (0.01 + 0.1 / math.sqrt(output.numel()))))


PROBLEM = Problem(
    id=73,
    name="vocab_parallel_cross_entropy_loss",
    source="Megatron-LM vocab_parallel_cross_entropy",
    taxonomy=Taxonomy(
        parallelism=("vocab", "tp"),
        layer="loss",
        stage=("training-forward",),
        pattern=("all-reduce",),
        system="LLM training",
        fusable="maximum, sum of exponentials, target gather",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(
        Alternative("torch's log-sum-exp of a slice, exponentiated again to be added up", us=10311),
        Alternative("logits shifted and their exponentials added in one pass by torch.compile"),
    ),
    cost=cost,
    compare=LossAndBias(),
    mutates={"vocab_parallel_logits": Exact()},  # one exact subtraction, rounded once
    requires=requires,
    version=3,  # tolerance: among 8192 losses three roundings fall on one side
)
