"""The delta rule by chunks, for baselines: a few long steps of GEMMs for all heads instead of one for each chunk.

A chunk of positions writes u = from_values - from_state S into the state S before it, reads query S + scores u, and leaves
decay * S + write^T u. That is affine in S, so chunks are divided into stretches that are walked side by side: once to find each
stretch's map [M | N], and, when the states before all stretches are known, once more for the outputs.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch


class Chunks(NamedTuple):
    """All of shape (batch, heads, chunks, ...)."""

    decay: torch.Tensor
    """(..., key or 1, 1), of the state from the chunk's start to its end."""
    write: torch.Tensor
    """(..., positions, key)."""
    from_state: torch.Tensor
    """(..., positions, key)."""
    from_values: torch.Tensor
    """(..., positions, value)."""
    query: torch.Tensor
    """(..., positions, key)."""
    scores: torch.Tensor
    """(..., positions, positions)."""

    def stretches(self) -> "Chunks":
        """(batch, heads, stretches, chunks of a stretch, ...); chunks added at the end neither decay nor write."""
        chunks = self.write.shape[2]
        length = math.isqrt(chunks - 1) + 1
        missing = -chunks % length

        def cut(tensor: torch.Tensor, fill: float) -> torch.Tensor:
            padding = (0, 0, 0, 0, 0, missing)
            padded = torch.nn.functional.pad(tensor, padding, value=fill) if missing else tensor
            return padded.unflatten(2, (-1, length))

        return Chunks(cut(self.decay, 1.0), *(cut(tensor, 0.0) for tensor in self[1:]))


def tf32_for_bf16(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Float32 products in there are TF32 where the result is bf16. With operands rounded like that on a CPU, fp16 results take
    half of what is tolerated, and float32 ones are off by five times as much as is."""

    @wraps(function)
    def call(first: torch.Tensor, *others: Any) -> torch.Tensor:
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if first.dtype is torch.bfloat16 else precision)
        try:
            return function(first, *others)
        finally:
            torch.set_float32_matmul_precision(precision)

    return call


def solve(
    keys: torch.Tensor, decayed_keys: torch.Tensor, products: torch.Tensor, values: torch.Tensor, rate: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """From_state and from_values: the updates u of a chunk satisfy (I + A) u = rate (values - decayed_keys S), where A is
    rate times the products of its keys, each decayed from one position to a later one."""
    right = torch.cat([rate * values, rate * decayed_keys], dim=-1)
    solved = torch.linalg.solve_triangular((rate * products).tril(-1), right, upper=False, unitriangular=True)
    from_values, from_state = solved.split([values.shape[-1], keys.shape[-1]], dim=-1)
    return from_state, from_values


def maps_of(stretches: Chunks) -> tuple[torch.Tensor, torch.Tensor]:
    """What happens to a state before each stretch, (batch, heads, stretches, key, key + value), and after all of them."""
    batch, heads, count, length, _, key = stretches.write.shape
    values = torch.nn.functional.pad(stretches.from_values, (key, 0))
    one = values.new_zeros(batch, heads, key, values.shape[-1])
    one[..., :key] = torch.eye(key, dtype=values.dtype, device=values.device)
    maps = one[:, :, None].expand(-1, -1, count, -1, -1)
    for chunk in range(length):
        update = values[:, :, :, chunk] - torch.matmul(stretches.from_state[:, :, :, chunk], maps)
        maps = stretches.decay[:, :, :, chunk] * maps + torch.matmul(stretches.write[:, :, :, chunk].mT, update)
    before, total = torch.empty_like(maps), one
    for stretch in range(count):
        before[:, :, stretch] = total
        total = torch.matmul(maps[:, :, stretch, :, :key], total)
        total[..., key:] += maps[:, :, stretch, :, key:]
    return before, total


def outputs_of(stretches: Chunks, before: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
    """(batch, heads, positions, value) for the state before the first of them; None: zero."""
    key, length = stretches.write.shape[-1], stretches.write.shape[3]
    states = before[..., key:]
    if state is not None:
        states = states + torch.matmul(before[..., :key], state[:, :, None])
    out = torch.empty_like(stretches.from_values)
    for chunk in range(length):
        update = stretches.from_values[:, :, :, chunk] - torch.matmul(stretches.from_state[:, :, :, chunk], states)
        read = torch.matmul(stretches.query[:, :, :, chunk], states)
        out[:, :, :, chunk] = read + torch.matmul(stretches.scores[:, :, :, chunk], update)
        states = stretches.decay[:, :, :, chunk] * states + torch.matmul(stretches.write[:, :, :, chunk].mT, update)
    return out.flatten(2, 4)


# The same in fewer passes over the maps and states, which are changed where they lie.


def maps_in_place(stretches: Chunks) -> tuple[torch.Tensor, torch.Tensor]:
    """As `maps_of`."""
    batch, heads, count, length, _, key = stretches.write.shape
    width = key + stretches.from_values.shape[-1]
    one = torch.eye(key, width, dtype=stretches.write.dtype, device=stretches.write.device)
    maps = one.repeat(batch * heads * count, 1, 1)
    for chunk in range(length):
        decay, write, from_state, from_values = (tensor[:, :, :, chunk].flatten(0, 2) for tensor in stretches[:4])
        excess = torch.bmm(from_state, maps)
        excess[..., key:] -= from_values
        maps.mul_(decay).baddbmm_(write.mT, excess, alpha=-1)
    maps = maps.view(batch, heads, count, key, width)
    before, total = torch.empty_like(maps), one.expand(batch, heads, key, width)
    for stretch in range(count):
        before[:, :, stretch] = total
        total = torch.matmul(maps[:, :, stretch, :, :key], total)
        total[..., key:] += maps[:, :, stretch, :, key:]
    return before, total


def outputs_in_place(stretches: Chunks, before: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
    """As `outputs_of`."""
    key, length = stretches.write.shape[-1], stretches.write.shape[3]
    states = before[..., key:].flatten(0, 2)
    if state is not None:
        states = (before[..., key:] + torch.matmul(before[..., :key], state[:, :, None])).flatten(0, 2)
    states = states.contiguous()
    out = torch.empty(stretches.from_values.shape, dtype=states.dtype, device=states.device)
    for chunk in range(length):
        decay, write, from_state, from_values, query, scores = (
            tensor[:, :, :, chunk].flatten(0, 2) for tensor in stretches
        )
        excess = torch.bmm(from_state, states).sub_(from_values)
        read = torch.bmm(query, states).baddbmm_(scores, excess, alpha=-1)
        out[:, :, :, chunk] = read.view(out[:, :, :, chunk].shape)
        states.mul_(decay).baddbmm_(write.mT, excess, alpha=-1)
    return out.flatten(2, 4)
