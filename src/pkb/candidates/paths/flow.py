"""Follows pointers to other ranks' memory through CUDA code, from parameters to the instructions that use them.

A function is analysed once for each way it is called (which of its parameters point to peers), so a helper that copies
serves a local kernel and a communicating one without confusing them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pkb.candidates.paths import known, syntax
from pkb.candidates.paths.known import CallContext, CudaUse, Kind, Meaning, instructions, meanings
from pkb.candidates.paths.syntax import CudaFunction, Node, arguments_of, callee, text_of, walk

_STRENGTH: dict[Kind | None, int] = {"peer": 4, "multicast": 3, "table": 2, "local": 1, None: 0}
_OWN = re.compile(r"(?:.*(?:\.|->))?(?:(?:my_?|self_?|local_?|cur_?)?rank_?|dev_idx|my_?pe|me|myself)")
_TABLE_TYPE = re.compile(
    r"\*\s*(?:const\s*|__restrict__\s*)*\*|\*\s*(?:const\s*)?\w*\s*\["
    r"|\b(?:u?int64_t|uintptr_t|intptr_t|u64|(?:unsigned )?long long(?: int)?|unsigned long)\s*(?:const\s*)?\*"
)
_HOLDS_POINTER = re.compile(
    r"[*\[]|\bauto\b|64_t|ptr_t|\bu64\b|\blong\b|size_t|vector|array|CUdeviceptr|CUtensorMap|Tensor"
)
_PEER_NAME = re.compile(r"(?:\w*_)?(?:peer|remote)(?:_\w*)?s?")
_MAX_DEPTH = 40
_PASSES = 4


@dataclass
class CudaUnit:
    functions: dict[str, list[CudaFunction]] = field(default_factory=dict)
    fields: dict[str, Kind] = field(default_factory=dict)  # members that hold tables of peers, whatever the object
    open_tables: bool = True  # anything gives addresses of other ranks; else `float**` is a table of its own pointers
    headers: frozenset[str] = frozenset()  # libraries of device functions that it includes


class Flow:
    def __init__(self, unit: CudaUnit) -> None:
        self._unit = unit
        self._done: dict[tuple[int, CallContext], frozenset[CudaUse]] = {}
        self.contexts: dict[str, set[CallContext]] = {}  # how each function was called

    def run(self, name: str, given: CallContext, depth: int = 0) -> frozenset[CudaUse]:
        found: frozenset[CudaUse] = frozenset()
        for function in self._unit.functions.get(name, ()):
            context = self._with_types(function, given, root=depth == 0)
            key = (id(function), context)
            if key not in self._done:
                self._done[key] = frozenset()  # a recursive call adds nothing new
                self.contexts.setdefault(name, set()).add(context)
                self._done[key] = frozenset(self._analyse(function, context, depth) if depth <= _MAX_DEPTH else ())
            found |= self._done[key]
        return found

    def _with_types(self, function: CudaFunction, given: CallContext, *, root: bool) -> CallContext:
        """What parameters are by their types, where the caller does not say."""
        by_type = (function.kind == "kernel" or root) and self._unit.open_tables
        kinds: list[Kind | None] = []
        for index, (name, written) in enumerate(function.parameters):
            kind = given.kinds[index] if index < len(given.kinds) else None
            if kind is None and by_type:
                named = not given.resolved and "*" in written and _PEER_NAME.fullmatch(name)
                kind = "table" if _TABLE_TYPE.search(written) else "peer" if named else None
            kinds.append(kind)
        return CallContext(tuple(kinds), given.resolved, given.on_device or function.kind != "host")

    def _analyse(self, function: CudaFunction, context: CallContext, depth: int) -> Iterator[CudaUse]:
        pointers = _Pointers(self._unit, function, context)
        followed = {function.name}
        for node, at in function.nodes:
            found: list[Meaning] = []
            if node.type == "gnu_asm_expression":
                template, operands = syntax.inline_asm(node)
                for each in instructions(template):
                    found += meanings(each, lambda key: pointers.kind(operands.get(key)), resolved=context.resolved)  # noqa: B023
            elif node.type == "call_expression":
                (name, qualifier), arguments = callee(node.child_by_field_name("function")), arguments_of(node)
                kinds = tuple(pointers.kind(argument) for argument in arguments)
                written = [text_of(argument) for argument in arguments]
                for called, handed in self._called(name, written, context._replace(kinds=kinds)):
                    if called != function.name:
                        followed.add(called)
                        yield from self.run(called, handed, depth + 1)
                if name not in self._unit.functions and name not in syntax.CASTS:
                    found = known.call_meanings(
                        name, qualifier, written, context._replace(kinds=kinds), self._unit.headers
                    )
            elif context.on_device and pointers.kind(syntax.accessed(node)) == "peer":  # a host cannot dereference it
                found = [Meaning("sm_load_store", False)]
            yield from (CudaUse(path, weak, function.owner, at) for path, weak in found)
        for name in sorted(function.mentions.keys() - followed):
            if name in known.MENTIONS:
                yield CudaUse(*known.MENTIONS[name], function.owner, function.mentions[name])
            yield from self.run(name, CallContext(on_device=context.on_device), depth + 1)  # handed on: called somehow

    def _called(self, name: str, written: list[str], handed: CallContext) -> Iterator[tuple[str, CallContext]]:
        """Which of the candidate's functions a call calls or launches."""
        if name in self._unit.functions:
            yield name, handed
        for index, text in enumerate(written if "Launch" in name else ()):
            for word in self._unit.functions.keys() & set(re.findall(r"\w+", text)):
                kinds = handed.kinds[index + 1 :] if "Ex" in name else ()
                yield word, CallContext(kinds, handed.resolved and bool(kinds))


