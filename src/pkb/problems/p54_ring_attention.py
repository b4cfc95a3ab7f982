"""Ring attention: exact attention over a sequence whose positions are spread over the ranks in contiguous blocks.

ring-flash-attention's basic ring (context parallelism). Rank r holds q, k and v (B, S, heads, head size) of positions
[r * S, (r + 1) * S) and returns the attention of its own queries over the whole sequence of W * S positions, causal
or not. K and V blocks travel around the ring; each block's attention is merged with what was there by its
log-sum-exp. Scores are scaled by softmax_scale, or by 1 / sqrt(head size) if that is None. All arithmetic is float32 (or
wider), rounded once at the end.

Causal work is uneven: rank 0 needs no block but its own, yet must serve it; the last rank needs all. A good kernel
reads each peer's K and V directly as soon as they are ready, keeps scores on chip with a running maximum, and never
overwrites a block that a slower rank still reads, in this call or the next.
"""

import torch
import torch.distributed as dist

from pkb.problems.attention_inputs import draw_scale, sharp_queries
from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fused_attention import attend, gather_positions
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the whole sequence; each of W ranks holds tokens // W positions
    "tiny": {"batch": 2, "tokens": 32, "heads": 2, "head_size": 16},
    "paper": {"batch": 16, "tokens": 16, "heads": 8, "head_size": 64},
    "real": {"batch": 1, "tokens": 32768, "heads": 32, "head_size": 128},  # LWM-7B, CP 8
    "odd": {"batch": 3, "tokens": 53, "heads": 5, "head_size": 24},
}
KINDS = {"causal": 0.5, "full": 0.5}


def inputs(draw: Draw) -> Arguments:
    shape = (draw.size["batch"], draw.size["tokens"] // draw.world_size, draw.size["heads"], draw.size["head_size"])
    # Keys of another size on each rank give the blocks unlike weights: a merge that ignores the log-sum-exp shows.
    sharpness = draw.random("sharpness").uniform(0.5, 2.0)
    return {
        "q": sharp_queries(draw, shape),
        "k": draw.normal("k", shape, scale=sharpness),
        "v": draw.normal("v", shape),
        "softmax_scale": draw_scale(draw),
        "causal": draw.kind_of(KINDS) == "causal",
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal queries and keys: no score is large."""
    shape = (draw.size["batch"], draw.size["tokens"] // draw.world_size, draw.size["heads"], draw.size["head_size"])
    return {"q": draw.normal("q, published", shape), "k": draw.normal("k, published", shape)}


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"shapes differ: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    to_rank = dist.get_global_rank(group, (rank + 1) % world_size)
    from_rank = dist.get_global_rank(group, (rank - 1) % world_size)
    positions, head_size = q.shape[1], q.shape[3]
    scale = head_size**-0.5 if softmax_scale is None else softmax_scale
    wide = torch.promote_types(q.dtype, torch.float32)
    query = q.to(wide).transpose(1, 2) * scale  # (B, heads, S, head size)
    future = torch.ones(positions, positions, dtype=torch.bool, device=q.device).triu(1)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, masked: bool) -> tuple[torch.Tensor, ...]:
        """Output and log-sum-exp over one block; by halves of the heads where scores would take more than 4 GiB."""
        batch, heads = query.shape[:2]
        if heads > 1 and batch * heads * positions**2 * query.element_size() > 2**32:
            middle = heads // 2
            parts = slice(middle), slice(middle, None)
            halves = [attend(query[:, part], key[:, part], value[:, part], masked) for part in parts]
            return tuple(torch.cat(pieces, dim=1) for pieces in zip(*halves, strict=True))
        scores = torch.matmul(query, key.transpose(-2, -1))
        if masked:
            scores.masked_fill_(future, float("-inf"))
        peak = scores.amax(dim=-1, keepdim=True)
        weights = scores.sub_(peak).exp_()
        weight_sum = weights.sum(dim=-1, keepdim=True)
        return torch.matmul(weights, value) / weight_sum, peak + weight_sum.log()

    kv = torch.stack([k, v])
    out = lse = None
    for step in range(world_size):  # kv is now the block of rank (rank - step) mod W
        requests = []
        if step + 1 < world_size:
            next_kv = torch.empty_like(kv)
            send = dist.P2POp(dist.isend, kv, to_rank, group)
            receive = dist.P2POp(dist.irecv, next_kv, from_rank, group)
            requests = dist.batch_isend_irecv([send, receive])

        if step <= rank or not causal:
            key, value = kv.to(wide).transpose(2, 3)
            block_out, block_lse = attend(query, key, value, causal and step == 0)
            if out is None or lse is None:
                out, lse = block_out, block_lse
            else:
                out = out - torch.sigmoid(block_lse - lse) * (out - block_out)
                lse = lse - torch.nn.functional.logsigmoid(lse - block_lse)

        for request in requests:
            request.wait()
        if requests:
            kv = next_kv
    assert out is not None
    return out.transpose(1, 2).to(q.dtype).contiguous()


def baseline(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Keys and values are gathered, as Llama 3's context parallelism does, and one fused attention reads them as they lie."""
    group = dist.group.WORLD if group is None else group
    assert group is not None
    (key, key_work), (value, value_work) = gather_positions(k, group), gather_positions(v, group)
    for work in (key_work, value_work):
        work.wait()
    seen = (dist.get_rank(group) + 1) * q.shape[1] if causal else key.shape[2]
    out = attend(q.transpose(1, 2), key[:, :, :seen], value[:, :, :seen], causal=causal, scale=softmax_scale)
    return out.transpose(1, 2).contiguous()


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, positions = world_size, size["tokens"] // world_size
    tensor = size["batch"] * positions * size["heads"] * size["head_size"]
    kv = 2 * tensor * element_bytes
    return Cost.all_gather(
        w * kv,
        w,
        flops=4 * tensor * positions * (w - 0.5),  # the last rank of a causal call: W - 1 full blocks and half of one
        hbm_bytes=2 * tensor * element_bytes + kv,
        note="a causal call; blocks are read from their owners, where the reference passes them on in W - 1 hops",
        mean_flops=4 * tensor * positions * w / 2,  # half of the square
        mean_link_bytes=(w - 1) / 2 * kv,  # the first rank needs no other's block, the last needs all
    )


def requires(size: Size, world_size: int) -> str | None:
    positions = size["tokens"] // world_size
    if positions < 1:
        return f"{size['tokens']} tokens are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=54,
    name="ring_attention",
    source="ring-flash-attention, basic ring",
    taxonomy=Taxonomy(
        parallelism=("cp", "sp"),
        layer="attention",
        stage=("training-forward",),
        pattern=("ring",),
        system="kernel libraries",
        fusable="block attention with a running log-sum-exp",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    tried=(
        Alternative("a ring of flash attention blocks, merged by their log-sum-exp", us=74505),
        Alternative("cuDNN's attention instead of flash attention", us=33290),
    ),
    cost=cost,
    compare=NormGate(by_row=True),
    requires=requires,
    version=3,  # large scores, scale
)
