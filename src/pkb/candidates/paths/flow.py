"""Follows pointers to other ranks' memory through CUDA code, from parameters to the instructions that use them.

A function is analysed once for each way it is called (which of its parameters point to peers), so a helper that copies
serves a local kernel and a communicating one without confusing them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pkb.candidates.paths.cuda import Bind, Call, Function, Parameter
from pkb.candidates.paths.known import MENTIONS, NVLS_NAMES, PASS_THROUGH, POINTER_GETTERS, call_meanings
from pkb.candidates.paths.ptx import instructions, meanings
from pkb.candidates.paths.tokens import CASTS
from pkb.candidates.paths.use import Kind, PathName

_WORD = re.compile(r"\w+|->|::|[^\s\w]")
_STRENGTH: dict[Kind | None, int] = {"peer": 4, "multicast": 3, "table": 2, "local": 1, None: 0}
_OWN = re.compile(r"(?:my_?|self_?|local_?|cur_?)?rank_?|dev_idx|my_?pe|me|myself")
_TABLE_TYPE = re.compile(
    r"\*\s*(?:const\s*|__restrict__\s*)*\*"
    r"|\b(?:u?int64_t|uintptr_t|intptr_t|u64|(?:unsigned )?long long(?: int)?|unsigned long)\s*(?:const\s*)?\*"
    r"|\*\s*\w*\s*\[|\*\s*const\s*\w+\s*\["
)
_HOLDS_POINTER = re.compile(
    r"[*\[]|\bauto\b|64_t|ptr_t|\bu64\b|\blong\b|size_t|vector|array|CUdeviceptr|CUtensorMap|Tensor"
)
_PEER_NAME = re.compile(r"(?:\w*_)?(?:peer|remote)(?:_\w*)?s?")
_MAX_EVENTS = 100_000
_MAX_DEPTH = 40
_PASSES = 4


class Use(NamedTuple):
    path: PathName
    weak: bool
    owner: int
    """Which text, as the unit numbers them."""
    at: int


Context = tuple[Kind | None, ...]


@dataclass
class Unit:
    """All CUDA text of a candidate."""

    functions: dict[str, list[tuple[Function, int]]] = field(default_factory=dict)
    fields: dict[str, Kind] = field(default_factory=dict)
    """Members that hold tables of peers, whatever the object."""
    open_tables: bool = True
    """Does anything in the file give addresses of other ranks? If not, `float**` is a table of its own pointers."""
    kit: bool = False
    kittens: bool = False


class Flow:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._done: dict[tuple[int, Context, bool], frozenset[Use]] = {}
        self._events = 0
        self.contexts: dict[str, set[tuple[Context, bool]]] = {}
        """How each function was called, for whoever asks about one kernel."""

    def run(self, name: str, given: Context = (), *, resolved: bool = False, depth: int = 0) -> frozenset[Use]:
        """What all functions of this name move when their parameters point to these things."""
        found: frozenset[Use] = frozenset()
        for function, owner in self._unit.functions.get(name, ()):
            context = self._with_types(function, given, resolved=resolved, root=depth == 0)
            key = (id(function), context, resolved)
            if key not in self._done:
                self._done[key] = frozenset()  # a recursive call adds nothing new
                if self._events > _MAX_EVENTS or depth > _MAX_DEPTH:
                    continue
                self._events += (
                    1 + len(function.calls) + len(function.binds) + len(function.accesses) + len(function.asms)
                )
                self.contexts.setdefault(name, set()).add((context, resolved))
                self._done[key] = self._analyse(function, owner, context, resolved=resolved, depth=depth)
            found |= self._done[key]
        return found

    def _with_types(self, function: Function, given: Context, *, resolved: bool, root: bool) -> Context:
        """What parameters are by their types, where the caller does not say."""
        by_type = function.kind == "kernel" or root
        kinds: list[Kind | None] = []
        for index, parameter in enumerate(function.parameters):
            kind = given[index] if index < len(given) else None
            if kind is None and by_type and self._unit.open_tables:
                kind = _kind_by_type(parameter, resolved=resolved)
            kinds.append(kind)
        return tuple(kinds)

    def _analyse(
        self, function: Function, owner: int, context: Context, *, resolved: bool, depth: int
    ) -> frozenset[Use]:
        values = _Values(self._unit, function, context)
        found: set[Use] = set()
        for asm in function.asms:
            operands = {str(index): text for index, text in enumerate(asm.operands)}
            operands |= {name: text for name, text in zip(asm.names, asm.operands, strict=True) if name}
            for each in instructions(asm.template):
                of = meanings(each, lambda key: values.kind(operands.get(key, key)), resolved=resolved)  # noqa: B023
                found |= {Use(path, weak, owner, asm.at) for path, weak in of}
        called: set[str] = set()
        for call in function.calls:
            kinds = tuple(values.kind(argument) for argument in call.arguments)
            if call.name in self._unit.functions and call.name != function.name:
                called.add(call.name)
                found |= self.run(call.name, kinds, resolved=resolved, depth=depth + 1)
                continue
            called |= self._launched_by_name(call)
            for name in self._launched_by_name(call):
                at = next((i for i, text in enumerate(call.arguments) if name in text), 0)
                rest = kinds[at + 1 :] if "Ex" in call.name else ()
                found |= self.run(name, rest, resolved=resolved and bool(rest), depth=depth + 1)
            of = call_meanings(
                call, kinds, on_device=function.kind != "host", resolved=resolved, kit=self._unit.kit,
                kittens=self._unit.kittens,
            )  # fmt: skip
            found |= {Use(path, weak, owner, call.at) for path, weak in of}
        if function.kind != "host":  # a host cannot dereference a pointer of a GPU
            for access in function.accesses:
                if values.kind(access.base) == "peer":
                    found.add(Use("sm_load_store", False, owner, access.at))
        for name in function.mentions.keys() & MENTIONS.keys():
            found.add(Use(*MENTIONS[name], owner, function.mentions[name]))
        for name in sorted((function.mentions.keys() & self._unit.functions.keys()) - called - {function.name}):
            found |= self.run(name, resolved=False, depth=depth + 1)  # handed on by name: called somehow
        return frozenset(found)

    def _launched_by_name(self, call: Call) -> set[str]:
        if "Launch" not in call.name:
            return set()
        words = {word for argument in call.arguments for word in _WORD.findall(argument)}
        return words & self._unit.functions.keys()


class _Values:
    """What the names in one function point to."""

    def __init__(self, unit: Unit, function: Function, context: Context) -> None:
        self._unit = unit
        self._env: dict[str, Kind] = dict(unit.fields) if unit.open_tables else {}
        for parameter, kind in zip(function.parameters, context, strict=False):
            if kind is not None and parameter.name:
                self._env[parameter.name] = kind
            else:
                self._env.pop(parameter.name, None)
        maps = [made for call in function.calls if (made := _tensor_map(call)) is not None]
        for _ in range(_PASSES):
            before = dict(self._env)
            for bind in (*function.binds, *maps):
                self._bind(bind)
            if before == self._env:
                break

    def _bind(self, bind: Bind) -> None:
        kind = self.kind(bind.value)
        if kind is None or (bind.type and not _HOLDS_POINTER.search(bind.type)):
            return
        if bind.indexed and kind == "peer":
            kind = "table"
        if _STRENGTH[kind] > _STRENGTH[self._env.get(bind.name)]:
            self._env[bind.name] = kind

    def kind(self, text: str) -> Kind | None:
        words = _WORD.findall(text)
        known = not self._env.keys().isdisjoint(words) or not POINTER_GETTERS.keys().isdisjoint(words)
        if not known and "*" not in text and NVLS_NAMES.isdisjoint(words):
            return None
        best: Kind | None = None
        index = 0
        while index < len(words):
            kind, index = self._kind_at(words, index)
            best = kind if _STRENGTH[kind] > _STRENGTH[best] else best
        if words[:1] == ["*"]:  # the value behind it
            best = "peer" if best == "table" else None if best == "peer" else best
        if best is None and self._unit.open_tables and _casts_to_table(text):
            return "table"
        return best

    def _kind_at(self, words: Sequence[str], index: int) -> tuple[Kind | None, int]:
        """What one word, with the indices behind it, points to; and where to read on."""
        word = words[index]
        if not (word[0].isalpha() or word[0] == "_"):
            return None, index + 1
        if word in CASTS:
            return None, _after_angle(words, index + 1)
        after = _after_angle(words, index + 1) if words[index + 1 : index + 2] == ["<"] else index + 1
        if words[after : after + 1] == ["("]:
            if word in POINTER_GETTERS:
                return POINTER_GETTERS[word], _after_group(words, after)
            own = any(function.returns_pointer for function, _ in self._unit.functions.get(word, ()))
            # The arguments of a call are no part of its result, unless it hands one of them on.
            return None, after if own or word in PASS_THROUGH else _after_group(words, after)
        if word in NVLS_NAMES:
            return "multicast", index + 1
        kind = self._env.get(word)
        return (None, index + 1) if kind is None else _indexed(kind, words, index)


def _indexed(kind: Kind, words: Sequence[str], index: int) -> tuple[Kind | None, int]:
    """`table[i]` is a peer's pointer, `table[i][j]` and `peer[j]` are values, `&peer[j]` is a pointer again."""
    levels, own, at = 0, False, index + 1
    while at < len(words):
        if words[at] == "[":
            end = _after_group(words, at)
            inside = words[at + 1 : end - 1]
            own |= (
                levels == 0
                and bool(inside)
                and (len(inside) == 1 or inside[-2] in (".", "->"))
                and bool(_OWN.fullmatch(inside[-1]))
            )
            levels, at = levels + 1, end
        elif words[at] in (".", "->") and words[at + 1 : at + 2] in (["mc_ptr"], ["mc_ptr_at"]):
            return "multicast", len(words)
        elif words[at] in (".", "->") and words[at + 1 : at + 2]:
            at += 2
        else:
            break
    unary = (
        index > 0
        and words[index - 1] in "&*"
        and (index == 1 or not (words[index - 2].isalnum() or words[index - 2] in ")]"))
    )
    if unary:
        levels += -1 if words[index - 1] == "&" else 1
    if kind == "table":
        own_memory: Kind | None = "local" if own else "peer"
        return ("table" if levels <= 0 else own_memory if levels == 1 else None), at
    return (kind if levels <= 0 else None), at


