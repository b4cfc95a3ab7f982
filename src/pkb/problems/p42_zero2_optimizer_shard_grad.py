"""One ZeRO-2 training step: gradients summed at their owners, Adam on a W-th of the parameters, results gathered.

DeepSpeed ZeRO stage 2 on a perceptron with one hidden layer and ReLU: the optimizer's state and the summed gradients
are divided between the ranks. The parameters in one row are W1, b1, W2, b2, each row by row, P in all; rank r owns
elements r * P / W to (r + 1) * P / W, whatever tensors these cut through, and holds the Adam moments of these alone
(exp_avg_part, exp_avg_sq_part). It also holds its own samples X_local (t, d_in) with targets y_local (t, d_out), and
parameters of which only rank 0's count: they replace everybody's first.

Each rank takes the gradients of the mean squared error over its own samples, rounded to the dtype. A reduce-scatter
gives rank r the sum, in the dtype, for its part alone, which it divides by W (rounded); it applies Adam (no weight
decay) to its part, and the parts are gathered. Returned are the new W1, b1, W2, b2, the same on all ranks, and the
rank's two new moments; no argument changes.

Adam with bias correction, element by element, in the dtype or wider: m = beta1 m + (1 - beta1) g;
v = beta2 v + (1 - beta2) g g; p = p - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).

The backward pass finishes the gradient of W2 first, so its owners can begin while that of W1 is computed. A good kernel
sums the W contributions to a piece in registers, applies Adam there and stores the new parameters directly into all
peers' results: the gradient never returns to memory, and no peer's parameters are overwritten while it still needs
them.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.mlp_adam import (
    draw_zero_step,
    exact_zero_step,
    layer_sizes,
    published_step,
    why_not_divided,
    zero_step,
)
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # samples: of all ranks, rounded up to a multiple of W; hidden is raised until W divides the parameters
    "tiny": {"samples": 32, "d_in": 16, "hidden": 32, "d_out": 8},
    "paper": {"samples": 1024, "d_in": 256, "hidden": 512, "d_out": 256},
    "real": {"samples": 32768, "d_in": 4096, "hidden": 14336, "d_out": 4096},  # the MLP of Llama-3-8B
    "odd": {"samples": 61, "d_in": 17, "hidden": 37, "d_out": 13},
}


def solution(
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
    if step < 1:
        raise ValueError(f"step counts from 1, not from {step}")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    shapes = [W1.shape, b1.shape, W2.shape, b2.shape]
    part = exp_avg_part.numel()
    if sum(shape.numel() for shape in shapes) != part * world_size:
        raise ValueError(f"moments of {part} elements are not a {world_size}-th of the parameters")

    def flatten(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    def unflatten(flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = flat.split([shape.numel() for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    parameters = flatten(W1, b1, W2, b2)
    dist.broadcast(parameters, src=0)  # rank 0's replace everybody's
    W1, b1, W2, b2 = unflatten(parameters)

    # Forward, mean squared error over the local samples, backward.
    before = torch.nn.functional.linear(X_local, W1, b1)
    h = torch.relu(before)
    out = torch.nn.functional.linear(h, W2, b2)
    d_out = (out - y_local) * (2.0 / out.numel())
    d_before = torch.matmul(d_out, W2).masked_fill(before <= 0, 0.0)
    gradient = flatten(torch.matmul(d_before.t(), X_local), d_before.sum(0), torch.matmul(d_out.t(), h), d_out.sum(0))

    g = torch.empty(part, dtype=gradient.dtype, device=gradient.device)
    dist.reduce_scatter_tensor(g, gradient, op=dist.ReduceOp.SUM)
    g = g / world_size

    # Adam on the part of this rank.
    p = parameters[rank * part : (rank + 1) * part]
    m = exp_avg_part.mul(beta1).add(g, alpha=1 - beta1)
    v = exp_avg_sq_part.mul(beta2).addcmul(g, g, value=1 - beta2)
    root = (v / (1 - beta2**step)).sqrt().add(eps)
    p = p - lr * ((m / (1 - beta1**step)) / root)

    gathered = torch.empty_like(parameters)
    dist.all_gather_into_tensor(gathered, p)
    return (*unflatten(gathered), m, v)


def baseline(
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
    """Gradients are written where they are summed, and Adam is torch's fused one."""
    return zero_step(
        X_local,
        y_local,
        [W1, b1, W2, b2],
        exp_avg_part,
        exp_avg_sq_part,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        step=step,
    )


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    d_in, hidden, d_out, parameters = layer_sizes(size, w)
    rows = -(-size["samples"] // w)
    state = parameters * element_bytes
    moved = (w - 1) / w * 3 * state
    return Cost(
        flops=2 * rows * (2 * d_in * hidden + 3 * hidden * d_out) + 12 * parameters / w,
        hbm_bytes=rows * (d_in + d_out) * element_bytes + 2 * state + 4 * state / w,
        link_sent_bytes=moved,
        link_received_bytes=moved,
        phases=3 if w > 1 else 0,
        switch_sent_bytes=(1 + 1 / w) * state if w > 1 else 0,
        switch_received_bytes=(2 + 1 / w) * state if w > 1 else 0,
        note="an average rank; only the first receives no parameters from another",
        payload_bytes=3 * state,
    )


# Where an update nearly cancels a parameter the error of both stays: with a few elements only, that may be most of them.
# Squares of rounded gradients have twice their relative error.
BIAS = SQUARE = NormGate(tau={torch.bfloat16: 2e-2})

PROBLEM = Problem(
    id=42,
    name="zero2_optimizer_shard_grad",
    source="DeepSpeed ZeRO stage 2",
    taxonomy=Taxonomy(
        parallelism=("fsdp", "dp"),
        layer="optimizer",
        stage=("training-forward", "training-backward", "optimizer"),
        pattern=("broadcast", "reduce-scatter", "all-gather"),
        system="LLM training",
        fusable="MLP forward and backward, Adam on a part",
    ),
    sizes=SIZES,
    inputs=draw_zero_step,
    published=published_step,
    reference=solution,
    exact=exact_zero_step,
    baseline=baseline,
    cost=cost,
    compare=(NormGate(), BIAS, NormGate(), BIAS, NormGate(), SQUARE),
    requires=why_not_divided,
    dtypes=("bf16", "fp32", "fp64"),  # squares of gradients fall below the range of fp16
    version=3,  # samples clear of the kink, real is the whole layer
)
