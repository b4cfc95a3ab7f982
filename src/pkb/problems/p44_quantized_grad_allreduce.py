"""Gradient averaging with 8-bit communication: every rank quantises its gradient by blocks, then the ranks average.

In the manner of DeepSpeed ZeRO++ and of 8-bit gradient compression. Rank r holds `flat_grad` (n elements). It is cut
into blocks of block_size elements, the last one filled up with zeros. For each block s = max(max|x|, 1e-8) / 127 in
float32, and each element becomes the 8-bit code q = round(x / s), halves to even, within -127 ... 127, which stands for
q * s. What every rank ends up with is the mean over the ranks of these q * s, summed in float32 and rounded once to
the gradient's dtype, in the gradient's shape. Each contribution is quantised once, by its sender, and the sum never.

The reference communicates the dequantised float32 values; the codes and one scale for each block hold the same
information in a quarter of the bytes. A good kernel sends these to the rank that owns a piece of the result (pieces
must begin at block borders), which dequantises and sums them in float32 and hands out the mean in the final dtype.

Gradients are drawn so that no x / s lies within 0.001 of a half, where the last bit of s would decide the code: every
sound order of float32 operations gives the same codes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.blocks import BLOCKS
from pkb.problems.compare import Context, pieces
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"n": 3000, "block": 32},
    "paper": {"n": 1 << 20, "block": 128},
    "real": {"n": 1 << 28, "block": 128},  # half of a default bucket of DeepSpeed, 5e8 elements
    "odd": {"n": 4999, "block": 37},
}
CLEARANCE = 1e-3
EMPTY_BLOCKS = 0.05


def settle(x: torch.Tensor) -> torch.Tensor:
    """The blocks (rows) with every element whose code is in doubt moved to the middle of a code."""
    scale = x.double().abs().amax(dim=1, keepdim=True).clamp_min_(1e-8).div_(127)
    code = x.double().div_(scale)
    doubtful = (code - code.floor()).sub_(0.5).abs_() < CLEARANCE
    return torch.where(doubtful, code.round_().mul_(scale).to(x.dtype), x)


def inputs(draw: Draw) -> Arguments:
    n, block = draw.size["n"], draw.size["block"]
    blocks = -(-n // block)
    # Blocks of very different size, some of zeros: one scale for all, or for some other cut, shows.
    spread = draw.uniform("size of blocks", (blocks, 1), -3, 3, dtype=torch.float32).exp2_()
    filled = draw.uniform("empty blocks", (blocks, 1), 0, 1, dtype=torch.float32) >= EMPTY_BLOCKS
    x = draw.normal("flat_grad", (blocks, block), dtype=torch.promote_types(draw.dtype, torch.float32))
    x = x.mul_(spread).mul_(filled).to(draw.dtype)
    x.view(-1)[n:] = 0
    return {"flat_grad": settle(x).view(-1)[:n].clone(), "block_size": block}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All blocks are of the same size and none is empty; codes may be in doubt."""
    return {"flat_grad": draw.normal("flat_grad, published", (draw.size["n"],))}


def solution(flat_grad: torch.Tensor, block_size: int) -> torch.Tensor:
    if block_size < 1:
        raise ValueError(f"blocks must have at least one element, not {block_size}")
    n = flat_grad.numel()
    if n == 0:
        return torch.empty_like(flat_grad)
    x = flat_grad.reshape(-1).to(torch.promote_types(flat_grad.dtype, torch.float32))
    x = torch.nn.functional.pad(x, (0, -n % block_size)).view(-1, block_size)

    scale = x.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 127.0
    code = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
    mean = (code.to(scale.dtype) * scale).view(-1)[:n].contiguous()

    dist.all_reduce(mean, op=dist.ReduceOp.SUM)
    mean = mean / dist.get_world_size()
    return mean.to(flat_grad.dtype).view(flat_grad.shape)


