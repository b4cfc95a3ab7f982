"""57: a ring of flash attention's backward blocks, float32 sums of keys' gradients travelling with them."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.fused_attention import attend_backward


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
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    cp_group = dist.group.WORLD if cp_group is None else cp_group
    assert cp_group is not None
    cp, rank = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    to_rank, from_rank = (dist.get_global_rank(cp_group, (rank + step) % cp) for step in (1, -1))

    def pass_on(block: torch.Tensor) -> tuple[torch.Tensor, list[dist.Work]]:
        received = torch.empty_like(block)
        messages = [
            dist.P2POp(dist.isend, block, to_rank, cp_group),
            dist.P2POp(dist.irecv, received, from_rank, cp_group),
        ]
        return received, dist.batch_isend_irecv(messages)

    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    wide = torch.promote_types(q.dtype, torch.float32)
    d_out, query, output = (t.transpose(1, 2) for t in (dout, q, out))
    kv = torch.stack([k, v])
    dq, dkv = torch.zeros(q.shape, dtype=wide, device=q.device), torch.zeros(kv.shape, dtype=wide, device=q.device)
    for step in range(cp):
        next_kv, requests = pass_on(kv) if step + 1 < cp else (kv, [])
        if step <= rank or not causal:
            key, value = kv.transpose(2, 3)
            block = attend_backward(
                d_out, query, key, value, output, softmax_lse, causal=causal and step == 0, scale=scale
            )
            dq += block[0].transpose(1, 2)
            for total, gradient in zip(dkv, block[1:], strict=True):
                total += gradient.transpose(1, 2)
        for request in requests:
            request.wait()
        kv = next_kv
        if cp > 1:
            dkv, requests = pass_on(dkv)
            for request in requests:
                request.wait()
    gradients = torch.stack([dq, *dkv]).to(q.dtype)
    if dp_group is not None and dist.get_world_size(dp_group) > 1:
        dist.all_reduce(gradients, op=dist.ReduceOp.SUM, group=dp_group)
        gradients.div_(dist.get_world_size(dp_group))
    dq, dk, dv = gradients.unbind()
    return dq, dk, dv


PROBLEM = replace(get(57), id=5701, name="ring_of_flash_blocks", baseline=alternative)
