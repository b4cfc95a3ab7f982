"""Sinkhorn-Knopp centering of teacher outputs: rows and columns of one matrix, spread over the ranks, are normalised in turn.

DINOv2's alternative to softmax centering in the DINO and iBOT losses. Rank r holds the teacher's scores of its own samples,
teacher_output (b, K): b differs from rank to rank, the K prototypes are the same. With Q = exp(scores / temperature),
divided by its sum over all ranks, each of n_iterations divides every prototype's column by its sum over the samples of
*all* ranks and by K, then every sample's row by its own sum and by the number of samples of all ranks, the sum of
n_masked_patches_tensor. At last Q is multiplied by that number, so that each row sums to 1. Each rank returns its rows.
All of it is float32, whatever the rest of the training uses.

The constants cancel, and Q need not be written before the end: a scale for each prototype and one for each sample say
all. A good kernel reads the scores once for each iteration, taking the row sums of one and the column sums of the next
in the same pass, and exchanges K numbers each time, with two buffers in turn so that no rank overwrites what a slower one
still reads. The sums are small and strictly dependent: latency decides.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Alternative, Problem, Size
from pkb.problems.compare import Close
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # rows: of a rank, on average
    "tiny": {"rows": 12, "prototypes": 40, "iterations": 3},
    "paper": {"rows": 1024, "prototypes": 16384, "iterations": 3},
    "real": {"rows": 2048, "prototypes": 131072, "iterations": 3},  # DINOv2 ViT-g, its masked patches a rank
    "odd": {"rows": 23, "prototypes": 101, "iterations": 2},
}
TEMPERATURES = (0.04, 0.07)
"""Warm-up of the teacher: from the one to the other."""


def inputs(draw: Draw) -> Arguments:
    mean, prototypes, w = draw.size["rows"], draw.size["prototypes"], draw.world_size
    shift = draw.random("rows", key=("pair", draw.rank // 2)).randint(-(mean // 4), mean // 4)
    if not shift and not draw.even:  # with as many rows on all ranks, nobody need know how many there are
        shift = 1
    shift = 0 if draw.rank == w - 1 and w % 2 else shift if draw.rank % 2 == 0 else -shift
    dtype = torch.promote_types(draw.dtype, torch.float32)
    # Scores spread over several temperatures, and prototypes that are popular on some ranks only: neither an iteration
    # nor a rank can be left out.
    scores = draw.normal("scores", (mean + shift, prototypes), scale=0.12, dtype=dtype)
    scores += draw.normal("popularity", (prototypes,), scale=0.08, dtype=dtype)
    return {
        "teacher_output": scores,
        "teacher_temp": draw.random("temperature", key="all").uniform(*TEMPERATURES),
        "n_masked_patches_tensor": torch.full((1,), mean + shift, dtype=torch.int64, device=draw.device),
        "n_iterations": draw.size["iterations"],  # a constant of the model; it differs from size to size
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Scores that are nearly equal, at the highest temperature."""
    scores = drawn["teacher_output"]
    assert isinstance(scores, torch.Tensor)
    flat = draw.normal("scores, published", tuple(scores.shape), scale=0.01, dtype=scores.dtype)
    return {"teacher_output": flat, "teacher_temp": 0.07}


def solution(
    teacher_output: torch.Tensor,
    teacher_temp: float,
    n_masked_patches_tensor: torch.Tensor,
    n_iterations: int = 3,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if teacher_output.dim() != 2 or teacher_temp <= 0:
        raise ValueError(f"scores must be a matrix, not {tuple(teacher_output.shape)}, the temperature positive")
    wide = torch.promote_types(teacher_output.dtype, torch.float32)
    samples = n_masked_patches_tensor.to(wide).sum()
    dist.all_reduce(samples, op=dist.ReduceOp.SUM, group=group)
    prototypes = teacher_output.shape[1]

    q = (teacher_output.to(wide) / teacher_temp).exp_()  # (samples of this rank, prototypes)
    total = q.sum()
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
    q /= total
    for _ in range(n_iterations):
        column_sums = q.sum(dim=0)  # of this rank's samples
        dist.all_reduce(column_sums, op=dist.ReduceOp.SUM, group=group)
        q /= column_sums
        q /= prototypes
        q /= q.sum(dim=1, keepdim=True)
        q /= samples
    q *= samples
    return q


def baseline(
    teacher_output: torch.Tensor,
    teacher_temp: float,
    n_masked_patches_tensor: torch.Tensor,
    n_iterations: int = 3,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """The matrix stays as it is: factors of its rows and columns are found by products with vectors, and multiplied in once."""
    wide = torch.promote_types(teacher_output.dtype, torch.float32)
    q = torch.div(teacher_output.to(wide), teacher_temp).exp_()
    sums = torch.stack([n_masked_patches_tensor.to(wide).sum(), q.sum()])
    dist.all_reduce(sums, op=dist.ReduceOp.SUM, group=group)
    samples, total = sums
    rows = (1 / total).expand(q.shape[0])
    columns = q.new_ones(q.shape[1])
    for _ in range(n_iterations):
        column_sums = columns * torch.mv(q.t(), rows)
        dist.all_reduce(column_sums, op=dist.ReduceOp.SUM, group=group)
        columns = columns / (column_sums * q.shape[1])
        rows = 1 / (torch.mv(q, columns) * samples)
    return q.mul_((rows * samples)[:, None]).mul_(columns)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, iterations, prototypes = world_size, size["iterations"], size["prototypes"]
    wide = max(4, element_bytes)
    matrix, message = size["rows"] * prototypes * wide, prototypes * wide
    return Cost.all_reduce(
        iterations * message,
        w,
        phases=iterations,
        flops=(4 * iterations + 2) * size["rows"] * prototypes,
        hbm_bytes=2 * matrix,  # a shard that stays in cache or registers is read once
        note="the sums of samples and of all entries cancel; scores that fit no cache are read once for each iteration",
    )


PROBLEM = Problem(
    id=80,
    name="dinov2_distributed_sinkhorn_knopp",
    source="DINOv2, Sinkhorn-Knopp teacher centering",
    taxonomy=Taxonomy(
        parallelism=("dp",),
        layer="loss",
        stage=("training-forward",),
        pattern=("all-reduce",),
        system="vision",
        fusable="exponential, row and column sums, scaling",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    tried=(Alternative("exponentials computed anew in every pass, by torch.compile, and never written"),),
    cost=cost,
    compare=Close(rtol={torch.float32: 1e-5, torch.float64: 1e-11}),
    dtypes=("bf16", "fp32", "fp64"),  # bf16 stands for mixed precision, in which these scores are float32
    version=4,  # pairs of ranks never hold equally many rows
)
