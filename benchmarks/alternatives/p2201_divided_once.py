"""22: norms are taken of the experts' gradients before they are divided, and one pass divides and clips them."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.gradient_norms import summed_apart


def alternative(
    non_ep_grad_tensors: list[torch.Tensor],
    ep_grad_tensors: list[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    ep_size: int = 1,
    fsdp_group: dist.ProcessGroup | None = None,
    ep_fsdp_group: dist.ProcessGroup | None = None,
    ep_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    p = float(norm_type)
    shared, expert = ([g for g in some if g is not None] for some in (non_ep_grad_tensors, ep_grad_tensors))
    if not shared or not expert:
        return get(22).reference(  # type: ignore[no-any-return]
            non_ep_grad_tensors, ep_grad_tensors, max_norm, norm_type, ep_size, fsdp_group, ep_fsdp_group, ep_group
        )
    wide = torch.promote_types(shared[0].dtype, torch.float32)
    shared_sum, expert_sum = (
        torch.stack(torch._foreach_norm(summed_apart(some), p, dtype=wide)).pow_(p).sum() for some in (shared, expert)
    )
    if fsdp_group is not None:
        dist.all_reduce(shared_sum, op=dist.ReduceOp.SUM, group=fsdp_group)
    for group in (ep_fsdp_group, ep_group):
        if group is not None:
            dist.all_reduce(expert_sum, op=dist.ReduceOp.SUM, group=group)
    total_norm = (shared_sum + expert_sum / float(ep_size) ** p).pow(1.0 / p)
    norm = float(total_norm)
    factor = max_norm / norm if norm > max_norm else 1.0
    if factor < 1:
        torch._foreach_mul_(shared, factor)
    if factor < 1 or ep_size > 1:
        torch._foreach_mul_(expert, factor / ep_size)
    return total_norm


PROBLEM = replace(get(22), id=2201, name="divided_once", baseline=alternative)
