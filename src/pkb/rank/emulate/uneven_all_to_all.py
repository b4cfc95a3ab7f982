"""`dist.all_to_all` with lists of tensors that differ in size: NCCL takes them, gloo does not.

On a CPU they travel as one flat tensor by `all_to_all_single`, whose parts may differ.
"""

import functools
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist


def install() -> None:
    real = cast(Any, dist.all_to_all)

    @functools.wraps(real)
    def all_to_all(
        output_tensor_list: Sequence[torch.Tensor],
        input_tensor_list: Sequence[torch.Tensor],
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        # Not by sizes: a rank whose own are even must take the same way as the others.
        if async_op or len({tensor.dtype for tensor in (*output_tensor_list, *input_tensor_list)}) != 1:
            return real(output_tensor_list, input_tensor_list, group, async_op)
        takes, gives = ([tensor.numel() for tensor in each] for each in (output_tensor_list, input_tensor_list))
        flat = torch.cat([tensor.reshape(-1) for tensor in input_tensor_list])
        came = flat.new_empty(sum(takes))
        dist.all_to_all_single(came, flat, takes, gives, group=group)
        for target, part in zip(output_tensor_list, came.split(takes), strict=True):
            target.copy_(part.view(target.shape))
        return None

    dist.all_to_all = cast(Any, dist.distributed_c10d).all_to_all = all_to_all
