"""A perceptron with one hidden layer, trained with Adam whose moments are divided between the ranks (ZeRO)."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems.base import Size
from pkb.problems.blocks import BLOCKS
from pkb.problems.draw import Arguments, Draw


def layer_sizes(size: Size, world_size: int) -> tuple[int, int, int, int]:
    """Inputs, hidden units, outputs and the number of parameters, a multiple of W where that can be."""
    d_in, hidden, d_out = size["d_in"], size["hidden"], size["d_out"]
    counts = [h * (d_in + 1) + d_out * (h + 1) for h in range(hidden, hidden + world_size)]
    extra = next((i for i, count in enumerate(counts) if count % world_size == 0), 0)
    return d_in, hidden + extra, d_out, counts[extra]


FEW_UNITS, KINK, TRIES = 64, 0.01, 16
"""Where a rank has few samples, of few hidden units, none of these is within `KINK` of 0."""


def clear_of_the_kink(
    draw: Draw, x: torch.Tensor, mean: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """The samples, with those drawn again that have a hidden unit next to 0. Whoever rounds x W^T to bf16 before the bias is
    added may have it on the other side, and where a handful of samples make up a gradient, one of them is a good part of it.
    Where there are many, one counts for little, and none with thousands of units is clear: not for more than `FEW_UNITS`."""
    for number in range(TRIES):  # as often whatever comes: no choice on the host depends on values
        units = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
        other = (draw.normal(f"X, again {number}", tuple(x.shape), dtype=mean.dtype) + mean).to(x.dtype)
        x = torch.where((units.abs() < KINK).any(dim=1, keepdim=True), other, x)
    return x


def local_samples(draw: Draw, rows: int, d_in: int, hidden: int) -> torch.Tensor:
    """X of this rank, for rank 0's W1 and b1. It has a mean of its own, or gradients of all ranks would be nearly the same."""
    mean = draw.normal("mean of X", (1, d_in), scale=0.5)
    x = draw.normal("X", (rows, d_in)).add_(mean)
    if hidden > FEW_UNITS:  # and large parameters are not drawn once more
        return x
    first = replace(draw, rank=0)
    weight, bias = first.normal("W1", (hidden, d_in), scale=d_in**-0.5), first.normal("b1", (hidden,), scale=0.1)
    return clear_of_the_kink(draw, x, mean, weight, bias)


def draw_zero_step(draw: Draw) -> Arguments:
    """This rank's samples, all parameters, and the Adam moments of the W-th of the parameters that the rank owns."""
    d_in, hidden, d_out, parameters = layer_sizes(draw.size, draw.world_size)
    rows, part = -(-draw.size["samples"] // draw.world_size), parameters // draw.world_size
    choice = draw.random("hyperparameters", key="all")
    beta1, beta2, step = choice.choice([0.8, 0.9]), choice.choice([0.95, 0.99, 0.999]), choice.randrange(1, 8)

    x = local_samples(draw, rows, d_in, hidden)
    y = draw.normal("y", (rows, d_out)).add_(draw.normal("mean of y", (1, d_out)))

    # About the size of the gradients. Moments are as large as after a few steps, so that old state and new gradient
    # both show in the result; large ones, or beta2 near 1 with moments of any size, would hide the gradient.
    lengths = (hidden * d_in, hidden, d_out * hidden, d_out)
    sizes = (0.5 / (hidden * d_out) ** 0.5, 1.0 / (hidden * d_out) ** 0.5, 0.8 / d_out, 1.5 / d_out)
    gradient = torch.cat([torch.full((n,), g, device=draw.device) for n, g in zip(lengths, sizes, strict=True)])
    gradient = gradient[draw.rank * part : (draw.rank + 1) * part]
    m = draw.normal("exp_avg", (part,), scale=3 * (1 - beta1))
    v = draw.uniform("exp_avg_sq", (part,), 0.9 * (1 - beta2), 6.0 * (1 - beta2))
    return {
        "X_local": x,
        "y_local": y,
        "W1": draw.normal("W1", (hidden, d_in), scale=d_in**-0.5),
        "b1": draw.normal("b1", (hidden,), scale=0.1),
        "W2": draw.normal("W2", (d_out, hidden), scale=hidden**-0.5),
        "b2": draw.normal("b2", (d_out,), scale=0.1),
        "exp_avg_part": m.mul_(gradient),
        "exp_avg_sq_part": v.mul_(gradient.square_()),
        # An update is then a good part of a parameter, where 1e-3 would be lost in rounding, and eps is felt.
        "lr": choice.uniform(0.2, 0.5) * hidden**-0.5,
        "beta1": beta1,
        "beta2": beta2,
        "eps": choice.uniform(0.2, 0.5) * sizes[0],
        "step": step,
    }


def published_step(draw: Draw, drawn: Arguments) -> Arguments:
    """What the published benchmark draws: samples and rank 0's parameters are normal and unscaled; other ranks' parameters and
    all moments are zeros; Adam's usual numbers."""
    tensors = {name: value for name, value in drawn.items() if isinstance(value, torch.Tensor)}
    values: Arguments = {name: torch.zeros_like(value) for name, value in tensors.items()}
    for name in ("X_local", "y_local", "W1", "b1", "W2", "b2")[: 6 if draw.rank == 0 else 2]:
        values[name] = draw.normal(f"{name}, published", tuple(tensors[name].shape))
    return {**values, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "step": 1 + draw.call % 7}


def why_not_divided(size: Size, world_size: int) -> str | None:
    if layer_sizes(size, world_size)[3] % world_size:
        return f"with {size['d_in']} inputs and {size['d_out']} outputs, {world_size} never divides the parameters"
    return None


# For baselines: the same training step by operators that write where the result belongs, and torch's fused Adam.


def gradients_of(
    x: torch.Tensor, y: torch.Tensor, w1: torch.Tensor, b1: torch.Tensor, w2: torch.Tensor, b2: torch.Tensor
) -> torch.Tensor:
    """Of the mean squared error, for all four parameters, flat."""
    linear, shapes = torch.nn.functional.linear, [t.shape for t in (w1, b1, w2, b2)]
    flat = torch.empty(sum(shape.numel() for shape in shapes), dtype=w1.dtype, device=w1.device)
    pieces = flat.split([shape.numel() for shape in shapes])
    d_w1, d_b1, d_w2, d_b2 = (piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True))
    h = linear(x, w1, b1).relu_()
    out = linear(h, w2, b2)
    d_out = out.sub_(y).mul_(2.0 / out.numel())
    d_before = torch.ops.aten.threshold_backward(torch.mm(d_out, w2), h, 0)
    torch.mm(d_before.t(), x, out=d_w1)
    torch.sum(d_before, 0, out=d_b1)
    torch.mm(d_out.t(), h, out=d_w2)
    torch.sum(d_out, 0, out=d_b2)
    return flat


