"""Causal depthwise convolution over a sequence that is split zigzag over the ranks: a halo from two neighbours.

Evo 2, Savanna and NeMo Hyena under context parallelism. The sequence has 2 W chunks; rank r holds chunk r (first half
of the last axis of `x`) and chunk 2 W - 1 - r (second half), so that causal work is even. Each chunk needs the last
K - 1 samples of the chunk before it. For the first half these come from rank r - 1 (zeros on rank 0); for the second
half from rank r + 1, and on the last rank from its own first half. y[., c, t] is the sum over j < K of
weight[c, 0, j] * x[., c, t - (K - 1) + j], accumulated in float32 and rounded once. The weight is replicated.

Only K - 1 outputs of a chunk wait for a neighbour: a good kernel publishes its tails, computes everything else, and
finishes the borders when the halos are there. First halves flow up the ranks, second halves down.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.blocks import BLOCKS
from pkb.problems.compare import NormGate
from pkb.problems.compiled import compiled
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # chunk: positions of one of the two chunks of a rank
    "tiny": {"batch": 1, "hidden": 24, "chunk": 32, "kernel": 7},
    "paper": {"batch": 1, "hidden": 1024, "chunk": 1024, "kernel": 7},
    "real": {"batch": 1, "hidden": 4096, "chunk": 65536, "kernel": 7},  # Evo 2 7B, its context of 2^20 on 8 ranks
    "odd": {"batch": 3, "hidden": 29, "chunk": 23, "kernel": 5},
}


def inputs(draw: Draw) -> Arguments:
    hidden, kernel = draw.size["hidden"], draw.size["kernel"]
    return {
        "x": draw.normal("x", (draw.size["batch"], hidden, 2 * draw.size["chunk"])),
        "weight": draw.normal("weight", (hidden, 1, kernel), scale=kernel**-0.5, key="all"),
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Every rank has its own weight, unscaled."""
    return {"weight": draw.normal("weight, published", (draw.size["hidden"], 1, draw.size["kernel"]))}


