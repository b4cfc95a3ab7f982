"""Global gradient-norm clipping of an FSDP model: one norm over all shards, then every shard is scaled in place.

The clipping step of VeOmni's and xorl's FSDP2 path for a model without experts. Rank r holds its shards of the
gradients as a list of tensors. The p-norm over all shards of all ranks is returned (a 0-dim float32 tensor, the norm
*before* clipping, equal on all ranks). If it is larger than max_norm, all gradients are multiplied in place by
max_norm / norm; if not, they keep their bits. Without a group the norm is that of this rank alone.

FSDP2 shards the first dimension, so shards are ragged: with odd sizes the last ranks hold fewer rows, or none. Only
four bytes travel, but they stand between two full passes over the data. A good kernel walks all tensors in one
launch, in an order that does not change from run to run, exchanges the partial sums inside it, and lets every rank
add them itself.
"""

import math

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.draw import Arguments, Draw
from pkb.problems.gradient_norms import summed_apart
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # either a Llama model, or equal matrices on every rank
    "tiny": {"layers": 1, "hidden": 32, "kv": 16, "ffn": 80, "vocab": 96},
    "paper": {"matrices": 3, "m": 1024, "n": 1024},
    "real": {"layers": 32, "hidden": 4096, "kv": 1024, "ffn": 14336, "vocab": 128256},  # Llama-3-8B, 291 tensors
    "odd": {"layers": 2, "hidden": 5, "kv": 3, "ffn": 29, "vocab": 101},
}
KINDS = {"clips": 0.75, "keeps": 0.25}  # by the norm against its limit: two passes over the gradients, or one


def full_shapes(size: Size, world_size: int) -> list[tuple[int, ...]]:
    """The gradients of the whole model."""
    if "matrices" in size:
        return [(size["m"] * world_size, size["n"])] * size["matrices"]
    hidden, kv, ffn = size["hidden"], size["kv"], size["ffn"]
    attention = [(hidden, hidden), (kv, hidden), (kv, hidden), (hidden, hidden)]
    layer = [*attention, (ffn, hidden), (ffn, hidden), (hidden, ffn), (hidden,), (hidden,)]
    return [(size["vocab"], hidden), *layer * size["layers"], (hidden,), (size["vocab"], hidden)]


