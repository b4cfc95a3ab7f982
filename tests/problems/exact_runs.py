"""Runs a problem's exact truth and its reference on the same arguments: how far apart they are, and what memory each took."""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from on_ranks import widened
from stock_runs import drawn, results
from torch.utils._python_dispatch import TorchDispatchMode

from pkb.problems import get
from pkb.problems.base import tensors_in


@dataclass(frozen=True)
class Apart:
    """One call on one rank."""

    native: bool
    """Whether shapes and dtypes on the arguments as drawn are the reference's."""
    error: float
    """In float64: the largest distance relative to the norm, over all outputs."""
    exact_bytes: int
    reference_bytes: int
    """The most that tensors took in float64, the arguments included."""


class LiveBytes(TorchDispatchMode):
    """Adds up the storages of all tensors that operators return, for as long as they live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.seen: set[int] = set()

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.seen:
            return
        self.seen.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tensors_in(found):
            self.add(tensor)
        return found


def run_exact(rank: int, world_size: int, number: int, size: str, calls: tuple[tuple[int, str], ...]) -> list[Apart]:
    """For each call, by its number and kind."""
    problem = get(number)
    assert problem.exact is not None
    found = []
    for call, kind in calls:
        case = (problem, rank, world_size, size, problem.default_dtype, call, kind)
        kinds, wide, most = [], [], []
        for function in (problem.reference, problem.exact):
            native = drawn(*case)
            outputs = results(problem, function(*native.values()), native)
            kinds.append([(t.shape, t.dtype) for t in outputs])
            arguments = {name: widened(value) for name, value in drawn(*case).items()}
            with LiveBytes() as live:
                for tensor in tensors_in(list(arguments.values())):
                    live.add(tensor)
                wide.append(results(problem, function(*arguments.values()), arguments))
            most.append(live.most)
        error = max((distance(want, got) for want, got in zip(*wide, strict=True)), default=0.0)
        found.append(Apart(kinds[0] == kinds[1], error, most[1], most[0]))
        dist.barrier()
    return found


def distance(want: torch.Tensor, got: torch.Tensor) -> float:
    assert want.dtype is got.dtype
    assert want.shape == got.shape
    same = (want == got) | (want.isnan() & got.isnan())
    apart = torch.where(same, 0.0, want - got).norm()
    return float(apart) / max(float(want.nan_to_num(posinf=0.0, neginf=0.0).norm()), 1e-300) if bool(apart) else 0.0
