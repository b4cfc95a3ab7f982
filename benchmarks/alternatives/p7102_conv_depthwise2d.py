"""71: torch's own depthwise kernel on rows of height 1, instead of cuDNN's."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.p71_hyena_conv1d_boundary_exchange import exchange_halos


def alternative(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    chunk, kernel = x.shape[-1] // 2, weight.shape[-1]
    halos = exchange_halos(x, kernel - 1, group)
    extended = torch.cat([halos.movedim(0, 2), x.unflatten(-1, (2, chunk))], dim=-1)  # (B, C, 2, halo + chunk)
    filters = weight.unsqueeze(2)
    if x.device.type != "cuda":
        return torch.nn.functional.conv2d(extended, filters, groups=x.shape[1]).flatten(2)
    out = torch.ops.aten._conv_depthwise2d(extended, filters, [1, kernel], None, [1, 1], [0, 0], [1, 1])
    return out.flatten(2)  # type: ignore[no-any-return]


PROBLEM = replace(get(71), id=7102, name="conv_depthwise2d", baseline=alternative)
