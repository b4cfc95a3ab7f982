"""72: gates are multiplied before and after the swaps, so that two tensors travel and not four; what surrounds the
transforms is three passes by torch.compile."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.compiled import compiled


@compiled
def in_order(received: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(W, B, channels, chunks of a rank, positions) to (B, channels, 2 L), wide, with as many zeros after the sequence."""
    whole = received.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, places].flatten(2)
    padding = (0, whole.shape[-1])
    return torch.nn.functional.pad(whole.to(torch.promote_types(whole.dtype, torch.float32)), padding)


@compiled
def by_rank(
    y: torch.Tensor, z: torch.Tensor, bias: torch.Tensor, places: torch.Tensor, world_size: int, dtype: torch.dtype
) -> torch.Tensor:
    """(B, channels, 2 L) to (W, B, channels, chunks of a rank, positions), with the bias."""
    length = y.shape[-1] // 2
    whole = (y[..., :length] + z[..., :length] * bias[:, None]).to(dtype)
    chunks = whole.unflatten(-1, (places.shape[0], -1))[:, :, places].unflatten(2, (world_size, -1))
    return chunks.movedim(2, 0).contiguous()


@compiled
def gated(x1: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    return (x1 * received.transpose(0, 1).reshape(x1.shape)).transpose(1, 2).contiguous()


def alternative(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: dist.ProcessGroup | None = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    batch, channels, local = x1_seq.shape
    own, own_groups, length = channels // world_size, num_groups // world_size, world_size * local
    parts = 2 if with_zigzag_splitting else 1  # rank r holds chunks r and 2 W - 1 - r
    held = [c for r in range(world_size) for c in ((r, 2 * world_size - 1 - r) if parts == 2 else (r,))]
    natural = [held.index(c) for c in range(len(held))]
    to_sequence, to_ranks = torch.tensor([natural, held], device=x1_seq.device)

    send = (x2_seq * v_seq).view(batch, world_size, own, parts, local // parts).transpose(0, 1).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    z = in_order(received, to_sequence)
    filters = h[rank * own_groups : (rank + 1) * own_groups].to(z.dtype)
    spectrum = torch.fft.rfft(z)
    spectrum.view(batch, own_groups, group_dim, -1).mul_(torch.fft.rfft(filters, n=2 * length)[:, None])
    y = torch.fft.irfft(spectrum, n=2 * length)
    own_bias = conv_bias[rank * own : (rank + 1) * own].to(z.dtype)
    send = by_rank(y, z, own_bias, to_ranks, world_size, x1_seq.dtype)
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return gated(x1_seq, received)


PROBLEM = replace(get(72), id=7201, name="gates_stay", baseline=alternative)
