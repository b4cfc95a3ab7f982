"""Parameters are rounded through FP8 with a scale from recent maxima, then gathered in full.

FSDP's all-gather in FP8, after torchao and Transformer Engine. Rank r holds its part of the parameters (p elements, flat)
and the last 16 maxima of that part (bf16). In float32: the largest magnitude enters the history at the end, rounded to
bf16, and the oldest entry leaves; scale = largest entry of the new history / 448; each element becomes the nearest
float8_e4m3fn of element / scale, and is multiplied by scale again and rounded to the dtype. Afterwards every rank holds
these values of all W * p parameters, in rank order, and its own new history. A rank's own part is rounded as well.

The reference gathers at full width, but codes and scales say everything: a good kernel stores one byte an element and one
scale into every peer, and the receiver multiplies by the scale of the rank that sent it, which must have arrived first.
Every value is a function of one rank's data, so the bits must be the same: divide truly (div.rn), and round the product
once.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.fp8_history import draw_with_history
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # part: elements of a rank
    "tiny": {"part": 500},
    "paper": {"part": 4096},
    "real": {"part": 27264000},  # one decoder layer of Llama-3-8B, 8 ranks
    "odd": {"part": 1009},
}


def inputs(draw: Draw) -> Arguments:
    parameters, history = draw_with_history(draw, "flat_param_shard", draw.size["part"])
    return {"flat_param_shard": parameters, "amax_history": history}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Normal parameters after a history of nothing, so that the scale is that of the own maximum."""
    history = drawn["amax_history"]
    assert isinstance(history, torch.Tensor)
    parameters = draw.normal("flat_param_shard, published", (draw.size["part"],))
    return {"flat_param_shard": parameters, "amax_history": torch.full_like(history, 1e-8)}


def solution(flat_param_shard: torch.Tensor, amax_history: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if flat_param_shard.dim() != 1:
        raise ValueError(f"a part of the parameters is flat, not {tuple(flat_param_shard.shape)}")
    amax = flat_param_shard.abs().max().to(amax_history.dtype)
    history = torch.cat([amax_history[1:], amax.reshape(1)])
    peak = history.max().clamp(min=1e-12).to(torch.float32)
    # Divided by a tensor: torch may turn a division by a plain number into a multiplication.
    scale = peak / torch.full_like(peak, 448.0)
    codes = (flat_param_shard.to(torch.float32) / scale).to(torch.float8_e4m3fn)
    values = (codes.to(torch.float32) * scale).to(flat_param_shard.dtype)

    full = torch.empty(dist.get_world_size() * values.numel(), dtype=values.dtype, device=values.device)
    dist.all_gather_into_tensor(full, values)
    return full, history


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    part, w = size["part"], world_size
    coded = part + 4  # one byte an element, and the scale
    return Cost.all_gather(
        w * coded,
        w,
        flops=4 * part,  # size, maximum, code and value of each element
        hbm_bytes=(2 + w) * part * element_bytes,
        least_hbm_bytes=(1 + w)
        * part
        * element_bytes,  # who guesses from a sample that its maximum is not new reads once
        note="codes of one byte travel, where the reference sends values in the dtype; they are decoded W times, not once",
    )


PROBLEM = Problem(
    id=53,
    name="fp8_allgather_params",
    source="torchao and Transformer Engine, FSDP all-gather in FP8",
    taxonomy=Taxonomy(
        parallelism=("fsdp",),
        layer="quantization",
        stage=("training-forward",),
        pattern=("all-gather",),
        system="kernel libraries",
        fusable="absolute maximum, FP8 codes at the sender, values at the receiver",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="gathering codes halves the traffic, and dequantising W times as much in eager passes takes it back",
    tried=(
        Alternative("codes travel, half of the bytes, and are multiplied where they arrive", us=8448),
        Alternative("codes travel, and are made and multiplied in one pass each by torch.compile"),
    ),
    cost=cost,
    compare=Exact(),
    truth="native",  # codes are defined by float32 arithmetic, and the history by bf16
    dtypes=("bf16", "fp16", "fp32"),
)
