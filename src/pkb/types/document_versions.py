"""Reading verdicts back from JSON, those of older versions too: the one place that knows what older documents look like."""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, cast

from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.failure import FailureKind
from pkb.types.verdict import SCHEMA_VERSION, Evaluation

Part = TypeVar("Part")
OLD_PATTERNS: Mapping[str, Pattern] = {
    "NaN in ": Pattern.NAN,
    "all zeros": Pattern.ZEROS,
    "stale data": Pattern.STALE,
    "this rank's own ": Pattern.OWN_INPUT,
    "a constant factor": Pattern.CONSTANT_FACTOR,
    "off by a constant": Pattern.CONSTANT_OFFSET,
    "a few elements only": Pattern.FEW_ELEMENTS,
    "confined to ": Pattern.SOME_ROWS,
}
OLD_KINDS: Mapping[str, FailureKind] = {
    "SyntaxError": FailureKind.SYNTAX,
    "MissingSolution": FailureKind.NO_SOLUTION,
    "SystemExit": FailureKind.EXIT,
    **{kind.replace("_", " "): kind for kind in FailureKind},
    **{str(kind): kind for kind in FailureKind},
}
"""Of version 1, where a kind was an exception's type, a rule or a few words."""


def current(document: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict as this version writes it. Text that an older one searched for kinds is searched here and nowhere else."""
    found = dict(document)
    if found.get("schema", 1) >= SCHEMA_VERSION:
        return found
    if isinstance(found.get("mismatch"), Mapping):
        found["mismatch"] = _mismatch(found["mismatch"])
    if isinstance(found.get("failure"), Mapping):
        found["failure"] = _failure(found["failure"], str(found.get("verdict")))
    return found | {"schema": SCHEMA_VERSION}


def _mismatch(old: Mapping[str, Any]) -> dict[str, Any]:
    parts = str(old.get("pattern") or "").split("; ")
    patterns = [pattern for part in parts for start, pattern in OLD_PATTERNS.items() if part.startswith(start)]
    if parts[0].startswith("rank") and parts[0].endswith(" only"):
        patterns.insert(0, Pattern.SOME_RANKS)
    what = str(old.get("what") or "")
    difference = DifferenceKind.VALUES if what == "values differ" else DifferenceKind.STRUCTURE
    if "should have shape" in what or "wrong shape" in what:
        difference = DifferenceKind.SHAPE
    return {"amount": None, "argument": "", "difference": difference, "patterns": patterns} | dict(old)


def _failure(old: Mapping[str, Any], verdict: str) -> dict[str, Any]:
    if "name" in old:
        return dict(old)
    name = str(old.get("kind") or "")
    others = {
        "rejected": FailureKind.STATIC_RULE,
        "compile_error": FailureKind.COMPILER,
        "harness_error": FailureKind.HARNESS,
    }
    kind = OLD_KINDS.get(name) or others.get(verdict, FailureKind.EXCEPTION)
    spelt = name in (kind, kind.replace("_", " "))
    return dict(old) | {"kind": kind, "name": "" if spelt else name}


def read_evaluation(document: Mapping[str, Any]) -> Evaluation:
    """The evaluation that `to_dict` wrote; what a document of an older version lacks has its default."""
    evaluation: Evaluation = _decode(Evaluation, current(document))
    return evaluation


def read_part(kind: type[Part], value: Any) -> Part | None:
    """A part of a document, such as its `race_proof`; a `ValueError`, `TypeError` or `KeyError` where it is none."""
    return None if value is None else cast(Part, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        known = {part.name: part for part in fields(kind) if part.init}
        if lacking := [n for n, p in known.items() if n not in value and p.default is p.default_factory is MISSING]:
            raise ValueError(f"a {kind.__name__} without {', '.join(lacking)}")
        return kind(**{name: _decode(hints[name], value[name]) for name in known if name in value})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(arguments, value)
    if origin is tuple:
        inner = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_decode(part, item) for part, item in zip(inner, value, strict=True))
    if origin is dict:
        return {name: _decode(arguments[1], item) for name, item in value.items()}
    if _is_enum(kind):
        return kind(value)
    return value


def _decode_union(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        return None
    structured = [kind for kind in kinds if is_dataclass(kind) or typing.get_origin(kind) is tuple or _is_enum(kind)]
    return _decode(structured[0], value) if structured else value


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
