"""35: torch's all-gather of a list, for which NCCL broadcasts each shard as it is, in one group of calls."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(x: torch.Tensor, gather_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    if x.device.type != "cuda":  # gloo wants equal shapes
        return get(35).reference(x, gather_dim, group)  # type: ignore[no-any-return]
    world_size = dist.get_world_size(group)
    own_shape = torch.tensor(x.shape, dtype=torch.int64, device=x.device)
    all_shapes = own_shape.new_empty(world_size * x.dim())
    dist.all_gather_into_tensor(all_shapes, own_shape, group=group)
    shards = [x.new_empty(shape) for shape in all_shapes.view(world_size, x.dim()).tolist()]
    dist.all_gather(shards, x.contiguous(), group=group)
    return torch.cat(shards, dim=gather_dim)


PROBLEM = replace(get(35), id=3501, name="list_of_unequal_shards", baseline=alternative)
