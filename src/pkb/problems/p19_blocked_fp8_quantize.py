"""Quantisation to FP8 with one scale per block of a row, then codes and scales are gathered.

DeepSeek-V3's 1 x 128 quantisation of activations, as xorl's FP8 path has it too, in front of an all-gather. Rank r
holds local_tensor (M, N). For each block of `block_size` elements of a row, in float32: scale = max|x| / 448, code =
x / scale rounded to float8_e4m3fn; a block of zeros has scale 0 and codes 0. Afterwards every rank holds the codes
(W * M, N) and the float32 scales (W * M, N / block_size) of all ranks, in rank order.

Quantising before the gather is the point: half the bytes of bf16 travel. A good kernel reads its block once, keeps it
in registers between maximum and division, and stores codes and scales straight into the peers' results, which are two
separate tensors. Divide in both places: multiplying by a reciprocal moves codes that lie on a rounding boundary, and
bf16 values often do. A few such codes, off by one step, are accepted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Close, Context
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fp8_blocks import quantise
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 16, "n": 128, "block": 32},
    "paper": {"m": 1024, "n": 1024, "block": 128},
    "real": {"m": 4096, "n": 7168, "block": 128},  # DeepSeek-V3, 4096 tokens a rank
    "odd": {"m": 37, "n": 120, "block": 24},
}
BLOCKS_OF_ZEROS = 1 / 16


def inputs(draw: Draw) -> Arguments:
    m, n, block = draw.size["m"], draw.size["n"], draw.size["block"]
    wide = torch.float32
    # Blocks of all sizes, some of them zero: a scale per row or per tensor would be wrong.
    size = draw.uniform("size", (m, n // block, 1), -6.0, 4.0, dtype=wide).exp2()
    kept = draw.uniform("kept", (m, n // block, 1), 0.0, 1.0, dtype=wide) >= BLOCKS_OF_ZEROS
    x = draw.normal("local_tensor", (m, n // block, block), dtype=wide) * size * kept
    return {
        "local_tensor": x.reshape(m, n).to(draw.dtype),
        "block_size": block,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal numbers of one size, and no block of zeros."""
    return {"local_tensor": draw.normal("local_tensor, published", (draw.size["m"], draw.size["n"]))}


def solution(local_tensor: torch.Tensor, block_size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    if local_tensor.shape[-1] % block_size:
        raise ValueError(f"rows of {local_tensor.shape[-1]} cannot be cut into blocks of {block_size}")
    largest_code = 448.0  # of float8_e4m3fn
    wide = torch.promote_types(local_tensor.dtype, torch.float32)
    blocks = local_tensor.unflatten(-1, (-1, block_size))
    peak = torch.linalg.vector_norm(blocks, float("inf"), dim=-1, dtype=wide)  # the maximum, without a wide copy
    # Divided by a tensor: torch may turn a division by a plain number into a multiplication.
    scales = peak / torch.full_like(peak, largest_code)
    divisor = torch.where(scales == 0, torch.ones_like(scales), scales)
    # The largest quotient may be a unit above 448, which rounds to 448.
    codes = (blocks / divisor.unsqueeze(-1)).to(torch.float8_e4m3fn).reshape(local_tensor.shape)
    scales = scales.to(torch.float32)
    if not dist.is_initialized():
        return codes, scales

    def gather_rows(x: torch.Tensor) -> torch.Tensor:
        rows = dist.get_world_size() * x.shape[0]
        out = torch.empty((rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    all_codes = gather_rows(codes.view(torch.uint8))  # as bytes: collectives do not know float8
    return all_codes.view(torch.float8_e4m3fn), gather_rows(scales)


def baseline(local_tensor: torch.Tensor, block_size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Upstream's quantisation in one pass, into the place of the result that is this rank's own."""
    if local_tensor.device.type != "cuda" or not dist.is_initialized():
        return solution(local_tensor, block_size)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    rows, width = local_tensor.shape[0], local_tensor.shape[-1]
    shape = (world_size * rows, *local_tensor.shape[1:])
    codes = torch.empty(shape, dtype=torch.float8_e4m3fn, device=local_tensor.device)
    scales = torch.empty((*shape[:-1], width // block_size), dtype=torch.float32, device=local_tensor.device)
    own_codes, own_scales = (t[rank * rows : (rank + 1) * rows] for t in (codes, scales))
    quantise(local_tensor.contiguous(), own_codes, own_scales, block_size)
    dist.all_gather_into_tensor(codes.view(torch.uint8), own_codes.view(torch.uint8))
    dist.all_gather_into_tensor(scales, own_scales)
    return codes, scales


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    elements, w = size["m"] * size["n"], world_size
    quantised = elements + 4 * elements // size["block"]
    return Cost.all_gather(
        w * quantised,
        w,
        flops=3 * elements,
        hbm_bytes=elements * element_bytes + w * quantised,
    )


@dataclass(frozen=True)
class Codes:
    """FP8 codes: all of them equal or adjacent to the truth, and all but a small share equal.

    An approximate division moves a quotient by a unit in the last place, which moves a code if the quotient lies on a
    boundary: measured, 0.06 to 0.15 % of codes for bf16 inputs and 1e-6 for float32.
    """

    moved_share: Mapping[torch.dtype, float]
    """What share of the codes may be adjacent rather than equal, by the dtype of the input."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if bool(output.double().isnan().any()):  # NaN is the code next to 448
            return math.inf
        steps = (self._ordinal(output) - self._ordinal(truth)).abs()
        allowed = max(2.0, self.moved_share[context.dtype] * steps.numel())
        moved = float((steps > 0).sum()) / allowed
        return max(moved, float(steps.max()) / 1.5) if steps.numel() else 0.0  # one step passes, two do not

    @staticmethod
    def _ordinal(codes: torch.Tensor) -> torch.Tensor:
        """The number of a code in the order of values, both zeros being 0."""
        bits = codes.view(torch.uint8).int()
        size = bits & 0x7F
        return torch.where(bits >= 0x80, -size, size)


PROBLEM = Problem(
    id=19,
    name="blocked_fp8_quantize",
    source="DeepSeek-V3 block quantisation of activations; xorl FP8 path",
    taxonomy=Taxonomy(
        parallelism=("tp", "sp", "fsdp"),
        layer="quantization",
        stage=("training-forward", "inference"),
        pattern=("all-gather",),
        system="RL post-training",
        fusable="block maximum, division, cast",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=(
        Codes(moved_share={torch.bfloat16: 5e-3, torch.float16: 5e-3, torch.float32: 1e-4}),
        Close(rtol={torch.float32: 1e-6}),
    ),
    truth="native",  # codes are defined by float32 arithmetic
    dtypes=("bf16", "fp16", "fp32"),
)
