"""Attention layer with Ulysses sequence parallelism: every rank projects its positions and attends for its heads.

DeepSpeed-Ulysses, as VeOmni uses it. Rank r holds `hidden_states` (B, S, H), the r-th of W equal parts of a sequence of
W * S positions, and the whole weights, the same on all ranks. Rows of w_qkv are ordered q, k, v, then head, then
channel. Each rank projects its positions to Q, K and V of all heads (rounded to the dtype); an all-to-all gives it the
whole sequence for heads r * h / W to (r + 1) * h / W; it attends over the positions, with scores scaled by
head_size ** -0.5 and, if causal, no position seeing a later one (float32 inside, rounded at the end). A second
all-to-all brings it all heads of its own positions, which it multiplies by w_o. No bias, no residual, no norm.

A good kernel hands each tile of the projection to the rank that attends with it while other tiles are computed, starts
to attend before the last tile has come, and returns finished rows of the attention while others are in work.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fused_attention import attend
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the whole sequence; each rank holds tokens // W positions
    "tiny": {"batch": 2, "tokens": 32, "hidden": 64, "heads": 8, "head_size": 8},
    "paper": {"batch": 16, "tokens": 16, "hidden": 512, "heads": 8, "head_size": 64},
    "real": {"batch": 1, "tokens": 32768, "hidden": 4096, "heads": 32, "head_size": 128},  # Llama-2-7B on 8 ranks
    "odd": {"batch": 3, "tokens": 46, "hidden": 75, "heads": 24, "head_size": 5},
}
SHARPNESS = 1.4
"""Scale of queries and keys: attention that is neither nearly uniform nor nearly a choice of one position."""
KINDS = {"causal": 0.5, "full": 0.5}


def inputs(draw: Draw) -> Arguments:
    hidden, heads, width = draw.size["hidden"], draw.size["heads"], draw.size["heads"] * draw.size["head_size"]
    # Parts of the sequence of unlike size get unlike attention weights: leaving one out shows.
    scale = draw.random("hidden scale").uniform(0.7, 1.25)
    shape = (draw.size["batch"], draw.size["tokens"] // draw.world_size, hidden)
    qk = draw.normal("w_qk", (2 * width, hidden), scale=SHARPNESS * hidden**-0.5, key="all")
    v = draw.normal("w_v", (width, hidden), scale=hidden**-0.5, key="all")
    return {
        "hidden_states": draw.normal("hidden_states", shape, scale=scale),
        "w_qkv": torch.cat([qk, v]),
        "w_o": draw.normal("w_o", (hidden, width), scale=width**-0.5, key="all"),
        "group": draw.group("world"),
        "num_heads": heads,
        "causal": draw.kind_of(KINDS, published="full") == "causal",
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Everything is normal and unscaled, weights too, and each rank has its own weights."""
    tensors = {name: value for name, value in drawn.items() if isinstance(value, torch.Tensor)}
    return {name: draw.normal(f"{name}, published", tuple(value.shape)) for name, value in tensors.items()}


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    num_heads: int = 8,
    causal: bool = False,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if num_heads % world_size != 0:
        raise ValueError(f"{num_heads} heads cannot be shared equally by {world_size} ranks")
    if w_qkv.shape[0] % (3 * num_heads) != 0:
        raise ValueError(f"{w_qkv.shape[0]} rows of w_qkv are not three times {num_heads} heads")
    batch, positions, _ = hidden_states.shape
    head_size = w_qkv.shape[0] // (3 * num_heads)
    heads, sequence = num_heads // world_size, world_size * positions

    # (B, S, 3, W, heads, head size): the heads of part d go to rank d, for which they are (3, B, heads, S, head size).
    qkv = torch.matmul(hidden_states, w_qkv.t()).view(batch, positions, 3, world_size, heads, head_size)
    send = qkv.permute(3, 2, 0, 4, 1, 5).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    # Rank j sent positions j * S to (j + 1) * S: its index belongs before that of the position.
    query, key, value = received.permute(1, 2, 3, 0, 4, 5).reshape(3, batch, heads, sequence, head_size)

    # A block of queries at a time, so that not all scores must be in memory at once.
    context = torch.empty_like(query)
    block = 256
    for start in range(0, sequence, block):
        stop = min(start + block, sequence)
        seen, mask = sequence, None
        if causal:
            seen = stop
            mask = torch.ones(stop - start, seen, dtype=torch.bool, device=query.device).tril(start)
        context[:, :, start:stop] = torch.nn.functional.scaled_dot_product_attention(
            query[:, :, start:stop], key[:, :, :seen], value[:, :, :seen], attn_mask=mask
        )

    # Back: the positions of part d go to rank d, with its heads; rank j sends heads j * h / W to (j + 1) * h / W.
    send = context.view(batch, heads, world_size, positions, head_size).permute(2, 0, 3, 1, 4).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    own = received.permute(1, 2, 0, 3, 4).reshape(batch, positions, num_heads * head_size)
    return torch.matmul(own, w_o.t())


def baseline(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    num_heads: int = 8,
    causal: bool = False,
) -> torch.Tensor:
    """One fused attention over the whole sequence. Positions travel before the batch, so that it reads what came as it lies."""
    world_size = dist.get_world_size(group)
    batch, positions, _ = hidden_states.shape
    head_size, heads = w_qkv.shape[0] // (3 * num_heads), num_heads // world_size
    qkv = torch.matmul(hidden_states, w_qkv.t()).view(batch, positions, 3, world_size, heads, head_size)
    send = qkv.permute(3, 1, 0, 2, 4, 5).contiguous()  # (destination, S, B, 3, heads, head size)
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    query, key, value = received.flatten(0, 1).permute(2, 1, 3, 0, 4)
    context = attend(query, key, value, causal=causal, scale=None)
    send = context.permute(2, 0, 1, 3).contiguous()  # (W * S, B, heads, head size): no copy for a batch of one
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    own = received.view(world_size, positions, batch, -1).permute(2, 1, 0, 3).reshape(batch, positions, -1)
    return torch.matmul(own, w_o.t())


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, batch, hidden = world_size, size["batch"], size["hidden"]
    positions, width = size["tokens"] // w, size["heads"] * size["head_size"]
    rows, sequence = batch * positions, w * positions
    pairs = batch * sequence * (sequence + 1) / 2  # of a causal call
    exchanged = 4 * rows * width * element_bytes  # q, k and v, then the context
    return Cost.all_to_all(
        exchanged,
        w,
        phases=2,
        flops=8 * rows * hidden * width + 4 * pairs * width / w,
        hbm_bytes=(4 * hidden * width + 2 * rows * hidden) * element_bytes,
        note="a causal call; without the mask attention takes twice as many operations",
    )


def requires(size: Size, world_size: int) -> str | None:
    if reason := why_not_equal(size["heads"], "heads", world_size):
        return reason
    if size["tokens"] < world_size:
        return f"{size['tokens']} tokens are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=39,
    name="ulysses_attention_e2e",
    source="DeepSpeed-Ulysses and VeOmni attention",
    taxonomy=Taxonomy(
        parallelism=("sp",),
        layer="attention",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="RL post-training",
        fusable="QKV GEMM, attention, output GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("cuDNN's attention instead of flash attention", us=36169),),
    cost=cost,
    # Reductions over hidden, head size, positions and width, with four roundings between them.
    compare=NormGate(tau={torch.bfloat16: 2e-2, torch.float16: 3e-3}, by_row=True),
    requires=requires,
    version=3,  # kinds of calls
)
