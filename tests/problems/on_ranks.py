"""Arguments of all ranks, and references run on real ranks (gloo): the part of the harness that ranks import."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.draw import Draw, GroupRef
from pkb.rank.comparison.null_candidates import communication_removed
from rank_groups import own_groups
from world import World

Array = NDArray[Any]
Arguments = dict[str, Any]
Outputs = list[torch.Tensor]
"""What a rank returns, flattened, followed by the tensors of the arguments that it changes."""
Worlds = Callable[[int], World]

SECRET = b"models of the problems"


def draw_for(number: int, *, rank: int, world_size: int, size: str, dtype: str, call: int, kind: str = "") -> Draw:
    problem = get(number)
    return Draw(
        secret=SECRET, call=call, rank=rank, world_size=world_size, size=problem.sizes[size],
        dtype=DTYPES[dtype], device=torch.device("cpu"), layout=problem.layout, kind=kind,
    )  # fmt: skip


def all_arguments(number: int, world_size: int, size: str, dtype: str, call: int, kind: str = "") -> list[Arguments]:
    """What every rank is given; process groups are still names."""
    draw = partial(draw_for, number, world_size=world_size, size=size, dtype=dtype, call=call, kind=kind)
    return [get(number).inputs(draw(rank=rank)) for rank in range(world_size)]


def joined(ranks: list[Arguments], name: str, dim: int = 0) -> torch.Tensor:
    """One tensor of all ranks' parts, in float64."""
    return torch.cat([wide(arguments[name]) for arguments in ranks], dim=dim)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()


def arrays(ranks: list[Arguments], name: str) -> list[Array]:
    """One argument of every rank as numpy float64."""
    return [arguments[name].double().numpy() for arguments in ranks]


# On the ranks.


def ready_arguments(number: int, rank: int, world_size: int, size: str, dtype: str, call: int) -> Arguments:
    """One rank's arguments, with its process groups in place."""
    problem = get(number)
    drawn = problem.inputs(draw_for(number, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call))
    mine = own_groups(problem.layout, rank, world_size)
    return {name: mine[value.axis] if isinstance(value, GroupRef) else value for name, value in drawn.items()}


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return wide(value) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    return type(value)(map(widened, value)) if type(value) in (list, tuple) else value


def run_reference(
    rank: int, world_size: int, number: int, size: str, dtype: str, calls: tuple[int, ...], widen: bool = False
) -> list[dict[str, Any]]:
    """For each call the outputs, those without communication (None if that raises), and how the outputs are stored."""
    problem, results = get(number), []
    for call in calls:
        arguments = ready_arguments(number, rank, world_size, size, dtype, call)
        if widen:
            arguments = {name: widened(value) for name, value in arguments.items()}
        fixed = tensors_in([value for name, value in arguments.items() if name not in problem.mutates])
        before = [tensor.clone() for tensor in fixed]
        returned = tensors_in(problem.reference(**arguments))
        for was, now in zip(before, fixed, strict=True):
            assert torch.equal(_bits(was), _bits(now)), "the reference changed an argument"
        places = [{t.untyped_storage().data_ptr() for t in some if t.numel()} for some in (fixed, returned)]
        results.append(
            {
                "outputs": _portable([*returned, *tensors_in([arguments[name] for name in problem.mutates])]),
                "silent": None if widen else _without_communication(problem, rank, world_size, size, dtype, call),
                "contiguous": all(tensor.is_contiguous() for tensor in returned),
                "shares": bool(places[0] & places[1]),
            }
        )
    return results


def _without_communication(
    problem: Problem, rank: int, world_size: int, size: str, dtype: str, call: int
) -> Outputs | None:
    arguments = ready_arguments(problem.id, rank, world_size, size, dtype, call)
    with communication_removed():
        try:
            returned = problem.reference(**arguments)
        except (RuntimeError, ValueError, IndexError):
            return None
    return _portable([*tensors_in(returned), *tensors_in([arguments[name] for name in problem.mutates])])


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _portable(tensors: list[torch.Tensor]) -> Outputs:
    """Copies that pickle can send: it does not know float8."""
    return [t.clone().view(torch.uint8) if t.dtype is torch.float8_e4m3fn else t.clone() for t in tensors]
