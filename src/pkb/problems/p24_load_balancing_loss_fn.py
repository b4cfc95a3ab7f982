"""Auxiliary loss that keeps the experts of a mixture evenly loaded, averaged over the ranks.

The Switch-Transformer loss as in Hugging Face's Mixtral and Qwen3-MoE, used by VeOmni and xorl. Rank r holds the router
logits (T, E) of its tokens, one tensor or a tuple with one for each layer, and an attention mask (B, S) of ones and zeros
that says which tokens count (T = B * S in every layer), or None: all do. With P the softmax over experts, rounded to the
logits' dtype, the rank's loss is E times the sum over experts of (share of tokens that have the expert among their top_k
of P) times (mean of P), as float32. The result is the mean of the ranks' losses, a 0-dim tensor equal on all ranks. The
mean of the losses is not the loss of all tokens together: shares and means must not be summed over ranks first.

Only four bytes travel, after one pass over the logits. A good kernel keeps a row of logits in registers for softmax and
top-k, counts experts in shared memory, and lets the last block of each rank exchange the loss.
"""

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close, Context
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # more than one layer makes a tuple; with `masked`, every other call has a mask
    "tiny": {"layers": 2, "batch": 2, "seq": 96, "experts": 8, "top_k": 2, "masked": 1},
    "paper": {"layers": 1, "batch": 1, "seq": 1024, "experts": 8, "top_k": 2},
    "real": {"layers": 48, "batch": 1, "seq": 4096, "experts": 128, "top_k": 8},  # Qwen3-30B-A3B
    "odd": {"layers": 3, "batch": 3, "seq": 17, "experts": 13, "top_k": 3, "masked": 1},
}
GAP = 0.25
"""How far the top_k logits of a row stand above the others, at least: rounding must not decide which experts count."""
GOLDEN = 0.6180339887
PADDING = 5.0
"""How strongly masked tokens prefer the experts that are the least popular ones with all others."""


