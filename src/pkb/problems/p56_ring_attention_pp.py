"""Two pipeline stages of attention, each with its sequence spread over a context-parallel ring.

Megatron-LM's CP x PP, one micro-batch, attention only. Rank = pp_rank * cp + cp_rank: ring c of stage p is consecutive
ranks, and the ranks of a pipeline are cp apart. Stages hold different weights; the ring ranks of a stage hold the same
weights and consecutive blocks of positions. Stage 0 works on its hidden_states; a later stage receives its input from
the rank of the stage before with the same cp_rank, and must ignore the values in its own hidden_states (shape and dtype
are right). A stage computes q, k, v (rounded to the dtype), ring attention over cp_group (if causal, no position sees a
later one; float32 inside, rounded at the end) and the output projection (rounded), and sends it on unless it is the
last. Every rank returns the output of its own stage. Scores are scaled by softmax_scale, or by 1 / sqrt(head size) if
that is None.

Rows of w_qkv are ordered q, k, v, then head, then channel. Two ranks are two stages without a ring. While stage 0 works,
stage 1 waits: a good kernel hands finished rows of the output to the next stage while others are computed. The buffer
they arrive in must not be overwritten by the next call of a faster stage.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.attention_inputs import draw_scale
from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import TAU, Context, NormGate, pieces
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fused_attention import attend, gather_positions
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the whole sequence; each of cp ring ranks holds tokens // cp positions
    "tiny": {"batch": 2, "tokens": 24, "heads": 4, "head_size": 16},
    "paper": {"batch": 16, "tokens": 16, "heads": 8, "head_size": 64},
    "real": {"batch": 1, "tokens": 16384, "heads": 32, "head_size": 128},  # Llama-2-7B, PP 2, CP 4
    "odd": {"batch": 3, "tokens": 46, "heads": 5, "head_size": 18},
}
KINDS = {"causal": 0.5, "full": 0.5}


def inputs(draw: Draw) -> Arguments:
    cp_rank, cp = draw.coordinate("cp")
    pp_rank, _ = draw.coordinate("pp")
    heads = draw.size["heads"]
    hidden = heads * draw.size["head_size"]
    by_cp, by_pp = ("cp", cp_rank), ("pp", pp_rank)
    # Blocks of unlike size get unlike attention weights: a merge that ignores the log-sum-exp shows.
    scale = draw.random("hidden scale", key=by_cp).uniform(0.7, 1.25)
    shape = (draw.size["batch"], draw.size["tokens"] // cp, hidden)
    return {
        "hidden_states": draw.normal("hidden_states", shape, scale=scale, key=by_cp),
        "w_qkv": draw.normal("w_qkv", (3 * hidden, hidden), scale=hidden**-0.5, key=by_pp),
        "w_o": draw.normal("w_o", (hidden, hidden), scale=1.5 * hidden**-0.5, key=by_pp),
        "num_heads": heads,
        "softmax_scale": draw_scale(draw),
        "causal": draw.kind_of(KINDS) == "causal",
        "cp_group": draw.group("cp"),
        "pp_group": draw.group("pp"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal hidden states, and weights of 0.02 whatever their width."""
    (cp_rank, cp), (pp_rank, _) = draw.coordinate("cp"), draw.coordinate("pp")
    hidden = draw.size["heads"] * draw.size["head_size"]
    by_pp, shape = ("pp", pp_rank), (draw.size["batch"], draw.size["tokens"] // cp, hidden)
    return {
        "hidden_states": draw.normal("hidden_states, published", shape, key=("cp", cp_rank)),
        "w_qkv": draw.normal("w_qkv, published", (3 * hidden, hidden), scale=0.02, key=by_pp),
        "w_o": draw.normal("w_o, published", (hidden, hidden), scale=0.02, key=by_pp),
    }


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    pp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    cp, cp_rank = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    batch, positions, hidden = hidden_states.shape
    if w_qkv.shape[0] % (3 * num_heads):
        raise ValueError(f"{w_qkv.shape[0]} rows of w_qkv are not q, k and v of {num_heads} heads")
    stages, stage = (1, 0) if pp_group is None else (dist.get_world_size(pp_group), dist.get_rank(pp_group))
    if stages > 1 and w_o.shape[0] != hidden:
        raise ValueError(f"a stage's output of {w_o.shape[0]} cannot be the next one's input of {hidden}")

    x = hidden_states
    if pp_group is not None and stage > 0:
        x = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        dist.recv(x, src=dist.get_global_rank(pp_group, stage - 1), group=pp_group)

    head_size = w_qkv.shape[0] // 3 // num_heads
    scale = head_size**-0.5 if softmax_scale is None else softmax_scale
    qkv = torch.matmul(x, w_qkv.t())
    qkv = qkv.view(batch, positions, 3, num_heads, head_size).permute(2, 0, 3, 1, 4)  # (3, B, heads, S, head size)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    query = qkv[0].to(wide) * scale
    kv = qkv[1:].contiguous()
    future = torch.ones(positions, positions, dtype=torch.bool, device=qkv.device).triu(1)
    to_rank = dist.get_global_rank(cp_group, (cp_rank + 1) % cp)
    from_rank = dist.get_global_rank(cp_group, (cp_rank - 1) % cp)

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

    context = lse = None
    for step in range(cp):  # kv is now the block of ring rank (cp_rank - step) mod cp
        requests = []
        if step + 1 < cp:
            next_kv = torch.empty_like(kv)
            send = dist.P2POp(dist.isend, kv, to_rank, cp_group)
            receive = dist.P2POp(dist.irecv, next_kv, from_rank, cp_group)
            requests = dist.batch_isend_irecv([send, receive])

        if step <= cp_rank or not causal:
            key, value = kv.to(wide)
            block_context, block_lse = attend(query, key, value, causal and step == 0)
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

    context = context.transpose(1, 2).to(hidden_states.dtype).reshape(batch, positions, num_heads * head_size)
    out = torch.matmul(context, w_o.t())
    if pp_group is not None and stage + 1 < stages:
        dist.send(out, dst=dist.get_global_rank(pp_group, stage + 1), group=pp_group)
    return out


def baseline(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    pp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Keys and values are gathered, as Llama 3's context parallelism does, and one fused attention reads them as they lie."""
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    stages, stage = (1, 0) if pp_group is None else (dist.get_world_size(pp_group), dist.get_rank(pp_group))
    x = hidden_states
    if pp_group is not None and stage > 0:
        x = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        dist.recv(x, src=dist.get_global_rank(pp_group, stage - 1), group=pp_group)
    # Keys first: they travel while the queries are computed. A batch of one needs no copies before or after.
    batch, positions, _ = x.shape
    w_q, w_k, w_v = w_qkv.chunk(3)
    per_head = (batch, positions, num_heads, -1)
    key, key_work = gather_positions(torch.matmul(x, w_k.t()).view(per_head), cp_group)
    value, value_work = gather_positions(torch.matmul(x, w_v.t()).view(per_head), cp_group)
    query = torch.matmul(x, w_q.t()).view(per_head).transpose(1, 2)
    for work in (key_work, value_work):
        work.wait()
    seen = (dist.get_rank(cp_group) + 1) * positions if causal else key.shape[2]
    context = attend(query, key[:, :, :seen], value[:, :, :seen], causal=causal, scale=softmax_scale)
    out = torch.matmul(context.transpose(1, 2).reshape(batch, positions, -1), w_o.t())
    if pp_group is not None and stage + 1 < stages:
        dist.send(out, dst=dist.get_global_rank(pp_group, stage + 1), group=pp_group)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    pp = min(2, world_size)
    cp = world_size // pp
    positions, hidden = size["tokens"] // cp, size["heads"] * size["head_size"]
    rows = size["batch"] * positions
    tensor = rows * hidden * element_bytes
    ring = (cp - 1) * 2 * tensor
    stage = tensor if pp > 1 else 0
    return Cost(
        flops=8 * rows * hidden**2 + 4 * rows * hidden * positions * (cp - 0.5),
        hbm_bytes=4 * hidden**2 * element_bytes + 2 * tensor,
        link_sent_bytes=ring + stage,
        link_received_bytes=ring + stage,
        phases=pp * int(cp > 1) + (pp - 1),
        switch_sent_bytes=(2 * tensor if cp > 1 else 0) + stage,
        switch_received_bytes=ring + stage,
        note="a causal call, on the last rank of a ring; the stages' times add up, as one waits for the other",
        mean_flops=8 * rows * hidden**2 + 4 * rows * hidden * positions * cp / 2,
        # The first of a ring needs no other's block, the last stage sends nothing on.
        mean_link_bytes=ring / 2 + (pp - 1) / pp * tensor,
    )


def requires(size: Size, world_size: int) -> str | None:
    if world_size > 1 and world_size % 2:
        return f"two pipeline stages need one rank or an even number, not {world_size}"
    cp = world_size // min(2, world_size)
    positions = size["tokens"] // cp
    if positions < 1:
        return f"{size['tokens']} tokens are too few for {cp} ring ranks"
    return None


@dataclass(frozen=True)
class EveryRow:
    """As the norm gate by rows, and besides every row by itself: its relative Frobenius error is at most 6 tau.

    A causal row of a long sequence is an average over many keys, and small beside the first ones. What the last positions of a
    stage bring to the next shows in their own rows alone: lost, it moved the output as a whole by little more than rounding.
    """

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        ratio = NormGate(by_row=True)(truth, output, context)
        if ratio > 1 or output.numel() == 0:
            return ratio
        row = output.shape[-1]
        for want, got in pieces(truth, output, whole=row):
            rows = want.double().view(-1, row)
            errors = (got.double().view(-1, row) - rows).norm(dim=1) / rows.norm(dim=1).clamp(min=1e-300)
            ratio = max(ratio, float(errors.max()) / (6 * TAU[output.dtype]))
        return ratio

    def describe(self) -> str:
        return f"{NormGate(by_row=True).describe()}; of every row by itself the Frobenius error is at most 6 tau"


PROBLEM = Problem(
    id=56,
    name="ring_attention_pp",
    source="Megatron-LM style attention with CP and PP",
    taxonomy=Taxonomy(
        parallelism=("pp", "cp"),
        layer="attention",
        stage=("training-forward",),
        pattern=("ring", "send-recv"),
        system="LLM training",
        fusable="QKV GEMM, block attention, output GEMM",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("a ring of flash attention blocks, merged by their log-sum-exp"),),
    cost=cost,
    compare=EveryRow(),
    world_sizes=(1, 2, 4, 8),
    requires=requires,
    layout="cp_pp",
    version=4,  # every row
)