def solution(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    hidden, halo = x.shape[1], weight.shape[-1] - 1
    if x.shape[-1] % 2 or x.shape[-1] // 2 < halo:
        raise ValueError(f"{x.shape[-1]} positions are not two chunks of at least {halo}")
    if weight.shape[:2] != (hidden, 1):
        raise ValueError(f"weight {tuple(weight.shape)} does not fit {hidden} channels")

    first, second = x.chunk(2, dim=-1)
    first_tail = first[..., first.shape[-1] - halo :].contiguous()
    second_tail = second[..., second.shape[-1] - halo :].contiguous()
    first_halo = torch.zeros_like(first_tail)  # before the sequence begins there is nothing
    second_halo = first_tail.clone()  # on the last rank the second chunk follows the first

    transfers = []
    if rank > 0:
        below = dist.get_global_rank(group, rank - 1)
        transfers.append(dist.P2POp(dist.isend, second_tail, below, group))
        transfers.append(dist.P2POp(dist.irecv, first_halo, below, group))
    if rank + 1 < world_size:
        above = dist.get_global_rank(group, rank + 1)
        transfers.append(dist.P2POp(dist.irecv, second_halo, above, group))
        transfers.append(dist.P2POp(dist.isend, first_tail, above, group))
    if transfers:
        for request in dist.batch_isend_irecv(transfers):
            request.wait()

    outputs = []
    for chunk, before in ((first, first_halo), (second, second_halo)):
        extended = torch.cat([before, chunk], dim=-1)
        outputs.append(torch.nn.functional.conv1d(extended, weight, groups=hidden))
    return torch.cat(outputs, dim=-1)


def exchange_halos(x: torch.Tensor, halo: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    """What comes before each of the two chunks, (2, B, C, halo), in one batch of transfers."""
    group = dist.group.WORLD if group is None else group
    assert group is not None
    rank, world_size, chunk = dist.get_rank(group), dist.get_world_size(group), x.shape[-1] // 2
    tails = x.unflatten(-1, (2, chunk))[..., chunk - halo :].movedim(2, 0).contiguous()
    halos = torch.stack([torch.zeros_like(tails[0]), tails[0]])  # on the last rank the second chunk follows the first
    transfers = []
    for neighbour, sent, received in ((rank - 1, tails[1], halos[0]), (rank + 1, tails[0], halos[1])):
        if 0 <= neighbour < world_size:
            peer = dist.get_global_rank(group, neighbour)
            transfers += [dist.P2POp(dist.isend, sent, peer, group), dist.P2POp(dist.irecv, received, peer, group)]
    for request in dist.batch_isend_irecv(transfers) if transfers else ():
        request.wait()
    return halos


@compiled
def convolved(x: torch.Tensor, halos: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    chunk, wide = x.shape[-1] // 2, torch.promote_types(x.dtype, torch.float32)
    extended = torch.cat([halos.movedim(0, 2), x.unflatten(-1, (2, chunk))], dim=-1).to(wide)
    total = extended[..., :chunk] * weight[:, :, 0, None]
    for tap in range(1, weight.shape[-1]):
        total = total + extended[..., tap : tap + chunk] * weight[:, :, tap, None]
    return total.to(x.dtype).flatten(2)


def baseline(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """A product for each tap, all of them in one pass by torch.compile."""
    return convolved(x, exchange_halos(x, weight.shape[-1] - 1, group), weight)


def exact(x: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """A few channels at a time, each result where its chunk was."""
    rank, world_size, halo = dist.get_rank(group), dist.get_world_size(group), weight.shape[-1] - 1
    first, second = x.chunk(2, dim=-1)
    tails = torch.stack([chunk[..., chunk.shape[-1] - halo :] for chunk in (first, second)])
    everyone = [torch.empty_like(tails) for _ in range(world_size)]
    dist.all_gather(everyone, tails, group=group)
    before_first = everyone[rank - 1][0] if rank else torch.zeros_like(tails[0])
    before_second = everyone[rank + 1][1] if rank + 1 < world_size else tails[0]
    for chunk, before in ((first, before_first), (second, before_second)):
        parts = (chunk.chunk(BLOCKS, dim=1), before.chunk(BLOCKS, dim=1), weight.chunk(BLOCKS))
        for some, halos, taps in zip(*parts, strict=True):
            some.copy_(torch.nn.functional.conv1d(torch.cat([halos, some], dim=-1), taps, groups=len(taps)))
    return x


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    rows, kernel = size["batch"] * size["hidden"], size["kernel"]
    elements = 2 * rows * size["chunk"]
    neighbours = min(2, world_size - 1)  # an inner rank has two, the two ends have one
    tails = neighbours * rows * (kernel - 1) * element_bytes
    return Cost(
        flops=2 * kernel * elements,
        hbm_bytes=2 * elements * element_bytes + size["hidden"] * kernel * element_bytes,
        link_sent_bytes=tails,
        link_received_bytes=tails,
        phases=1 if world_size > 1 else 0,
        mean_link_bytes=2 * (1 - 1 / world_size) * rows * (kernel - 1) * element_bytes,
    )


PROBLEM = Problem(
    id=71,
    name="hyena_conv1d_boundary_exchange",
    source="Evo 2, Savanna and NeMo Hyena, causal depthwise convolution under CP",
    taxonomy=Taxonomy(
        parallelism=("cp",),
        layer="convolution",
        stage=("training-forward",),
        pattern=("halo",),
        system="science",
        fusable="depthwise convolution",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    exact=exact,
    baseline=baseline,
    tried=(
        Alternative("a product for each tap, added in place in float32", us=243427),
        Alternative("torch.ops.aten._conv_depthwise2d on rows of height 1", us=95598),
    ),
    cost=cost,
    # One rounding of a sum of K terms.
    compare=NormGate(tau={torch.bfloat16: 5e-3, torch.float16: 6e-4, torch.float32: 1e-6}),
    version=2,  # real is the whole context
)