def fused_adam_(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
    weight_decay: float = 0.0,
) -> None:
    """Changes p, m and v; a weight decay is decoupled, as AdamW's."""
    steps = [torch.full((), float(step), device=p.device)]
    torch._fused_adamw_(
        [p], [g], [m], [v], [], steps,
        lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, amsgrad=False, maximize=False,
    )  # fmt: skip


def zero_step(
    x: torch.Tensor, y: torch.Tensor, parameters: list[torch.Tensor], m: torch.Tensor, v: torch.Tensor, **adam: float
) -> tuple[torch.Tensor, ...]:
    """Rank 0's parameters for everybody; each rank sums up, and updates, the W-th of them whose moments it has."""
    rank, world_size, part = dist.get_rank(), dist.get_world_size(), m.numel()
    shapes = [parameter.shape for parameter in parameters]
    flat = m.new_empty(sum(shape.numel() for shape in shapes))
    if rank == 0:
        torch.cat([parameter.reshape(-1) for parameter in parameters], out=flat)
    dist.broadcast(flat, src=0)
    counts = [shape.numel() for shape in shapes]
    w1, b1, w2, b2 = (piece.view(shape) for piece, shape in zip(flat.split(counts), shapes, strict=True))
    gradient = gradients_of(x, y, w1, b1, w2, b2)
    g = torch.empty_like(m)
    dist.reduce_scatter_tensor(g, gradient, op=dist.ReduceOp.SUM)
    p, m, v = flat[rank * part : (rank + 1) * part].clone(), m.clone(), v.clone()
    fused_adam_(p, g.div_(world_size), m, v, **adam)  # type: ignore[arg-type]
    gathered = torch.empty_like(flat)
    dist.all_gather_into_tensor(gathered, p)
    return (*(piece.view(shape) for piece, shape in zip(gathered.split(counts), shapes, strict=True)), m, v)


# For exact truths: the activations of a few samples at a time, and nothing twice.


def exact_gradients(x: torch.Tensor, y: torch.Tensor, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    w1, b1, w2, b2 = parameters
    gradients = [torch.zeros_like(parameter) for parameter in parameters]
    for some, wanted in zip(x.chunk(BLOCKS), y.chunk(BLOCKS), strict=True):
        h = torch.nn.functional.linear(some, w1, b1).relu_()
        d_out = torch.nn.functional.linear(h, w2, b2).sub_(wanted).mul_(2.0 / y.numel())
        gradients[2].addmm_(d_out.t(), h)
        gradients[3] += d_out.sum(0)
        d_before = (d_out @ w2).masked_fill_(h <= 0, 0.0)
        gradients[0].addmm_(d_before.t(), some)
        gradients[1] += d_before.sum(0)
    return gradients


def exact_adam_(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> None:
    """Changes p, m and v."""
    for weight, gradient, mean, square in zip(*(t.view(-1).chunk(BLOCKS) for t in (p, g, m, v)), strict=True):
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (square / (1 - beta2**step)).sqrt_().add_(eps)
        weight.sub_((mean / (1 - beta1**step)).div_(root).mul_(lr))


def exact_zero_step(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    W1: torch.Tensor,
    b1: torch.Tensor,
    W2: torch.Tensor,
    b2: torch.Tensor,
    exp_avg_part: torch.Tensor,
    exp_avg_sq_part: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[torch.Tensor, ...]:
    """Of 41 and 42, which differ in how the gradient travels: a few samples' activations at a time, and all else in place."""
    parameters, m, v = [W1, b1, W2, b2], exp_avg_part, exp_avg_sq_part
    rank, part = dist.get_rank(), m.numel()
    for parameter in parameters:
        dist.broadcast(parameter, src=0)
    gradient = torch.cat([g.view(-1) for g in exact_gradients(X_local, y_local, parameters)])
    dist.all_reduce(gradient)
    g = gradient[rank * part : (rank + 1) * part].div_(dist.get_world_size())
    flat = torch.cat([parameter.view(-1) for parameter in parameters], out=torch.empty_like(gradient))
    own = flat[rank * part : (rank + 1) * part].clone()
    exact_adam_(own, g, m, v, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)
    dist.all_gather_into_tensor(flat, own)
    pieces = flat.split([parameter.numel() for parameter in parameters])
    return (*(piece.view_as(parameter) for piece, parameter in zip(pieces, parameters, strict=True)), m, v)
