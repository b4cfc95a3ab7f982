"""Sums the gradients of LoRA matrices that all experts of all ranks share: three small all-reduces, in place.

xorl's expert-parallel group GEMM with hybrid shared LoRA: the A matrices of the gate and up projections and the B matrix
of the down projection exist once, so after the backward pass every rank holds its own contribution to their gradients.
Afterwards every rank holds the sum over all ranks (not the mean) in the same three tensors, the same bits everywhere, or
the replicated parameters would drift apart. The three tensors themselves are returned. (The group GEMM of the name is
upstream's; only the exchange of gradients is part of the problem.)

The tensors are small, so latency decides: a good kernel treats the three as one message and sums it in one step, every
rank reading all peers and adding in the same order. It works in place: nobody may overwrite a tensor that a peer has
not read yet.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.problems.plain_sums import SumGate, draw_summand
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"lora": 4, "n": 48},
    "paper": {"lora": 8, "n": 1024},
    "real": {"lora": 58 * 64, "n": 7168},  # DeepSeek-V3: LoRA rank 64 of all 58 MoE layers in one call
    "odd": {"lora": 7, "n": 53},
}
BUCKET_BYTES = 4 << 20
"""Below this, three messages take longer than copying the gradients into one."""


def inputs(draw: Draw) -> Arguments:
    lora, n = draw.size["lora"], draw.size["n"]
    return {
        "grad_fc1_1_lora_A": draw_summand(draw, "grad_fc1_1_lora_A", (lora, n)),
        "grad_fc1_2_lora_A": draw_summand(draw, "grad_fc1_2_lora_A", (lora, n)),
        "grad_fc2_lora_B": draw_summand(draw, "grad_fc2_lora_B", (n, lora)),
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal numbers of one size, in all columns."""
    lora, n = draw.size["lora"], draw.size["n"]
    return {
        "grad_fc1_1_lora_A": draw.normal("grad_fc1_1_lora_A, published", (lora, n)),
        "grad_fc1_2_lora_A": draw.normal("grad_fc1_2_lora_A, published", (lora, n)),
        "grad_fc2_lora_B": draw.normal("grad_fc2_lora_B, published", (n, lora)),
    }


def solution(
    grad_fc1_1_lora_A: torch.Tensor,
    grad_fc1_2_lora_A: torch.Tensor,
    grad_fc2_lora_B: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    for gradient in (grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B):
        if not gradient.is_contiguous():
            raise ValueError("gradients are summed in place and must be contiguous")
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=group)
    return grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B


def baseline(
    grad_fc1_1_lora_A: torch.Tensor,
    grad_fc1_2_lora_A: torch.Tensor,
    grad_fc2_lora_B: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Small gradients travel in one message."""
    gradients = [grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B]
    if sum(gradient.nbytes for gradient in gradients) > BUCKET_BYTES:
        return solution(grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B, group)
    bucket = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(bucket, op=dist.ReduceOp.SUM, group=group)
    pieces = bucket.split([gradient.numel() for gradient in gradients])
    torch._foreach_copy_(gradients, [piece.view_as(own) for piece, own in zip(pieces, gradients, strict=True)])
    return grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, elements = world_size, 3 * size["lora"] * size["n"]
    message = elements * element_bytes
    return Cost.all_reduce(
        message,
        w,
        phases=1,
        flops=(w - 1) / w * elements,
        hbm_bytes=2 * message,
        note="one step is possible where every rank reads all peers, at (W - 1) times the message",
    )


SUMS = SumGate(alike=3.0)

PROBLEM = Problem(
    id=30,
    name="moe_epgroupgemm_lora_backward",
    source="xorl, gradients of shared LoRA matrices under expert parallelism",
    taxonomy=Taxonomy(
        parallelism=("ep", "dp"),
        layer="gradient",
        stage=("training-backward",),
        pattern=("all-reduce",),
        system="RL post-training",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=SUMS,
    mutates={"grad_fc1_1_lora_A": SUMS, "grad_fc1_2_lora_A": SUMS, "grad_fc2_lora_B": SUMS},
    returns_input=True,
    version=5,  # elements of small columns count, and few rows
    same_bits=True,
)
