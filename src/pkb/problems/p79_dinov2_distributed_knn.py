"""Nearest neighbours of every rank's queries in a database spread over all ranks.

DINOv2's k-NN evaluation. Rank r holds some queries, test_features_rank (queries, F), and its shard of the database:
train_features_rank_T (F, n), a column for each training sample, and train_labels_rank (1, n). Queries visit all shards;
similarities are dot products, rounded to the features' dtype. Each rank returns, for its own queries, the max_k largest
similarities over the whole database, descending, and the labels of those samples. Numbers of queries and samples differ
from rank to rank.

Equal similarities, of which 16-bit dtypes make many, may come in any order; here every sample has a label of its own,
so it can be checked who was found. Where max_k is at most 16, queries are drawn so that any sound rounding finds the same
samples in the same order. A good kernel reads its shard once for all queries, keeps the best k of a tile beside
the matrix product and never writes the similarities, and sends k candidates for each query straight to its owner.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close, Context
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # samples: of all shards together; queries: of a rank, on average
    "tiny": {"queries": 8, "samples": 320, "features": 16, "k": 9, "least": 1},
    "paper": {"queries": 32, "samples": 16384, "features": 384, "k": 200, "least": 1024},
    "real": {"queries": 256, "samples": 1281167, "features": 1024, "k": 200, "least": 1},  # ImageNet-1k, ViT-L/14
    "odd": {"queries": 13, "samples": 997, "features": 37, "k": 7, "least": 1},
}
CLEAR_UP_TO = 16
"""Neighbours. In longer lists many similarities are equal in 16 bits, and a label may stand at several places."""
ATTEMPTS = 150


def uneven(draw: Draw, name: str, mean: int) -> int:
    """This rank's share: up to a fifth more or less than the mean, in pairs of ranks, so that totals stay the same."""
    w = draw.world_size
    shift = draw.random(name, key=("pair", draw.rank // 2)).randint(-mean // 5, mean // 5)
    if draw.rank == w - 1 and w % 2:
        return mean
    return mean + shift if draw.rank % 2 == 0 else mean - shift


def shard_mean(size: Size, world_size: int) -> int:
    return max(size["least"], size["samples"] // world_size)


def unit(x: torch.Tensor, dim: int) -> torch.Tensor:
    return x / x.norm(dim=dim, keepdim=True)


def shard_of(draw: Draw) -> torch.Tensor:
    samples = uneven(draw, "samples", shard_mean(draw.size, draw.world_size))
    shape = (draw.size["features"], samples)
    return unit(draw.normal("train", shape, dtype=torch.float32), 0).to(draw.dtype)


def clear_queries(draw: Draw, queries: int) -> torch.Tensor:
    """Of many vectors for each query the one whose nearest neighbours, and the first that is none, are farthest apart in steps
    of the dtype: 1.6 or more in 800 queries, where half a step each is lost in rounding."""
    everything = torch.cat([shard_of(replace(draw, rank=rank)) for rank in range(draw.world_size)], dim=1)
    shape = (queries, ATTEMPTS, draw.size["features"])
    tried = unit(draw.normal("test", shape, dtype=torch.float32), 2).to(draw.dtype)
    nearest = (tried.double() @ everything.double()).topk(draw.size["k"] + 1, dim=2).values
    step = torch.exp2(nearest[..., :-1].abs().log2().floor()) * max(torch.finfo(draw.dtype).eps, 1e-6)
    clearest = (-nearest.diff(dim=2) / step).amin(dim=2).argmax(dim=1)
    return tried[torch.arange(queries, device=draw.device), clearest].contiguous()


def inputs(draw: Draw) -> Arguments:
    features, mean = draw.size["features"], shard_mean(draw.size, draw.world_size)
    queries, train = uneven(draw, "queries", draw.size["queries"]), shard_of(draw)
    if draw.size["k"] <= CLEAR_UP_TO:
        test = clear_queries(draw, queries)
    else:
        test = unit(draw.normal("test", (queries, features), dtype=torch.float32), 1).to(draw.dtype)
    # Labels are distinct numbers over all ranks, far apart and in no order, so that none can be guessed.
    most = 2 * mean
    stride = draw.random("stride", key="all").randrange(3, 1 << 20)
    labels = (draw.permutation("labels", most)[: train.shape[1]] * draw.world_size + draw.rank) * stride
    return {
        "test_features_rank": test,
        "train_features_rank_T": train,
        "train_labels_rank": labels[None],
        "max_k": draw.size["k"],
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """A thousand labels, in turn over the samples of all ranks."""
    labels = drawn["train_labels_rank"]
    assert isinstance(labels, torch.Tensor)
    samples = labels.shape[1]
    return {"train_labels_rank": (torch.arange(samples, device=draw.device) + draw.rank * samples)[None] % 1000}


def solution(
    test_features_rank: torch.Tensor,
    train_features_rank_T: torch.Tensor,
    train_labels_rank: torch.Tensor,
    max_k: int,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    device = test_features_rank.device

    # How many queries and samples every rank has.
    mine = torch.tensor([test_features_rank.shape[0], train_features_rank_T.shape[1]], device=device)
    table = torch.empty(2 * world_size, dtype=mine.dtype, device=device)
    dist.all_gather_into_tensor(table, mine, group=group)
    queries, samples = table.view(world_size, 2).t().tolist()
    if max_k > min(samples):
        raise ValueError(f"{max_k} neighbours cannot be taken from shards of {samples}")

    # All queries to all ranks, padded to the longest.
    longest, features = max(queries), test_features_rank.shape[1]
    padded = torch.zeros(longest, features, dtype=test_features_rank.dtype, device=device)
    padded[: queries[rank]] = test_features_rank
    gathered = torch.empty(world_size * longest * features, dtype=padded.dtype, device=device)
    dist.all_gather_into_tensor(gathered, padded.view(-1), group=group)
    blocks = gathered.view(world_size, longest, features)
    everyone = torch.cat([block[:count] for block, count in zip(blocks, queries, strict=True)])

    # The best of this shard for every query go back to the query's owner.
    similarities = torch.matmul(everyone, train_features_rank_T)
    best, index = similarities.topk(max_k, dim=1)
    labels = train_labels_rank.view(-1)[index]
    receive = [queries[rank]] * world_size
    candidates = torch.empty(world_size * queries[rank], max_k, dtype=best.dtype, device=device)
    candidate_labels = torch.empty(world_size * queries[rank], max_k, dtype=labels.dtype, device=device)
    dist.all_to_all_single(candidates, best.contiguous(), receive, queries, group=group)
    dist.all_to_all_single(candidate_labels, labels.contiguous(), receive, queries, group=group)

    # The best of all shards, from W lists side by side.
    side_by_side = (queries[rank], world_size * max_k)
    candidates = candidates.view(world_size, -1, max_k).transpose(0, 1).reshape(side_by_side)
    candidate_labels = candidate_labels.view(world_size, -1, max_k).transpose(0, 1).reshape(side_by_side)
    top, position = candidates.topk(max_k, dim=1)
    return top, candidate_labels.gather(1, position)


@dataclass(frozen=True)
class SameNeighbours:
    """Up to 16 neighbours: every label equal. Beyond: the same samples in about the same places, no sample twice.

    There samples of equal similarity may change places, and one whose similarity is rounded the other way moves by two groups
    of equals. So a sample may stand up to `share` of the list, and `places` more, from where the truth has it, and one
    that only one of the lists has must be that near to its end. How similar the samples are is checked exactly, by the
    rule for the similarities.
    """

    share: Mapping[torch.dtype, float] = field(
        default_factory=lambda: {torch.bfloat16: 0.2, torch.float16: 0.06, torch.float32: 0.0}
    )
    places: int = 2

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        rows, k = truth.shape
        if rows == 0:
            return 0.0
        if k <= CLEAR_UP_TO:
            return 0.0 if torch.equal(truth, output) else float("inf")
        ascending = output.sort(dim=1).values
        if bool((ascending[:, 1:] == ascending[:, :-1]).any()):
            return float("inf")
        same = truth[:, :, None] == output[:, None, :]  # rows, place in the truth, place in the output
        place = torch.arange(k, device=truth.device)
        moved = (place[:, None] - place[None, :]).abs().expand_as(same)
        missing = (k - place)[None, :].expand(rows, k)
        far = torch.where(same.any(2), (moved * same).sum(2), missing)
        new = torch.where(same.any(1), torch.zeros_like(missing), missing)
        allowed = self.places + self.share[context.dtype] * k
        return float(torch.maximum(far, new).max()) / allowed


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, queries, features, k = world_size, size["queries"], size["features"], size["k"]
    samples = shard_mean(size, w)
    asked, found = w * queries * features * element_bytes, queries * k * (element_bytes + 8)
    return Cost.all_gather(asked, w) + Cost.all_to_all(
        found,
        w,
        flops=2 * w * queries * features * samples,
        hbm_bytes=(samples + queries) * features * element_bytes + queries * k * (element_bytes + 8),
        note="an average rank, where only the k neighbours that remain are sent; the reference sends k from each shard",
        least_link_bytes=(w - 1) / w * queries * k * (element_bytes + 2),  # labels in the bytes that they need
    )


def requires(size: Size, world_size: int) -> str | None:
    mean = shard_mean(size, world_size)
    if mean - mean // 5 - 1 < size["k"]:
        return f"shards of about {mean} samples are too small for {size['k']} neighbours"
    return None


# Similarities are rounded once, after a sum in float32: one step of the dtype, and half a step to spare.
SIMILARITIES = Close(
    rtol={torch.bfloat16: 1.5 * 2**-7, torch.float16: 1.5 * 2**-10, torch.float32: 1e-5},
    atol={torch.float16: 1e-6, torch.float32: 1e-6, torch.bfloat16: 1e-6},
)

PROBLEM = Problem(
    id=79,
    name="dinov2_distributed_knn",
    source="DINOv2, distributed k-NN evaluation",
    taxonomy=Taxonomy(
        parallelism=("dp",),
        layer="sort",
        stage=("inference",),
        pattern=("all-gather-v", "all-to-all-v"),
        system="vision",
        fusable="similarity GEMM, top-k, merge",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="one GEMM, torch's top-k, and candidates in one exchange",
    tried=(Alternative("top-k among the best blocks of 32 samples"),),
    cost=cost,
    compare=(SIMILARITIES, SameNeighbours()),
    truth="native",  # similarities are rounded to the features' dtype before the choice
    requires=requires,
    dtypes=("bf16", "fp16", "fp32"),
    version=2,  # up to 16 neighbours are beyond doubt, and their labels compared exactly
)
