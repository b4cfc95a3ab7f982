"""Convolution of an image whose rows are spread over the ranks: neighbours exchange the rows that a kernel reaches over.

DistriFusion's patch parallelism for the SDXL U-Net. Rank r holds a stripe of the image, x (B, C, h, w), the r-th from
above; weight (Cout, C, kh, kw) and bias (or None) are the same on all ranks. With p = padding > 0, the stripe is
extended by the last p rows of the rank above and the first p rows of the rank below (zeros beyond the first and last
rank, no wrapping around), then convolved without row padding and with p columns of zeros at either side: (B, Cout, h',
w'). With a kernel of 2 p + 1 and stride 1 the stripes put together are the convolution of the whole image. With p = 0
nothing is exchanged.

Only 2 p rows of C channels travel, to neighbours, and all output rows but the outermost ones need none of them: a good
kernel sends first, computes the interior, and then finishes the edges. Its halo buffers must not be written again, by
the next call, before a slower neighbour has read them.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # rows: of the whole image, divided among the ranks
    "tiny": {"batch": 1, "channels": 8, "out": 8, "rows": 32, "width": 12, "kernel": 3, "stride": 1},
    "paper": {"batch": 1, "channels": 1280, "out": 1280, "rows": 256, "width": 128, "kernel": 3, "stride": 1},
    "real": {"batch": 2, "channels": 320, "out": 320, "rows": 480, "width": 480, "kernel": 3, "stride": 1},  # SDXL, 4k
    "odd": {"batch": 3, "channels": 7, "out": 5, "rows": 61, "width": 13, "kernel": 5, "stride": 2},
}
KINDS = {"bias": 0.75, "no_bias": 0.25}


def inputs(draw: Draw) -> Arguments:
    size, channels, kernel = draw.size, draw.size["channels"], draw.size["kernel"]
    shape = (size["batch"], channels, size["rows"] // draw.world_size, size["width"])
    weight_shape = (size["out"], channels, kernel, kernel)
    bias = draw.normal("bias", (size["out"],), key="all")
    return {
        "x": draw.normal("x", shape),
        "weight": draw.normal("weight", weight_shape, scale=(channels * kernel**2) ** -0.5, key="all"),
        "bias": bias if draw.kind_of(KINDS) == "bias" else None,
        "stride": size["stride"],  # those of a layer, which differ from size to size
        "padding": kernel // 2,
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Weights as large as the image, and other weights and another bias on each rank."""
    weight, bias = drawn["weight"], drawn["bias"]
    assert isinstance(weight, torch.Tensor)
    if bias is not None:
        bias = draw.normal("bias, published", (draw.size["out"],))
    return {"weight": draw.normal("weight, published", tuple(weight.shape)), "bias": bias}


def solution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int = 1,
    padding: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if padding == 0 or world_size == 1:
        return torch.nn.functional.conv2d(x, weight, bias, stride, padding)
    if x.shape[2] < padding:
        raise ValueError(f"a stripe of {x.shape[2]} rows cannot give its neighbours {padding}")

    batch, channels, _, width = x.shape
    above = torch.zeros(batch, channels, padding, width, dtype=x.dtype, device=x.device)
    below = torch.zeros_like(above)
    operations = []
    for neighbour, halo, edge in (
        (rank - 1, above, x[:, :, :padding].contiguous()),
        (rank + 1, below, x[:, :, -padding:].contiguous()),
    ):
        if 0 <= neighbour < world_size:
            peer = dist.get_global_rank(group, neighbour)
            operations.append(dist.P2POp(dist.isend, edge, peer, group))
            operations.append(dist.P2POp(dist.irecv, halo, peer, group))
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    extended = torch.cat([above, x, below], dim=2)
    return torch.nn.functional.conv2d(extended, weight, bias, stride, (0, padding))


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, batch, channels, out = world_size, size["batch"], size["channels"], size["out"]
    kernel, stride, width = size["kernel"], size["stride"], size["width"]
    rows, padding = size["rows"] // w, kernel // 2
    positions = batch * ((rows - 1) // stride + 1) * ((width - 1) // stride + 1)
    edge = batch * channels * padding * width * element_bytes
    neighbours = min(2, w - 1)
    arguments = batch * channels * rows * width + out * channels * kernel**2
    return Cost(
        flops=2 * positions * out * channels * kernel**2,
        least_flops=2 * positions * out * channels * (kernel / 2 + 0.5) ** 2,  # Winograd: (k + 1) / 2 products an axis
        hbm_bytes=(arguments + positions * out) * element_bytes,
        link_sent_bytes=neighbours * edge,
        link_received_bytes=neighbours * edge,
        phases=1 if w > 1 else 0,
        note="a rank with two neighbours, where there is one",
        mean_link_bytes=2 * (w - 1) / w * edge,
    )


def requires(size: Size, world_size: int) -> str | None:
    if size["rows"] // world_size < max(1, size["kernel"] // 2):
        return f"{size['rows']} rows are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=87,
    name="conv2d_boundary_exchange",
    source="DistriFusion, patch-parallel Conv2d of the SDXL U-Net",
    taxonomy=Taxonomy(
        parallelism=("sp", "other"),
        layer="convolution",
        stage=("inference",),
        pattern=("halo",),
        system="vision",
        fusable="convolution of the interior",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline_reason="cuDNN's convolution, and rows exchanged with the neighbours in one group of messages",
    tried=(Alternative("channels_last, in which cuDNN transposes nothing itself"),),
    cost=cost,
    requires=requires,
    version=2,  # calls without a bias are a kind
)
