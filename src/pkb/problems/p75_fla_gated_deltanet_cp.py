"""Gated DeltaNet with a sequence spread over the ranks: exchange positions for heads, run the recurrence, exchange back.

Flash-linear-attention's and Qwen3-Next's Gated DeltaNet with Ulysses-like context parallelism. Rank r holds T positions
(block r of the sequence) of all heads: q and k (B, T, Hq, key size), v (B, T, Hv, value size), gate and beta (B, T, Hv);
and a_log and dt_bias of its own Hv / W value heads only. An all-to-all gives it the whole sequence for its heads. There,
in float32 (or wider), each value head keeps a state S (key size x value size), zero at first, and at every position

    S <- alpha S;    S <- S + k (beta (v - k^T S))^T;    o = q^T S,

with alpha = exp(-exp(a_log) softplus(gate + dt_bias)), and q and k of unit length, q scaled by key_size ** -0.5. Value
head j reads query and key head j // (Hv / Hq). Outputs are rounded to the dtype and go back to the ranks of their
positions: (B, T, Hv, value size).

The reference works in chunks: inside one, all updates solve a triangular system, so that a chunk costs a few matrix
products and only the state passes from chunk to chunk. For long sequences no exchange of positions is needed: what a
shard does to a state is an affine map, and a good kernel keeps its positions and hands on states, which are far smaller.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.chunked_state import Chunks, maps_of, outputs_of, solve, tf32_for_bf16
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

# tokens: positions of one rank; query heads are rounded up to a multiple of W, each has `repeat` value heads. With one query
# head a rank, the wrong one of several could not be read: so 2 to 4 ranks have more, also at the sizes for checking.
SIZES = {
    "tiny": {"batch": 1, "tokens": 24, "heads": 8, "repeat": 2, "key": 16, "value": 8},
    "paper": {"batch": 1, "tokens": 64, "heads": 6, "repeat": 1, "key": 256, "value": 512},
    "real": {"batch": 1, "tokens": 8192, "heads": 16, "repeat": 2, "key": 128, "value": 128},  # Qwen3-Next-80B, 64k
    "odd": {"batch": 2, "tokens": 53, "heads": 5, "repeat": 3, "key": 20, "value": 12},
}


def query_heads(size: Size, world_size: int) -> int:
    return -(-size["heads"] // world_size) * world_size


def inputs(draw: Draw) -> Arguments:
    batch, tokens, key, value = draw.size["batch"], draw.size["tokens"], draw.size["key"], draw.size["value"]
    hq = query_heads(draw.size, draw.world_size)
    hv = hq * draw.size["repeat"]
    local = hv // draw.world_size
    # Some heads forget within a few positions, others remember the ranks before; since every new key overwrites old
    # ones, a long memory also needs heads that write little at a time.
    write = draw.uniform("write", (hv,), -4.0, 1.0, key="all", dtype=torch.float32)
    beta = torch.sigmoid(draw.normal("beta", (batch, tokens, hv), dtype=torch.float32) + write)
    return {
        "q": draw.normal("q", (batch, tokens, hq, key)),
        "k": draw.normal("k", (batch, tokens, hq, key)),
        "v": draw.normal("v", (batch, tokens, hv, value)),
        "gate": draw.normal("gate", (batch, tokens, hv)),
        "beta": beta.to(draw.dtype),
        "a_log": draw.uniform("a_log", (local,), -0.5, 0.5, dtype=torch.bfloat16),
        "dt_bias": draw.uniform("dt_bias", (local,), -7.0, 0.0, dtype=torch.bfloat16),
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Beta is the sigmoid of normal numbers; of gates evenly spaced over all heads each rank has its own."""
    heads = query_heads(draw.size, draw.world_size) * draw.size["repeat"]
    local = heads // draw.world_size
    own = slice(draw.rank * local, (draw.rank + 1) * local)
    shape = (draw.size["batch"], draw.size["tokens"], heads)
    return {
        "beta": torch.sigmoid(draw.normal("beta, published", shape, dtype=torch.bfloat16)).to(draw.dtype),
        "a_log": torch.linspace(0, 0.2, heads, device=draw.device)[own].to(torch.bfloat16),
        "dt_bias": torch.linspace(-0.1, 0.1, heads, device=draw.device)[own].to(torch.bfloat16),
    }


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    batch, tokens, hq, key = q.shape
    hv, value = v.shape[2:]
    if hq % world_size or hv % world_size or hv % hq:
        raise ValueError(f"{hq} query and {hv} value heads do not fit each other or {world_size} ranks")
    if a_log.numel() != hv // world_size or dt_bias.numel() != hv // world_size:
        raise ValueError(f"a_log and dt_bias need this rank's {hv // world_size} value heads")
    wide = torch.promote_types(q.dtype, torch.float32)

    def whole_sequence(x: torch.Tensor) -> torch.Tensor:
        """(B, T, H, size) to (B, H / W, W T, size), wide."""
        heads, size = x.shape[2] // world_size, x.shape[3]
        send = x.view(batch, tokens, world_size, heads, size).permute(2, 0, 1, 3, 4).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=group)
        ordered = received.permute(1, 3, 0, 2, 4)  # B, heads, source, T, size
        return ordered.reshape(batch, heads, world_size * tokens, size).to(wide)

    query, keys, values = whole_sequence(q), whole_sequence(k), whole_sequence(v)
    gates, rate = whole_sequence(gate[..., None]), whole_sequence(beta[..., None])

    query = torch.nn.functional.normalize(query, dim=-1, eps=1e-6) * key**-0.5
    keys = torch.nn.functional.normalize(keys, dim=-1, eps=1e-6)
    query, keys = query.repeat_interleave(hv // hq, dim=1), keys.repeat_interleave(hv // hq, dim=1)
    head_wise = (1, -1, 1, 1)
    softplus = torch.nn.functional.softplus(gates + dt_bias.to(wide).view(head_wise))
    log_decay = -a_log.to(wide).exp().view(head_wise) * softplus

    # Chunks of 64 positions; positions added at the end neither decay nor write.
    length, chunk = query.shape[2], min(64, query.shape[2])
    padding = -length % chunk

    def cut(x: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (0, 0, 0, padding))
        return padded.view(batch, hv // world_size, -1, chunk, x.shape[-1])

    query, keys, values, rate, log_decay = cut(query), cut(keys), cut(values), cut(rate), cut(log_decay)
    since_start = log_decay.cumsum(dim=3)  # log of the decay from the chunk's start, (B, heads, chunks, 64, 1)
    to_end = (since_start[..., -1:, :] - since_start).exp()
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (since_start - since_start.transpose(-2, -1)).masked_fill(later, float("-inf")).exp()  # decay from j to i
    # The updates u of a chunk satisfy (I + A) u = beta (v - decayed k^T S), A strictly lower triangular.
    system = rate * torch.matmul(keys, keys.transpose(-2, -1)) * between
    right = torch.cat([rate * values, rate * since_start.exp() * keys], dim=-1)
    solved = torch.linalg.solve_triangular(system.tril(-1), right, upper=False, unitriangular=True)
    from_values, from_state = solved.split([value, key], dim=-1)
    scores = torch.matmul(query, keys.transpose(-2, -1)) * between
    decayed_query = query * since_start.exp()

    state = torch.zeros(batch, hv // world_size, key, value, dtype=wide, device=q.device)
    outputs = torch.empty_like(values)
    for c in range(query.shape[2]):
        update = from_values[:, :, c] - torch.matmul(from_state[:, :, c], state)
        outputs[:, :, c] = torch.matmul(decayed_query[:, :, c], state) + torch.matmul(scores[:, :, c], update)
        state = state * since_start[:, :, c, -1:].exp()
        state = state + torch.matmul((keys[:, :, c] * to_end[:, :, c]).transpose(-2, -1), update)

    # Back to this rank's positions and all heads.
    out = outputs.flatten(2, 3)[:, :, :length].to(q.dtype)
    send = out.view(batch, -1, world_size, tokens, value).permute(2, 0, 3, 1, 4).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.permute(1, 2, 0, 3, 4).reshape(batch, tokens, hv, value)


@tf32_for_bf16
def baseline(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Chunks of 64 positions as in the reference, many side by side: 32 steps of long products instead of 1024 short ones. With
    bf16, products are TF32."""
    world_size = dist.get_world_size(group)
    batch, tokens, hq, key = q.shape
    hv, value = v.shape[2:]
    wide = torch.promote_types(q.dtype, torch.float32)
    length = world_size * tokens
    chunk = min(64, length)
    missing = -length % chunk

    def cut(x: torch.Tensor) -> torch.Tensor:
        """(B, T, H, size) to (B, H / W, chunks, 64, size) of the whole sequence, wide."""
        heads, size = x.shape[2] // world_size, x.shape[3]
        send = x.view(batch, tokens, world_size, heads, size).permute(2, 1, 0, 3, 4).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=group)
        whole = torch.nn.functional.pad(received.flatten(0, 1), (0, 0, 0, 0, 0, 0, 0, missing)).to(wide)
        return whole.view(-1, chunk, batch, heads, size).permute(2, 3, 0, 1, 4).contiguous()

    query, keys, values, both = cut(q), cut(k), cut(v), cut(torch.stack([gate, beta], dim=-1))
    gates, rate = both.split(1, dim=-1)
    repeat, head_wise = hv // hq, (1, -1, 1, 1, 1)
    query = (torch.nn.functional.normalize(query, dim=-1, eps=1e-6) * key**-0.5).repeat_interleave(repeat, dim=1)
    keys = torch.nn.functional.normalize(keys, dim=-1, eps=1e-6).repeat_interleave(repeat, dim=1)
    softplus = torch.nn.functional.softplus(gates + dt_bias.to(wide).view(head_wise))
    log_decay = -a_log.to(wide).exp().view(head_wise) * softplus
    if missing:
        log_decay[:, :, -1, chunk - missing :], rate = 0.0, rate.clone()
        rate[:, :, -1, chunk - missing :] = 0.0

    since_start = log_decay.cumsum(dim=3)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    between = (since_start - since_start.mT).masked_fill_(later, float("-inf")).exp_()
    since = since_start.exp()
    from_state, from_values = solve(keys, keys * since, torch.matmul(keys, keys.mT).mul_(between), values, rate)
    stretches = Chunks(
        decay=since[..., -1:, :],
        write=keys * (since_start[..., -1:, :] - since_start).exp(),
        from_state=from_state,
        from_values=from_values,
        query=query * since,
        scores=torch.matmul(query, keys.mT).mul_(between),
    ).stretches()
    before, _ = maps_of(stretches)
    out = outputs_of(stretches, before, None)[:, :, :length].to(q.dtype)
    send = out.permute(2, 0, 1, 3).contiguous()  # (W * T, B, heads, value)
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.view(world_size, tokens, batch, -1, value).permute(2, 1, 0, 3, 4).reshape(batch, tokens, hv, value)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, hq = world_size, query_heads(size, world_size)
    hv, rows = hq * size["repeat"], size["batch"] * size["tokens"]
    key, value = size["key"], size["value"]
    arriving, leaving = rows * (2 * hq * key + hv * value + 2 * hv), rows * hv * value
    exchange = (w - 1) / w * (arriving + leaving) * element_bytes
    state = size["batch"] * hv * key * value * element_bytes if w > 1 else 0
    return Cost(
        flops=7 * rows * hv * key * value,
        hbm_bytes=(arriving + leaving) * element_bytes,
        link_sent_bytes=min(exchange, state),
        link_received_bytes=min(exchange, state),
        phases=0 if w == 1 else 1 if state < exchange else 2,
        note="the smaller of a state handed on and the reference's exchange of positions for heads and back. The operations "
        "are those of the recurrence; the reference multiplies whole chunks",
        mean_link_bytes=min(exchange, (w - 1) / w * state),  # the last rank hands its state to nobody
    )


PROBLEM = Problem(
    id=75,
    name="fla_gated_deltanet_cp",
    source="flash-linear-attention and Qwen3-Next, Gated DeltaNet with context parallelism",
    taxonomy=Taxonomy(
        parallelism=("cp", "sp"),
        layer="recurrence",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="kernel libraries",
        fusable="L2 normalisation, gate, gated delta rule, transposes",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    baseline_version=2,
    tried=(
        Alternative("the same with float32 products", us=84093),
        Alternative("gates, norms and decays by torch.compile, and states changed where they lie"),
    ),
    cost=cost,
    compare=NormGate(tau={torch.float32: 1e-4}),
    version=2,  # several query heads a rank
)
