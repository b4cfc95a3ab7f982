"""A problem as a prompt tells it: statement, reference with its imports, groups, arguments, tolerance in words.

Nothing here may help a candidate to foresee the judge: values are drawn from public words, never from a secret, and what is
drawn anew at every call is marked as an example.
"""

import ast
import inspect
import re
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import torch

from pkb.problems.base import DTYPES, KNOWN_SIZES, Problem
from pkb.problems.compare import rule_words
from pkb.problems.draw import Draw, GroupRef
from pkb.problems.layouts import groups

_WORDS = (b"one", b"two", b"three", b"four", b"five", b"six")
"""Arguments are drawn from each of these: what differs between them varies from call to call. Enough to notice a coin."""
_LONG_NUMBER = re.compile(r"-?\d+\.\d{5,}(e-?\d+)?")
_LONGEST = 300
"""Characters of one argument's description; a list of a hundred tensors is cut."""


def problem_facts(problem: Problem, *, ranks: int, size: str, dtype: str) -> dict[str, Any]:
    """What the templates know as `problem`."""
    return {
        "id": problem.id,
        "name": problem.name,
        "stem": problem.stem,
        "summary": problem.summary,
        "docstring": problem.docstring.strip(),
        "source": problem.source,
        "taxonomy": asdict(problem.taxonomy),
        "signature": str(problem.signature),
        "reference": reference_with_imports(problem),
        "world_sizes": list(problem.world_sizes),
        "rank_note": _rank_note(problem),
        "groups": _groups(problem.layout, ranks),
        "cases": _cases(problem, ranks=ranks, timed=size, dtype=dtype),
        "mutates": list(problem.mutates),
        "returns_input": problem.returns_input,
        "tolerance": tolerance_in_words(problem),
    }


def _rank_note(problem: Problem) -> str:
    """All sizes that fewer numbers of ranks fit: the other number is not tried at the size that is timed."""
    fitting: dict[tuple[int, ...], list[str]] = {}
    for name in (name for name in KNOWN_SIZES if name in problem.sizes):
        ranks = tuple(n for n in problem.world_sizes if problem.requires(problem.sizes[name], n) is None)
        fitting.setdefault(ranks, []).append(name)
    fitting.pop(problem.world_sizes, None)
    parts = [f"{_comma(ranks)} at size{'s' * (len(names) > 1)} {_comma(names)}" for ranks, names in fitting.items()]
    return f" ({'; '.join(parts)})" if parts else ""


def reference_with_imports(problem: Problem) -> str:
    """The reference as a file that could be run: the imports of its module that it uses, then its source."""
    source = problem.reference_source.rstrip()
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    module = inspect.getmodule(problem.reference)
    lines = []
    for statement in ast.parse(inspect.getsource(module)).body if module is not None else []:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] == "pkb":
            continue  # of the benchmark, not of the reference
        names = [a for a in statement.names if (a.asname or a.name.partition(".")[0]) in used]
        if names:
            statement.names = names
            lines.append(ast.unparse(statement))
    return "\n".join(lines) + "\n\n\n" + source


def tolerance_in_words(problem: Problem) -> list[str]:
    """As much as `pkb show` tells a person, and no more."""
    sentences = [
        "The result is compared with the reference computed in float64."
        if problem.truth == "float64"
        else "The result is compared with the reference's own result."
    ]
    if isinstance(problem.compare, tuple):
        numbered = [(f"Output {index}", rule_words(rule)) for index, rule in enumerate(problem.compare)]
    else:
        numbered = [("Every output", rule_words(problem.compare))]
    numbered += [(f"Argument `{name}` afterwards", rule_words(rule)) for name, rule in problem.mutates.items()]
    return sentences + [_joined(list(same)) for _, same in groupby(numbered, key=lambda pair: pair[1])]


def _joined(same: list[tuple[str, str]]) -> str:
    """`Output 1` to `Output 8` with one rule are one line."""
    subjects = [subject for subject, _ in same]
    who = subjects[0] if len(subjects) == 1 else f"{subjects[0]} to {subjects[-1][0].lower()}{subjects[-1][1:]}"
    return f"{who}: {same[0][1].rstrip('.')}."


def _groups(layout: str, ranks: int) -> list[dict[str, str]]:
    found = []
    for axis, members in groups(layout, ranks).items():
        lists = " ".join(str(group) for group in members)
        words = f"all ranks, {members[0]}" if axis == "world" else f"{len(members)} of {len(members[0])} ranks: {lists}"
        found.append({"name": axis, "words": words})
    return found


