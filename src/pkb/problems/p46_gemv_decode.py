"""Vocabulary-parallel LM head while decoding: a few tokens times a large weight matrix, then the logits are gathered.

Megatron-LM's column-parallel linear with gathered output, vLLM's ParallelLMHead. Every rank holds the same hidden states
(T, h) of the T tokens being decoded, and its rows of the vocabulary: weight_shard (V / W, h) and bias_shard (V / W).
Afterwards every rank holds the logits (T, V) of the whole vocabulary, rank r's in columns [r * V / W, (r + 1) * V / W),
the same bits everywhere. The product is rounded to the dtype before the bias is added; adding it before is as good.

With so few tokens the time goes into reading the weight once, so the gather must cost next to nothing: a good kernel
stores each finished logit straight into the results of all ranks. A rank's block is strided in the result (rows of V, runs
of V / W), which a flat gather does not know. A result that lives in a buffer shared with peers must not be overwritten by
the next call.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # vocab: of one rank
    "tiny": {"tokens": 3, "hidden": 32, "vocab": 40},
    "paper": {"tokens": 1, "hidden": 1024, "vocab": 1024},
    "real": {"tokens": 64, "hidden": 8192, "vocab": 16032},  # Llama-3-70B, TP 8, 64 sequences
    "odd": {"tokens": 5, "hidden": 67, "vocab": 53},
    "decode": {"tokens": 8, "hidden": 8192, "vocab": 16032},  # 8 sequences
}


def inputs(draw: Draw) -> Arguments:
    tokens, hidden, vocab = draw.size["tokens"], draw.size["hidden"], draw.size["vocab"]
    return {
        "hidden_states": draw.normal("hidden_states", (tokens, hidden), key="all"),
        "weight_shard": draw.normal("weight_shard", (vocab, hidden), scale=hidden**-0.5),
        "bias_shard": draw.normal("bias_shard", (vocab,)),  # as large as the products: it cannot be forgotten
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """A weight that is not scaled: logits are about sqrt(h)."""
    return {"weight_shard": draw.normal("weight_shard, published", (draw.size["vocab"], draw.size["hidden"]))}


def solution(hidden_states: torch.Tensor, weight_shard: torch.Tensor, bias_shard: torch.Tensor) -> torch.Tensor:
    tokens, hidden = hidden_states.shape
    vocab = weight_shard.shape[0]
    if weight_shard.shape[1] != hidden or bias_shard.shape != (vocab,):
        raise ValueError(
            f"shapes do not fit: hidden_states {tuple(hidden_states.shape)}, weight_shard {tuple(weight_shard.shape)}, "
            f"bias_shard {tuple(bias_shard.shape)}"
        )
    logits = torch.matmul(hidden_states, weight_shard.t()) + bias_shard
    world_size = dist.get_world_size()
    gathered = torch.empty((world_size * tokens, vocab), dtype=logits.dtype, device=logits.device)
    dist.all_gather_into_tensor(gathered, logits.contiguous())
    return gathered.view(world_size, tokens, vocab).transpose(0, 1).reshape(tokens, world_size * vocab)


def baseline(hidden_states: torch.Tensor, weight_shard: torch.Tensor, bias_shard: torch.Tensor) -> torch.Tensor:
    """The bias is added inside the product."""
    logits = torch.nn.functional.linear(hidden_states, weight_shard, bias_shard)
    (tokens, vocab), world_size = logits.shape, dist.get_world_size()
    gathered = logits.new_empty((world_size * tokens, vocab))
    dist.all_gather_into_tensor(gathered, logits)
    return gathered.view(world_size, tokens, vocab).transpose(0, 1).reshape(tokens, world_size * vocab)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    tokens, hidden, vocab, w = size["tokens"], size["hidden"], size["vocab"], world_size
    own = tokens * vocab * element_bytes
    return Cost.all_gather(
        w * own,
        w,
        flops=2 * tokens * vocab * hidden + tokens * vocab,
        hbm_bytes=(vocab * hidden + vocab + tokens * hidden) * element_bytes + w * own,
    )


PROBLEM = Problem(
    id=46,
    name="gemv_decode",
    source="Megatron-LM column-parallel linear with gathered output; vLLM ParallelLMHead",
    taxonomy=Taxonomy(
        parallelism=("tp", "vocab"),
        layer="embedding",
        stage=("inference",),
        pattern=("all-gather",),
        system="LLM training",
        fusable="skinny GEMM and bias before the gather",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    same_bits=True,
)
