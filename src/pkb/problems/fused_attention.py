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


def attend_block(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, causal: bool, scale: float, cudnn: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over one block of keys and its log-sum-exp (batch, heads, positions), to be merged with those of others."""
    if fused(query):
        query, key, value = padded(query, key, value)
        flash, other = (
            torch.ops.aten._scaled_dot_product_flash_attention,
            torch.ops.aten._scaled_dot_product_cudnn_attention,
        )
        out, lse = (
            other(query, key, value, None, True, 0.0, causal, False, scale=scale)[:2]
            if cudnn
            else flash(query, key, value, 0.0, causal, False, scale=scale)[:2]
        )
        return out, lse.reshape(query.shape[:3])
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = torch.matmul(query.to(wide), key.to(wide).transpose(-2, -1)).mul_(scale)
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    lse = scores.logsumexp(dim=-1)
    return torch.matmul((scores - lse[..., None]).exp_(), value.to(wide)).to(query.dtype), lse


def merge_blocks(
    out: torch.Tensor, lse: torch.Tensor, block_out: torch.Tensor, block_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over both blocks of keys, the first in float32 or wider."""
    share = torch.sigmoid(block_lse - lse)[..., None].to(out.dtype)
    return torch.lerp(out, block_out.to(out.dtype), share), torch.logaddexp(lse, block_lse)


def ring_attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    group: dist.ProcessGroup,
    *,
    causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """Blocks of keys and values go around a ring while the one before is attended to: what was tried instead of gathering
    them. All are (batch, heads, positions, head size) of this rank."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    to_rank, from_rank = (dist.get_global_rank(group, (rank + step) % world_size) for step in (1, -1))
    kv = torch.stack([key, value])
    out = lse = None
    for step in range(world_size):
        requests, coming = [], torch.empty_like(kv)
        if step + 1 < world_size:
            send, receive = dist.P2POp(dist.isend, kv, to_rank, group), dist.P2POp(dist.irecv, coming, from_rank, group)
            requests = dist.batch_isend_irecv([send, receive])
        if step <= rank or not causal:
            block = attend_block(query, kv[0], kv[1], causal=causal and step == 0, scale=factor)
            if out is None or lse is None:
                out, lse = block[0].to(torch.promote_types(query.dtype, torch.float32)), block[1]
            else:
                out, lse = merge_blocks(out, lse, *block)
        for request in requests:
            request.wait()
        kv = coming
    assert out is not None
    return out[..., : query.shape[-1]].to(query.dtype)


def cudnn_attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, causal: bool, scale: float | None
) -> torch.Tensor:
    """As `attend`, by cuDNN: its causal mask begins at the first corner, so that earlier keys are a block of their own."""
    factor, earlier = query.shape[-1] ** -0.5 if scale is None else scale, key.shape[2] - query.shape[2]
    if not causal or not earlier:
        return attend_block(query, key, value, causal=causal, scale=factor, cudnn=True)[0][..., : query.shape[-1]]
    out, lse = attend_block(query, key[:, :, earlier:], value[:, :, earlier:], causal=True, scale=factor, cudnn=True)
    before = attend_block(query, key[:, :, :earlier], value[:, :, :earlier], causal=False, scale=factor, cudnn=True)
    merged, _ = merge_blocks(out.to(torch.promote_types(query.dtype, torch.float32)), lse, *before)
    return merged[..., : query.shape[-1]].to(query.dtype)
