"""RMSNorm over a hidden dimension that is sharded over the ranks: one number per row travels.

vLLM's tensor-parallel RMSNorm for the queries and keys of MiniMax-M2, and the same norm of Wan video models. Rank r
holds local_hidden_states (..., N), its columns of rows that are N * W wide, and local_weight (N,); N is the same on
all ranks. With q the sum of squares of the whole row, it returns its columns of x / sqrt(q / (N W) + eps) * weight.
Sums and the scaling are float32; the scaled row is rounded to the input's dtype before it is multiplied with the
weight, and the product is rounded again.

Four bytes a row stand between two passes over the data, and they are needed by all ranks. A good kernel keeps its
rows on chip in between, writes its sums of squares to all peers at once and adds those of all ranks in one fixed
order, so that every rank finds the same variance. Its flags must tell this call's sums from the last call's.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.compiled import compiled
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 64, "n": 48},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 32768, "n": 768},  # MiniMax-M2, norm of 48 query heads of 128 over TP 8, 32 768 tokens
    "odd": {"m": 83, "n": 37},
    "decode": {"m": 64, "n": 768},  # 64 sequences
}
EPSILONS = (1e-6, 1e-4)


def inputs(draw: Draw) -> Arguments:
    m, n = draw.size["m"], draw.size["n"]
    wide = torch.promote_types(draw.dtype, torch.float32)
    # Rows of all sizes, some so small that epsilon counts; and in each row, ranks of unlike size: with equal ones the
    # local sum of squares, times W, would be a fair guess of the global one.
    row = draw.uniform("row", (m, 1), math.log(1e-3), math.log(10.0), key="all", dtype=wide).exp()
    share = draw.uniform("share", (m, 1), math.log(0.25), math.log(4.0), dtype=wide).exp()
    x = draw.normal("local_hidden_states", (m, n), dtype=wide) * row * share
    return {
        "local_hidden_states": x.to(draw.dtype),
        "local_weight": draw.uniform("local_weight", (n,), 0.5, 1.5),
        "variance_epsilon": math.exp(draw.random("epsilon", key="all").uniform(*map(math.log, EPSILONS))),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal numbers of one size, weights too, and always the same epsilon."""
    m, n = draw.size["m"], draw.size["n"]
    return {
        "local_hidden_states": draw.normal("local_hidden_states, published", (m, n)),
        "local_weight": draw.normal("local_weight, published", (n,)),
        "variance_epsilon": 1e-5,
    }


def solution(local_hidden_states: torch.Tensor, local_weight: torch.Tensor, variance_epsilon: float) -> torch.Tensor:
    width = local_hidden_states.shape[-1]
    if local_weight.shape != (width,):
        raise ValueError(f"a weight {tuple(local_weight.shape)} does not fit rows of {width}")
    x = local_hidden_states.to(torch.promote_types(local_hidden_states.dtype, torch.float32))
    square_sum = x.square().sum(dim=-1, keepdim=True)
    dist.all_reduce(square_sum, op=dist.ReduceOp.SUM)
    variance = square_sum / (width * dist.get_world_size())
    scaled = x * torch.rsqrt(variance + variance_epsilon)
    return local_weight * scaled.to(local_hidden_states.dtype)


@compiled
def square_sums(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32)).square().sum(dim=-1, keepdim=True)


@compiled
def scaled(x: torch.Tensor, total: torch.Tensor, weight: torch.Tensor, width: int, epsilon: float) -> torch.Tensor:
    return weight * (x * torch.rsqrt(total / width + epsilon)).to(x.dtype)


def baseline(local_hidden_states: torch.Tensor, local_weight: torch.Tensor, variance_epsilon: float) -> torch.Tensor:
    """Two passes by torch.compile, one before and one after the sum over the ranks."""
    total = square_sums(local_hidden_states)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    width = local_hidden_states.shape[-1] * dist.get_world_size()
    return scaled(local_hidden_states, total, local_weight, width, variance_epsilon)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, n, w = size["m"], size["n"], world_size
    sums = m * max(4, element_bytes)
    return Cost.all_reduce(
        sums,
        w,
        phases=1,
        flops=4 * m * n,  # square, add, and two products
        hbm_bytes=(2 * m * n + n) * element_bytes,
    )


# Two roundings to the dtype are at most one unit in the last place together; twice as much is allowed.
NORMALISED = Close(
    rtol={torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 1e-5, torch.float64: 1e-12},
    atol={torch.float16: 2**-23, torch.bfloat16: 1e-37, torch.float32: 1e-37},  # results below the normal range
)

PROBLEM = Problem(
    id=18,
    name="tp_rms_norm",
    source="vLLM, tensor-parallel RMSNorm of MiniMax-M2",
    taxonomy=Taxonomy(
        parallelism=("tp",),
        layer="norm",
        stage=("inference", "training-forward"),
        pattern=("all-reduce",),
        system="inference engines",
        fusable="row sums of squares before, scaling after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    baseline_version=2,
    tried=(Alternative("torch's own operators: no wide copy, each product written in the dtype at once", us=2137),),
    cost=cost,
    compare=NORMALISED,
    version=2,  # epsilon varies
)
