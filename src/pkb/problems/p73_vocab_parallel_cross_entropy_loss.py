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

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Close, Exact
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


def inputs(draw: Draw) -> Arguments:
    tokens = (draw.size["batch"], draw.size["seq"])
    width = draw.size["vocab"] // draw.world_size
    vocab = width * draw.world_size
    target = draw.integers("target", tokens, 0, vocab, key="all")
    # Padding as Megatron's data sets mark it, and ids that a padded vocabulary would have.
    nobodys = draw.uniform("nobody's", tokens, 0, 1, key="all", dtype=torch.float32)
    target = target.masked_fill(nobodys < NOBODYS_TARGETS / 2, -100)
    target = torch.where(nobodys > 1 - NOBODYS_TARGETS / 2, target + vocab, target)
    return {
        "vocab_parallel_logits": draw.normal("vocab_parallel_logits", (*tokens, width)),
        "target": target,
        "group": draw.group("world"),
    }


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


# Losses lie between 3 and 15, where half a unit in the last place of bf16 is 0.03. The reference rounds after every step
# and errs by twice that, as may a candidate.
LOSS = Close(
    rtol={torch.bfloat16: 0.0, torch.float16: 0.0, torch.float32: 0.0, torch.float64: 1e-12},
    atol={torch.bfloat16: 0.125, torch.float16: 0.016, torch.float32: 1e-5},
)

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
    reference=solution,
    cost=cost,
    compare=LOSS,
    mutates={"vocab_parallel_logits": Exact()},  # one exact subtraction, rounded once
    requires=requires,
)