def _cases(problem: Problem, *, ranks: int, timed: str, dtype: str) -> list[dict[str, Any]]:
    """Every size of the problem. The timed one and `odd` are drawn on all ranks; for the others one rank is enough, since the
    same arguments differ by rank or from call to call there.
    """
    runs = [name for name in (timed, "odd") if problem.why_not(name, ranks, dtype) is None]
    drawn = {name: _draw(problem, name, ranks=ranks, dtype=dtype) for name in runs}
    cases = []
    for name in (name for name in KNOWN_SIZES if name in problem.sizes):
        why_not = problem.why_not(name, ranks, dtype)
        arguments: list[dict[str, str]] = []
        if why_not is None:
            case = drawn.get(name) or replace(
                drawn[timed], first=[_arguments(problem, name, _WORDS[0], rank=0, ranks=ranks, dtype=dtype)]
            )
            arguments = [
                {
                    "name": argument,
                    "words": case.words(argument) + " (changed in place)" * (argument in problem.mutates),
                }
                for argument in case.first[0]
            ]
        numbers = _comma(f"{key}={value}" for key, value in problem.sizes[name].items())
        cases.append({"name": name, "numbers": numbers, "why_not": why_not or "", "arguments": arguments})
    return cases


@dataclass(frozen=True)
class _Drawn:
    """The arguments of a size in words."""

    first: list[dict[str, str]]
    """On each rank, from the first of the public words."""
    varying: frozenset[str]
    """Arguments that are drawn anew at every call, as far as words tell: shapes and plain values, not contents."""
    differing: frozenset[str]

    def words(self, name: str) -> str:
        per_rank = [arguments[name] for arguments in self.first]
        if name in self.varying:
            example = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", per_rank[0])
            differs = " on rank 0; differs by rank, and" if name in self.differing else ";"
            return f"for example {example}{differs} varies from call to call"
        runs = [(text, [rank for rank, t in enumerate(per_rank) if t == text]) for text in dict.fromkeys(per_rank)]
        if len(runs) > 1:
            return "; ".join(f"{text} on rank{'s' * (len(which) > 1)} {_comma(which)}" for text, which in runs)
        return per_rank[0] + (" on rank 0; differs by rank" if name in self.differing else "")


def _draw(problem: Problem, size: str, *, ranks: int, dtype: str) -> _Drawn:
    first = [_arguments(problem, size, _WORDS[0], rank=rank, ranks=ranks, dtype=dtype) for rank in range(ranks)]
    again = [_arguments(problem, size, words, rank=0, ranks=ranks, dtype=dtype) for words in _WORDS[1:]]
    return _Drawn(
        first,
        varying=frozenset(name for name in first[0] if any(other[name] != first[0][name] for other in again)),
        differing=frozenset(name for name in first[0] if any(other[name] != first[0][name] for other in first)),
    )


def _arguments(problem: Problem, size: str, words: bytes, *, rank: int, ranks: int, dtype: str) -> dict[str, str]:
    """On the meta device: shapes without memory."""
    draw = Draw(
        secret=words, call=0, rank=rank, world_size=ranks, size=problem.sizes[size], dtype=DTYPES[dtype],
        device=torch.device("meta"), layout=problem.layout,
    )  # fmt: skip
    return {name: _cut(_value(value)) for name, value in problem.inputs(draw).items()}


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        layout = "" if value.layout is torch.strided else f" {_short(value.layout)}"
        notes = "" if layout or value.is_contiguous() else f", not contiguous: strides {list(value.stride())}"
        notes += ", requires grad" if value.requires_grad else ""
        return f"{_short(value.dtype)}{layout} {list(value.shape)}{notes}"
    if isinstance(value, GroupRef):
        return f"process group `{value.axis}`"
    if isinstance(value, torch.nn.Module):
        parameters = _comma(f"{name} {_value(p.detach())}" for name, p in value.named_parameters())
        return f"torch.nn.{type(value).__name__} with {parameters}"
    if isinstance(value, dict):
        return "dict {" + _comma(f"{key!r}: {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        if all(isinstance(item, int | float | str | None) for item in value):
            return f"{type(value).__name__} {list(value)}"
        runs = [(words, len(list(same))) for words, same in groupby(_value(item) for item in value)]
        return f"{type(value).__name__} [" + _comma(w if n == 1 else f"{n} x {w}" for w, n in runs) + "]"
    return repr(value)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else words[:_LONGEST].rsplit(",", 1)[0] + ", ..."


def _short(kind: Any) -> str:
    return str(kind).removeprefix("torch.")


def _comma(items: Any) -> str:
    return ", ".join(map(str, items))
