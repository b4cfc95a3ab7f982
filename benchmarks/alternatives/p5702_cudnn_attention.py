"""57: the baseline with cuDNN's backward kernel instead of flash attention's. Its causal mask begins at the first corner:
earlier keys are a block of their own."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.fused_attention import attend_backward, fused, gather_positions

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def cudnn_backward(
    tensors: tuple[torch.Tensor, ...], lse: torch.Tensor, keys: slice, *, causal: bool, scale: float
) -> Gradients:
    d_out, query, key, value, out = tensors
    key, value = key[:, :, keys], value[:, :, keys]
    unused = torch.empty((), dtype=torch.int64, device=query.device)  # the state of the dropout
    return torch.ops.aten._scaled_dot_product_cudnn_attention_backward(  # type: ignore[no-any-return]
        d_out, query, key, value, out, lse[..., None], unused, unused, None, None, None, query.shape[2], key.shape[2],
        0.0, causal, scale=scale,
    )  # fmt: skip


def backward(tensors: tuple[torch.Tensor, ...], lse: torch.Tensor, *, causal: bool, scale: float) -> Gradients:
    query, key = tensors[1], tensors[2]
    if not fused(query) or query.shape[3] % 8:
        d_out, query, key, value, out = tensors
        return attend_backward(d_out, query, key, value, out, lse, causal=causal, scale=scale)
    earlier = key.shape[2] - query.shape[2] if causal else 0
    dq, dk, dv = cudnn_backward(tensors, lse, slice(earlier, None), causal=causal, scale=scale)
    if not earlier:
        return dq, dk, dv
    more, *before = cudnn_backward(tensors, lse, slice(earlier), causal=False, scale=scale)
    return dq + more, torch.cat([before[0], dk], dim=2), torch.cat([before[1], dv], dim=2)


def alternative(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    cp_group: dist.ProcessGroup | None = None,
    dp_group: dist.ProcessGroup | None = None,
) -> Gradients:
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    positions, scale = q.shape[1], q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    (key, key_work), (value, value_work) = gather_positions(k, cp_group), gather_positions(v, cp_group)
    for work in (key_work, value_work):
        work.wait()
    seen = (dist.get_rank(cp_group) + 1) * positions if causal else key.shape[2]
    d_out, query, output = (t.transpose(1, 2) for t in (dout, q, out))
    tensors = (d_out, query, key[:, :, :seen], value[:, :, :seen], output)
    of_queries, *of_keys = backward(tensors, softmax_lse.contiguous(), causal=causal, scale=scale)
    gradients = q.new_empty((3, *q.shape))
    gradients[0] = of_queries.transpose(1, 2)
    for own, gradient in zip(gradients[1:], of_keys, strict=True):
        unseen = key.shape[2] - seen
        send = torch.nn.functional.pad(gradient.permute(2, 0, 1, 3), (0, 0, 0, 0, 0, 0, 0, unseen)).contiguous()
        summed = send.new_empty((positions, *send.shape[1:]))
        dist.reduce_scatter_tensor(summed, send, op=dist.ReduceOp.SUM, group=cp_group)
        own.copy_(summed.transpose(0, 1))
    if dp_group is not None and dist.get_world_size(dp_group) > 1:
        dist.all_reduce(gradients, op=dist.ReduceOp.SUM, group=dp_group)
        gradients.div_(dist.get_world_size(dp_group))
    dq, dk, dv = gradients.unbind()
    return dq, dk, dv


PROBLEM = replace(get(57), id=5702, name="cudnn_attention", baseline=alternative)
