"""Gathers the masks of all tracked objects and suppresses those that cover another object that was seen more recently.

SAM 3's multi-GPU video tracking. Rank r holds the masks (n_r, H, W) and scores (n_r) of its objects, n_r =
num_obj_per_gpu[r], perhaps none; last_occluded, when each of all n objects was last occluded (-1 for never), is the same
everywhere. Every rank returns all masks and scores, in rank order, as float32, and which objects are suppressed. Object i
is if some other object j has an intersection over union with it of at least iou_threshold (pixels above 0 count; float32)
while last_occluded[j] > -1 and last_occluded[i] > last_occluded[j], or < with reverse. All decisions are made from the
masks as they came, none from a mask that is already suppressed. A suppressed object's mask becomes -10 everywhere.

A cast to float32 loses nothing, so data can travel in its own dtype; and a mask needs one bit a pixel for the decision.
A good kernel sends its masks to all ranks once, turns them into bits on the way, counts overlaps with popcounts while the
masks are still arriving, and writes the float32 result once.
"""

import random

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # objects: of a rank, on average
    "tiny": {"objects": 3, "height": 24, "width": 24},
    "paper": {"objects": 2, "height": 256, "width": 256},
    "real": {"objects": 25, "height": 288, "width": 288},  # SAM 3: 200 objects over 8 ranks
    "odd": {"objects": 5, "height": 37, "width": 29},
}
NEVER_COPIES = 0.3  # see `scene`
"""Share of the objects that are no near copy of another."""
Box = tuple[int, int, int, int]
"""First row, first column, height, width."""


def iou(a: Box, b: Box) -> float:
    rows = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    columns = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    inter = max(0, rows) * max(0, columns)
    return inter / (a[2] * a[3] + b[2] * b[3] - inter)


