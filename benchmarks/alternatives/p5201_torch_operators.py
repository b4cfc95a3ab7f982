"""52: coded by torch's operators, and summed by a product with the ranks' scales."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(flat_grads: torch.Tensor, amax_history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    world_size = dist.get_world_size()
    amax = torch.linalg.vector_norm(flat_grads, float("inf")).to(amax_history.dtype)
    history = torch.cat([amax_history[1:], amax.reshape(1)])
    peak = history.max().clamp(min=1e-12).to(torch.float32)
    scale = peak / torch.full_like(peak, 448.0)
    codes = flat_grads.to(torch.float32, copy=True).div_(scale).to(torch.float8_e4m3fn)
    received, scales = torch.empty_like(codes), scale.new_empty(world_size)
    dist.all_to_all_single(received.view(torch.uint8), codes.view(torch.uint8))
    dist.all_gather_into_tensor(scales, scale.reshape(1))
    total = torch.matmul(scales.div_(world_size)[None], received.view(world_size, -1).to(torch.float32))
    return total[0].to(flat_grads.dtype), history


PROBLEM = replace(get(52), id=5201, name="torch_operators", baseline=alternative)
