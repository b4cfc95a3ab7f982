"""One step of a blocked Kalman filter optimizer: one scalar over all ranks, then everybody's new weights.

DeePMD-kit's LKFOptimizer, its blocks spread over the ranks like ZeRO optimizer state. Rank r holds blocks i, each a
column H_i (n, 1) of the gradient, weights w_i (n, 1) and a symmetric covariance P_i (n, n); the error is a scalar known
to all. With d the sum over **all blocks of all ranks** of lambda + H_i' P_i H_i, and a = 1 / d, a block becomes w_i + a
* error * P_i H_i and (P_i - a * (P_i H_i) (P_i H_i)') / lambda. Afterwards every rank holds the new weights of all
blocks of all ranks, in rank order, its own new P, and the next lambda, nue * lambda + 1 - nue. Block sizes and their
number may differ between ranks. The lists `weights` and `P` are the optimizer's state: the reference puts the new
tensors into them; of each block a candidate may leave them, put new ones in, or update in place.

Everything is float64. Eight bytes stand between two passes over P: K = P H serves both the scalar and the update. A
good kernel overlaps the exchange of the weights, which needs one number from every rank, with the update of P, which
is nearly all of the time.
"""

import random
from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size, tensors_in
from pkb.problems.compare import Context, NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # blocks of a rank, each of size n but for the last, which is what remains of the rank's parameters
    "tiny": {"blocks": 3, "n": 24},
    "paper": {"blocks": 8, "n": 1024},
    "real": {"blocks": 12, "n": 5120},  # DeePMD's default block size; one fitting net on 8 ranks
    "odd": {"blocks": 2, "n": 37},
}
DIRECTIONS = 8


