"""Two-layer MLP whose input is sharded by features and whose output is sharded by rows.

Modelled on all-gather + GEMM, SiLU, GEMM + reduce-scatter. Rank r holds x_local (M, H/W), its columns of the
activations x (M, H); all ranks hold the same weights W1 (H, F) and W2 (F, H). It returns rows [r * M/W, (r + 1) * M/W)
of silu(x @ W1) @ W2. The first product and the SiLU are each rounded to the dtype; a kernel that keeps more digits is
right too.

A rank wants its own rows of x only, of which every peer has some columns: row blocks are exchanged (an all-to-all, W
times less than gathering all of x), and nothing is left to sum. A good kernel starts the first product with the columns
that it has, and keeps the activations on chip up to the second.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m and h are rounded up to multiples of W
    "tiny": {"m": 32, "h": 32, "f": 48},
    "paper": {"m": 1024, "h": 256, "f": 512},
    "real": {"m": 8192, "h": 8192, "f": 28672},  # Llama-3-70B sizes with one up projection
    "odd": {"m": 59, "h": 43, "f": 37},
}


def _shape(size: Size, world_size: int) -> tuple[int, int, int]:
    """M, H and F."""
    m, h = (-(-size[name] // world_size) * world_size for name in ("m", "h"))
    return m, h, size["f"]


def inputs(draw: Draw) -> Arguments:
    m, h, f = _shape(draw.size, draw.world_size)
    return {
        "x_local": draw.normal("x_local", (m, h // draw.world_size)),
        "W1": draw.normal("W1", (h, f), scale=h**-0.5, key="all"),
        "W2": draw.normal("W2", (f, h), scale=f**-0.5, key="all"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Every rank has weights of its own, which are not scaled."""
    _, h, f = _shape(draw.size, draw.world_size)
    return {"W1": draw.normal("W1, published", (h, f)), "W2": draw.normal("W2, published", (f, h))}


def solution(x_local: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> torch.Tensor:
    world_size = dist.get_world_size()
    m, h_local = x_local.shape
    if m % world_size:
        raise ValueError(f"{m} rows cannot be shared out evenly among {world_size} ranks")
    if W1.shape[0] != world_size * h_local or W2.shape[0] != W1.shape[1]:
        raise ValueError(f"{world_size} shards {tuple(x_local.shape)}, W1 {tuple(W1.shape)}, W2 {tuple(W2.shape)}")

    # Only the own rows of x are needed: from every rank its columns of them.
    rows = m // world_size
    pieces = torch.empty((world_size * rows, h_local), dtype=x_local.dtype, device=x_local.device)
    dist.all_to_all_single(pieces, x_local.contiguous())
    x = torch.cat(pieces.chunk(world_size), dim=1)
    return torch.matmul(torch.nn.functional.silu(torch.matmul(x, W1)), W2)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    (m, h, f), w = _shape(size, world_size), world_size
    rows = m // w
    return Cost.all_to_all(
        w * rows * (h // w) * element_bytes,
        w,
        flops=4 * rows * h * f,
        hbm_bytes=(2 * rows * h + 2 * h * f / w) * element_bytes,
        note="weights being the same everywhere, one that computed a slice of F for all rows would read only 1/W of them",
    )


PROBLEM = Problem(
    id=15,
    name="combined_sharded_gemms",
    source="tensor- and sequence-parallel MLP, AG-GEMM + SiLU + GEMM-RS",
    taxonomy=Taxonomy(
        parallelism=("tp", "sp"),
        layer="mlp",
        stage=("training-forward", "inference"),
        pattern=("all-to-all",),
        system="LLM training",
        fusable="two GEMMs and SiLU",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="the reference exchanges the rows it needs, and computes only these",
    cost=cost,
    version=2,  # real has all of its 8192 tokens
)
