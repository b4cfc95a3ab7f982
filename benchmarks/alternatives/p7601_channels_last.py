"""76: channels_last_3d, in which cuDNN transposes nothing itself."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int | tuple[int, int, int],
    padding: int | tuple[int, int, int],
    dilation: int | tuple[int, int, int],
    groups: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    last, kernel = (t.contiguous(memory_format=torch.channels_last_3d) for t in (input, weight))
    output = torch.nn.functional.conv3d(last, kernel, None, stride, padding, dilation, groups).contiguous()
    dist.all_reduce(output, op=dist.ReduceOp.SUM, group=group)
    if bias is not None:
        output += bias.view(1, -1, 1, 1, 1)
    return output


PROBLEM = replace(get(76), id=7601, name="channels_last", baseline=alternative)