def block_sizes(size: Size, source: random.Random) -> list[int]:
    n = size["n"]
    return [n] * (size["blocks"] - 1) + [source.randint(n // 2, n)]


def inputs(draw: Draw) -> Arguments:
    sizes = [draw.size["n"]] * draw.size["blocks"] if draw.even else block_sizes(draw.size, draw.random("blocks"))
    scalars = draw.random("scalars", key="all")
    covariances = []
    for i, n in enumerate(sizes):
        directions = draw.normal(f"directions {i}", (n, DIRECTIONS), scale=DIRECTIONS**-0.5)
        covariance = directions @ directions.T
        covariance.diagonal().add_(1.0)
        covariances.append(covariance)
    return {
        # A different scale on every rank: W times the own contribution is then no guess of the sum.
        "H": [
            draw.normal(f"H {i}", (n, 1), scale=draw.random("scale").uniform(0.5, 3.0) * n**-0.5)
            for i, n in enumerate(sizes)
        ],
        "error": draw.normal("error", (), key="all"),
        "weights": [draw.normal(f"weights {i}", (n, 1)) for i, n in enumerate(sizes)],
        "P": covariances,
        "kalman_lambda": scalars.uniform(0.95, 0.99),
        "kalman_nue": scalars.uniform(0.99, 0.999),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """P is the identity, H small and of one scale on all ranks, the error every rank's own, and the scalars are fixed."""
    n, blocks = draw.size["n"], range(draw.size["blocks"])
    return {
        "H": [draw.normal(f"H {i}, published", (n, 1), scale=0.01) for i in blocks],
        "error": draw.normal("error, published", ()),
        "P": [torch.eye(n, dtype=draw.dtype, device=draw.device) for _ in blocks],
        "kalman_lambda": 0.98,
        "kalman_nue": 0.9987,
    }


def solution(
    H: list[torch.Tensor],
    error: torch.Tensor,
    weights: list[torch.Tensor],
    P: list[torch.Tensor],
    kalman_lambda: float,
    kalman_nue: float = 0.9987,
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    if not len(H) == len(weights) == len(P):
        raise ValueError(f"{len(H)} gradients, {len(weights)} weights and {len(P)} covariances")
    for h, w, p in zip(H, weights, P, strict=True):
        n = w.shape[0]
        if h.shape != (n, 1) or w.shape != (n, 1) or p.shape != (n, n):
            raise ValueError(f"a block of H {tuple(h.shape)}, weights {tuple(w.shape)}, P {tuple(p.shape)}")
    dtype, device = weights[0].dtype, weights[0].device
    distributed = dist.is_initialized()

    gains = [torch.matmul(p, h) for p, h in zip(P, H, strict=True)]  # K = P H
    total = torch.zeros((1, 1), dtype=dtype, device=device)
    for h, gain in zip(H, gains, strict=True):
        total += kalman_lambda + torch.matmul(h.T, gain)  # lambda counts once for every block
    if distributed:
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
    a = 1 / total

    for i, gain in enumerate(gains):
        weights[i] = weights[i] + a * error.to(dtype) * gain
        P[i] = (P[i] - a * torch.matmul(gain, gain.T)) / kalman_lambda
    next_lambda = torch.tensor(kalman_nue * kalman_lambda + 1 - kalman_nue, dtype=dtype, device=device)
    if not distributed:
        return list(weights), P, next_lambda

    # Ranks have different blocks: exchange their number and sizes, then the weights, padded to equal lengths.
    world_size = dist.get_world_size()
    counts = torch.empty(world_size, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(counts, torch.tensor([len(weights)], device=device))
    most = int(counts.max())
    own_sizes = torch.zeros(most, dtype=torch.int64, device=device)
    own_sizes[: len(weights)] = torch.tensor([w.shape[0] for w in weights], device=device)
    sizes = torch.empty(world_size * most, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(sizes, own_sizes)
    rows = sizes.view(world_size, most).tolist()
    longest = max(sum(row) for row in rows)
    own = torch.zeros(longest, dtype=torch.float64, device=device)
    own[: sum(w.shape[0] for w in weights)] = torch.cat(weights)[:, 0]
    gathered = torch.empty(world_size * longest, dtype=torch.float64, device=device)
    dist.all_gather_into_tensor(gathered, own)

    everybody: list[torch.Tensor] = []
    for row, count, flat in zip(rows, counts.tolist(), gathered.split(longest), strict=True):
        blocks = flat[: sum(row)].split(row[:count])
        everybody += [block[:, None].to(dtype) for block in blocks]
    return everybody, P, next_lambda


def baseline(
    H: list[torch.Tensor],
    error: torch.Tensor,
    weights: list[torch.Tensor],
    P: list[torch.Tensor],
    kalman_lambda: float,
    kalman_nue: float = 0.9987,
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """The update of a matrix is one pass."""
    dtype, device, world_size = (
        weights[0].dtype,
        weights[0].device,
        dist.get_world_size() if dist.is_initialized() else 1,
    )
    gains = [torch.mv(p, h[:, 0]) for p, h in zip(P, H, strict=True)]
    total = torch.stack([torch.dot(h[:, 0], gain) for h, gain in zip(H, gains, strict=True)]).sum()
    total += len(P) * kalman_lambda
    if world_size > 1:
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
    a = 1 / total
    for i, gain in enumerate(gains):
        weights[i] = weights[i] + (a * error.to(dtype) * gain).view(-1, 1)
        P[i] = torch.addr(P[i], gain * (-a / kalman_lambda), gain, beta=1 / kalman_lambda)
    next_lambda = torch.tensor(kalman_nue * kalman_lambda + 1 - kalman_nue, dtype=dtype, device=device)
    if not dist.is_initialized():
        return list(weights), P, next_lambda

    # How many blocks, and rows, every rank has; then the sizes with the weights, in one message.
    mine = [weight.shape[0] for weight in weights]
    table = torch.empty(2 * world_size, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(table, torch.tensor([len(mine), sum(mine)], device=device))
    counts = table.view(world_size, 2).tolist()
    most, longest = (max(column) for column in zip(*counts, strict=True))
    own = torch.zeros(most + longest, dtype=torch.float64, device=device)
    own[: len(mine)] = torch.tensor(mine, dtype=torch.float64, device=device)
    own[most : most + sum(mine)] = torch.cat(weights)[:, 0]
    gathered = own.new_empty(world_size * own.numel())
    dist.all_gather_into_tensor(gathered, own)
    sizes = gathered.view(world_size, -1)[:, :most].long().tolist()
    everybody: list[torch.Tensor] = []
    for (blocks, rows), lengths, flat in zip(counts, sizes, gathered.view(world_size, -1), strict=True):
        everybody += [one[:, None].to(dtype) for one in flat[most : most + rows].split(lengths[:blocks])]
    return everybody, P, next_lambda


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, n = world_size, size["n"]
    sizes = [n] * (size["blocks"] - 1) + [3 * n // 4]
    entries, parameters = sum(s * s for s in sizes), sum(sizes)
    weights = parameters * 8
    return Cost(
        flops=3.5 * entries,
        hbm_bytes=2 * entries * element_bytes + 3 * weights,
        link_sent_bytes=(w - 1) * weights + 2 * (w - 1) / w * 8,
        link_received_bytes=(w - 1) * weights + 2 * (w - 1) / w * 8,
        phases=2 if w > 1 else 0,
        switch_sent_bytes=weights + 8 if w > 1 else 0,
        switch_received_bytes=(w - 1) * weights + 8 if w > 1 else 0,
        note="an average rank; P is symmetric: one triangle is read for K and again for the update, both are written",
        payload_bytes=w * weights + 8,
    )


@dataclass(frozen=True)
class NewOrUntouched:
    """The caller's lists afterwards: the new state, or the old one, since upstream checks neither."""

    name: str
    gate: NormGate

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        ratio = self.gate(truth, output, context)
        if ratio > 1 and any(torch.equal(old, output) for old in tensors_in(context.arguments[self.name])):
            return 0.0
        return ratio


UPDATED = NormGate(tau={torch.float64: 1e-12})

PROBLEM = Problem(
    id=63,
    name="deepmd_kalman_filter_optimizer",
    source="DeePMD-kit LKFOptimizer",
    taxonomy=Taxonomy(
        parallelism=("fsdp",),
        layer="optimizer",
        stage=("optimizer",),
        pattern=("all-reduce", "all-gather-v"),
        system="science",
        fusable="matrix-vector product before, rank-1 update of P after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    # P alone is 2.5 GB a rank, in every set of arguments and in every result, of which a candidate holds two.
    fits_one_gpu={"real": (1, 2, 3, 4)},
    baseline=baseline,
    cost=cost,
    compare=UPDATED,
    mutates={"weights": NewOrUntouched("weights", UPDATED), "P": NewOrUntouched("P", UPDATED)},
    truth="native",  # is float64
    returns_input=True,  # the new P, which the reference also leaves in the caller's list
    dtypes=("fp64",),
    version=2,  # real has all of its twelve blocks a rank
)
