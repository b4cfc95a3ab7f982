"""Backward of ring attention, then the gradients are averaged over data-parallel replicas.

ring-flash-attention's backward in Megatron-LM's CP x DP layout. Rank = dp_rank * cp + cp_rank: a ring is consecutive
ranks, the replicas of a block are cp apart. Rank holds q, k, v and dout (B, S, heads, head size) of its block of
positions, the forward's out, and its log-sum-exp softmax_lse (B, heads, S) in float32; scale is softmax_scale, or 1 /
sqrt(head size) if that is None. For every block of keys that the queries saw: P = exp(q k^T * scale - lse), dS = P *
(dout v^T - sum(dout * out)), dq += dS k * scale, dk += dS^T q * scale, dv += P^T dout, all in float32 (or wider).
Blocks of K and V go around the ring, and the sums dk and dv travel with them in float32, with one last hop home: cp
hops, not cp - 1. The three gradients are rounded to their dtype, then summed over dp_group in it and divided by its
size (None: no averaging). In a causal call, ranks before a block's owner only pass it on.

Two ranks are two replicas without a ring. A good kernel reads K and V of its peers directly and adds dk and dv into
float32 sums at the owner, in an order that does not depend on who is first, while the next block is computed.
"""

import torch
import torch.distributed as dist

from pkb.problems.attention_inputs import draw_scale, sharp_queries
from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fused_attention import attend_backward, gather_positions
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: the whole sequence of a replica; each of cp ring ranks holds tokens // cp positions
    "tiny": {"batch": 2, "tokens": 24, "heads": 2, "head_size": 16},
    "paper": {"batch": 16, "tokens": 16, "heads": 8, "head_size": 64},
    "real": {"batch": 1, "tokens": 16384, "heads": 32, "head_size": 128},  # Llama-2-7B heads, CP 4, DP 2
    "odd": {"batch": 3, "tokens": 46, "heads": 5, "head_size": 18},
}
KINDS = {"causal": 0.5, "full": 0.5}


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None, first: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of one block's queries over all keys, with its log-sum-exp; `first` is their position if causal."""
    wide = torch.promote_types(q.dtype, torch.float32)
    outs, sums = [], []
    factor = q.shape[3] ** -0.5 if scale is None else scale
    for head in range(q.shape[2]):  # one by one, as the scores of all heads of a long sequence take much memory
        scores = torch.matmul(q[:, :, head].to(wide), k[:, :, head].to(wide).transpose(1, 2)) * factor
        if first is not None:
            future = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).triu(1 + first)
            scores.masked_fill_(future, float("-inf"))
        sums.append(scores.logsumexp(dim=-1))
        outs.append(torch.matmul((scores - sums[-1].unsqueeze(-1)).exp_(), v[:, :, head].to(wide)))
    return torch.stack(outs, dim=2).to(q.dtype), torch.stack(sums, dim=1)


