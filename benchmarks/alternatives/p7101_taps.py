"""71: a product for each tap, added in place in float32."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.p71_hyena_conv1d_boundary_exchange import exchange_halos


def alternative(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    halos = exchange_halos(x, weight.shape[-1] - 1, group)
    chunk, wide = x.shape[-1] // 2, torch.promote_types(x.dtype, torch.float32)
    extended = torch.cat([halos.movedim(0, 2), x.unflatten(-1, (2, chunk))], dim=-1)
    total = torch.zeros((*x.shape[:2], 2, chunk), dtype=wide, device=x.device)
    for tap in range(weight.shape[-1]):
        total.addcmul_(extended[..., tap : tap + chunk], weight[:, :, tap, None].to(wide))
    return total.to(x.dtype).flatten(2)


PROBLEM = replace(get(71), id=7101, name="taps", baseline=alternative)
