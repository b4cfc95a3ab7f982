"""Redistribution of jagged recommender features: from all features of my samples to my features of all samples.

TorchRec's KJTAllToAll for table-wise sharded embeddings. A rank's batch is jagged: for each of F features and each
sample a list of ids. `lengths` holds their lengths, feature by feature, then sample by sample; `values` (and
`weights`, if not None) hold the ids in the same order. Rank d owns key_splits[d] consecutive features and afterwards
holds these for the samples of all ranks: for each owned feature, for each source rank, that source's lengths, and the
values and weights in the same order of segments. Batch sizes differ from rank to rank; with `stride_per_key` (if not None) they
differ from feature to feature as well and batch_size is ignored. Sources come in staggered order: the ranks as a table
of `stagger` rows, read column by column (0 4 1 5 2 6 3 7 for 8 ranks and 2 rows).

The result is a dict. With one batch size a rank: lengths, values, stride (sum of all batch sizes), stride_per_rank (in
plain rank order). With stride_per_key: lengths, values, stride_per_key_per_rank (owned features, W; columns in
staggered order). `weights` comes last where given. Nothing is computed, so the bits must be the same.

Where a segment ends up depends on the lengths of all sources. A good kernel exchanges sizes, scans them on the device,
and writes every segment straight to its final place, where the reference sends, receives and then permutes.
"""

import math
import random

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # features: of all ranks, or 0 for 1, 2 or 3 a rank in turn; batch: average samples a rank
    "tiny": {"features": 12, "batch": 8, "shortest": 0, "longest": 6},
    "paper": {"features": 0, "batch": 512, "shortest": 5, "longest": 20},
    "real": {"features": 26, "batch": 8192, "shortest": 0, "longest": 16},  # MLPerf DLRM-v2: about 8 ids a feature
    "odd": {"features": 13, "batch": 11, "shortest": 0, "longest": 5},
}
IDS = 1_000_000
KINDS = {"weighted": 0.5, "unweighted": 0.5}
MODES = ((False, 1), (False, 1), (False, 2), (True, 1), (True, 2))
"""Whether batch sizes differ from feature to feature, and `stagger`; as often as they stand here."""


