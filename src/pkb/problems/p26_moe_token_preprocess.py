"""Counts which tokens will go where, before a mixture of experts exchanges them.

Bookkeeping of VeOmni's and xorl's expert parallelism. Rank r holds the one-hot mask (E, K, T) of its T tokens and their
K choices, which are different experts. Expert x lives on rank x // L, with L = E / W experts a
rank. Rank r returns four tensors in host memory, since they become split sizes of the exchange that follows: how many
rows it will send to each rank (int64, W); how many it will receive from each (int64, W); how many it will receive from
each rank for each of its experts (W, L), and the sum of these over the ranks (L), both in the mask's dtype.

A rank needs L counts from each peer and nothing else, a few hundred bytes, between one pass over a mask that is mostly
zeros and a copy to the host. A good kernel counts, writes its counts straight to the peers that own the experts, and
leaves everything in memory that the host can read after one synchronisation. What it returns must be there when it
returns.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Context, Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"tokens": 48, "experts": 8, "top_k": 2},
    "paper": {"tokens": 1024, "experts": 8, "top_k": 2},
    "real": {"tokens": 4096, "experts": 256, "top_k": 8},  # DeepSeek-V3
    "odd": {"tokens": 101, "experts": 24, "top_k": 3},
}


def inputs(draw: Draw) -> Arguments:
    tokens, experts, top_k = draw.size["tokens"], draw.size["experts"], draw.size["top_k"]
    mask = torch.zeros((experts, top_k, tokens), dtype=torch.float32, device=draw.device)
    if draw.device.type != "meta":
        # Some experts are popular everywhere, and each rank has favourites of its own.
        popularity = draw.normal("popularity", (experts,), scale=0.6, key="all", dtype=torch.float32)
        popularity = popularity + draw.normal("favourites", (experts,), scale=0.4, dtype=torch.float32)
        # The largest of perturbed scores: as a router, without naming an expert twice.
        scores = draw.uniform("choices", (tokens, experts), 1e-6, 1.0, dtype=torch.float32).log().neg().log().neg()
        chosen = (scores + popularity).topk(top_k, dim=1).indices
        mask.scatter_(0, chosen.t()[None], 1.0)
    return {"expert_mask": mask, "num_experts": experts, "group": draw.group("world")}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Equally popular experts, drawn with replacement: a token may name one twice."""
    tokens, experts, top_k = draw.size["tokens"], draw.size["experts"], draw.size["top_k"]
    mask = torch.zeros((experts, top_k, tokens), dtype=torch.float32, device=draw.device)
    if draw.device.type != "meta":
        mask.scatter_(0, draw.integers("experts, published", (1, top_k, tokens), 0, experts), 1.0)
    return {"expert_mask": mask}


def solution(
    expert_mask: torch.Tensor, num_experts: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    if num_experts % world_size or expert_mask.shape[0] != num_experts:
        raise ValueError(f"{num_experts} experts on {world_size} ranks, with a mask for {expert_mask.shape[0]}")
    local_experts = num_experts // world_size

    counts = expert_mask.sum(dim=(1, 2))
    input_splits = counts.view(world_size, local_experts).sum(dim=1)

    all_counts = torch.empty(world_size * num_experts, dtype=counts.dtype, device=counts.device)
    dist.all_gather_into_tensor(all_counts, counts, group=group)
    here = all_counts.view(world_size, num_experts)[:, rank * local_experts : (rank + 1) * local_experts]
    output_splits = here.sum(dim=1)

    return (
        input_splits.to(torch.int64).cpu(),
        output_splits.to(torch.int64).cpu(),
        here.contiguous().cpu(),
        here.sum(dim=0).cpu(),
    )


def baseline(
    expert_mask: torch.Tensor, num_experts: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """One copy to the host, where the few numbers are added up."""
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    local_experts = num_experts // world_size
    counts = expert_mask.sum(dim=(1, 2))
    all_counts = counts.new_empty(world_size * num_experts)
    dist.all_gather_into_tensor(all_counts, counts, group=group)
    table = all_counts.cpu().view(world_size, world_size, local_experts)  # [source][destination]
    here = table[:, rank].contiguous()
    sent, received = (one.sum(dim=1).to(torch.int64) for one in (table[rank], here))
    return sent, received, here, here.sum(dim=0)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, mask = world_size, size["tokens"] * size["experts"] * size["top_k"]
    local_experts = size["experts"] // w
    return Cost.all_to_all(
        4 * w * local_experts,
        w,
        flops=mask / 2,
        hbm_bytes=2 * mask,
        note="the one of a column is found half-way, on average; "
        "a peer needs the counts of its own experts only, where the reference gathers all",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["experts"], "experts", world_size)


@dataclass(frozen=True)
class ExactOnHost:
    """Exact, wherever the output is compared: the results are host tensors and the judge may compare on a device."""

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        return Exact()(truth, output.to(truth.device), context)


PROBLEM = Problem(
    id=26,
    name="moe_token_preprocess",
    source="VeOmni and xorl, expert-parallel preprocess",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-gather",),
        system="RL post-training",
        fusable="histogram, row and column sums",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=ExactOnHost(),
    truth="native",
    requires=requires,
    version=2,  # experts without replacement
)
