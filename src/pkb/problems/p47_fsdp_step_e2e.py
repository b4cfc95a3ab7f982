"""A whole training step with sharded parameters: gather, forward, backward, reduce-scatter, AdamW on the own shard.

PyTorch FSDP and DeepSpeed ZeRO-3, for a perceptron with one hidden layer and ReLU. All parameters (W1, b1, W2, b2 as
given by param_shapes, row by row) form one flat vector; rank r holds the r-th of W equal parts, with its two Adam moments,
and its own rows of data. Every rank gathers the vector, computes the mean squared error of its rows and its gradient;
the gradients are summed over the ranks, divided by W, and each rank updates its part. Returned are new tensors: the
part of the parameters and the two moments. Arithmetic is in the dtype, the bias corrections are host numbers, and weight
decay is decoupled: it uses the parameters as they were.

The boundaries of the parts cut through rows and matrices. A good kernel starts a layer's product as soon as its weights
are there, sends gradients as they are finished, and runs the sum over ranks, the division and the AdamW update as one
pass over the part. It never writes the summed gradient to memory.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Context, NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.mlp_adam import FEW_UNITS, clear_of_the_kink, fused_adam_, gradients_of
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # rows: of one rank; hidden grows until W divides the number of parameters
    "tiny": {"rows": 24, "d_in": 16, "d_hidden": 32, "d_out": 8},
    "paper": {"rows": 256, "d_in": 256, "d_hidden": 512, "d_out": 256},
    "real": {"rows": 2048, "d_in": 5120, "d_hidden": 20480, "d_out": 5120},  # OPT-13B feed-forward block, 8 ranks
    "odd": {"rows": 19, "d_in": 23, "d_hidden": 37, "d_out": 11},
}


def param_shapes(size: Size, world_size: int) -> tuple[tuple[int, ...], ...] | None:
    """W1, b1, W2, b2, with the smallest hidden layer from d_hidden on that makes the parts equal, or None."""
    d_in, d_out = size["d_in"], size["d_out"]
    for hidden in range(size["d_hidden"], size["d_hidden"] + world_size):
        if (hidden * (d_in + 1 + d_out) + d_out) % world_size == 0:
            return (hidden, d_in), (hidden,), (d_out, hidden), (d_out,)
    return None


def spread(draw: Draw, shapes: tuple[tuple[int, ...], ...], values: list[float]) -> torch.Tensor:
    """One value for each of the four tensors, laid out as this rank's part of the flat vector."""
    counts = [math.prod(shape) for shape in shapes]
    part = sum(counts) // draw.world_size
    out = torch.empty(part, dtype=torch.float32, device=draw.device)
    end = 0
    for count, value in zip(counts, values, strict=True):
        start, end = end, end + count
        out[max(0, start - draw.rank * part) : max(0, end - draw.rank * part)] = value
    return out


