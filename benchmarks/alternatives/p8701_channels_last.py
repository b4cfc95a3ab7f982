"""87: channels_last, in which cuDNN transposes nothing itself."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int = 1,
    padding: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if padding == 0 or world_size == 1:
        return torch.nn.functional.conv2d(x, weight, bias, stride, padding)
    batch, channels, rows, width = x.shape
    shape = (batch, channels, rows + 2 * padding, width)
    extended = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last).zero_()
    extended[:, :, padding:-padding] = x
    operations, halos = [], []
    for neighbour, place, edge in (
        (rank - 1, slice(padding), x[:, :, :padding].contiguous()),
        (rank + 1, slice(-padding, None), x[:, :, -padding:].contiguous()),
    ):
        if 0 <= neighbour < world_size:
            peer, halo = dist.get_global_rank(group, neighbour), torch.empty_like(edge)
            operations.append(dist.P2POp(dist.isend, edge, peer, group))
            operations.append(dist.P2POp(dist.irecv, halo, peer, group))
            halos.append((place, halo))
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    for place, halo in halos:
        extended[:, :, place] = halo
    kernel = weight.contiguous(memory_format=torch.channels_last)
    return torch.nn.functional.conv2d(extended, kernel, bias, stride, (0, padding)).contiguous()


PROBLEM = replace(get(87), id=8701, name="channels_last", baseline=alternative)
