"""Kimi Delta Attention over a sequence whose positions are spread over the ranks, summed over tensor-parallel pairs.

The gated delta rule of flash-linear-attention, as in Kimi-Linear, with the bounded form of the gate. Each head keeps a
state S (key size x value size), zero before the first position of the whole sequence, and at every position

    S <- diag(d) S;    S <- S + k (b (v - k^T S))^T;    o = q^T S,

where d = exp(-5 sigmoid(exp(a_log) (g + dt_bias))) is the decay of each key channel, b = sigmoid(beta), and q and k have
unit length, q scaled by key_size ** -0.5. Context-parallel (CP) rank c holds positions [c T, (c + 1) T) and returns
their outputs. Four or more ranks (an even number) are paired: ranks 2i and 2i + 1 form a tensor-parallel (TP) group
with different data for the same positions, CP groups are strided, and outputs, rounded to the dtype, are summed over
the pair. All arithmetic before that is float32 (or wider).

What positions do to a state is an affine map, S -> M S + C, and maps compose. The reference runs many short pieces of
its shard side by side, composes their maps, exchanges one map for each rank and only then fills in the states. A good
kernel does the same with chunks in shared memory, or hands the state itself (half a map) from rank to rank, and adds
the partner's output while writing its own.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.chunked_state import Chunks, maps_of, outputs_of, solve, tf32_for_bf16
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: positions of one rank
    "tiny": {"batch": 1, "tokens": 24, "heads": 2, "key": 16, "value": 16},
    "paper": {"batch": 1, "tokens": 64, "heads": 16, "key": 128, "value": 128},
    "real": {"batch": 1, "tokens": 16384, "heads": 16, "key": 128, "value": 128},  # Kimi-Linear-48B, TP 2, CP 4, 64k
    "odd": {"batch": 2, "tokens": 37, "heads": 3, "key": 20, "value": 28},
}
LAYOUT = "cp_tp"


def inputs(draw: Draw) -> Arguments:
    batch, tokens, heads = draw.size["batch"], draw.size["tokens"], draw.size["heads"]
    key, value = draw.size["key"], draw.size["value"]
    _, tp = draw.coordinate("tp")
    # Channels that forget within a few positions and channels that remember thousands; and since every new key
    # overwrites old ones, heads that write little at a time. Else no rank would need more than its neighbour's last
    # few positions.
    fast = draw.uniform("dt_bias", (heads, key - 1), -9.0, 0.0, key="all", dtype=torch.bfloat16)
    # The last channel of every head remembers, and the last head writes: the tail of a state matters.
    slow = draw.uniform("dt_bias of last channels", (heads, 1), -9.0, -6.0, key="all", dtype=torch.bfloat16)
    dt_bias = torch.cat([fast, slow], dim=1).view(-1)
    write = draw.uniform("write", (heads - 1,), -5.0, 1.0, key="all", dtype=torch.float32)
    write = torch.cat([write, draw.uniform("write of the last head", (1,), -1.0, 1.0, key="all", dtype=torch.float32)])
    beta = draw.normal("beta", (batch, tokens, heads), dtype=torch.float32) + write
    return {
        "q": draw.normal("q", (batch, tokens, heads, key)),
        "k": draw.normal("k", (batch, tokens, heads, key)),
        "v": draw.normal("v", (batch, tokens, heads, value)),
        "g": draw.normal("g", (batch, tokens, heads, key)),
        "beta": beta.to(draw.dtype),
        "a_log": draw.uniform("a_log", (heads,), -0.1, 0.1, key="all", dtype=torch.bfloat16),
        "dt_bias": dt_bias,
        "cp_group": draw.group("cp"),
        "tp_group": draw.group("tp") if tp > 1 else None,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Plain normal beta, and gates evenly spaced around 0: every channel forgets within a few positions."""
    heads, key = draw.size["heads"], draw.size["key"]
    return {
        "beta": draw.normal("beta, published", (draw.size["batch"], draw.size["tokens"], heads)),
        "a_log": torch.linspace(-0.1, 0.1, heads, device=draw.device).to(torch.bfloat16),
        "dt_bias": torch.linspace(-0.1, 0.1, heads * key, device=draw.device).to(torch.bfloat16),
    }


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cp_group: dist.ProcessGroup | None = None,
    tp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    batch, tokens, heads, key = q.shape
    value = v.shape[-1]
    if not q.shape == k.shape == g.shape or v.shape[:3] != q.shape[:3] or beta.shape != q.shape[:3]:
        raise ValueError("q, k and g must have one shape, v and beta the same batch, positions and heads")
    if a_log.numel() != heads or dt_bias.numel() != heads * key:
        raise ValueError(f"a_log needs {heads} entries and dt_bias {heads * key}")
    wide = torch.promote_types(q.dtype, torch.float32)
    normalize = torch.nn.functional.normalize
    speed = a_log.to(wide).exp()[:, None]
    decay = (-5.0 * torch.sigmoid(speed * (g.to(wide) + dt_bias.to(wide).view(heads, key)))).exp()
    rate = torch.sigmoid(beta.to(wide))[..., None]
    query = normalize(q.to(wide), dim=-1, eps=1e-12) * key**-0.5
    keys = normalize(k.to(wide), dim=-1, eps=1e-12)

    # Cut the shard into pieces of `length` positions; positions added at the end change no state.
    length = math.isqrt(tokens - 1) + 1
    pieces = -(-tokens // length)

    def cut(x: torch.Tensor, fill: float) -> torch.Tensor:
        """(B, T, H, size) to a tuple over positions of (B, H, pieces, size)."""
        padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, pieces * length - tokens), value=fill)
        return padded.view(batch, pieces, length, heads, -1).permute(2, 0, 3, 1, 4)

    # All pieces side by side, position by position. A map is [M | C], so its first columns start as the identity.
    maps = torch.zeros(batch, heads, pieces, key, key + value, dtype=wide, device=q.device)
    maps[..., :key] = torch.eye(key, dtype=wide, device=q.device)
    values = torch.nn.functional.pad(v.to(wide), (key, 0))
    read = torch.empty(length, batch, heads, pieces, key + value, dtype=wide, device=q.device)
    positions = zip(cut(query, 0.0), cut(keys, 0.0), cut(values, 0.0), cut(decay, 1.0), cut(rate, 0.0), strict=True)
    for t, (q_t, k_t, v_t, d_t, b_t) in enumerate(positions):
        maps *= d_t[..., None]
        update = b_t * (v_t - torch.matmul(k_t[..., None, :], maps).squeeze(-2))
        maps.addcmul_(k_t[..., None], update[..., None, :])
        read[t] = torch.matmul(q_t[..., None, :], maps).squeeze(-2)

    # What comes before each piece, and the whole shard, as one map.
    before = torch.empty_like(maps)
    total = torch.zeros_like(maps[:, :, 0])
    total[..., :key] = torch.eye(key, dtype=wide, device=q.device)
    for piece in range(pieces):
        before[:, :, piece] = total
        total = torch.matmul(maps[:, :, piece, :, :key], total)
        total[..., key:] += maps[:, :, piece, :, key:]

    # The state at the start of the shard follows from the maps of all earlier ranks.
    state = torch.zeros(batch, heads, key, value, dtype=wide, device=q.device)
    cp_rank, cp = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    if cp > 1:
        shards = torch.empty(cp * total.numel(), dtype=wide, device=q.device)
        dist.all_gather_into_tensor(shards, total.view(-1), group=cp_group)
        for shard in shards.view(cp, *total.shape)[:cp_rank]:
            state = torch.matmul(shard[..., :key], state) + shard[..., key:]
    states = torch.matmul(before[..., :key], state[:, :, None]) + before[..., key:]

    read = read.permute(1, 2, 3, 0, 4)  # pieces first: one product for all positions of a piece
    out = torch.matmul(read[..., :key], states) + read[..., key:]
    out = out.permute(0, 2, 3, 1, 4).reshape(batch, pieces * length, heads, value)[:, :tokens]
    out = out.to(q.dtype).contiguous()
    if tp_group is not None and dist.get_world_size(tp_group) > 1:
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=tp_group)
    return out


