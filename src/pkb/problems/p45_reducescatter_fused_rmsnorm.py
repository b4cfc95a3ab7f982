"""Reduce-scatter, then RMSNorm: every rank averages its rows over the ranks and normalises them.

The boundary between tensor and sequence parallelism in Megatron-LM (where the ranks' contributions are summed; here
they are averaged). Rank r holds `rs_input_1d`, its contribution to all W * rows rows of `hidden` elements, flat, and
the gain `gamma` (hidden,), the same on all ranks. Rank r ends up with rows r * rows to (r + 1) * rows: the sum of all
contributions in the dtype, divided by W (rounded), then in float32
y = x * rsqrt(mean(x * x) + eps) * gamma, rounded to the dtype, as (rows, hidden).

A row needs nothing but its W contributions: a good kernel reads them from the peers, adds them in float32 registers,
normalises and stores the row, in one pass. No peer may overwrite its contribution before the last reader is done.

Were it not for eps, dividing by W would change nothing. Inputs are drawn with mean squares around eps, so it does.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # tokens: of all ranks; a rank ends up with tokens // W, or a quarter with fewer than four ranks (upstream's)
    "tiny": {"tokens": 64, "hidden": 32},
    "paper": {"tokens": 1024, "hidden": 128},
    "real": {"tokens": 8192, "hidden": 8192},  # Llama-3-70B, TP 8
    "odd": {"tokens": 101, "hidden": 37},
    "decode": {"tokens": 64, "hidden": 8192},  # 64 sequences
}


def rows_of_a_rank(size: Size, world_size: int) -> int:
    return max(2, size["tokens"] // max(world_size, 4))


def inputs(draw: Draw) -> Arguments:
    rows, hidden = draw.world_size * rows_of_a_rank(draw.size, draw.world_size), draw.size["hidden"]
    eps = draw.random("eps", key="all").choice([1e-5, 1e-6])
    # The mean over the ranks of a row has a mean square from eps / 64 to 64 eps, so eps and the division by W both show.
    size = draw.uniform("size of rows", (rows, 1), -3, 3, key="all", dtype=torch.float32).exp2_()
    x = draw.normal("x", (rows, hidden), dtype=torch.promote_types(draw.dtype, torch.float32))
    x = x.mul_(size).mul_((eps * draw.world_size) ** 0.5).to(draw.dtype)
    return {"rs_input_1d": x.view(-1), "gamma": draw.normal("gamma", (hidden,), key="all"), "eps": eps}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Contributions are normal and unscaled, so that eps is not felt."""
    rows = draw.world_size * rows_of_a_rank(draw.size, draw.world_size)
    return {"rs_input_1d": draw.normal("x, published", (rows * draw.size["hidden"],))}


def solution(rs_input_1d: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    world_size, hidden = dist.get_world_size(), gamma.numel()
    if rs_input_1d.numel() % (world_size * hidden) != 0:
        raise ValueError(f"{rs_input_1d.numel()} elements are not rows of {hidden} for {world_size} ranks")
    rows = rs_input_1d.numel() // (world_size * hidden)

    total = torch.empty(rows * hidden, dtype=rs_input_1d.dtype, device=rs_input_1d.device)
    dist.reduce_scatter_tensor(total, rs_input_1d.reshape(-1).contiguous(), op=dist.ReduceOp.SUM)
    mean = (total / world_size).view(rows, hidden)

    x = mean.to(torch.promote_types(mean.dtype, torch.float32))
    y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gamma.reshape(-1).to(x.dtype)
    return y.to(rs_input_1d.dtype)


def baseline(rs_input_1d: torch.Tensor, gamma: torch.Tensor, eps: float) -> torch.Tensor:
    """torch's fused norm; the division by W is a factor of W squared in eps."""
    world_size, hidden = dist.get_world_size(), gamma.numel()
    total = rs_input_1d.new_empty((rs_input_1d.numel() // (world_size * hidden), hidden))
    dist.reduce_scatter_tensor(total.view(-1), rs_input_1d.reshape(-1), op=dist.ReduceOp.SUM)
    return torch.nn.functional.rms_norm(total, (hidden,), gamma.reshape(-1).to(total.dtype), eps * world_size**2)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, elements = world_size, rows_of_a_rank(size, world_size) * size["hidden"]
    block = elements * element_bytes
    return Cost.reduce_scatter(
        w * block,
        w,
        flops=(w - 1) * elements + 5 * elements,
        hbm_bytes=(w + 1) * block + size["hidden"] * element_bytes,
    )


PROBLEM = Problem(
    id=45,
    name="reducescatter_fused_rmsnorm",
    source="Megatron-LM sequence parallelism, reduce-scatter before a norm",
    taxonomy=Taxonomy(
        parallelism=("sp", "tp"),
        layer="norm",
        stage=("training-forward",),
        pattern=("reduce-scatter",),
        system="LLM training",
        fusable="averaging, RMSNorm with gain",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    # A ring rounds the sum at every rank on the way: sqrt(W) * 2^-9 of a row's size in bf16.
    compare=NormGate(tau={torch.bfloat16: 1.7e-2, torch.float16: 2.2e-3}),
)
