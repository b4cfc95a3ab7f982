"""Gradient-norm clipping of a mixture-of-experts model: expert gradients are sharded differently from all others.

The clipping step of VeOmni's and xorl's FSDP2 path with expert parallelism. Shared parameters are sharded by FSDP over
all ranks. Experts are divided among the consecutive ranks of an expert-parallel (EP) group, and each is sharded over the
strided ranks of an EP-FSDP group. Rank r holds its shards of both kinds as two lists of tensors. Expert
gradients are sums over the tokens of a whole EP group, so they are first divided in place by ep_size, whether or not
anything is clipped. Then the p-norm over all shards of all ranks is returned (a 0-dim float32 tensor, equal on all
ranks): the power sums of shared gradients are added over fsdp_group, those of experts over ep_fsdp_group and then
ep_group. If the norm is larger than max_norm, all gradients are multiplied in place by max_norm / norm. A group that is
None is left out.

Here the groups together count every shard once, so one sum over all ranks does what the reference does in three. A good
kernel walks both lists in one launch, folds the division into its read and into the factor, exchanges one number inside
the kernel, and only then writes.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.draw import Arguments, Draw
from pkb.problems.gradient_norms import summed_apart
from pkb.problems.layouts import coordinate
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # either a Qwen3 mixture of experts, or equal matrices on every rank
    "tiny": {"layers": 1, "hidden": 24, "q": 32, "kv": 8, "experts": 8, "ffn": 12, "vocab": 40},
    "paper": {"m": 1024, "n": 1024},
    # Qwen3-30B-A3B with 12 of its 48 layers, or two sets of gradients for eight ranks would not fit one GPU.
    "real": {"layers": 12, "hidden": 2048, "q": 4096, "kv": 512, "experts": 128, "ffn": 768, "vocab": 151936},
    "odd": {"layers": 2, "hidden": 5, "q": 7, "kv": 3, "experts": 12, "ffn": 11, "vocab": 43},
}
LAYOUT = "ep_fsdp"
KINDS = {"clips": 0.75, "keeps": 0.25}  # by the norm against its limit: all gradients are written, or experts only


def shard(rows: int, parts: int, index: int) -> int:
    """Rows of one shard, as torch.chunk cuts them: with odd sizes the last ranks hold fewer, or none."""
    chunk = -(-rows // parts)
    return max(0, min(chunk, rows - index * chunk))


def local_shapes(size: Size, world_size: int, rank: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """This rank's shards of the shared gradients and of the expert gradients."""
    if "m" in size:
        return [(size["m"], size["n"])], [(size["m"], size["n"])]
    hidden, q, kv, ffn, experts = size["hidden"], size["q"], size["kv"], size["ffn"], size["experts"]
    layer = [(q, hidden), (kv, hidden), (kv, hidden), (hidden, q), (experts, hidden), (hidden,), (hidden,)]
    shared = [(size["vocab"], hidden), *layer * size["layers"], (hidden,), (size["vocab"], hidden)]
    _, ep_size = coordinate(LAYOUT, "ep", world_size, rank)
    index, parts = coordinate(LAYOUT, "ep_fsdp", world_size, rank)
    expert = [(ffn, hidden), (ffn, hidden), (hidden, ffn)] * size["layers"]
    return (
        [(shard(rows, world_size, rank), *others) for rows, *others in shared],
        [(experts // ep_size, shard(rows, parts, index), columns) for rows, columns in expert],
    )


def inputs(draw: Draw) -> Arguments:
    _, ep_size = draw.coordinate("ep")
    every_rank = [local_shapes(draw.size, draw.world_size, rank) for rank in range(draw.world_size)]
    shared, expert = every_rank[draw.rank]
    shared_count = sum(math.prod(shape) for shapes, _ in every_rank for shape in shapes)
    expert_count = sum(math.prod(shape) for _, shapes in every_rank for shape in shapes)
    # Scales differ between ranks and calls, and both kinds weigh about the same in the norm: no part of it can be left
    # out, and no multiple of the local norm is a good guess.
    shared_scale = draw.random("shared scale").uniform(0.25, 4.0)
    expert_scale = draw.random("expert scale").uniform(0.25, 4.0) * ep_size * math.sqrt(shared_count / expert_count)
    threshold = draw.random("max_norm", key="all")
    clips = draw.kind_of(KINDS) == "clips"
    return {
        "non_ep_grad_tensors": [draw.normal(f"shared {i}", s, scale=shared_scale) for i, s in enumerate(shared)],
        "ep_grad_tensors": [draw.normal(f"expert {i}", s, scale=expert_scale) for i, s in enumerate(expert)],
        "max_norm": math.sqrt(shared_count) * (threshold.uniform(0.05, 0.2) if clips else threshold.uniform(7.0, 10.0)),
        "norm_type": 2.0,  # what every training loop passes: a kernel for it alone is a fair answer
        "ep_size": ep_size,
        "fsdp_group": draw.group("world"),
        "ep_fsdp_group": draw.group("ep_fsdp"),
        "ep_group": draw.group("ep") if ep_size > 1 else None,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Gradients of size 1 on every rank, of experts too, and a limit of 1, which clips all of them."""
    shared, expert = local_shapes(draw.size, draw.world_size, draw.rank)
    return {
        "non_ep_grad_tensors": [draw.normal(f"shared {i}, published", shape) for i, shape in enumerate(shared)],
        "ep_grad_tensors": [draw.normal(f"expert {i}, published", shape) for i, shape in enumerate(expert)],
        "max_norm": 1.0,
    }


def solution(
    non_ep_grad_tensors: list[torch.Tensor],
    ep_grad_tensors: list[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    ep_size: int = 1,
    fsdp_group: dist.ProcessGroup | None = None,
    ep_fsdp_group: dist.ProcessGroup | None = None,
    ep_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    p = float(norm_type)
    if not 0 < p < float("inf"):
        raise ValueError(f"norm_type must be positive and finite, not {norm_type}")
    shared = [g for g in non_ep_grad_tensors if g is not None]
    expert = [g for g in ep_grad_tensors if g is not None]
    if shared or expert:
        first = (shared or expert)[0]
        wide, device = torch.promote_types(first.dtype, torch.float32), first.device
    else:
        wide, device = torch.float32, torch.get_default_device()

    if ep_size > 1 and expert:
        torch._foreach_mul_(expert, 1.0 / ep_size)

    # Row by row first: one long float32 sum loses digits on some devices. A rank with an empty list joins with zero.
    power_sums = []
    for gradients in (shared, expert):
        rows = [torch.linalg.vector_norm(g, p, dim=-1, dtype=wide).reshape(-1) for g in gradients]
        power_sums.append(torch.cat(rows).pow_(p).sum() if rows else torch.zeros((), dtype=wide, device=device))
    shared_sum, expert_sum = power_sums
    if fsdp_group is not None:
        dist.all_reduce(shared_sum, op=dist.ReduceOp.SUM, group=fsdp_group)
    if ep_fsdp_group is not None:
        dist.all_reduce(expert_sum, op=dist.ReduceOp.SUM, group=ep_fsdp_group)
    if ep_group is not None:  # only after the sum above: both together make the sum over all ranks
        dist.all_reduce(expert_sum, op=dist.ReduceOp.SUM, group=ep_group)
    total_norm = (shared_sum + expert_sum).pow(1.0 / p)

    if (shared or expert) and total_norm > max_norm:
        coefficient = max_norm / float(total_norm)
        torch._foreach_mul_(
            [*shared, *expert], coefficient
        )  # in float32 or wider, rounded once to the gradient's dtype
    return total_norm


def baseline(
    non_ep_grad_tensors: list[torch.Tensor],
    ep_grad_tensors: list[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    ep_size: int = 1,
    fsdp_group: dist.ProcessGroup | None = None,
    ep_fsdp_group: dist.ProcessGroup | None = None,
    ep_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """All norms by one call for each kind of gradients, and clipping by another."""
    p = float(norm_type)
    shared = [g for g in non_ep_grad_tensors if g is not None]
    expert = [g for g in ep_grad_tensors if g is not None]
    if not shared and not expert:
        return solution(
            non_ep_grad_tensors, ep_grad_tensors, max_norm, norm_type, ep_size, fsdp_group, ep_fsdp_group, ep_group
        )
    first = (shared or expert)[0]
    wide = torch.promote_types(first.dtype, torch.float32)
    if ep_size > 1 and expert:
        torch._foreach_mul_(expert, 1.0 / ep_size)
    shared_sum, expert_sum = (
        torch.stack(torch._foreach_norm(summed_apart(gradients), p, dtype=wide)).pow_(p).sum()
        if gradients
        else torch.zeros((), dtype=wide, device=first.device)
        for gradients in (shared, expert)
    )
    if fsdp_group is not None:
        dist.all_reduce(shared_sum, op=dist.ReduceOp.SUM, group=fsdp_group)
    if ep_fsdp_group is not None:
        dist.all_reduce(expert_sum, op=dist.ReduceOp.SUM, group=ep_fsdp_group)
    if ep_group is not None:
        dist.all_reduce(expert_sum, op=dist.ReduceOp.SUM, group=ep_group)
    total_norm = (shared_sum + expert_sum).pow(1.0 / p)
    if total_norm > max_norm:
        torch._foreach_mul_([*shared, *expert], max_norm / float(total_norm))
    return total_norm


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    by_rank = [[sum(map(math.prod, shapes)) for shapes in local_shapes(size, w, rank)] for rank in range(w)]
    first = by_rank[0]  # it has the largest shards
    mean = [sum(counts) / w for counts in zip(*by_rank, strict=True)]
    _, ep_size = coordinate(LAYOUT, "ep", w, 0)

    def over_kinds(elements: Sequence[float], kept: int) -> float:
        """Accesses or operations: three an element where all are clipped; else `kept`, and one more of divided experts."""
        unclipped = kept * sum(elements) + (elements[1] if ep_size > 1 else 0)
        return KINDS["clips"] * 3 * sum(elements) + KINDS["keeps"] * unclipped

    scalar = 4
    return Cost.all_reduce(
        scalar,
        w,
        phases=1,
        flops=over_kinds(first, 2),
        hbm_bytes=over_kinds(first, 1) * element_bytes,
        note="the mean over calls, with one sum over all ranks; one in four does not clip and writes the experts only",
        mean_flops=over_kinds(mean, 2),
        mean_hbm_bytes=over_kinds(mean, 1) * element_bytes,
        least_hbm_bytes=sum(mean) * element_bytes,  # of a call that does not clip, were nothing divided
    )


def requires(size: Size, world_size: int) -> str | None:
    _, ep_size = coordinate(LAYOUT, "ep", world_size, 0)
    return why_not_equal(size.get("experts", 0), "experts", ep_size)


# Twice the half-ulp of a product and that of a coefficient rounded to the gradients' dtype, as torch's own clipping does.
CLIPPED = Close(
    rtol={torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 1e-5, torch.float64: 1e-5},
    atol={torch.float16: 2**-23, torch.bfloat16: 1e-37, torch.float32: 1e-37},  # results below the normal range
)

PROBLEM = Problem(
    id=22,
    name="clip_grad_norm_ep",
    source="VeOmni and xorl, FSDP2 gradient clipping with expert parallelism",
    taxonomy=Taxonomy(
        parallelism=("fsdp", "ep"),
        layer="gradient",
        stage=("optimizer",),
        pattern=("all-reduce",),
        system="RL post-training",
        fusable="multi-tensor norms and division before, multi-tensor scaling after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    fixed={
        "norm_type": "2 is what training loops pass: a kernel for it alone is a fair answer",
        "ep_size": "the layout's: pairs of ranks",
    },
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    reference_faster_at=("paper",),
    tried=(Alternative("experts' gradients divided and clipped in one pass"),),
    cost=cost,
    compare=Close(rtol={torch.float32: 1e-5}),
    mutates={"non_ep_grad_tensors": CLIPPED, "ep_grad_tensors": CLIPPED},
    truth="native",  # a float64 copy of 16 GB of gradients, on ranks that share a GPU, is too much
    requires=requires,
    layout=LAYOUT,
    dtypes=("bf16", "fp16", "fp32"),
    version=3,  # calls that clip and calls that do not are kinds
)
