"""75: as the baseline, where gates, norms and decays are two graphs of torch.compile, and states are changed where they lie."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.chunked_state import Chunks, maps_in_place, outputs_in_place, tf32_for_bf16
from pkb.problems.compiled import compiled


@compiled
def prepared(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, both: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """From (positions, B, heads, size) of the whole sequence."""
    length, key = q.shape[0], q.shape[-1]
    wide, chunk, repeat = torch.promote_types(q.dtype, torch.float32), min(64, length), v.shape[2] // q.shape[2]

    def cut(x: torch.Tensor) -> torch.Tensor:
        """(B, heads, chunks, 64, size), wide."""
        padded = torch.nn.functional.pad(x.to(wide), (0, 0, 0, 0, 0, 0, 0, -length % chunk))
        return padded.view(-1, chunk, *x.shape[1:]).permute(2, 3, 0, 1, 4).contiguous()

    gate, rate = both[..., :1].to(wide), cut(both[..., 1:])
    softplus = torch.nn.functional.softplus(gate + dt_bias.to(wide)[:, None])
    log_decay = cut(-a_log.to(wide).exp()[:, None] * softplus)
    query = torch.nn.functional.normalize(cut(q), dim=-1, eps=1e-6) * key**-0.5
    keys = torch.nn.functional.normalize(cut(k), dim=-1, eps=1e-6)
    query, keys = query.repeat_interleave(repeat, dim=1), keys.repeat_interleave(repeat, dim=1)
    since_start = log_decay.cumsum(dim=3)
    since, to_end = since_start.exp(), (since_start[..., -1:, :] - since_start).exp()
    right = torch.cat([rate * cut(v), rate * since * keys], dim=-1)
    decay = since[..., -1:, :].contiguous()
    return keys, query, right, decay, keys * to_end, query * since, since_start, rate


@compiled
def decayed(
    among_keys: torch.Tensor, with_queries: torch.Tensor, since_start: torch.Tensor, rate: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Products of positions, decayed from the earlier to the later; zero where there is no earlier one."""
    later = torch.ones(among_keys.shape[-2:], dtype=torch.bool, device=rate.device).triu(1)
    between = (since_start - since_start.mT).masked_fill(later, float("-inf")).exp()
    return (rate * among_keys * between).tril(-1), with_queries * between


@tf32_for_bf16
def alternative(
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
    batch, tokens, _, key = q.shape
    hv, value = v.shape[2:]

    def whole(x: torch.Tensor) -> torch.Tensor:
        """(B, T, H, size) to (W * T, B, H / W, size)."""
        send = x.unflatten(2, (world_size, -1)).permute(2, 1, 0, 3, 4).contiguous()
        received = torch.empty_like(send)
        dist.all_to_all_single(received, send, group=group)
        return received.flatten(0, 1)

    arrived = [whole(x) for x in (q, k, v, torch.stack([gate, beta], dim=-1))]
    keys, query, right, decay, write, read, since_start, rate = prepared(*arrived, a_log, dt_bias)
    products = torch.matmul(keys, keys.mT), torch.matmul(query, keys.mT)
    system, scores = decayed(*products, since_start, rate)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    from_values, from_state = solved.split([value, key], dim=-1)
    stretches = Chunks(decay, write, from_state, from_values, read, scores).stretches()
    before, _ = maps_in_place(stretches)
    out = outputs_in_place(stretches, before, None)[:, :, : world_size * tokens].to(q.dtype)
    send = out.permute(2, 0, 1, 3).contiguous()  # (W * T, B, heads, value)
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.view(world_size, tokens, batch, -1, value).permute(2, 1, 0, 3, 4).reshape(batch, tokens, hv, value)


PROBLEM = replace(get(75), id=7502, name="fewer_passes", baseline=alternative)
