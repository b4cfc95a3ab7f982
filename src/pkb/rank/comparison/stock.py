"""Checks a problem's other functions (baseline, exact) against what they must return."""

import math
import os
from contextlib import suppress
from typing import Any

import torch

from pkb.problems.base import Problem
from pkb.rank.comparison.truth import outcome, structure_difference, widen
from pkb.rank.execute import Arguments, aliases, share_memory
from pkb.rank.trees import BadTree, copied, describe, pack
from pkb.types.difference import DifferenceKind
from pkb.types.protocol.commands import CheckBaseline, CheckExact, Compare
from pkb.types.protocol.limits import clean
from pkb.types.protocol.replies import Comparison, Difference
from pkb.types.protocol.trees import Node

EXACT_ERROR = 1e-9
"""What two orders of summation in float64 may differ by, relative to the reference's norm; a step in float32 is at 1e-7."""


def check_baseline(rank: Any, command: CheckBaseline) -> Comparison:
    """Makes calls in a row and compares them when all are over; returns the worst."""
    problem: Problem = rank.registry.get(command.spec.problem)
    packed, refused = _outputs(rank, problem, command)
    results: list[Comparison] = []
    try:
        for slot in command.slots:
            rank.find_truths((slot,))
            if not refused:
                results.append(rank.compare(Compare(slot, packed[slot][0]), packed[slot][1]))
            del rank.truths[slot]
    finally:
        for _, fd in packed.values():
            os.close(fd)
    if refused:
        return Comparison(None, Difference("the result", clean(refused, 500), DifferenceKind.STRUCTURE))
    for result in results:
        if result.difference is not None:
            return result
    digests = [digest for result in results for digest in result.digest]
    return Comparison(max((result.ratio or 0.0 for result in results), default=0.0), None, tuple(digests))


def _outputs(rank: Any, problem: Problem, command: CheckBaseline) -> tuple[dict[int, tuple[Node, int]], str]:
    """By call, in host memory: a truth may take all the room there is. And what is wrong with them before any is compared."""
    function, precision = problem.function(command.function), _precision()
    held: dict[int, tuple[Arguments, dict[str, Any]]] = {}
    refused = ""
    for slot in command.slots:
        rank.draws[slot] = command.spec
        values: Arguments = copied(rank.draw_arguments(command.spec, slot), group=rank.group)
        kept = {name: value for name, value in values.items() if name not in problem.mutates}
        before = rank.seals.digest(kept)
        held[slot] = values, outcome(function, problem, values)
        if rank.seals.digest(kept) != before:
            refused = "it changes an argument that this problem leaves alone"
    if _precision() != precision:
        refused = "it leaves another precision of float32 products behind it"
    try:
        packed = {slot: pack(output) for slot, (_, output) in held.items()}
        if not problem.returns_input:
            results = [output["returned"] for _, output in held.values()]
            shared = [name for values, output in held.values() for name in aliases(output["returned"], values)]
            if shared:
                refused = f"its result shares the memory of its argument {shared[0]}"
            elif any(share_memory(results)):
                refused = "a later call overwrites its result: they share memory"
    except BadTree as error:
        return {}, f"its result is {error}"
    return packed, refused


def check_exact(rank: Any, command: CheckExact) -> Comparison:
    """Against the reference on the same arguments: as drawn for structure, shapes and dtypes; in float64 for the values."""
    problem: Problem = rank.registry.get(command.spec.problem)
    exact = problem.exact
    assert exact is not None

    def outcomes(*, wide: bool) -> list[tuple[Node, list[torch.Tensor]]]:
        found = []
        for function in (problem.reference, exact):
            values = rank.with_groups(rank.draw_arguments(command.spec, command.slot))
            found.append(describe(outcome(function, problem, widen(values) if wide else values)))
        return found

    (native, _), (by_blocks, _) = outcomes(wide=False)
    (_, want), (_, got) = outcomes(wide=True)
    if unlike := structure_difference(native, by_blocks, where="its outcome"):
        return Comparison(None, Difference("exact", clean(f"{unlike.where} {unlike.words}", 500), unlike.kind))
    if len(want) != len(got):
        return Comparison(None, Difference("exact", "its structure in float64 is another", DifferenceKind.STRUCTURE))
    ratio = max((_error(a, b) / EXACT_ERROR for a, b in zip(want, got, strict=True)), default=0.0)
    if ratio <= 1:
        return Comparison(ratio, None)
    words = "its values in float64 are not the reference's"
    return Comparison(ratio if math.isfinite(ratio) else None, Difference("exact", words, DifferenceKind.VALUES))


def _error(want: torch.Tensor, got: torch.Tensor) -> float:
    """Relative to the norm; of what is no number with a point, whether it is the same."""
    got = got.to(want.device)
    if want.dtype != got.dtype or want.shape != got.shape:
        return math.inf
    if not want.is_floating_point():
        return 0.0 if torch.equal(want, got) else math.inf
    same = (want == got) | (want.isnan() & got.isnan())
    difference = float(torch.where(same, torch.zeros_like(want), want - got).norm())
    size = float(want.nan_to_num(posinf=0.0, neginf=0.0).norm())
    error = 0.0 if difference == 0 else difference / size if size else math.inf
    return math.inf if math.isnan(error) else error


def _precision() -> list[object]:
    """Of products in float32, which a baseline may change for itself and must put back: references are run after it."""
    found: list[object] = []
    for read in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        with suppress(RuntimeError):  # torch's older and newer settings contradict each other: one of them was changed
            found.append(read())
    return found