def local_shapes(size: Size, world_size: int, rank: int) -> list[tuple[int, ...]]:
    """This rank's shards: the rank-th chunk of the first dimension, as torch.chunk cuts it."""
    shards: list[tuple[int, ...]] = []
    for rows, *others in full_shapes(size, world_size):
        chunk = -(-rows // world_size)
        shards.append((max(0, min(chunk, rows - rank * chunk)), *others))
    return shards


def inputs(draw: Draw) -> Arguments:
    # The scale differs between ranks and calls: with equal ones, sqrt(W) times the local norm would be a good guess.
    scale = draw.random("scale").uniform(0.25, 4.0)
    shapes = local_shapes(draw.size, draw.world_size, draw.rank)
    unit_norm = math.sqrt(sum(map(math.prod, full_shapes(draw.size, draw.world_size))))
    threshold = draw.random("max_norm", key="all")
    clips = draw.kind_of(KINDS) == "clips"
    return {
        "grad_tensors": [draw.normal(f"gradient {i}", shape, scale=scale) for i, shape in enumerate(shapes)],
        "max_norm": unit_norm * (threshold.uniform(0.05, 0.2) if clips else threshold.uniform(5.0, 8.0)),
        "norm_type": 2.0,  # what every training loop passes: a kernel for it alone is a fair answer
        "fsdp_group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Gradients of size 1 on every rank, and a limit of 1, which clips all of them."""
    shapes = local_shapes(draw.size, draw.world_size, draw.rank)
    return {
        "grad_tensors": [draw.normal(f"gradient {i}, published", shape) for i, shape in enumerate(shapes)],
        "max_norm": 1.0,
    }


def solution(
    grad_tensors: list[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    p = float(norm_type)
    if not 0 < p < float("inf"):
        raise ValueError(f"norm_type must be positive and finite, not {norm_type}")
    gradients = [g for g in grad_tensors if g is not None]
    if gradients:
        wide, device = torch.promote_types(gradients[0].dtype, torch.float32), gradients[0].device
    else:
        wide, device = torch.float32, torch.get_default_device()

    # Row by row first: one long float32 sum loses digits on some devices.
    rows = [torch.linalg.vector_norm(g, p, dim=-1, dtype=wide).reshape(-1) for g in gradients]
    power_sum = torch.cat(rows).pow_(p).sum() if rows else torch.zeros((), dtype=wide, device=device)
    if fsdp_group is not None:
        dist.all_reduce(power_sum, op=dist.ReduceOp.SUM, group=fsdp_group)
    total_norm = power_sum.pow(1.0 / p)

    if gradients and total_norm > max_norm:
        coefficient = max_norm / float(total_norm)
        torch._foreach_mul_(gradients, coefficient)  # in float32 or wider, rounded once to the gradient's dtype
    return total_norm


def baseline(
    grad_tensors: list[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """All norms by one call, and clipping by another."""
    p = float(norm_type)
    gradients = [g for g in grad_tensors if g is not None]
    if not gradients:
        return solution(grad_tensors, max_norm, norm_type, fsdp_group)
    wide = torch.promote_types(gradients[0].dtype, torch.float32)
    power_sum = torch.stack(torch._foreach_norm(summed_apart(gradients), p, dtype=wide)).pow_(p).sum()
    if fsdp_group is not None:
        dist.all_reduce(power_sum, op=dist.ReduceOp.SUM, group=fsdp_group)
    total_norm = power_sum.pow(1.0 / p)
    if total_norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / float(total_norm))
    return total_norm


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    elements = sum(map(math.prod, local_shapes(size, w, 0)))  # the first rank has the largest chunks
    mean = sum(map(math.prod, full_shapes(size, w))) / w
    scalar = 4
    accesses = 3 * KINDS["clips"] + KINDS["keeps"]  # read for the norm, then read and written; or read once
    operations = 3 * KINDS["clips"] + 2 * KINDS["keeps"]
    return Cost.all_reduce(
        scalar,
        w,
        phases=1,
        flops=operations * elements,
        hbm_bytes=accesses * elements * element_bytes,
        note="the mean over calls: one in four does not clip, reads the gradients once and writes nothing",
        mean_flops=operations * mean,
        mean_hbm_bytes=accesses * mean * element_bytes,
        least_hbm_bytes=mean * element_bytes,  # of a call that does not clip
    )


# Twice the half-ulp of a product and that of a coefficient rounded to the gradients' dtype, as torch's own clipping does.
CLIPPED = Close(
    rtol={torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 1e-5, torch.float64: 1e-5},
    atol={torch.float16: 2**-23, torch.bfloat16: 1e-37, torch.float32: 1e-37},  # results below the normal range
)

PROBLEM = Problem(
    id=21,
    name="clip_grad_norm_no_ep",
    source="VeOmni and xorl, FSDP2 gradient clipping",
    taxonomy=Taxonomy(
        parallelism=("fsdp",),
        layer="gradient",
        stage=("optimizer",),
        pattern=("all-reduce",),
        system="RL post-training",
        fusable="multi-tensor norm before, multi-tensor scaling after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    fixed={"norm_type": "2 is what training loops pass: a kernel for it alone is a fair answer"},
    kinds=KINDS,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("multiplying in every call by a factor that may be 1, without waiting for the norm", us=42935),),
    cost=cost,
    compare=Close(rtol={torch.float32: 1e-5}),
    mutates={"grad_tensors": CLIPPED},
    truth="native",  # a float64 copy of 16 GB of gradients, on ranks that share a GPU, is too much
    dtypes=("bf16", "fp16", "fp32"),
    version=3,  # calls that clip and calls that do not are kinds
)