def parameters(draw: Draw, shapes: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    """This rank's part."""
    hidden, d_in = shapes[0]
    wide = torch.promote_types(draw.dtype, torch.float32)
    weights = spread(draw, shapes, [d_in**-0.5, 0.3, hidden**-0.5, 0.3]).to(wide)
    return (draw.normal("flat_param_shard", (weights.numel(),), dtype=wide) * weights).to(draw.dtype)


def inputs(draw: Draw) -> Arguments:
    rows, d_in, d_out = draw.size["rows"], draw.size["d_in"], draw.size["d_out"]
    shapes = param_shapes(draw.size, draw.world_size)
    assert shapes is not None
    hidden = shapes[0][0]
    wide = torch.promote_types(draw.dtype, torch.float32)
    # Each rank's rows have a mean of their own, so that its gradient is no guess at the mean gradient.
    x_mean = draw.normal("x mean", (1, d_in), scale=0.5, dtype=wide)
    y_mean = draw.normal("y mean", (1, d_out), dtype=wide)
    x = (draw.normal("X_local", (rows, d_in), dtype=wide) + x_mean).to(draw.dtype)
    if hidden <= FEW_UNITS:
        flat = torch.cat([parameters(replace(draw, rank=rank), shapes) for rank in range(draw.world_size)])
        weight, bias = flat[: hidden * d_in].view(hidden, d_in), flat[hidden * d_in :][:hidden]
        x = clear_of_the_kink(draw, x, x_mean, weight, bias)
    # Moments as earlier steps would have left them: about the size of the coming gradient, and never near zero.
    through = (d_out / hidden) ** 0.5
    size = (2 / d_out) * draw.world_size**-0.5
    gradient = spread(draw, shapes, [size * through / 4, size * through / 2, size / 2, size]).to(wide)
    part = gradient.numel()
    chosen = draw.random("hyperparameters", key="all")
    step = chosen.randrange(2, 9)
    beta1, beta2 = chosen.uniform(0.85, 0.95), chosen.uniform(0.99, 0.999)
    exp_avg = draw.normal("exp_avg", (part,), dtype=wide) * gradient * ((1 - beta1) * min(step - 1, 4) ** 0.5)
    spread_of_squares = draw.uniform("exp_avg_sq", (part,), 0.3, 1.7, dtype=wide)
    return {
        "X_local": x,
        "y_local": (draw.normal("y_local", (rows, d_out), dtype=wide) + y_mean).to(draw.dtype),
        "flat_param_shard": parameters(draw, shapes),
        "param_shapes": shapes,
        "exp_avg_shard": exp_avg.to(draw.dtype),
        "exp_avg_sq_shard": (spread_of_squares * gradient.square() * ((1 - beta2) * (step - 1))).to(draw.dtype),
        "lr": chosen.uniform(0.02, 0.05),  # large, so that bf16 parameters move by many steps of their grid
        "beta1": beta1,
        "beta2": beta2,
        "eps": chosen.uniform(0.02, 0.2) * size,  # a good part of the root, so that it counts
        "weight_decay": chosen.uniform(3.0, 5.0),  # times the rate a tenth of a parameter: in bf16 less would not show
        "step": step,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Parameters on rank 0 only, not scaled, zeros on all others; rows of one mean; Adam's usual numbers, from no moments."""
    rows, shard = draw.size["rows"], drawn["flat_param_shard"]
    assert isinstance(shard, torch.Tensor)
    first = draw.normal("flat_param_shard, published", (shard.numel(),))
    return {
        "X_local": draw.normal("X_local, published", (rows, draw.size["d_in"])),
        "y_local": draw.normal("y_local, published", (rows, draw.size["d_out"])),
        "flat_param_shard": first if draw.rank == 0 else torch.zeros_like(shard),
        "exp_avg_shard": torch.zeros_like(shard),
        "exp_avg_sq_shard": torch.zeros_like(shard),
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.01,
        "step": 1 + draw.call % 7,
    }


def solution(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    flat_param_shard: torch.Tensor,
    param_shapes: tuple[tuple[int, ...], ...],
    exp_avg_shard: torch.Tensor,
    exp_avg_sq_shard: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    world_size = dist.get_world_size()
    counts = [math.prod(shape) for shape in param_shapes]
    if step < 1 or len(counts) != 4:
        raise ValueError(f"step must be at least 1 and param_shapes four shapes, not {step} and {param_shapes}")
    if world_size * flat_param_shard.numel() != sum(counts):
        raise ValueError(f"{world_size} parts of {flat_param_shard.numel()} do not make {sum(counts)} parameters")

    flat = torch.empty(sum(counts), dtype=flat_param_shard.dtype, device=flat_param_shard.device)
    dist.all_gather_into_tensor(flat, flat_param_shard.contiguous())
    W1, b1, W2, b2 = (part.view(tuple(shape)) for part, shape in zip(flat.split(counts), param_shapes, strict=True))

    z = torch.addmm(b1, X_local, W1.t())
    activation = torch.relu(z)
    out = torch.addmm(b2, activation, W2.t())

    # Gradient of the mean of (out - y)^2 over this rank's rows.
    d_out = (out - y_local) * (2.0 / out.numel())
    d_z = torch.matmul(d_out, W2) * (z > 0)
    gradients = (torch.matmul(d_z.t(), X_local), d_z.sum(0), torch.matmul(d_out.t(), activation), d_out.sum(0))
    flat_gradient = torch.cat([gradient.reshape(-1) for gradient in gradients])
    g = torch.empty_like(flat_param_shard)
    dist.reduce_scatter_tensor(g, flat_gradient, op=dist.ReduceOp.SUM)
    g = g / world_size

    exp_avg = exp_avg_shard * beta1 + g * (1 - beta1)
    exp_avg_sq = exp_avg_sq_shard * beta2 + g * g * (1 - beta2)
    corrected = exp_avg / (1 - beta1**step)
    denominator = (exp_avg_sq / (1 - beta2**step)).sqrt() + eps
    updated = flat_param_shard - lr * (corrected / denominator)
    return updated - lr * weight_decay * flat_param_shard, exp_avg, exp_avg_sq


def baseline(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    flat_param_shard: torch.Tensor,
    param_shapes: tuple[tuple[int, ...], ...],
    exp_avg_shard: torch.Tensor,
    exp_avg_sq_shard: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients are written where they are summed, and AdamW is torch's fused one."""
    counts = [math.prod(shape) for shape in param_shapes]
    flat = flat_param_shard.new_empty(sum(counts))
    dist.all_gather_into_tensor(flat, flat_param_shard.contiguous())
    W1, b1, W2, b2 = (part.view(tuple(shape)) for part, shape in zip(flat.split(counts), param_shapes, strict=True))
    gradient = gradients_of(X_local, y_local, W1, b1, W2, b2)
    g = torch.empty_like(flat_param_shard)
    dist.reduce_scatter_tensor(g, gradient, op=dist.ReduceOp.SUM)
    p, m, v = flat_param_shard.clone(), exp_avg_shard.clone(), exp_avg_sq_shard.clone()
    fused_adam_(
        p, g.div_(dist.get_world_size()), m, v,
        lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step, weight_decay=weight_decay,
    )  # fmt: skip
    return p, m, v


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    shapes = param_shapes(size, world_size)
    assert shapes is not None
    parameters, w, rows = sum(map(math.prod, shapes)), world_size, size["rows"]
    part = parameters // w
    weights1, weights2 = math.prod(shapes[0]), math.prod(shapes[2])
    flat = parameters * element_bytes
    return Cost(
        flops=2 * rows * (2 * weights1 + 3 * weights2) + 15 * part,
        hbm_bytes=3 * flat + 6 * part * element_bytes + rows * (size["d_in"] + size["d_out"]) * element_bytes,
        link_sent_bytes=2 * (w - 1) / w * flat,
        link_received_bytes=2 * (w - 1) / w * flat,
        phases=2 if w > 1 else 0,
        # Multicast sends a part once, in-switch reduction receives a sum once.
        switch_sent_bytes=(1 / w + (w - 1) / w) * flat if w > 1 else 0,
        switch_received_bytes=((w - 1) / w + 1 / w) * flat if w > 1 else 0,
        payload_bytes=2 * flat,
    )


def requires(size: Size, world_size: int) -> str | None:
    if param_shapes(size, world_size) is None:
        return f"no size of the hidden layer makes {world_size} equal parts of the parameters"
    return None


@dataclass(frozen=True)
class Moved:
    """The parameters, to a share of the learning rate plus one step of their grid.

    An AdamW update is about the learning rate for every element, so this tells a parameter that has not moved, or moved
    the wrong way, from one that has; a tolerance relative to the parameter itself would not.
    """

    share_of_lr: Mapping[torch.dtype, float]

    def __call__(self, truth: torch.Tensor, output: torch.Tensor, context: Context) -> float:
        grid = 2 * torch.finfo(output.dtype).eps
        rate = context.arguments["lr"]
        assert isinstance(rate, float)
        limit = self.share_of_lr[output.dtype] * rate + grid * truth.double().abs()
        worst = float(((output.double() - truth.double()).abs() / limit).max())
        return worst if math.isfinite(worst) else math.inf


PROBLEM = Problem(
    id=47,
    name="fsdp_step_e2e",
    source="PyTorch FSDP and DeepSpeed ZeRO-3, one training step",
    taxonomy=Taxonomy(
        parallelism=("fsdp", "dp"),
        layer="optimizer",
        stage=("training-forward", "training-backward", "optimizer"),
        pattern=("all-gather", "reduce-scatter"),
        system="LLM training",
        fusable="GEMMs, ReLU, squared error, AdamW update",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=(
        Moved(share_of_lr={torch.bfloat16: 0.125, torch.float32: 1e-4, torch.float64: 1e-9}),
        NormGate(tau={torch.bfloat16: 1.25e-2}),
        NormGate(tau={torch.bfloat16: 2.5e-2}),
    ),
    requires=requires,
    version=4,  # samples clear of the kink, betas and eps vary; a weight decay that shows
    dtypes=("bf16", "fp32", "fp64"),  # squared gradients are below the range of fp16
)