@tf32_for_bf16
def baseline(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cp_group: dist.ProcessGroup | None = None,
    tp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """By chunks of 16 positions, within which decays stay in the range of float32, as flash-linear-attention has
    them. With bf16, products are TF32."""
    batch, tokens, heads, key = q.shape
    chunk, wide = 16, torch.promote_types(q.dtype, torch.float32)
    missing = -tokens % chunk

    def cut(x: torch.Tensor) -> torch.Tensor:
        """(B, T, H, size) to (B, H, chunks, 16, size)."""
        padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, missing)) if missing else x
        return padded.view(batch, -1, chunk, heads, x.shape[-1]).permute(0, 3, 1, 2, 4).contiguous()

    speed = a_log.to(wide).exp()[:, None]
    log_decay = cut(torch.sigmoid(speed * (g.to(wide) + dt_bias.to(wide).view(heads, key))).mul_(-5.0))
    rate, values = cut(torch.sigmoid(beta.to(wide))[..., None]), cut(v.to(wide))
    query = torch.nn.functional.normalize(cut(q.to(wide)), dim=-1, eps=1e-12) * key**-0.5
    keys = torch.nn.functional.normalize(cut(k.to(wide)), dim=-1, eps=1e-12)

    since_start = log_decay.cumsum(dim=3)
    from_middle = (since_start - since_start[..., chunk // 2 - 1 : chunk // 2, :]).exp()
    keys_t, since = (keys / from_middle).mT, since_start.exp()
    from_state, from_values = solve(keys, keys * since, torch.matmul(keys * from_middle, keys_t), values, rate)
    stretches = Chunks(
        decay=since[..., -1, :, None],
        write=keys * (since_start[..., -1:, :] - since_start).exp(),
        from_state=from_state,
        from_values=from_values,
        query=query * since,
        scores=torch.matmul(query * from_middle, keys_t).tril(),
    ).stretches()
    before, total = maps_of(stretches)

    cp_rank, cp = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    state = None
    if cp > 1:
        shards = total.new_empty(cp * total.numel())
        dist.all_gather_into_tensor(shards, total.reshape(-1), group=cp_group)
        for shard in shards.view(cp, *total.shape)[:cp_rank]:
            state = shard[..., key:] if state is None else torch.matmul(shard[..., :key], state) + shard[..., key:]
    out = outputs_of(stretches, before, state)[:, :, :tokens].transpose(1, 2).to(q.dtype).contiguous()
    if tp_group is not None and dist.get_world_size(tp_group) > 1:
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=tp_group)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    tp = 2 if world_size >= 4 and world_size % 2 == 0 else 1
    cp = world_size // tp
    rows, key, value = size["batch"] * size["tokens"] * size["heads"], size["key"], size["value"]
    out = rows * value * element_bytes
    state = size["batch"] * size["heads"] * key * value * element_bytes
    earlier = (cp - 1) * rows * (2 * key + value + 1) * element_bytes
    hand_over = min(state, earlier) if cp > 1 else 0
    mean_hand_over = min((cp - 1) / cp * state, earlier / 2)  # the first of a line needs nothing
    pair_sum = out if tp > 1 else 0
    return Cost(
        flops=7 * rows * key * value,
        hbm_bytes=rows * (3 * key + value + 1) * element_bytes + out,
        link_sent_bytes=hand_over + pair_sum,
        link_received_bytes=hand_over + pair_sum,
        phases=int(cp > 1) + int(tp > 1),
        note="one state from the rank before, or the earlier ranks' k, v, g and beta where that is less; "
        "the reference exchanges maps of key + value columns. The operations are those of one state, position by position; "
        "the reference moves a map through every piece, then composes the maps",
        mean_link_bytes=mean_hand_over + pair_sum,
    )


PROBLEM = Problem(
    id=74,
    name="fla_kimi_delta_attention_cp_tp",
    source="flash-linear-attention, Kimi Delta Attention with context parallelism",
    taxonomy=Taxonomy(
        parallelism=("cp", "tp"),
        layer="recurrence",
        stage=("training-forward",),
        pattern=("all-gather", "all-reduce"),
        system="kernel libraries",
        fusable="gate, L2 normalisation, gated delta rule",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    baseline_version=2,
    tried=(
        Alternative("the same with float32 products", us=134480),
        Alternative("gates, norms and decays by torch.compile, and states changed where they lie"),
    ),
    cost=cost,
    compare=NormGate(tau={torch.float32: 1e-4}),
    layout=LAYOUT,
    version=2,  # tails of states matter
)
