"""Gradients of LayerNorm's weight and bias: two column sums over all tokens of all ranks.

The step that DDP, and Megatron-LM under sequence parallelism, take after the backward pass of a norm. Rank r holds
X_hat and dY (B, H): the normalised activations and the incoming gradients of its own tokens; B may differ between
ranks. Afterwards every rank holds d_gamma (H,), the sum of dY * X_hat, and d_beta (H,), the sum of dY, over all
tokens of all ranks, the same bits everywhere. The product is rounded to the dtype before it is summed, each rank's
sum once more before it is communicated; keeping more digits is allowed.

Two large matrices are read and two short vectors travel. A good kernel makes both column sums in one pass, in
float32 and in an order that does not change from run to run, packs the two vectors into one message, and lets every
rank add the W partial vectors in the same order.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # rank r holds m - r * ragged rows
    "tiny": {"m": 64, "n": 48, "ragged": 0},
    "paper": {"m": 1024, "n": 1024, "ragged": 0},
    "real": {"m": 8192, "n": 12288, "ragged": 0},  # GPT-3 175B, 4 sequences of 2048 tokens a rank
    "odd": {"m": 131, "n": 53, "ragged": 9},
}


def inputs(draw: Draw) -> Arguments:
    rows, n = draw.size["m"] - draw.rank * draw.size["ragged"], draw.size["n"]
    x = draw.normal("X_hat", (rows, n), dtype=torch.promote_types(draw.dtype, torch.float32))
    x = (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True, correction=0)
    return {
        "X_hat": x.to(draw.dtype),
        "dY": draw.normal("dY", (rows, n)),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Rows of X_hat have length 1, not variance 1, and keep their mean."""
    rows, n = draw.size["m"] - draw.rank * draw.size["ragged"], draw.size["n"]
    x = draw.normal("X_hat, published", (rows, n))
    return {"X_hat": x / (x.norm(dim=1, keepdim=True) + 1e-5)}


def solution(X_hat: torch.Tensor, dY: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if X_hat.shape != dY.shape:
        raise ValueError(f"shapes differ: X_hat {tuple(X_hat.shape)}, dY {tuple(dY.shape)}")
    d_beta = dY.sum(dim=0)
    d_gamma = (dY * X_hat).sum(dim=0)
    dist.all_reduce(d_beta, op=dist.ReduceOp.SUM)
    dist.all_reduce(d_gamma, op=dist.ReduceOp.SUM)
    return d_gamma, d_beta


def baseline(X_hat: torch.Tensor, dY: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sums in one message."""
    sums = torch.stack([(dY * X_hat).sum(dim=0), dY.sum(dim=0)])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM)
    d_gamma, d_beta = sums
    return d_gamma, d_beta


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, n, w = size["m"], size["n"], world_size
    mean_rows = m - (w - 1) / 2 * size["ragged"]
    vectors = 2 * n * element_bytes
    return Cost.all_reduce(
        vectors,
        w,
        phases=1,
        flops=3 * m * n + (w - 1) / w * 2 * n,
        hbm_bytes=2 * m * n * element_bytes + vectors,
        note="both vectors in one message, where the reference sends two",
        mean_flops=3 * mean_rows * n + (w - 1) / w * 2 * n,
        mean_hbm_bytes=2 * mean_rows * n * element_bytes + vectors,
    )


PROBLEM = Problem(
    id=9,
    name="layernorm_backward",
    source="DDP and Megatron-LM, gradients of LayerNorm parameters under sequence parallelism",
    taxonomy=Taxonomy(
        parallelism=("dp", "sp"),
        layer="norm",
        stage=("training-backward",),
        pattern=("all-reduce",),
        system="LLM training",
        fusable="elementwise product and two column sums",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("both sums in one pass over both tensors, by torch.compile"),),
    cost=cost,
    compare=NormGate(
        tau={torch.bfloat16: 1.25e-2}
    ),  # a product and two sums, rounded after every rank: 5.9e-3 with eight
    same_bits=True,
    version=2,  # tolerance
)
