"""A perceptron with one hidden layer, trained with Adam whose moments are divided between the ranks (ZeRO)."""

import torch

from pkb.problems.base import Size
from pkb.problems.draw import Arguments, Draw


def layer_sizes(size: Size, world_size: int) -> tuple[int, int, int, int]:
    """Inputs, hidden units, outputs and the number of parameters, a multiple of W where that can be."""
    d_in, hidden, d_out = size["d_in"], size["hidden"], size["d_out"]
    counts = [h * (d_in + 1) + d_out * (h + 1) for h in range(hidden, hidden + world_size)]
    extra = next((i for i, count in enumerate(counts) if count % world_size == 0), 0)
    return d_in, hidden + extra, d_out, counts[extra]


def draw_zero_step(draw: Draw) -> Arguments:
    """This rank's samples, all parameters, and the Adam moments of the W-th of the parameters that the rank owns."""
    d_in, hidden, d_out, parameters = layer_sizes(draw.size, draw.world_size)
    rows, part = -(-draw.size["samples"] // draw.world_size), parameters // draw.world_size
    choice = draw.random("hyperparameters", key="all")
    beta1, beta2, step = choice.choice([0.8, 0.9]), choice.choice([0.95, 0.99, 0.999]), choice.randrange(1, 8)

    # Every rank's samples have a mean of their own, or the gradients of all ranks would be nearly the same.
    x = draw.normal("X", (rows, d_in)).add_(draw.normal("mean of X", (1, d_in), scale=0.5))
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


def why_not_divided(size: Size, world_size: int) -> str | None:
    if layer_sizes(size, world_size)[3] % world_size:
        return f"with {size['d_in']} inputs and {size['d_out']} outputs, {world_size} never divides the parameters"
    return None
