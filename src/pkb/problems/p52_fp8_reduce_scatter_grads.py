"""Gradients are rounded through FP8 with a scale from recent maxima, then reduce-scattered and averaged.

Transformer Engine's recipe applied to ZeRO gradients. Rank r holds a flat gradient of W * p elements and the last 16
maxima of its own gradients (bf16). In float32: the largest magnitude of the tensor enters the history at the end, rounded
to bf16, and the oldest entry leaves; scale = largest entry of the new history / 448; each element becomes the nearest
float8_e4m3fn of element / scale, and is multiplied by scale again and rounded to the dtype. These values are summed over
the ranks in the dtype; rank r keeps elements [r * p, (r + 1) * p), divided by W. It returns those and the new history.
Every rank has a scale of its own.

The reference sends rounded values at full width, but the codes and the sender's scale say everything: a good kernel sends
one byte an element, and the receiver multiplies by the sender's scale and rounds before it adds. Divide truly (div.rn):
a code on the other side of a boundary is 6 to 12 % off. Never sum in FP8, nor with one scale for all ranks.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact, NormGate
from pkb.problems.compiled import compiled, writes_fp8
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fp8_history import draw_with_history
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # part: elements that a rank keeps
    "tiny": {"part": 500},
    "paper": {"part": 4096},
    "real": {"part": 27264000},  # one decoder layer of Llama-3-8B, 8 ranks
    "odd": {"part": 1009},
}


def inputs(draw: Draw) -> Arguments:
    gradient, history = draw_with_history(draw, "flat_grads", draw.world_size * draw.size["part"])
    return {"flat_grads": gradient, "amax_history": history}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal gradients after a history of nothing, so that the scale is that of the own maximum."""
    history = drawn["amax_history"]
    assert isinstance(history, torch.Tensor)
    gradient = draw.normal("flat_grads, published", (draw.world_size * draw.size["part"],))
    return {"flat_grads": gradient, "amax_history": torch.full_like(history, 1e-8)}


def solution(flat_grads: torch.Tensor, amax_history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    world_size = dist.get_world_size()
    if flat_grads.dim() != 1 or flat_grads.numel() % world_size:
        raise ValueError(f"a tensor {tuple(flat_grads.shape)} cannot be cut into {world_size} equal flat parts")
    amax = flat_grads.abs().max().to(amax_history.dtype)
    history = torch.cat([amax_history[1:], amax.reshape(1)])
    peak = history.max().clamp(min=1e-12).to(torch.float32)
    # Divided by a tensor: torch may turn a division by a plain number into a multiplication.
    scale = peak / torch.full_like(peak, 448.0)
    codes = (flat_grads.to(torch.float32) / scale).to(torch.float8_e4m3fn)
    values = (codes.to(torch.float32) * scale).to(flat_grads.dtype)

    shard = torch.empty(flat_grads.numel() // world_size, dtype=flat_grads.dtype, device=flat_grads.device)
    dist.reduce_scatter_tensor(shard, values, op=dist.ReduceOp.SUM)
    return shard / world_size, history


@compiled
def quantised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x.to(torch.float32) / scale).to(torch.float8_e4m3fn)


@compiled
def summed(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (codes.to(torch.float32) * scales[:, None]).sum(dim=0).to(dtype)


def baseline(flat_grads: torch.Tensor, amax_history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes travel, half of the bytes; coding, and summing what has arrived, are one pass each by torch.compile."""
    world_size = dist.get_world_size()
    amax = torch.linalg.vector_norm(flat_grads, float("inf")).to(amax_history.dtype)
    history = torch.cat([amax_history[1:], amax.reshape(1)])
    peak = history.max().clamp(min=1e-12).to(torch.float32)
    scale = peak / torch.full_like(peak, 448.0)
    if flat_grads.dtype is torch.bfloat16 and writes_fp8(flat_grads.device):
        codes = quantised(flat_grads, scale)
    else:  # of more digits, quotients lie beside boundaries of codes, which a compiled division, an approximate one, may miss
        codes = (flat_grads.to(torch.float32) / scale).to(torch.float8_e4m3fn)
    received, scales = torch.empty_like(codes), scale.new_empty(world_size)
    dist.all_to_all_single(received.view(torch.uint8), codes.view(torch.uint8))
    dist.all_gather_into_tensor(scales, scale.reshape(1))
    return summed(received.view(world_size, -1), scales.div_(world_size), flat_grads.dtype), history


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    part, w = size["part"], world_size
    coded = part + 4  # one byte an element, and the sender's scale
    return Cost.all_to_all(
        w * coded,
        w,
        flops=5 * w * part,  # size, maximum, code and value of each element; then W - 1 sums and a mean
        hbm_bytes=(2 * w + 1) * part * element_bytes,
        least_hbm_bytes=(w + 1) * part * element_bytes,  # who guesses from a sample that no maximum is new reads once
        note="codes of one byte travel, where the reference sends values in the dtype",
    )


PROBLEM = Problem(
    id=52,
    name="fp8_reduce_scatter_grads",
    source="Transformer Engine amax-history scaling, applied to ZeRO gradients",
    taxonomy=Taxonomy(
        parallelism=("dp", "fsdp"),
        layer="quantization",
        stage=("training-backward",),
        pattern=("reduce-scatter",),
        system="kernel libraries",
        fusable="absolute maximum, FP8 round trip, division",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    baseline_version=2,
    reference_faster_at=("paper",),  # than version 1; version 2 has not been timed there yet
    tried=(Alternative("torch's own operators, summing by a product with the ranks' scales", us=26448),),
    cost=cost,
    # Tight enough that values never rounded to FP8, 2.6 % away, are wrong.
    compare=(NormGate(), Exact()),
    truth="native",  # codes are defined by float32 arithmetic, and the history by bf16
    dtypes=("bf16", "fp16", "fp32"),
)
