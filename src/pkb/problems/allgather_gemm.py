"""A GEMM whose left operand is sharded along the contraction, which is gathered first: what problems 11 and 12 share."""

from pkb.problems.base import Size
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost


def draw_operands(draw: Draw) -> Arguments:
    """Every rank has columns of A, and a B of its own."""
    m, n, k_local = draw.size["m"], draw.size["n"], draw.size["k"] // draw.world_size
    k = k_local * draw.world_size
    return {
        "A_local": draw.normal("A_local", (m, k_local)),
        "B": draw.normal("B", (k, n), scale=k**-0.5),
    }


def gather_and_multiply_cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, n, w = size["m"], size["n"], world_size
    k_local = size["k"] // w
    k = k_local * w
    shard = m * k_local * element_bytes
    return Cost.all_gather(
        w * shard,
        w,
        flops=2 * m * n * k,
        hbm_bytes=(m * k + k * n + m * n) * element_bytes,
    )


def why_too_short(size: Size, world_size: int) -> str | None:
    if size["k"] < world_size:
        return f"a contraction of {size['k']} is too short for {world_size} ranks"
    return None