class _Pointers:
    def __init__(self, unit: CudaUnit, function: CudaFunction, context: CallContext) -> None:
        self._unit = unit
        self._env: dict[str, Kind] = dict(unit.fields) if unit.open_tables else {}
        self._cache: dict[int, Kind | None] = {}
        for (name, _), kind in zip(function.parameters, context.kinds, strict=False):
            self._env.pop(name, None)
            if kind is not None and name:
                self._env[name] = kind
        made = [each for node, _ in function.nodes for each in syntax.assignments(node)]
        for _ in range(_PASSES):
            before = dict(self._env)
            for type_, name, value, indexed in made:
                kind = self.kind(value)
                kind = "table" if indexed and kind == "peer" else kind
                holds = not type_ or _HOLDS_POINTER.search(type_)
                if kind is not None and holds and _STRENGTH[kind] > _STRENGTH[self._env.get(name)]:
                    self._env[name] = kind
                    self._cache.clear()
            if before == self._env:
                break

    def kind(self, node: Node | None) -> Kind | None:
        if node is None:
            return None
        if node.id not in self._cache:
            self._cache[node.id] = self._kind(node)
        return self._cache[node.id]

    def _kind(self, node: Node) -> Kind | None:
        argument = node.child_by_field_name("argument")
        match node.type:
            case "identifier":
                return self._env.get(text_of(node))
            case "field_expression":
                name = callee(node)[0]
                return "multicast" if name == "mc_ptr" else self.kind(argument) or self._env.get(name)
            case "subscript_expression":  # of a pointer: a value
                index = text_of(node.child_by_field_name("indices") or node).strip("[] \n")
                return None if self.kind(argument) != "table" else "local" if _OWN.fullmatch(index) else "peer"
            case "pointer_expression" if node.children[0].type == "&":
                while argument is not None and argument.type == "parenthesized_expression":
                    argument = argument.named_children[0]
                indexed = argument is not None and argument.type == "subscript_expression"
                return self.kind(argument.child_by_field_name("argument") if indexed else argument)
            case "pointer_expression":
                return "peer" if self.kind(argument) == "table" else None
            case "cast_expression":
                return self._cast(text_of(node.child_by_field_name("type")), node.child_by_field_name("value"))
            case "call_expression":
                return self._call(node)
            case "binary_expression" | "parenthesized_expression" | "initializer_list" | "conditional_expression":
                return join(self.kind(child) for child in node.named_children)
            case "lambda_expression":  # handed to a function that calls it
                own = walk(node, into=lambda each: each.type != "lambda_expression" or each == node)
                returns = [each for each in own if each.type == "return_statement"]
                return join(self.kind(child) for each in returns for child in each.named_children)
        return None

    def _call(self, node: Node) -> Kind | None:
        function = node.child_by_field_name("function")
        name, arguments = callee(function)[0], arguments_of(node)
        if name in syntax.CASTS:
            return self._cast(text_of(function), next(iter(arguments), None))
        if name in known.POINTER_GETTERS:
            return known.POINTER_GETTERS[name]
        if name in known.PASS_THROUGH or any(each.returns_pointer for each in self._unit.functions.get(name, ())):
            # It hands on one of its arguments, or its object.
            return join(self.kind(each) for each in (function.child_by_field_name("argument"), *arguments))
        return None

    def _cast(self, written: str, value: Node | None) -> Kind | None:
        """An address turned into `T**` is a table."""
        table = self._unit.open_tables and re.search(r"\*\s*(?:const\s*)?\*", written)
        return self.kind(value) or ("table" if table else None)


def join(kinds: Iterable[Kind | None]) -> Kind | None:
    return max(kinds, key=lambda kind: _STRENGTH[kind], default=None)