def inputs(draw: Draw) -> Arguments:
    layers, experts, top_k = draw.size["layers"], draw.size["experts"], draw.size["top_k"]
    batch, seq = draw.size["batch"], draw.size["seq"]
    # Balanced routers have a loss of top_k on every rank and in every call, which a candidate could guess. So experts
    # are unequally popular, by an amount that is another on each rank and in each call: multiples of the golden ratio
    # stay far apart. Where they start is the same in all calls, and secret.
    start = replace(draw, call=0).random("start", key="all")
    call_level = (start.random() + GOLDEN * draw.call) % 1.0
    rank_level = (start.random() + GOLDEN * draw.rank) % 1.0
    order = torch.linspace(-1.0, 1.0, experts, device=draw.device)[draw.permutation("popularity", experts)]
    popularity = order * (0.2 + 2.0 * call_level + 3.0 * rank_level)
    mask = None
    if "masked" in draw.size and draw.in_turn("masked", (False, True)):
        mask = (draw.uniform("mask", (batch, seq), 0.0, 1.0, dtype=torch.float32) < 0.7).to(torch.int64)
        mask[:, 0] = 1  # never a mask of zeros only
    logits = []
    for layer in range(layers):
        values = draw.normal(f"logits {layer}", (batch * seq, experts), dtype=torch.float32) + popularity
        if draw.device.type != "meta":
            if mask is not None:  # padding is all alike and goes elsewhere: left in, it shows in shares and in means
                values -= (popularity + PADDING * order) * (1 - mask.reshape(-1, 1))
            values.scatter_add_(1, values.topk(top_k, dim=1).indices, torch.full_like(values, GAP))
        logits.append(values.to(draw.dtype))
    return {
        "gate_logits": tuple(logits) if layers > 1 else logits[0],
        "num_experts": experts,  # both belong to the model, and to the size
        "top_k": top_k,
        "attention_mask": mask,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal numbers: equally popular experts, and no gap below the chosen ones."""
    layers, shape = draw.size["layers"], (draw.size["batch"] * draw.size["seq"], draw.size["experts"])
    logits = tuple(draw.normal(f"logits {layer}, published", shape) for layer in range(layers))
    return {"gate_logits": logits if layers > 1 else logits[0]}


def solution(
    gate_logits: torch.Tensor | tuple[torch.Tensor, ...],
    num_experts: int,
    top_k: int = 2,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    logits = gate_logits if isinstance(gate_logits, torch.Tensor) else torch.cat(list(gate_logits), dim=0)
    if logits.shape[-1] != num_experts or top_k > num_experts:
        raise ValueError(f"logits of shape {tuple(logits.shape)} for the top {top_k} of {num_experts} experts")
    probabilities = logits.softmax(dim=-1)  # float32 inside, rounded to the logits' dtype
    wide = torch.promote_types(logits.dtype, torch.float32)
    chosen = probabilities.topk(top_k, dim=-1).indices
    if attention_mask is None:
        share = torch.bincount(chosen.reshape(-1), minlength=num_experts).to(wide) / chosen.shape[0]
        mean_probability = probabilities.mean(dim=0)
    else:
        rows = probabilities.shape[0]
        if rows % attention_mask.numel():
            raise ValueError(f"{rows} rows of logits for a mask of {attention_mask.numel()} tokens")
        counts = attention_mask.reshape(-1).repeat(rows // attention_mask.numel())  # the same for every layer
        weights = counts.to(wide).repeat_interleave(top_k)
        share = torch.bincount(chosen.reshape(-1), weights=weights, minlength=num_experts).to(wide) / counts.sum()
        mean_probability = (probabilities * counts[:, None]).sum(dim=0) / counts.sum()

    loss = num_experts * (share * mean_probability).sum()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    return loss / dist.get_world_size()


def baseline(
    gate_logits: torch.Tensor | tuple[torch.Tensor, ...],
    num_experts: int,
    top_k: int = 2,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """histc is told the range that bincount looks for first, and waits for."""
    if attention_mask is not None:
        return solution(gate_logits, num_experts, top_k, attention_mask)
    logits = gate_logits if isinstance(gate_logits, torch.Tensor) else torch.cat(list(gate_logits), dim=0)
    probabilities = logits.softmax(dim=-1)
    wide = torch.promote_types(logits.dtype, torch.float32)
    chosen = probabilities.topk(top_k, dim=-1).indices.to(torch.float32)
    share = torch.histc(chosen, bins=num_experts, min=0, max=num_experts - 1).to(wide) / chosen.shape[0]
    loss = num_experts * (share * probabilities.mean(dim=0)).sum()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    return loss / dist.get_world_size()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    elements = size["layers"] * size["batch"] * size["seq"] * size["experts"]
    scalar = max(4, element_bytes)
    return Cost.all_reduce(
        scalar,
        w,
        phases=1,
        flops=6 * elements,
        hbm_bytes=elements * element_bytes,
    )


@dataclass(frozen=True)
class LossTolerance:
    """Relative; in 16 bits one step of the logits' dtype for the rounded means, two where a mask rounds more often."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        step = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 1e-5, torch.float64: 1e-12}[context.dtype]
        limit = step if context.arguments["attention_mask"] is None else 2 * step
        return Close(rtol={output.dtype: limit})(truth, output, context)


PROBLEM = Problem(
    id=24,
    name="load_balancing_loss_fn",
    source="Switch Transformer, Hugging Face Mixtral and Qwen3-MoE, VeOmni, xorl",
    taxonomy=Taxonomy(
        parallelism=("dp", "ep"),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-reduce",),
        system="RL post-training",
        fusable="softmax, top-k, histogram, mean, dot product",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("k rounds of argmax instead of a top-k, fused with the softmax by torch.compile"),),
    cost=cost,
    compare=LossTolerance(),
    version=2,  # masked tokens prefer other experts, and every other call has a mask
)
