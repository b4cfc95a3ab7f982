"""Attention layer with tensor and context parallelism: QKV projection, ring attention, output projection, sum.

A Megatron-LM style layer. Tensor-parallel ranks (consecutive pairs) hold the weights of different heads and the same
hidden states; context-parallel ranks (strided across the pairs) hold the same weights and consecutive blocks of
positions. Rows of w_qkv are ordered q, k, v, then head, then channel. Each rank projects its positions for its heads
(rounded to the dtype), attends over the whole sequence (if causal, no position sees a later one) by passing K and V
around its context-parallel ring (float32 inside, rounded at the end), multiplies by its columns of the output
projection (rounded), and the products are summed over the tensor-parallel group. No bias, no residual, no norm. Scores
are scaled by softmax_scale, or by 1 / sqrt(head size) if that is None.

Two ranks make a pair and no ring; the ring begins with four. Its neighbours are two world ranks apart. A good kernel
reads the peers' K and V while it attends to what it has, and sums finished tiles of the output while others are
computed.
"""

import torch
import torch.distributed as dist

from pkb.problems.attention_inputs import draw_scale
from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fused_attention import attend, gather_positions
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the whole sequence; each of cp context-parallel ranks holds tokens // cp positions
    "tiny": {"batch": 2, "tokens": 32, "hidden": 64, "heads": 4, "head_size": 16},
    "paper": {"batch": 16, "tokens": 16, "hidden": 512, "heads": 8, "head_size": 64},
    "real": {"batch": 1, "tokens": 16384, "hidden": 4096, "heads": 32, "head_size": 128},  # Llama-2-7B, TP 2, CP 4
    "odd": {"batch": 3, "tokens": 46, "hidden": 75, "heads": 6, "head_size": 24},
}
KINDS = {"causal": 0.5, "full": 0.5}


