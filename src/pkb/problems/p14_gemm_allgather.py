"""Column-parallel linear layer with gathered output: every rank computes some columns, then all have all of them.

Megatron-LM's ColumnParallelLinear with gather_output, such as the LM head whose logits every rank needs. All ranks
hold the same activations A (M, K); rank r holds B (K, N_local), its slice of the weight's columns. Afterwards every
rank holds [A @ B_0 | A @ B_1 | ... | A @ B_(W-1)] (M, W * N_local). Each block is computed by its owner and rounded
once, so the result has the same bits everywhere.

The reference gathers W blocks and then copies them side by side. A good kernel stores each finished tile of its
product straight to its place in every peer's result (row pitch W * N_local, column offset r * N_local, once for all
peers where the switch can multicast) while the product goes on. N_local need not be a multiple of a tile, and nobody
may return before the stores of all peers are visible.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.blocks import BLOCKS
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # n: all columns, of which each rank has n // W
    "tiny": {"m": 32, "n": 64, "k": 32},
    "paper": {"m": 1024, "n": 1024, "k": 512},
    "real": {"m": 4096, "n": 128256, "k": 8192},  # Llama-3-70B LM head, TP 8
    "odd": {"m": 67, "n": 131, "k": 43},
}


def inputs(draw: Draw) -> Arguments:
    m, k, n_local = draw.size["m"], draw.size["k"], draw.size["n"] // draw.world_size
    return {
        "A": draw.normal("A", (m, k), key="all"),
        "B": draw.normal("B", (k, n_local), scale=k**-0.5),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Every rank has an A of its own, and B is not scaled."""
    m, k, n_local = draw.size["m"], draw.size["k"], draw.size["n"] // draw.world_size
    return {"A": draw.normal("A, published", (m, k)), "B": draw.normal("B, published", (k, n_local))}


def solution(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    if A.shape[1] != B.shape[0]:
        raise ValueError(f"inner sizes differ: A {tuple(A.shape)}, B {tuple(B.shape)}")
    world_size = dist.get_world_size()
    C_local = torch.matmul(A.contiguous(), B.contiguous())
    m, n_local = C_local.shape
    blocks = torch.empty((world_size * m, n_local), dtype=C_local.dtype, device=C_local.device)
    dist.all_gather_into_tensor(blocks, C_local)
    return torch.cat(blocks.chunk(world_size), dim=1)


def exact(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A few rows at a time: beside the result there is one block of it."""
    world_size, (m, n_local) = dist.get_world_size(), (A.shape[0], B.shape[1])
    result = A.new_empty((m, world_size * n_local))
    for rows, place in zip(A.chunk(BLOCKS), result.chunk(BLOCKS), strict=True):
        gathered = A.new_empty((world_size * len(rows), n_local))
        dist.all_gather_into_tensor(gathered, rows @ B)
        place.view(len(rows), world_size, n_local).copy_(gathered.view(world_size, len(rows), n_local).transpose(0, 1))
    return result


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, k, w = size["m"], size["k"], world_size
    n_local = size["n"] // w
    block = m * n_local * element_bytes
    return Cost.all_gather(
        w * block,
        w,
        flops=2 * m * n_local * k,
        hbm_bytes=(m * k + k * n_local) * element_bytes + w * block,
        note="the product is gathered; where k < m, gathering the weights takes fewer bytes, but W times the arithmetic",
        # A is the same everywhere, so that every rank can compute all columns from the weights.
        least_link_bytes=(w - 1) * min(m, k) * n_local * element_bytes,
    )


def requires(size: Size, world_size: int) -> str | None:
    if size["n"] < world_size:
        return f"{size['n']} columns are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=14,
    name="gemm_allgather",
    source="Megatron-LM ColumnParallelLinear with gathered output",
    taxonomy=Taxonomy(
        parallelism=("tp", "vocab"),
        layer="embedding",
        stage=("training-forward", "inference"),
        pattern=("all-gather",),
        system="LLM training",
        fusable="GEMM whose epilogue stores to peers",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    exact=exact,
    baseline_reason="one GEMM, one all-gather and the copy that the result's layout asks for",
    cost=cost,
    requires=requires,
    same_bits=True,
    version=2,  # real has all of its 4096 tokens
)
