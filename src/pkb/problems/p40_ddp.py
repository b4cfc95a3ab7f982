"""One data-parallel training step: rank 0's state to everybody, gradients averaged, Adam on every rank.

PyTorch's DistributedDataParallel on a perceptron with one hidden layer and ReLU. Rank r holds its own samples X_local
(t, d_in) with targets y_local (t, d_out), and parameters and Adam moments of which only rank 0's count: they replace
everybody's first. Each rank takes the mean squared error over its own samples and their outputs, and its gradients,
rounded to the dtype; these are summed over the ranks in the dtype and divided by W, and Adam (no weight decay) is
applied to the whole model on every rank. Returned are W1, b1, W2, b2, then their first moments, then their second
moments, the same bits everywhere, or the replicas would drift apart; no argument changes.

Adam with bias correction, element by element, in the dtype or wider: m = beta1 m + (1 - beta1) g;
v = beta2 v + (1 - beta2) g g; p = p - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).

Only the parameters stand in the way of the forward pass: the moments can travel beside it. The gradient of W2 is
ready, and can be reduced, while that of W1 is still computed. A good kernel applies Adam to a piece of the gradient as
soon as its sum is there, without writing the averaged gradient to memory.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.mlp_adam import (
    exact_adam_,
    exact_gradients,
    fused_adam_,
    gradients_of,
    local_samples,
    published_step,
)
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # samples: of all ranks together, rounded up to a multiple of W
    "tiny": {"samples": 32, "d_in": 16, "hidden": 32, "d_out": 8},
    "paper": {"samples": 1024, "d_in": 256, "hidden": 512, "d_out": 256},
    "real": {"samples": 32768, "d_in": 4096, "hidden": 14336, "d_out": 4096},  # the MLP of Llama-3-8B
    "odd": {"samples": 61, "d_in": 19, "hidden": 37, "d_out": 13},
}
NAMES = ("W1", "b1", "W2", "b2")


def inputs(draw: Draw) -> Arguments:
    d_in, hidden, d_out = draw.size["d_in"], draw.size["hidden"], draw.size["d_out"]
    rows = -(-draw.size["samples"] // draw.world_size)
    choice = draw.random("hyperparameters", key="all")
    beta1, beta2, step = choice.choice([0.8, 0.9]), choice.choice([0.95, 0.99, 0.999]), choice.randrange(1, 8)

    x = local_samples(draw, rows, d_in, hidden)
    y = draw.normal("y", (rows, d_out)).add_(draw.normal("mean of y", (1, d_out)))

    shapes = ((hidden, d_in), (hidden,), (d_out, hidden), (d_out,))
    scales = (d_in**-0.5, 0.1, hidden**-0.5, 0.1)
    # About the size of the gradients. Moments are as large as after a few steps, so that old state and new gradient
    # both show in the result; large ones, or beta2 near 1 with moments of any size, would hide the gradient.
    gradient = (0.5 / (hidden * d_out) ** 0.5, 1.0 / (hidden * d_out) ** 0.5, 0.8 / d_out, 1.5 / d_out)
    state: dict[str, torch.Tensor] = {}
    for name, shape, scale in zip(NAMES, shapes, scales, strict=True):
        state[name] = draw.normal(name, shape, scale=scale)
    for name, shape, g in zip(NAMES, shapes, gradient, strict=True):
        state[f"exp_avg_{name}"] = draw.normal(f"m {name}", shape, scale=3 * (1 - beta1) * g)
    for name, shape, g in zip(NAMES, shapes, gradient, strict=True):
        unit = 3 * (1 - beta2) * g * g
        state[f"exp_avg_sq_{name}"] = draw.uniform(f"v {name}", shape, 0.3 * unit, 2.0 * unit)
    return {
        "X_local": x,
        "y_local": y,
        **state,
        # An update is then a good part of a parameter, where 1e-3 would be lost in rounding, and eps is felt.
        "lr": choice.uniform(0.2, 0.5) * hidden**-0.5,
        "beta1": beta1,
        "beta2": beta2,
        "eps": choice.uniform(0.2, 0.5) * gradient[0],
        "step": step,
    }


def solution(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    W1: torch.Tensor,
    b1: torch.Tensor,
    W2: torch.Tensor,
    b2: torch.Tensor,
    exp_avg_W1: torch.Tensor,
    exp_avg_b1: torch.Tensor,
    exp_avg_W2: torch.Tensor,
    exp_avg_b2: torch.Tensor,
    exp_avg_sq_W1: torch.Tensor,
    exp_avg_sq_b1: torch.Tensor,
    exp_avg_sq_W2: torch.Tensor,
    exp_avg_sq_b2: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[torch.Tensor, ...]:
    if step < 1:
        raise ValueError(f"step counts from 1, not from {step}")
    shapes = [W1.shape, b1.shape, W2.shape, b2.shape]

    def flatten(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    def unflatten(flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    # Rank 0's parameters and moments replace everybody's.
    p = flatten(W1, b1, W2, b2)
    m = flatten(exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2)
    v = flatten(exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2)
    for state in (p, m, v):
        dist.broadcast(state, src=0)
    W1, b1, W2, b2 = unflatten(p)

    # Forward, mean squared error over the local samples, backward.
    before = torch.nn.functional.linear(X_local, W1, b1)
    h = torch.relu(before)
    out = torch.nn.functional.linear(h, W2, b2)
    d_out = (out - y_local) * (2.0 / out.numel())
    d_before = torch.matmul(d_out, W2).masked_fill(before <= 0, 0.0)
    g = flatten(torch.matmul(d_before.t(), X_local), d_before.sum(0), torch.matmul(d_out.t(), h), d_out.sum(0))

    dist.all_reduce(g, op=dist.ReduceOp.SUM)
    g = g / dist.get_world_size()

    m = m.mul(beta1).add(g, alpha=1 - beta1)
    v = v.mul(beta2).addcmul(g, g, value=1 - beta2)
    root = (v / (1 - beta2**step)).sqrt().add(eps)
    p = p - lr * ((m / (1 - beta1**step)) / root)
    return (*unflatten(p), *unflatten(m), *unflatten(v))


def baseline(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    W1: torch.Tensor,
    b1: torch.Tensor,
    W2: torch.Tensor,
    b2: torch.Tensor,
    exp_avg_W1: torch.Tensor,
    exp_avg_b1: torch.Tensor,
    exp_avg_W2: torch.Tensor,
    exp_avg_b2: torch.Tensor,
    exp_avg_sq_W1: torch.Tensor,
    exp_avg_sq_b1: torch.Tensor,
    exp_avg_sq_W2: torch.Tensor,
    exp_avg_sq_b2: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[torch.Tensor, ...]:
    """Moments travel while gradients are computed; gradients are written where they are summed; Adam is torch's fused one."""
    own = [
        [W1, b1, W2, b2],
        [exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2],
        [exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2],
    ]
    shapes = [tensor.shape for tensor in own[0]]
    state = W1.new_empty((3, sum(shape.numel() for shape in shapes)))
    if dist.get_rank() == 0:
        for row, tensors in zip(state, own, strict=True):
            torch.cat([tensor.reshape(-1) for tensor in tensors], out=row)
    dist.broadcast(state[0], src=0)
    moments = dist.broadcast(state[1:], src=0, async_op=True)

    def unflatten(flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    W1, b1, W2, b2 = unflatten(state[0])
    gradient = gradients_of(X_local, y_local, W1, b1, W2, b2)
    dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
    if moments is not None:
        moments.wait()
    p, m, v = state
    fused_adam_(p, gradient.div_(dist.get_world_size()), m, v, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)
    return (*unflatten(p), *unflatten(m), *unflatten(v))


def exact(
    X_local: torch.Tensor,
    y_local: torch.Tensor,
    W1: torch.Tensor,
    b1: torch.Tensor,
    W2: torch.Tensor,
    b2: torch.Tensor,
    exp_avg_W1: torch.Tensor,
    exp_avg_b1: torch.Tensor,
    exp_avg_W2: torch.Tensor,
    exp_avg_b2: torch.Tensor,
    exp_avg_sq_W1: torch.Tensor,
    exp_avg_sq_b1: torch.Tensor,
    exp_avg_sq_W2: torch.Tensor,
    exp_avg_sq_b2: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[torch.Tensor, ...]:
    """Everything in place: at the end the arguments are the result."""
    p, m, v = (
        [W1, b1, W2, b2],
        [exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2],
        [exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2],
    )
    for tensor in (*p, *m, *v):
        dist.broadcast(tensor, src=0)
    gradients = exact_gradients(X_local, y_local, p)
    for own, g, first, second in zip(p, gradients, m, v, strict=True):
        dist.all_reduce(g)
        g /= dist.get_world_size()
        exact_adam_(own, g, first, second, lr=lr, beta1=beta1, beta2=beta2, eps=eps, step=step)
    return (*p, *m, *v)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, d_in, hidden, d_out = world_size, size["d_in"], size["hidden"], size["d_out"]
    rows = -(-size["samples"] // w)
    parameters = hidden * (d_in + 1) + d_out * (hidden + 1)
    state = parameters * element_bytes
    samples = rows * (d_in + d_out) * element_bytes
    # Every other rank needs rank 0's parameters, the sum of the gradients has W - 1 terms to bring together, and then
    # the new moments go round: with them and the old parameters each rank finds the new parameters itself.
    moved = 4 * (w - 1) / w * state
    return Cost(
        flops=2 * rows * (2 * d_in * hidden + 3 * hidden * d_out) + 12 * parameters / w,
        hbm_bytes=samples + 6 * state,
        link_sent_bytes=moved,
        link_received_bytes=moved,
        phases=3 if w > 1 else 0,
        switch_sent_bytes=3 * state if w > 1 else 0,
        switch_received_bytes=3 * state if w > 1 else 0,
        note="an average rank; the reference sends old moments and summed gradients to all ranks instead of new moments",
        payload_bytes=4 * state,
    )


# Where an update nearly cancels a parameter the error of both stays: with a few elements only, that may be most of them.
# Squares of rounded gradients have twice their relative error.
BIAS = SQUARE = NormGate(tau={torch.bfloat16: 2e-2})
PARAMETERS = (NormGate(), BIAS, NormGate(), BIAS)

PROBLEM = Problem(
    id=40,
    name="ddp",
    source="PyTorch DistributedDataParallel with Adam",
    taxonomy=Taxonomy(
        parallelism=("dp",),
        layer="optimizer",
        stage=("training-forward", "training-backward", "optimizer"),
        pattern=("broadcast", "all-reduce"),
        system="LLM training",
        fusable="MLP forward and backward, gradient averaging, Adam",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published_step,
    reference=solution,
    exact=exact,
    baseline=baseline,
    cost=cost,
    compare=PARAMETERS + PARAMETERS + (SQUARE,) * 4,
    dtypes=("bf16", "fp32", "fp64"),  # squares of gradients fall below the range of fp16
    same_bits=True,
    version=4,  # the same bits on all ranks
)
