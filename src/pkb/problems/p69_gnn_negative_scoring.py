"""Link-prediction evaluation: the rank of each positive score among its negatives, known on all ranks.

GraphStorm's broadcast_data and calc_ranking. Rank r holds p_r positive scores and n negative scores for each; p_r
differs from rank to rank. Scores pass through a sigmoid, rounded to their dtype. The rank of a positive is one plus
the number of its negatives whose sigmoid is strictly greater: ties count in favour of the positive. Every rank
returns the ranks of all positives, in rank order, as int64.

Rows are independent, so a rank ranks its own rows and hands out the results (upstream hands out all scores). A good
kernel reads the scores once and stores each result, eight bytes, straight into the peers' outputs. It must compare rounded
sigmoids, not scores: the sigmoid merges neighbours, and everything beyond a certain height is equal to one.

Scores are drawn so that any sound sigmoid gives one answer: two of them are either the same, or far apart, or both
so high that the sigmoid is one, and none comes near the middle between two representable values.
"""

import random

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # p: positives of a rank, on average; n: negatives for each
    "tiny": {"p": 24, "n": 40},
    "paper": {"p": 256, "n": 1000},
    "real": {"p": 10825, "n": 1000},  # ogbl-citation2: 86596 positives on 8 ranks
    "odd": {"p": 19, "n": 37},
}
GRID = 256  # steps of a score per unit: two scores below 6 differ by 40 units in the last place of a float32 sigmoid
HIGHEST = 6.0
SATURATED = (24, 32)  # whole numbers whose sigmoid rounds to one in every dtype, whoever computes it
SATURATED_POSITIVES = 0.15
SATURATED_NEGATIVES = 0.05
SIGNIFICANT_BITS = {torch.bfloat16: 8, torch.float16: 11}


def positive_counts(average: int, world_size: int, source: random.Random) -> list[int]:
    return [max(1, average + source.randint(-(average // 4), average // 4)) for _ in range(world_size)]


def without_doubt(scores: torch.Tensor) -> torch.Tensor:
    """Scores whose sigmoid lies near the middle of two representable values become 0, whose sigmoid is exact."""
    bits = SIGNIFICANT_BITS.get(scores.dtype)
    if bits is None or scores.device.type == "meta":
        return scores
    exact = torch.sigmoid(scores.double())
    step = torch.exp2(torch.log2(exact).floor() + 1 - bits)
    off_middle = ((exact / step) % 1 - 0.5).abs()
    return scores.masked_fill(off_middle < 0.02, 0.0)


def draw_scores(draw: Draw, name: str, shape: tuple[int, ...], saturated_share: float) -> torch.Tensor:
    scores = draw.normal(name, shape, scale=1.5, dtype=torch.float32)
    scores = scores.clamp(-HIGHEST, HIGHEST).mul(GRID).round().div(GRID)
    high = draw.integers(f"{name} high", shape, *SATURATED).to(torch.float32)
    is_high = draw.uniform(f"{name} is high", shape, 0, 1, dtype=torch.float32) < saturated_share
    return without_doubt(torch.where(is_high, high, scores).to(draw.dtype))


def inputs(draw: Draw) -> Arguments:
    p = positive_counts(draw.size["p"], draw.world_size, draw.random("positives", key="all"))[draw.rank]
    return {
        "local_pos_scores": draw_scores(draw, "positives", (p,), SATURATED_POSITIVES),
        "local_neg_scores": draw_scores(draw, "negatives", (p, draw.size["n"]), SATURATED_NEGATIVES),
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Plain normal scores: none so high that the sigmoid is one, and some near the middle of two representable values."""
    p = positive_counts(draw.size["p"], draw.world_size, draw.random("positives", key="all"))[draw.rank]
    return {
        "local_pos_scores": draw.normal("positives, published", (p,)),
        "local_neg_scores": draw.normal("negatives, published", (p, draw.size["n"])),
    }


def solution(
    local_pos_scores: torch.Tensor, local_neg_scores: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if local_pos_scores.dim() != 1 or local_neg_scores.shape[:1] != local_pos_scores.shape:
        raise ValueError(f"{tuple(local_pos_scores.shape)} positives, {tuple(local_neg_scores.shape)} negatives")
    count, device = local_pos_scores.shape[0], local_pos_scores.device

    # Scores are compared after the sigmoid, which is rounded to their dtype.
    positive, negative = torch.sigmoid(local_pos_scores), torch.sigmoid(local_neg_scores)
    ranks = 1 + (negative > positive[:, None]).sum(dim=1)

    all_counts = torch.empty(world_size, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(all_counts, torch.tensor([count], device=device), group=group)
    counts = all_counts.tolist()
    longest = max(counts)
    padded = ranks.new_zeros(longest)  # the collective wants equal sizes
    padded[:count] = ranks
    gathered = ranks.new_empty(world_size * longest)
    dist.all_gather_into_tensor(gathered, padded, group=group)
    return torch.cat([block[:rows] for block, rows in zip(gathered.split(longest), counts, strict=True)])


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    p, w = size["p"], world_size
    scores = p * (size["n"] + 1)
    results = 8 * p
    return Cost.all_gather(
        w * results,
        w,
        flops=2 * scores,
        hbm_bytes=scores * element_bytes + w * results,
        note="results of an average rank alone; the reference pads to the most of a rank, and exchanges their numbers first",
        least_link_bytes=(w - 1) * results / 4,  # a place among n + 1 fits into two bytes
    )


PROBLEM = Problem(
    id=69,
    name="gnn_negative_scoring",
    source="GraphStorm link-prediction evaluation, broadcast_data and calc_ranking",
    taxonomy=Taxonomy(
        parallelism=("graph", "dp"),
        layer="sort",
        stage=("inference",),
        pattern=("all-gather-v",),
        system="graph networks",
        fusable="sigmoid, counting what is greater",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="the reference ranks its own rows and hands out the results",
    cost=cost,
    compare=Exact(),
    truth="native",  # the sigmoid is rounded to the dtype
    dtypes=("bf16", "fp16", "fp32"),
)