def key_splits_of(size: Size, world_size: int, source: random.Random) -> list[int]:
    """How many features each rank owns: as even as can be, then one of them moved now and then."""
    if size["features"] == 0:
        return [1 + rank % 3 for rank in range(world_size)]
    splits = [size["features"] // world_size + (rank < size["features"] % world_size) for rank in range(world_size)]
    if world_size > 1 and source.random() < 0.5:
        giver, taker = source.sample(range(world_size), 2)
        if splits[giver] > 0:
            splits[giver] -= 1
            splits[taker] += 1
    return splits


def batch_range(size: Size) -> tuple[int, int]:
    return max(1, size["batch"] * 3 // 4), size["batch"] * 5 // 4


def popular_ids(draw: Draw, count: int) -> torch.Tensor:
    """Ids as users produce them: the k-th most frequent appears about as often as 1 / k."""
    # On shapes alone, arithmetic would import torch's compiler: seconds, in every evaluation.
    if draw.device.type == "meta":
        return draw.integers("values", (count,), 0, IDS)
    depth = draw.uniform("values", (count,), 0.0, 1.0, dtype=torch.float64)
    return torch.exp(depth * math.log(IDS)).long().clamp(max=IDS - 1)


def inputs(draw: Draw) -> Arguments:
    size, w = draw.size, draw.world_size
    mode = draw.random("mode", key="all")  # all ranks must agree on these
    splits = key_splits_of(size, w, mode)
    weighted = draw.kind_of(KINDS, published="unweighted") == "weighted"
    variable, stagger = draw.in_turn("modes", MODES)
    stagger = stagger if w % stagger == 0 else 1

    own = draw.random("batch")
    low, high = batch_range(size)
    batch = own.randint(low, high)
    strides = [own.randint(low, high) if variable else batch for _ in range(sum(splits))]
    # Lengths decide the shape of values, so they are drawn on the host, whatever device the rest is for.
    host = torch.Generator().manual_seed(own.getrandbits(62))
    lengths = torch.randint(size["shortest"], size["longest"] + 1, (sum(strides),), generator=host)
    total = int(lengths.sum())
    return {
        "lengths": lengths.to(draw.device),
        "values": popular_ids(draw, total),
        "key_splits": splits,
        "batch_size": batch,
        "pg": draw.group("world"),
        "weights": draw.uniform("weights", (total,), 0.1, 1.0) if weighted else None,
        "stride_per_key": strides if variable else None,
        "stagger": stagger,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All ids are equally likely."""
    values = drawn["values"]
    assert isinstance(values, torch.Tensor)
    return {"values": draw.integers("values, published", tuple(values.shape), 0, IDS)}


def solution(
    lengths: torch.Tensor,
    values: torch.Tensor,
    key_splits: list[int],
    batch_size: int,
    pg: dist.ProcessGroup | None = None,
    weights: torch.Tensor | None = None,
    stride_per_key: list[int] | None = None,
    stagger: int = 1,
) -> dict[str, torch.Tensor]:
    rank, world_size = dist.get_rank(pg), dist.get_world_size(pg)
    if len(key_splits) != world_size or world_size % stagger:
        raise ValueError(f"{len(key_splits)} key splits and {stagger} stagger rows for {world_size} ranks")
    device, owned = lengths.device, key_splits[rank]
    strides = [batch_size] * sum(key_splits) if stride_per_key is None else list(stride_per_key)
    if len(strides) != sum(key_splits) or sum(strides) != lengths.numel():
        raise ValueError(f"{lengths.numel()} lengths are not {strides} for {sum(key_splits)} features")

    # How many lengths and values each feature has here; then the same for my features, from every source.
    feature_values = [segment.sum() for segment in lengths.split(strides)]
    sizes = torch.zeros((len(strides), 2), dtype=torch.int64, device=device)
    if strides:
        sizes[:, 0] = torch.tensor(strides, device=device)
        sizes[:, 1] = torch.stack(feature_values)
    sizes_by_source = sizes.new_empty((world_size * owned, 2))
    dist.all_to_all_single(sizes_by_source, sizes, [owned] * world_size, key_splits, group=pg)
    here, there = sizes.tolist(), sizes_by_source.tolist()
    if sum(values_of for _, values_of in here) != values.numel():
        raise ValueError(f"the lengths do not add up to {values.numel()} values")
    if weights is not None and weights.numel() != values.numel():
        raise ValueError(f"{weights.numel()} weights for {values.numel()} values")

    columns = world_size // stagger
    order = [row * columns + column for column in range(columns) for row in range(stagger)]
    first = [sum(key_splits[:peer]) for peer in range(world_size + 1)]

    def exchange(data: torch.Tensor, kind: int) -> torch.Tensor:
        """Send every segment to the owner of its feature; `kind` says which of the two sizes counts."""
        send = [sum(size[kind] for size in here[first[peer] : first[peer + 1]]) for peer in range(world_size)]
        segments = [size[kind] for size in there]
        receive = [sum(segments[source * owned : (source + 1) * owned]) for source in range(world_size)]
        received = data.new_empty(sum(segments))
        dist.all_to_all_single(received, data.contiguous(), receive, send, group=pg)
        if not segments:
            return received
        pieces = received.split(segments)  # by source, then feature: wanted by feature, then staggered source
        return torch.cat([pieces[source * owned + feature] for feature in range(owned) for source in order])

    result = {"lengths": exchange(lengths, 0), "values": exchange(values, 1)}
    if stride_per_key is None:
        per_rank = torch.empty(world_size, dtype=torch.int64, device=device)
        dist.all_gather_into_tensor(per_rank, torch.tensor([batch_size], device=device), group=pg)
        result["stride"] = per_rank.sum()
        result["stride_per_rank"] = per_rank
    else:
        by_source = sizes_by_source[:, 0].reshape(world_size, owned)
        result["stride_per_key_per_rank"] = by_source[order].t().contiguous()
    if weights is not None:
        result["weights"] = exchange(weights, 1)
    return result


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    features = size["features"] or sum(1 + rank % 3 for rank in range(w))
    lengths = features * sum(batch_range(size)) / 2
    values = lengths * (size["shortest"] + size["longest"]) / 2
    payload = 8 * (lengths + values)
    # Batches are uniform within a quarter of their average, so with few ranks the mean of all is often below it: this share of
    # it, one standard deviation.
    below = 0.25 / math.sqrt(3 * w)
    return Cost.all_to_all(
        payload + 16 * features,
        w,
        phases=2,
        hbm_bytes=2 * payload,
        note="a call without weights, on an average rank; sizes, then segments straight to their places",
        mean_link_bytes=(w - 1) / w * ((1 - below) * payload + 16 * features),
        least_link_bytes=(w - 1) / w * (1 - below) * (lengths / 2 + 2 * values),  # in the bytes that they need
    )


PROBLEM = Problem(
    id=70,
    name="torchrec_kjt_all2all",
    source="TorchRec KJTAllToAll",
    taxonomy=Taxonomy(
        parallelism=("other",),
        layer="embedding",
        stage=("training-forward",),
        pattern=("all-to-all", "all-to-all-v"),
        system="recommendation",
        fusable="segment permutation",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    kinds=KINDS,
    reference=solution,
    baseline_reason="every exchange is one all-to-all; sizes must be on the host before the others",
    cost=cost,
    compare=Exact(),
    truth="native",
    version=3,  # stride_per_key and stagger come in turn
)
