"""74: as the baseline, where gates, norms and decays are one graph of torch.compile, and states are changed where they lie."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.chunked_state import Chunks, maps_in_place, outputs_in_place, tf32_for_bf16
from pkb.problems.compiled import compiled

CHUNK = 16


@compiled
def prepared(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    batch, tokens, heads, key = q.shape
    wide = torch.promote_types(q.dtype, torch.float32)

    def cut(x: torch.Tensor) -> torch.Tensor:
        """(B, T, H, size) to (B, H, chunks, 16, size), wide."""
        padded = torch.nn.functional.pad(x.to(wide), (0, 0, 0, 0, 0, -tokens % CHUNK))
        return padded.view(batch, -1, CHUNK, heads, x.shape[-1]).permute(0, 3, 1, 2, 4).contiguous()

    speed = a_log.to(wide).exp()[:, None]
    log_decay = cut(-5.0 * torch.sigmoid(speed * (g.to(wide) + dt_bias.to(wide).view(heads, key))))
    rate, values = cut(torch.sigmoid(beta.to(wide))[..., None]), cut(v)
    query = torch.nn.functional.normalize(cut(q), dim=-1, eps=1e-12) * key**-0.5
    keys = torch.nn.functional.normalize(cut(k), dim=-1, eps=1e-12)
    since_start = log_decay.cumsum(dim=3)
    from_middle = (since_start - since_start[..., CHUNK // 2 - 1 : CHUNK // 2, :]).exp()
    since, to_end = since_start.exp(), (since_start[..., -1:, :] - since_start).exp()
    right = torch.cat([rate * values, rate * since * keys], dim=-1)
    decay = since[..., -1, :, None].contiguous()
    return (
        rate * from_middle * keys,
        keys / from_middle,
        query * from_middle,
        right,
        decay,
        keys * to_end,
        query * since,
    )


@tf32_for_bf16
def alternative(
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
    key, value, tokens = q.shape[-1], v.shape[-1], q.shape[1]
    left, undecayed, query, right, decay, write, read = prepared(q, k, v, g, beta, a_log, dt_bias)
    system = torch.matmul(left, undecayed.mT).tril_(-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    from_values, from_state = solved.split([value, key], dim=-1)
    scores = torch.matmul(query, undecayed.mT).tril_()
    stretches = Chunks(decay, write, from_state, from_values, read, scores).stretches()
    before, total = maps_in_place(stretches)

    cp_rank, cp = dist.get_rank(cp_group), dist.get_world_size(cp_group)
    state = None
    if cp > 1:
        shards = total.new_empty(cp * total.numel())
        dist.all_gather_into_tensor(shards, total.reshape(-1), group=cp_group)
        for shard in shards.view(cp, *total.shape)[:cp_rank]:
            state = shard[..., key:] if state is None else torch.matmul(shard[..., :key], state) + shard[..., key:]
    out = outputs_in_place(stretches, before, state)[:, :, :tokens].transpose(1, 2).to(q.dtype).contiguous()
    if tp_group is not None and dist.get_world_size(tp_group) > 1:
        dist.all_reduce(out, op=dist.ReduceOp.SUM, group=tp_group)
    return out


PROBLEM = replace(get(74), id=7402, name="fewer_passes", baseline=alternative)
