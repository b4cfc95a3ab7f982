"""Attention by torch's fused kernels, for baselines of problems whose references write out scores.

Queries, keys and values are (batch, heads, positions, head size) in any strides that keep the last axis dense: fused kernels
read views, so that no baseline has to bring what it received into another order first.
"""

import torch
import torch.distributed as dist


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, causal: bool, scale: float | None
) -> torch.Tensor:
    """Queries are the last of the positions that have keys; if causal, none sees a later key."""
    queries, keys = query.shape[2], key.shape[2]
    if not causal or queries == keys:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    if fused(query):
        # With fewer queries than keys the kernel's mask begins at the last corner, as `torch.nn.attention.bias` has it (whose
        # import takes a second). The function above would begin at the first.
        head_size = query.shape[3]
        query, key, value = padded(query, key, value)
        out = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, True, False, scale=head_size**-0.5 if scale is None else scale
        )[0]
        return out[..., :head_size]
    mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def fused(tensor: torch.Tensor) -> bool:
    """Whether torch's flash attention takes it."""
    return tensor.device.type == "cuda" and tensor.element_size() == 2


def padded(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """With heads of a size that the kernel takes; zeros change no product."""
    missing = -tensors[0].shape[-1] % 8
    return [torch.nn.functional.pad(tensor, (0, missing)) for tensor in tensors] if missing else list(tensors)


def gather_positions(block: torch.Tensor, group: dist.ProcessGroup) -> tuple[torch.Tensor, dist.Work]:
    """Starts to gather (batch, S, heads, head size) of all ranks. Once the work is done, the tensor is (batch, heads, W * S,
    head size): a view, since positions travel before the batch."""
    send = block.transpose(0, 1).contiguous()  # no copy for a batch of one
    positions, *rest = send.shape
    everything = send.new_empty((dist.get_world_size(group) * positions, *rest))
    work = dist.all_gather_into_tensor(everything, send, group=group, async_op=True)
    assert work is not None
    return everything.permute(1, 2, 0, 3), work


def attend_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query, key and value in their dtype. `out` and `lse` (batch, heads, positions) are those of the forward
    pass, which may have seen more keys than these. Queries are the last of the positions that have keys."""
    if fused(query):
        head_size = query.shape[3]
        tensors = padded(grad_out, query, key, value, out)
        unused = torch.empty((), dtype=torch.int64, device=query.device)  # the state of the dropout
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            *tensors,
            lse.contiguous(),
            None,
            None,
            query.shape[2],
            key.shape[2],
            0.0,
            causal,
            unused,
            unused,
            scale=scale,
        )
        return tuple(gradient[..., :head_size] for gradient in gradients)
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v, d_out, o = (t.to(wide) for t in (query, key, value, grad_out, out))
    scores = torch.matmul(q, k.transpose(-2, -1)).mul_(scale)
    if causal:
        queries, keys = scores.shape[-2:]
        future = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(1 + keys - queries)
        scores.masked_fill_(future, float("-inf"))
    weights = scores.sub_(lse.to(wide).unsqueeze(-1)).exp_()
    delta = (d_out * o).sum(dim=-1, keepdim=True)
    d_scores = torch.matmul(d_out, v.transpose(-2, -1)).sub_(delta).mul_(weights).mul_(scale)
    dq = torch.matmul(d_scores, k)
    dk = torch.matmul(d_scores.transpose(-2, -1), q)
    dv = torch.matmul(weights.transpose(-2, -1), d_out)
    return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype)
