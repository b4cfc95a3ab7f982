"""Runs a problem's baseline on real ranks and compares it there with the truth, as a candidate is compared."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from harness import ratio_of
from on_ranks import SECRET, Arguments, Outputs, widened

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.draw import Draw, GroupRef
from rank_groups import own_groups


@dataclass(frozen=True)
class Run:
    """One call on one rank."""

    ratio: float
    """Error over tolerance."""
    fault: str
    """What else is wrong, or empty."""


def drawn(problem: Problem, rank: int, world_size: int, size: str, dtype: str, call: int, kind: str) -> Arguments:
    mine = own_groups(problem.layout, rank, world_size)
    draw = Draw(
        secret=SECRET, call=call, rank=rank, world_size=world_size, size=problem.sizes[size],
        dtype=DTYPES[dtype], device=torch.device("cpu"), layout=problem.layout, kind=kind,
    )  # fmt: skip
    given = problem.inputs(draw)
    return {name: mine[value.axis] if isinstance(value, GroupRef) else value for name, value in given.items()}


def results(problem: Problem, returned: Any, arguments: Arguments) -> Outputs:
    return [*tensors_in(returned), *tensors_in([arguments[name] for name in problem.mutates])]


def run_baseline(
    rank: int, world_size: int, number: int, size: str, dtype: str, calls: tuple[tuple[int, str], ...]
) -> list[Run]:
    """For each call, by its number and kind."""
    problem = get(number)
    assert problem.baseline is not None
    runs = []
    for call, kind in calls:
        case = (problem, rank, world_size, size, dtype, call, kind)
        pristine, arguments = drawn(*case), drawn(*case)
        native = results(problem, problem.reference(*(own := drawn(*case)).values()), own)
        if problem.truth == "native":
            truth = native
        else:
            wide = {name: widened(value) for name, value in drawn(*case).items()}
            truth = results(problem, problem.reference(*wide.values()), wide)
        returned = tensors_in(problem.baseline(*arguments.values()))
        outputs = results(problem, returned, arguments)
        runs.append(
            Run(
                ratio_of(problem, pristine, rank, world_size, truth, outputs, dtype),
                fault_of(problem, pristine, arguments, returned, outputs, native),
            )
        )
        dist.barrier()
    return runs


def fault_of(
    problem: Problem, pristine: Arguments, arguments: Arguments, returned: Outputs, outputs: Outputs, native: Outputs
) -> str:
    """What the comparison of values does not see."""
    for name in arguments.keys() - problem.mutates.keys():
        pairs = zip(tensors_in(pristine[name]), tensors_in(arguments[name]), strict=True)
        if any(not torch.equal(bits(was), bits(now)) for was, now in pairs):
            return f"argument {name} was changed"
    if [t.dtype for t in outputs] != [t.dtype for t in native]:
        return f"dtypes {[t.dtype for t in outputs]} for {[t.dtype for t in native]}"
    given = {t.untyped_storage().data_ptr() for t in tensors_in(list(arguments.values())) if t.numel()}
    if not problem.returns_input and any(t.untyped_storage().data_ptr() in given for t in returned if t.numel()):
        return "an argument is returned"
    return ""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def run_with_many_ties(rank: int, world_size: int, number: int) -> float:
    """The largest difference to the reference where more logits tie with the k-th than any rank sends."""
    problem = get(number)
    assert problem.baseline is not None
    arguments = drawn(problem, rank, world_size, "odd", "bf16", 0, "top_k_only")
    logits = arguments["vocab_parallel_logits"]
    arguments["vocab_parallel_logits"] = logits.clamp(max=3.0).mul_(0.5).round_()
    got, want = (function(*arguments.values()) for function in (problem.baseline, problem.reference))
    assert torch.equal(got.isfinite(), want.isfinite())
    return float((got - want).nan_to_num(nan=0.0).abs().max())