def inputs(draw: Draw) -> Arguments:
    cp_rank, cp = draw.coordinate("cp")
    tp_rank, tp = draw.coordinate("tp")
    hidden, heads, head_size = draw.size["hidden"], draw.size["heads"], draw.size["head_size"]
    local = heads // tp * head_size
    by_cp, by_tp = ("cp", cp_rank), ("tp", tp_rank)
    # Blocks of unlike size get unlike attention weights: a merge that ignores the log-sum-exp shows.
    scale = draw.random("hidden scale", key=by_cp).uniform(0.7, 1.25)
    shape = (draw.size["batch"], draw.size["tokens"] // cp, hidden)
    return {
        "hidden_states": draw.normal("hidden_states", shape, scale=scale, key=by_cp),
        "w_qkv": draw.normal("w_qkv", (3 * local, hidden), scale=hidden**-0.5, key=by_tp),
        "w_o": draw.normal("w_o", (hidden, local), scale=(heads * head_size) ** -0.5, key=by_tp),
        "num_heads": heads,
        "softmax_scale": draw_scale(draw),
        "causal": draw.kind_of(KINDS) == "causal",
        "tp_group": draw.group("tp"),
        "cp_group": draw.group("cp"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal hidden states, and weights of 0.02 whatever their width."""
    (cp_rank, cp), (tp_rank, tp) = draw.coordinate("cp"), draw.coordinate("tp")
    hidden, local = draw.size["hidden"], draw.size["heads"] // tp * draw.size["head_size"]
    by_tp, shape = ("tp", tp_rank), (draw.size["batch"], draw.size["tokens"] // cp, hidden)
    return {
        "hidden_states": draw.normal("hidden_states, published", shape, key=("cp", cp_rank)),
        "w_qkv": draw.normal("w_qkv, published", (3 * local, hidden), scale=0.02, key=by_tp),
        "w_o": draw.normal("w_o, published", (hidden, local), scale=0.02, key=by_tp),
    }


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    tp_group: dist.ProcessGroup | None = None,
    cp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if tp_group is None or cp_group is None:
        if dist.get_world_size() > 1:
            raise ValueError("tp_group and cp_group are both needed when there is more than one rank")
        tp_group = cp_group = dist.group.WORLD
    assert tp_group is not None
    assert cp_group is not None
    tp, cp, cp_rank = dist.get_world_size(tp_group), dist.get_world_size(cp_group), dist.get_rank(cp_group)
    heads = num_heads // tp
    if num_heads % tp or w_qkv.shape[0] % (3 * heads):
        raise ValueError(f"{num_heads} heads and {w_qkv.shape[0]} rows of w_qkv do not fit {tp} tensor-parallel ranks")
    batch, positions, _ = hidden_states.shape
    head_size = w_qkv.shape[0] // 3 // heads
    scale = head_size**-0.5 if softmax_scale is None else softmax_scale
    to_rank = dist.get_global_rank(cp_group, (cp_rank + 1) % cp)
    from_rank = dist.get_global_rank(cp_group, (cp_rank - 1) % cp)

    qkv = torch.matmul(hidden_states, w_qkv.t())
    qkv = qkv.view(batch, positions, 3, heads, head_size).permute(2, 0, 3, 1, 4)  # (3, B, heads, S, head size)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    query = qkv[0].to(wide) * scale
    kv = qkv[1:].contiguous()
    future = torch.ones(positions, positions, dtype=torch.bool, device=qkv.device).triu(1)

    context = lse = None
    for step in range(cp):  # kv is now the block of context-parallel rank (cp_rank - step) mod cp
        requests = []
        if step + 1 < cp:
            next_kv = torch.empty_like(kv)
            send = dist.P2POp(dist.isend, kv, to_rank, cp_group)
            receive = dist.P2POp(dist.irecv, next_kv, from_rank, cp_group)
            requests = dist.batch_isend_irecv([send, receive])

        if step <= cp_rank or not causal:
            key, value = kv.to(wide)
            scores = torch.matmul(query, key.transpose(-2, -1))
            if causal and step == 0:
                scores.masked_fill_(future, float("-inf"))
            peak = scores.amax(dim=-1, keepdim=True)
            weights = scores.sub_(peak).exp_()
            weight_sum = weights.sum(dim=-1, keepdim=True)
            block_context = torch.matmul(weights, value) / weight_sum
            block_lse = peak + weight_sum.log()
            if context is None or lse is None:
                context, lse = block_context, block_lse
            else:
                context = context - torch.sigmoid(block_lse - lse) * (context - block_context)
                lse = lse - torch.nn.functional.logsigmoid(lse - block_lse)

        for request in requests:
            request.wait()
        if requests:
            kv = next_kv
    assert context is not None

    context = context.transpose(1, 2).to(hidden_states.dtype).reshape(batch, positions, heads * head_size)
    out = torch.matmul(context, w_o.t())
    if tp > 1:
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=tp_group)
    return out


def baseline(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    tp_group: dist.ProcessGroup | None = None,
    cp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Keys and values are gathered, as Llama 3's context parallelism does, and one fused attention reads them as they lie."""
    tp_group = tp_group or dist.group.WORLD
    cp_group = cp_group or dist.group.WORLD
    assert cp_group is not None
    tp = dist.get_world_size(tp_group)
    # Keys first: they travel while the queries are computed. A batch of one needs no copies before or after.
    batch, positions, _ = hidden_states.shape
    w_q, w_k, w_v = w_qkv.chunk(3)
    per_head = (batch, positions, num_heads // tp, -1)
    key, key_work = gather_positions(torch.matmul(hidden_states, w_k.t()).view(per_head), cp_group)
    value, value_work = gather_positions(torch.matmul(hidden_states, w_v.t()).view(per_head), cp_group)
    query = torch.matmul(hidden_states, w_q.t()).view(per_head).transpose(1, 2)
    for work in (key_work, value_work):
        work.wait()
    seen = (dist.get_rank(cp_group) + 1) * positions if causal else key.shape[2]
    context = attend(query, key[:, :, :seen], value[:, :, :seen], causal=causal, scale=softmax_scale)
    out = torch.matmul(context.transpose(1, 2).reshape(batch, positions, -1), w_o.t())
    if tp > 1:
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=tp_group)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    tp = min(2, world_size)
    cp = world_size // tp
    positions, hidden = size["tokens"] // cp, size["hidden"]
    rows, local = size["batch"] * positions, size["heads"] // tp * size["head_size"]
    kv = 2 * rows * local * element_bytes
    out = rows * hidden * element_bytes
    all_reduce = 2 * (tp - 1) / tp * out
    return Cost(
        flops=2 * rows * hidden * 4 * local + 4 * rows * local * positions * (cp - 0.5),
        hbm_bytes=4 * hidden * local * element_bytes + 2 * out,
        link_sent_bytes=(cp - 1) * kv + all_reduce,
        link_received_bytes=(cp - 1) * kv + all_reduce,
        phases=int(cp > 1) + int(tp > 1),
        switch_sent_bytes=(kv if cp > 1 else 0) + all_reduce,  # for a pair, the switch adds nothing to the sum
        switch_received_bytes=(cp - 1) * kv + all_reduce,
        note="a causal call, on the last rank of the ring; a pair sums by exchanging its products once",
        mean_flops=2 * rows * hidden * 4 * local + 4 * rows * local * positions * cp / 2,
        mean_link_bytes=(cp - 1) / 2 * kv + all_reduce,  # the first rank of a ring needs no other's block
    )


def requires(size: Size, world_size: int) -> str | None:
    if world_size > 1 and world_size % 2:
        return f"tensor-parallel pairs need one rank or an even number, not {world_size}"
    if size["heads"] % min(2, world_size):
        return f"{size['heads']} heads cannot be shared by a tensor-parallel pair"
    cp = world_size // min(2, world_size)
    if size["tokens"] < cp:
        return f"{size['tokens']} tokens are too few for {cp} context-parallel ranks"
    return None


PROBLEM = Problem(
    id=55,
    name="ring_attention_tp",
    source="Megatron-LM style attention with TP and CP",
    taxonomy=Taxonomy(
        parallelism=("tp", "cp"),
        layer="attention",
        stage=("training-forward",),
        pattern=("ring", "all-reduce"),
        system="LLM training",
        fusable="QKV GEMM, block attention, output GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("a ring of flash attention blocks, merged by their log-sum-exp", us=23357),),
    cost=cost,
    compare=NormGate(by_row=True),
    world_sizes=(1, 2, 4, 8),
    requires=requires,
    layout="tp_cp",
    version=3,  # scale
)