def baseline(flat_grad: torch.Tensor, block_size: int) -> torch.Tensor:
    """Codes travel instead of float32, each rank sums up a W-th of the blocks, and the means travel in the result's dtype."""
    world_size, n = dist.get_world_size(), flat_grad.numel()
    wide = torch.promote_types(flat_grad.dtype, torch.float32)
    blocks = -(-n // (block_size * world_size))  # of a rank
    x = torch.nn.functional.pad(flat_grad.reshape(-1), (0, world_size * blocks * block_size - n)).view(-1, block_size)
    scale = torch.linalg.vector_norm(x, float("inf"), dim=1, keepdim=True, dtype=wide).clamp_(min=1e-8).div_(127.0)
    codes = (x / scale).round_().to(torch.int8)
    all_codes, all_scales = torch.empty_like(codes), torch.empty_like(scale)
    dist.all_to_all_single(all_codes, codes)
    dist.all_to_all_single(all_scales, scale)
    mean = torch.zeros((blocks, block_size), dtype=wide, device=x.device)
    for some, factor in zip(all_codes.chunk(world_size), all_scales.chunk(world_size), strict=True):
        mean.addcmul_(some.to(wide), factor)
    own = mean.div_(world_size).to(flat_grad.dtype)
    gathered = own.new_empty(world_size * own.numel())
    dist.all_gather_into_tensor(gathered, own.view(-1))
    return gathered[:n].view(flat_grad.shape)


def exact(flat_grad: torch.Tensor, block_size: int) -> torch.Tensor:
    """Some blocks at a time, each mean where its gradient was."""
    flat, wide = flat_grad.view(-1), torch.promote_types(flat_grad.dtype, torch.float32)
    for start in range(0, flat.numel(), step := block_size * -(-flat.numel() // (BLOCKS * block_size))):
        some = flat[start : start + step]
        x = torch.nn.functional.pad(some.to(wide), (0, -some.numel() % block_size)).view(-1, block_size)
        scale = x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-8).div_(127.0)
        mean = x.div_(scale).round_().clamp_(-127, 127).mul_(scale).view(-1)[: some.numel()]
        dist.all_reduce(mean)
        some.copy_(mean.div_(dist.get_world_size()))
    return flat_grad


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    n, w = size["n"], world_size
    codes = n + 4 * -(-n // size["block"])
    there_and_back = Cost.all_to_all(codes, w) + Cost.all_gather(
        n * element_bytes,
        w,
        flops=6 * n + n,
        hbm_bytes=2 * n * element_bytes,
        note="codes and scales to the owner of a piece, means back; the reference sums 4-byte values",
    )
    # With few ranks, or wide means, that is less.
    to_everyone = Cost.all_gather(
        w * codes,
        w,
        flops=6 * n + n,
        hbm_bytes=2 * n * element_bytes,
        note="codes and scales to everyone; the reference sums 4-byte values",
    )
    return min(there_and_back, to_everyone, key=lambda one: one.link_sent_bytes)


@dataclass(frozen=True)
class OneRounding:
    """Every element within rtol of the truth, or within 2e-6 of the output's root mean square.

    The codes are beyond doubt, so only the final rounding and the order of a float32 sum may differ. That is what
    tells quantised gradients from plain ones: their mean differs by less than 1 % of the whole.
    """

    rtol: Mapping[torch.dtype, float] = field(
        default_factory=lambda: {
            torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2e-6, torch.float64: 1e-12,
        }
    )  # fmt: skip

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        if output.numel() == 0:
            return 0.0
        rms = math.sqrt(sum(float(want.double().square().sum()) for (want,) in pieces(truth)) / truth.numel())
        rtol, worst = self.rtol[output.dtype], 0.0
        for want, got in pieces(truth, output):
            want, got = want.double(), got.double()
            ratio = (got - want).abs() / (rtol * want.abs() + min(rtol, 2e-6) * rms)
            worst = max(worst, float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max()))
        return worst if math.isfinite(worst) else math.inf


PROBLEM = Problem(
    id=44,
    name="quantized_grad_allreduce",
    source="block-quantised gradients, as in DeepSpeed ZeRO++",
    taxonomy=Taxonomy(
        parallelism=("dp",),
        layer="quantization",
        stage=("training-backward",),
        pattern=("all-reduce",),
        system="LLM training",
        fusable="block maximum, quantise, dequantise, average",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    exact=exact,
    fits_one_gpu={"real": (1, 2, 3, 4)},  # a call of the reference took 13 times its argument at 2^26 elements
    baseline=baseline,
    tried=(Alternative("coding, and summing what has arrived, in one pass each by torch.compile"),),
    cost=cost,
    compare=OneRounding(),
    version=2,  # real is a whole bucket
)