def scene(source: random.Random, *, objects: int, height: int, width: int) -> tuple[list[Box], float]:
    """Boxes, many of them near copies of others, and a threshold that no overlap comes near.

    Near copies make about half of the objects overlap by more or less than the threshold. How a quotient is rounded must
    not decide, so of several thresholds the one is taken that is farthest from every overlap.
    """
    boxes: list[Box] = []
    for _ in range(objects):
        if boxes and source.random() < 0.7:
            row, column, h, w = source.choice(boxes)
            row, column = row + source.randint(-h // 8, h // 8), column + source.randint(-w // 8, w // 8)
        else:
            h, w = source.randint(height // 3, height // 2), source.randint(width // 3, width // 2)
            row, column = source.randint(0, height - h), source.randint(0, width - w)
        boxes.append((min(max(row, 0), height - h), min(max(column, 0), width - w), h, w))
    overlaps = [iou(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
    thresholds = [source.uniform(0.5, 0.8) for _ in range(16)]
    return boxes, max(thresholds, key=lambda t: min((abs(o - t) for o in overlaps), default=1.0))


EMPTY = 0.25
"""Of the pixels outside of an object, the share that is exactly 0."""


def inputs(draw: Draw) -> Arguments:
    w, height, width = draw.world_size, draw.size["height"], draw.size["width"]
    source = draw.random("scene", key="all", values=True)
    total = draw.size["objects"] * w
    cuts = sorted(source.randint(0, total) for _ in range(w - 1))  # two equal cuts leave a rank without objects
    counts = [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
    counts = [draw.size["objects"]] * w if draw.even else counts
    boxes, threshold = scene(source, objects=total, height=height, width=width)
    first, own = sum(counts[: draw.rank]), counts[draw.rank]
    masks = draw.normal("masks", (own, height, width), dtype=torch.float32).abs_().add_(0.25).neg_()
    for mask, (row, column, h, wide) in zip(masks, boxes[first : first + own], strict=True):
        mask[row : row + h, column : column + wide].neg_()
    if draw.device.type != "meta":  # a background of exactly 0 does not count
        empty = draw.uniform("empty", (own, height, width), 0.0, 1.0, dtype=torch.float32) < EMPTY
        masks.masked_fill_(empty & (masks < 0), 0.0)
    occluded = [source.randint(-1, 3) for _ in range(total)]  # with ties, which suppress neither
    return {
        "low_res_masks_local": masks.to(draw.dtype),
        "obj_scores_local": draw.normal("scores", (own,), scale=3.0),
        "num_obj_per_gpu": counts,
        "last_occluded": torch.tensor(occluded, dtype=torch.int64, device=draw.device),
        "iou_threshold": threshold,
        "reverse": source.random() < 0.5 and not draw.even,
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Noise with diagonal stripes, of which no two overlap by as much as the threshold: nothing is suppressed."""
    masks, total = drawn["low_res_masks_local"], draw.size["objects"] * draw.world_size
    assert isinstance(masks, torch.Tensor)
    own, rows, columns = (torch.arange(n, device=draw.device) for n in masks.shape)
    stripes = (own[:, None, None] + rows[:, None] + columns + draw.rank) % 5 == 0
    noise = draw.normal("masks, published", tuple(masks.shape), dtype=torch.float32)
    return {
        "low_res_masks_local": (noise + 4 * stripes - 1).to(draw.dtype),
        "obj_scores_local": torch.linspace(-5, 5, len(own), device=draw.device).to(draw.dtype),
        "last_occluded": torch.arange(total, device=draw.device) % 5 - 1,
        "iou_threshold": 0.7,
    }


def solution(
    low_res_masks_local: torch.Tensor,
    obj_scores_local: torch.Tensor,
    num_obj_per_gpu: list[int],
    last_occluded: torch.Tensor,
    iou_threshold: float = 0.7,
    reverse: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    own = num_obj_per_gpu[rank]
    if low_res_masks_local.shape[0] != own or obj_scores_local.shape[0] != own:
        raise ValueError(f"rank {rank} should have {own} objects")
    if len(num_obj_per_gpu) != world_size or last_occluded.numel() != sum(num_obj_per_gpu):
        raise ValueError("num_obj_per_gpu needs an entry for each rank, last_occluded one for each object")

    def gather(local: torch.Tensor) -> torch.Tensor:
        """Rows of all ranks in rank order; every message is as long as the longest."""
        padded = local.new_zeros(max(num_obj_per_gpu), *local.shape[1:])
        padded[:own] = local
        gathered = local.new_empty(world_size * padded.numel())
        dist.all_gather_into_tensor(gathered, padded.view(-1), group=group)
        blocks = gathered.view(world_size, *padded.shape)
        return torch.cat([block[:n] for block, n in zip(blocks, num_obj_per_gpu, strict=True)]).to(torch.float32)

    masks, scores = gather(low_res_masks_local), gather(obj_scores_local)
    inside = (masks > 0).flatten(1).to(torch.float32)
    area = inside.sum(dim=1)
    inter = torch.matmul(inside, inside.t())  # counts below 2 ** 24: exact in any order
    union = (area[:, None] + area[None, :] - inter).clamp(min=1)
    overlap = inter / union >= iou_threshold
    overlap.fill_diagonal_(False)
    mine, other = last_occluded[:, None], last_occluded[None, :]
    loses = mine < other if reverse else mine > other
    suppress = (overlap & loses & (other > -1)).any(dim=1)
    masks[suppress] = -10.0
    return masks, scores, suppress


def baseline(
    low_res_masks_local: torch.Tensor,
    obj_scores_local: torch.Tensor,
    num_obj_per_gpu: list[int],
    last_occluded: torch.Tensor,
    iou_threshold: float = 0.7,
    reverse: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tensor cores: counts of zeros and ones are exact in TF32, whose products are added in float32."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return solution(
            low_res_masks_local, obj_scores_local, num_obj_per_gpu, last_occluded, iou_threshold, reverse, group
        )
    finally:
        torch.set_float32_matmul_precision(precision)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, objects, pixels = world_size, size["objects"] * world_size, size["height"] * size["width"]
    return Cost.all_gather(
        objects * (pixels + 1) * element_bytes,
        w,
        flops=2 * objects * objects * pixels,
        hbm_bytes=objects * (pixels + 1) * 4 + objects / w * pixels * element_bytes,
        note="an average rank; a popcount of 64 pixels counts as 128 operations",
        # Of a mask that is suppressed a bit for each pixel is enough, and boxes tell which pairs cannot overlap.
        least_link_bytes=(w - 1) / w * objects * pixels * (1 / 8 + NEVER_COPIES * element_bytes),
        least_flops=2 * objects * pixels,
    )


PROBLEM = Problem(
    id=81,
    name="sam3_allgather_iou_suppression",
    source="SAM 3, multi-GPU video tracking",
    taxonomy=Taxonomy(
        parallelism=("dp", "other"),
        layer="other",
        stage=("inference",),
        pattern=("all-gather-v",),
        system="vision",
        fusable="binarisation, pairwise mask overlap, masking",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(
        Alternative("products of zeros and ones in int8 (torch._int_mm)", us=2959),
        Alternative("each rank's block widened into its place, which saves a pass and costs W launches"),
        Alternative("masks widened when the result is written, by torch.compile, and bf16 products"),
    ),
    cost=cost,
    compare=Exact(),
    truth="native",
    dtypes=("bf16", "fp16", "fp32"),
    version=2,  # pixels of exactly 0
)