def _after_group(words: Sequence[str], opening: int) -> int:
    depth = 0
    for index in range(opening, len(words)):
        depth += (words[index] in "([{") - (words[index] in ")]}")
        if depth == 0:
            return index + 1
    return len(words)


def _after_angle(words: Sequence[str], opening: int) -> int:
    depth = 0
    for index in range(opening, min(opening + 40, len(words))):
        depth += (words[index] == "<") - (words[index] == ">")
        if depth <= 0:
            return index + 1
    return opening + 1


def _casts_to_table(text: str) -> bool:
    """An address turned into `T**`."""
    return re.search(r"[<(][^<>()]{0,80}\*\s{0,4}(?:const\s{0,4})?\*\s{0,4}(?:const)?\s{0,4}[>)]", text) is not None


def _kind_by_type(parameter: Parameter, *, resolved: bool) -> Kind | None:
    if _TABLE_TYPE.search(parameter.type):
        return "table"
    if not resolved and "*" in parameter.type and _PEER_NAME.fullmatch(parameter.name):
        return "peer"
    return None


def _tensor_map(call: Call) -> Bind | None:
    """`cuTensorMapEncodeTiled(&map, type, rank, address, ...)` makes the map point where the address does."""
    if not re.match(r"cuTensorMapEncode|encode_tma|encodeTiled", call.name) or len(call.arguments) < 4:
        return None
    names = re.findall(r"[A-Za-z_]\w*", call.arguments[0])
    return Bind("", names[0], call.arguments[3], "[" in call.arguments[0], call.at) if names else None


def join(kinds: Iterable[Kind | None]) -> Kind | None:
    return max(kinds, key=lambda kind: _STRENGTH[kind], default=None)