def inputs(draw: Draw) -> Arguments:
    cp_rank, cp = draw.coordinate("cp")
    dp_rank, _ = draw.coordinate("dp")
    positions = draw.size["tokens"] // cp
    shape = (draw.size["batch"], positions, draw.size["heads"], draw.size["head_size"])
    causal = draw.kind_of(KINDS, published="full") == "causal"

    def block(name: str, owner: int) -> torch.Tensor:
        """Any rank's K or V of this replica: out and lse are those of the whole sequence."""
        key = (dp_rank, owner)
        # Keys of another size on each rank give the blocks unlike weights.
        sharpness = draw.random("sharpness", key=key).uniform(0.5, 2.0) if name == "k" else 1.0
        return draw.normal(name, shape, scale=sharpness, key=key)

    q, scale = sharp_queries(draw, shape), draw_scale(draw)
    keys, values = ([block(name, owner) for owner in range(cp)] for name in "kv")
    # On shapes alone, arithmetic would import torch's compiler: seconds, in every evaluation.
    if draw.device.type == "meta":
        wide = torch.promote_types(draw.dtype, torch.float32)
        out, lse = torch.empty_like(q), torch.empty((shape[0], shape[2], positions), dtype=wide, device="meta")
    else:
        first = cp_rank * positions if causal else None
        out, lse = forward(q, torch.cat(keys, 1), torch.cat(values, 1), scale=scale, first=first)
    return {
        "dout": draw.normal("dout", shape),
        "q": q,
        "k": keys[cp_rank],
        "v": values[cp_rank],
        "out": out,
        "softmax_lse": lse,
        "softmax_scale": scale,
        "causal": causal,
        "cp_group": draw.group("cp"),
        "dp_group": draw.group("dp"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal queries and keys, with out and lse of the own block alone: P of all blocks sums to more than 1."""
    v, out, lse = drawn["v"], drawn["out"], drawn["softmax_lse"]
    assert isinstance(v, torch.Tensor)
    q, k = (draw.normal(f"{name}, published", tuple(v.shape)) for name in "qk")
    if draw.device.type != "meta":
        out, lse = forward(q, k, v, scale=None, first=None)
    return {"q": q, "k": k, "out": out, "softmax_lse": lse, "softmax_scale": None}


def solution(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    dp_group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, positions, heads, head_size = q.shape
    if any(t.shape != q.shape for t in (dout, k, v, out)) or softmax_lse.shape != (batch, heads, positions):
        shapes = [tuple(t.shape) for t in (dout, q, k, v, out, softmax_lse)]
        raise ValueError(f"shapes of dout, q, k, v, out, softmax_lse do not fit: {shapes}")
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    cp, rank = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    to_rank = dist.get_global_rank(cp_group, (rank + 1) % cp)
    from_rank = dist.get_global_rank(cp_group, (rank - 1) % cp)

    def pass_on(block: torch.Tensor) -> tuple[torch.Tensor, list[dist.Work]]:
        """Send a block to the next rank of the ring and begin to receive one from the rank before."""
        received = torch.empty_like(block)
        send = dist.P2POp(dist.isend, block, to_rank, cp_group)
        receive = dist.P2POp(dist.irecv, received, from_rank, cp_group)
        return received, dist.batch_isend_irecv([send, receive])

    scale = head_size**-0.5 if softmax_scale is None else softmax_scale
    wide = torch.promote_types(q.dtype, torch.float32)
    query, d_out, output = (t.to(wide).transpose(1, 2) for t in (q, dout, out))  # (B, heads, S, head size)
    lse = softmax_lse.to(wide).unsqueeze(-1)
    delta = (d_out * output).sum(dim=-1, keepdim=True)
    future = torch.ones(positions, positions, dtype=torch.bool, device=q.device).triu(1)

    kv = torch.stack([k, v])
    dq = torch.zeros_like(query)
    dkv = torch.zeros(kv.shape, dtype=wide, device=kv.device)
    for step in range(cp):  # kv and dkv now belong to ring rank (rank - step) mod cp
        requests: list[dist.Work] = []
        if step + 1 < cp:
            next_kv, requests = pass_on(kv)

        if step <= rank or not causal:
            key, value = kv.to(wide).transpose(2, 3)
            scores = torch.matmul(query, key.transpose(-2, -1)).mul_(scale)
            if causal and step == 0:
                scores.masked_fill_(future, float("-inf"))
            weights = scores.sub_(lse).exp_()
            d_weights = torch.matmul(d_out, value.transpose(-2, -1))
            d_scores = d_weights.sub_(delta).mul_(weights).mul_(scale)
            dq += torch.matmul(d_scores, key)
            dkv[0] += torch.matmul(d_scores.transpose(-2, -1), query).transpose(1, 2)
            dkv[1] += torch.matmul(weights.transpose(-2, -1), d_out).transpose(1, 2)

        for request in requests:
            request.wait()
        if requests:
            kv = next_kv
        if cp > 1:  # also after the last step: the sums of a block go home
            next_dkv, requests = pass_on(dkv)
            for request in requests:
                request.wait()
            dkv = next_dkv

    gradients = (dq.transpose(1, 2).to(q.dtype).contiguous(), dkv[0].to(k.dtype), dkv[1].to(v.dtype))
    if dp_group is None or dist.get_world_size(dp_group) == 1:
        return gradients
    for gradient in gradients:
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=dp_group)
        gradient.div_(dist.get_world_size(dp_group))
    return gradients


def baseline(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    dp_group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values are gathered, one fused kernel gives all gradients, and those of keys and values are scattered back,
    rounded to the dtype before they are summed over the ring."""
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    positions, head_size = q.shape[1], q.shape[3]
    (key, key_work), (value, value_work) = gather_positions(k, cp_group), gather_positions(v, cp_group)
    for work in (key_work, value_work):
        work.wait()
    seen = (dist.get_rank(cp_group) + 1) * positions if causal else key.shape[2]
    d_out, query, output = (t.transpose(1, 2) for t in (dout, q, out))
    dq, *of_keys = attend_backward(
        d_out, query, key[:, :, :seen], value[:, :, :seen], output, softmax_lse,
        causal=causal, scale=head_size**-0.5 if softmax_scale is None else softmax_scale,
    )  # fmt: skip
    gradients = q.new_empty((3, *q.shape))
    gradients[0] = dq.transpose(1, 2)
    for own, gradient in zip(gradients[1:], of_keys, strict=True):
        unseen = key.shape[2] - seen
        send = torch.nn.functional.pad(gradient.permute(2, 0, 1, 3), (0, 0, 0, 0, 0, 0, 0, unseen)).contiguous()
        summed = send.new_empty((positions, *send.shape[1:]))
        dist.reduce_scatter_tensor(summed, send, op=dist.ReduceOp.SUM, group=cp_group)
        own.copy_(summed.transpose(0, 1))
    if dp_group is not None and dist.get_world_size(dp_group) > 1:
        dist.all_reduce(gradients, op=dist.ReduceOp.SUM, group=dp_group)  # all three in one call
        gradients.div_(dist.get_world_size(dp_group))
    dq, dk, dv = gradients.unbind()
    return dq, dk, dv


def exact(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    dp_group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A head at a time, over keys and values of the whole ring: the scores of one head are all there is."""
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    wide = torch.promote_types(q.dtype, torch.float32)
    positions, scale = q.shape[1], q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    first = dist.get_rank(cp_group) * positions
    gradients = [torch.empty_like(t) for t in (q, k, v)]
    for head in range(q.shape[2]):
        d_out, query, output = (t[:, :, head].to(wide) for t in (dout, q, out))
        own = torch.stack([k[:, :, head], v[:, :, head]])
        blocks = [torch.empty_like(own) for _ in range(dist.get_world_size(cp_group))]
        dist.all_gather(blocks, own, group=cp_group)
        key, value = torch.cat(blocks, dim=2).to(wide)
        scores = torch.matmul(query, key.transpose(1, 2)).mul_(scale)
        if causal:
            places = torch.arange(key.shape[1], device=q.device)
            scores.masked_fill_(places > places[first : first + positions, None], float("-inf"))
        weights = scores.sub_(softmax_lse[:, head].to(wide).unsqueeze(-1)).exp_()
        d_scores = torch.matmul(d_out, value.transpose(1, 2)).sub_((d_out * output).sum(-1, keepdim=True))
        d_scores.mul_(weights).mul_(scale)
        gradients[0][:, :, head] = torch.matmul(d_scores, key)
        sums = torch.stack(
            [torch.matmul(d_scores.transpose(1, 2), query), torch.matmul(weights.transpose(1, 2), d_out)]
        )
        dist.all_reduce(sums, group=cp_group)
        for gradient, total in zip(gradients[1:], sums, strict=True):
            gradient[:, :, head] = total[:, first : first + positions]
    if dp_group is not None and dist.get_world_size(dp_group) > 1:
        for gradient in gradients:
            dist.all_reduce(gradient, group=dp_group)
            gradient /= dist.get_world_size(dp_group)
    dq, dk, dv = gradients
    return dq, dk, dv


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    dp = min(2, world_size)
    cp = world_size // dp
    positions = size["tokens"] // cp
    elements = size["batch"] * positions * size["heads"] * size["head_size"]
    tensor = elements * element_bytes
    averaged = 2 * (dp - 1) / dp * 3 * tensor
    return Cost(
        flops=10 * elements * positions * (cp - 0.5),
        hbm_bytes=8 * tensor,
        link_sent_bytes=(cp - 1) * 2 * elements * 4 + averaged,  # gradients of keys and values stay float32
        link_received_bytes=(cp - 1) * 2 * tensor + averaged,
        phases=2 * int(cp > 1) + int(dp > 1),
        note="a causal call, on the last rank of a ring; blocks are read from their owners, not passed on",
        mean_flops=10 * elements * positions * cp / 2,
        # Instead of wide gradients, q and dout can travel to the owners of the keys, who repeat two products.
        mean_link_bytes=(cp - 1) * 2 * min(tensor, elements * 4) + averaged,
        least_link_bytes=(cp - 1) * 2 * min(tensor, elements * 4) + averaged,
    )


def requires(size: Size, world_size: int) -> str | None:
    if world_size > 1 and world_size % 2:
        return f"two replicas need one rank or an even number, not {world_size}"
    cp = world_size // min(2, world_size)
    positions = size["tokens"] // cp
    if positions < 1:
        return f"{size['tokens']} tokens are too few for {cp} ring ranks"
    return None


PROBLEM = Problem(
    id=57,
    name="ring_attention_backward_dp",
    source="ring-flash-attention backward in Megatron-LM's CP x DP layout",
    taxonomy=Taxonomy(
        parallelism=("cp", "dp"),
        layer="attention",
        stage=("training-backward",),
        pattern=("ring", "all-reduce"),
        system="kernel libraries",
        fusable="attention-block backward, averaging",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    exact=exact,
    fits_one_gpu={
        "real": (8,)
    },  # the reference's scores: 34 GB in float32 for eight ranks, 69 GB for four, 137 GB for two
    baseline=baseline,
    tried=(
        Alternative(
            "a ring of flash attention's backward blocks, float32 sums of keys' gradients travelling with them"
        ),
        Alternative("cuDNN's backward kernel instead of flash attention's"),
    ),
    cost=cost,
    compare=NormGate(by_row=True),
    world_sizes=(1, 2, 4, 8),
    requires=requires,
    layout="cp_dp",
    version=4,  # real has 16384 tokens
)
