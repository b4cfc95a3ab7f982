"""All-to-all of blockwise quantised values, which arrive multiplied by their scales.

DeepSeek-V3-style expert parallelism. Rank r holds local_y (W, M, N), of which slice d is meant for rank d, and
local_s (W, M * N / block_size): element i of local_y, counted through the whole tensor in row-major order, has scale
number i // block_size. A block never crosses two slices, but may cross two rows. The result (W, M, N) is float32 and
holds in slice s the values that rank s meant for this rank, code times scale: one float32 multiplication, so the bits
must be the same.

Codes are float8_e4m3fn and scales float32 (in a float32 case, both are float32). The reference multiplies first and
sends float32. A good kernel sends, or lets its peers read, codes and scales, which are almost four times less, and
multiplies where they arrive; each slice must travel with its own scales. Slot s of the result is the source.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fp8_blocks import dequantise
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m, n: one slice
    "tiny": {"m": 16, "n": 64, "block": 32},
    "paper": {"m": 1024, "n": 1024, "block": 128},
    "real": {"m": 1024, "n": 7168, "block": 128},  # DeepSeek-V3, 1024 tokens for each destination
    "odd": {"m": 21, "n": 40, "block": 24},  # blocks cross the ends of rows
}


def inputs(draw: Draw) -> Arguments:
    w, m, n, block = draw.world_size, draw.size["m"], draw.size["n"], draw.size["block"]
    quantised = draw.dtype is torch.bfloat16
    codes = draw.normal("local_y", (w, m, n), scale=128.0, dtype=torch.float32).clamp(-448.0, 448.0)
    # Scales of unlike size: an average one would be no guess.
    scales = draw.uniform("local_s", (w, m * n // block), math.log(1e-3), math.log(1e-1), dtype=torch.float32).exp()
    return {
        "local_y": codes.to(torch.float8_e4m3fn) if quantised else codes,
        "local_s": scales,
        "block_size": block,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal numbers as codes and as scales, of which half are negative. (Its dtype, bf16 for both, is not ours.)"""
    w, m, n, block = draw.world_size, draw.size["m"], draw.size["n"], draw.size["block"]
    codes = torch.float8_e4m3fn if draw.dtype is torch.bfloat16 else torch.float32
    return {
        "local_y": draw.normal("local_y, published", (w, m, n), dtype=codes),
        "local_s": draw.normal("local_s, published", (w, m * n // block), dtype=torch.float32),
    }


def solution(local_y: torch.Tensor, local_s: torch.Tensor, block_size: int = 128) -> torch.Tensor:
    world_size = dist.get_world_size()
    if local_y.shape[0] != world_size:
        raise ValueError(f"local_y has {local_y.shape[0]} slices for {world_size} ranks")
    if local_y[0].numel() % block_size:
        raise ValueError(f"slices of {local_y[0].numel()} elements cannot be cut into blocks of {block_size}")
    if local_s.numel() * block_size != local_y.numel():
        raise ValueError(f"{local_s.numel()} scales for {local_y.numel() // block_size} blocks")
    values = local_y.to(torch.float32, copy=True)
    values.view(-1, block_size).mul_(local_s.to(torch.float32).reshape(-1, 1))
    out = torch.empty_like(values)
    dist.all_to_all_single(out, values)
    return out


def baseline(local_y: torch.Tensor, local_s: torch.Tensor, block_size: int = 128) -> torch.Tensor:
    """Codes and scales travel, a quarter of the bytes, and are multiplied in one pass where they arrive."""
    if local_y.dtype is not torch.float8_e4m3fn:
        return solution(local_y, local_s, block_size)
    codes, scales = torch.empty_like(local_y), torch.empty_like(local_s)
    dist.all_to_all_single(codes.view(torch.uint8), local_y.contiguous().view(torch.uint8))
    dist.all_to_all_single(scales, local_s.contiguous())
    if codes.device.type == "cuda":
        return dequantise(codes, scales, block_size)
    values = codes.to(torch.float32)
    values.view(-1, block_size).mul_(scales.view(-1, 1))
    return values


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    elements, w = size["m"] * size["n"], world_size
    code_bytes = 1 if element_bytes == 2 else 4
    one_slice = elements * code_bytes + 4 * elements // size["block"]
    moved = min(one_slice, 4 * elements)  # codes as wide as products need not travel
    return Cost.all_to_all(
        w * moved,
        w,
        flops=w * elements,
        hbm_bytes=w * one_slice + 4 * w * elements,
        note="FP8 codes and their scales travel, where the reference sends float32 products",
    )


PROBLEM = Problem(
    id=20,
    name="blocked_fp8_dequantize",
    source="DeepSeek-V3-style block dequantisation beside an expert-parallel all-to-all",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="quantization",
        stage=("training-forward", "inference"),
        pattern=("all-to-all",),
        system="kernel libraries",
        fusable="multiplication by the scale of the block",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("multiplied by torch's operators: a conversion, then a product in place", us=3937),),
    cost=cost,
    compare=Exact(),
    truth="native",  # one correctly rounded float32 multiplication
    dtypes=("bf16", "fp32"),  # bf16 stands for the mixed-precision case, whose quantised form is FP8
)
