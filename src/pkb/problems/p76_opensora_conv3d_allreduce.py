"""Three-dimensional convolution with input channels spread over the ranks: partial results are summed, then the bias added.

The video decoder of Open-Sora 2 (a HunyuanVideo-style VAE) under tensor parallelism. Rank r holds its slice of the
input channels, input (B, C, T, H, W), and the weights of that slice, weight (Cout, C / groups, kt, kh, kw); the bias
(Cout, or None) is the same everywhere. Each rank convolves its channels (cross-correlation, zero padding), rounds to
the dtype, and the sum over the ranks plus the bias, added once, is returned on every rank. `groups` are those of the
convolution, `group` is the process group.

The sum is as large as the output, and the convolution that precedes it takes long enough to hide most of it. A good
kernel publishes finished tiles while it computes the next, adds the W partial tiles of a position on one rank in float32,
puts the bias there too, and hands out the result.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES: dict[str, Size] = {  # channels: of all ranks together; frames, height, width: of the input
    "tiny": {"channels": 32, "out": 16, "frames": 4, "height": 7, "width": 6, "padding": 1},
    "paper": {"channels": 512, "out": 512, "frames": 19, "height": 66, "width": 66, "padding": 0},
    # A 256-channel stage of the VAE at 256 x 256, 65 frames.
    "real": {"channels": 256, "out": 256, "frames": 67, "height": 258, "width": 258, "padding": 0},
    "odd": {  # another stride, padding and dilation on each axis, and a grouped convolution
        "channels": 50, "groups": 2, "out": 14, "frames": 7, "height": 13, "width": 17,
        "stride_t": 2, "stride_h": 3, "stride_w": 4,
        "padding": 1, "padding_h": 2, "padding_w": 0, "dilation_h": 2, "dilation_w": 3,
    },
}  # fmt: skip
KERNEL = 3
KINDS = {"bias": 0.75, "no_bias": 0.25}


def per_axis(size: Size, name: str, default: int) -> int | tuple[int, int, int]:
    """One number where the three axes agree, as callers write it."""
    t, h, w = (size.get(f"{name}_{axis}", size.get(name, default)) for axis in "thw")
    return t if t == h == w else (t, h, w)


def local_channels(size: Size, world_size: int) -> int:
    groups = size.get("groups", 1)
    return size["channels"] // world_size // groups * groups


def inputs(draw: Draw) -> Arguments:
    size, channels, out = draw.size, local_channels(draw.size, draw.world_size), draw.size["out"]
    groups = size.get("groups", 1)
    fan_in = channels // groups * KERNEL**3 * draw.world_size
    bias = draw.normal("bias", (out,), key="all")  # as large as the sum: added W times, or never, it shows
    return {
        "input": draw.normal("input", (1, channels, size["frames"], size["height"], size["width"])),
        "weight": draw.normal("weight", (out, channels // groups, KERNEL, KERNEL, KERNEL), scale=fan_in**-0.5),
        "bias": bias if draw.kind_of(KINDS) == "bias" else None,
        # Those of a layer, which differ from size to size.
        "stride": per_axis(size, "stride", 1),
        "padding": per_axis(size, "padding", 0),
        "dilation": per_axis(size, "dilation", 1),
        "groups": groups,
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Weights as large as the input, and a small bias, evenly spaced."""
    weight, bias = drawn["weight"], drawn["bias"]
    assert isinstance(weight, torch.Tensor)
    if bias is not None:
        bias = torch.linspace(-0.1, 0.1, draw.size["out"], device=draw.device).to(draw.dtype)
    return {"weight": draw.normal("weight, published", tuple(weight.shape)), "bias": bias}


def solution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int | tuple[int, int, int],
    padding: int | tuple[int, int, int],
    dilation: int | tuple[int, int, int],
    groups: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if weight.shape[1] * groups != input.shape[1]:
        raise ValueError(f"{groups} groups of {weight.shape[1]} channels do not make {input.shape[1]}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{weight.shape[0]} output channels need as many biases, not {tuple(bias.shape)}")
    output = torch.nn.functional.conv3d(input, weight, None, stride, padding, dilation, groups).contiguous()
    dist.all_reduce(output, op=dist.ReduceOp.SUM, group=group)
    if bias is not None:
        output += bias.view(1, -1, 1, 1, 1)
    return output


def output_positions(size: Size) -> int:
    """Positions of the output in all three axes."""
    product = 1
    for axis, name in zip("thw", ("frames", "height", "width"), strict=True):
        stride, padding, dilation = (
            size.get(f"{key}_{axis}", size.get(key, default))
            for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))
        )
        product *= (size[name] + 2 * padding - dilation * (KERNEL - 1) - 1) // stride + 1
    return product


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, channels, out = world_size, local_channels(size, world_size), size["out"]
    group_channels = channels // size.get("groups", 1)
    result = out * output_positions(size) * element_bytes
    arguments = channels * size["frames"] * size["height"] * size["width"] + out * group_channels * KERNEL**3
    return Cost.all_reduce(
        result,
        w,
        flops=2 * out * output_positions(size) * group_channels * KERNEL**3,
        least_flops=2
        * out
        * output_positions(size)
        * group_channels
        * 2**3,  # Winograd: two products an output and axis
        hbm_bytes=arguments * element_bytes + result,
    )


def requires(size: Size, world_size: int) -> str | None:
    if local_channels(size, world_size) < 1:
        return f"{size['channels']} channels are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=76,
    name="opensora_conv3d_allreduce",
    source="Open-Sora 2 and HunyuanVideo, tensor-parallel Conv3d of the VAE",
    taxonomy=Taxonomy(
        parallelism=("tp",),
        layer="convolution",
        stage=("inference",),
        pattern=("all-reduce",),
        system="vision",
        fusable="3-D convolution before, bias after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    fits_one_gpu={"real": (1, 2, 3, 4)},  # every rank has the whole result: 8.7 GB in float64
    baseline_reason="cuDNN's convolution and one all-reduce",
    tried=(Alternative("channels_last_3d, in which cuDNN transposes nothing itself", us=176814),),
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 1.2e-2}),  # eight partial sums, each rounded: 5.5e-3
    version=6,  # another stride, padding and dilation on each axis at `odd`
    requires=requires,
)
