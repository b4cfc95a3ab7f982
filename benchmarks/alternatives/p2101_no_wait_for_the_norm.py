"""21: gradients are multiplied in every call, by a factor that may be 1, and the host waits for nothing."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.gradient_norms import summed_apart


def alternative(
    grad_tensors: list[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if not grad_tensors:
        return get(21).reference(grad_tensors, max_norm, norm_type, fsdp_group)  # type: ignore[no-any-return]
    wide = torch.promote_types(grad_tensors[0].dtype, torch.float32)
    norms = torch._foreach_norm(summed_apart(grad_tensors), norm_type, dtype=wide)
    power_sum = torch.stack(norms).pow_(norm_type).sum()
    if fsdp_group is not None:
        dist.all_reduce(power_sum, op=dist.ReduceOp.SUM, group=fsdp_group)
    total_norm = power_sum.pow(1.0 / norm_type)
    torch._foreach_mul_(grad_tensors, (max_norm / total_norm).clamp(max=1.0))
    return total_norm


PROBLEM = replace(get(21), id=2101, name="no_wait_for_the_norm", baseline=alternative)
