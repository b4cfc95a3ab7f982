"""A comparison rule in words, for `pkb show`."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pkb.problems.base import Problem


def describe_comparison(problem: "Problem") -> list[str]:
    """One sentence for each output or mutated argument that has a rule of its own, and what they are compared with."""
    truth = (
        "outputs are compared with the reference computed on arguments widened to float64"
        if problem.truth == "float64"
        else "outputs are compared with the reference in its own dtype"
    )
    sentences = [truth]
    if isinstance(problem.compare, tuple):
        sentences += [f"output {index}: {describe_rule(rule)}" for index, rule in enumerate(problem.compare)]
    else:
        sentences.append(f"every output: {describe_rule(problem.compare)}")
    sentences += [f"argument {name}, changed in place: {describe_rule(rule)}" for name, rule in problem.mutates.items()]
    sentences.append("all other arguments must be unchanged" if problem.mutates else "arguments must be unchanged")
    if problem.returns_input:
        sentences.append("an output may be an argument itself")
    return sentences


def describe_rule(rule: Any) -> str:
    from pkb.problems.compare import TAU, Close, Exact, NormGate

    if isinstance(rule, Exact):
        return "every bit equal"
    if isinstance(rule, NormGate):
        tau = dict(TAU) | dict(rule.tau)
        rms = "its row's or the output's rms, whichever is larger" if rule.by_row else "the output's rms"
        return (
            f"relative Frobenius error at most tau, and no element off by more than {rule.element_factor:g} tau of its "
            f"size plus {rms}; tau is {_limits(tau)}"
        )
    if isinstance(rule, Close):
        words = f"every element within rtol of the truth; rtol is {_limits(rule.rtol)}"
        return words + (f"; atol is {_limits(rule.atol)}" if rule.atol else "")
    name: str = getattr(rule, "__name__", type(rule).__name__)
    text = inspect.getdoc(rule if inspect.isroutine(rule) else type(rule)) or name
    return " ".join(text.partition("\n\n")[0].split())


def _limits(limits: "Mapping[torch.dtype, float]") -> str:
    from pkb.problems.base import DTYPES

    names = {dtype: name for name, dtype in DTYPES.items()}
    return ", ".join(
        f"{limit:g} ({names.get(dtype, str(dtype).removeprefix('torch.'))})" for dtype, limit in limits.items()
    )
