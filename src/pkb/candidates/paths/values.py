"""Follows peers' tensors and addresses through a candidate's Python, Triton kernels included: through names, attributes,
containers, loops, the parameters and results of its own functions, and launches. Nothing is run."""

import ast
from collections.abc import Iterable
from contextlib import suppress

from pkb.candidates.constants import UNKNOWN, Constants, Dynamic, fold
from pkb.candidates.scopes import PythonScope, live_scopes
from pkb.candidates.source import Source, has_solution

Held = str | tuple["Held", ...] | frozenset["Held"] | None
"""What a place holds. `peer`: a peer's tensor, in Triton a pointer to one; `peers`: several; `address`: a peer's address as a
number; `table`: a table of addresses; `multicast`: the NVLS address; `local`: a table of this rank's own addresses; `own`:
this rank's number; `kernel NAME`: a compiled kernel. A tuple holds something in each place; a set of one is a dictionary or
list of which every place may hold that."""

KERNEL = "kernel "
_ORDER = ("own", "local", "multicast", "table", "address", "peers", "peer")
_MANY = {"peer": "peers", "address": "table"}
_ONE = {many: one for one, many in _MANY.items()}
_PASSES = 6
_NAMESAKES = 32  # that a call may mean: thousands, each called as often, kept the judge busy for minutes
_FLOWS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.comprehension, ast.withitem, ast.Return,
          ast.Call)  # fmt: skip

GETTERS = frozenset({"get_buffer", "get_remote_tensor", "get_remote_tensors", "get_remote_storage"})
TABLES = frozenset({"buffer_ptrs", "buffer_ptrs_dev", "signal_pad_ptrs", "signal_pad_ptrs_dev"})
VIEWS = frozenset(
    {"view", "view_as", "reshape", "narrow", "flatten", "unflatten", "chunk", "split", "unbind", "transpose", "permute"}
    | {"t", "squeeze", "unsqueeze", "expand", "select", "as_strided", "contiguous", "detach", "to", "cuda"}
)
_SAME = frozenset(
    {"ctypes.c_void_p", "ctypes.c_uint64", "ctypes.c_int64", "pkb.kit.ptr", "pkb.kit.u64", "pkb.kit.i64"}
    | {f"builtins.{name}" for name in ("int", "list", "tuple", "reversed", "sorted", "iter", "next")}
    | {f"triton.language.{name}" for name in ("multiple_of", "max_contiguous", "advance")}
)  # functions whose result points where their first argument does
_TENSORS = frozenset({"torch.tensor", "torch.as_tensor", "pkb.kit.pointer_table", "numpy.array", "torch.stack"})
_FIXED: dict[str, Held] = {"pkb.kit.buffers": "table", "pkb.kit.pads": "table", "torch.distributed.get_rank": "own"}
_FIXED |= {"pkb.kit.barrier_pads": ("table", "own", None), "pkb.kit.multicast": "multicast"}
_ATTRIBUTES = dict.fromkeys(TABLES, "table") | {"multicast_ptr": "multicast", "rank": "own"}
_JITS = ("triton.jit", "triton.runtime.jit", "triton.experimental.gluon.jit")


def join(values: Iterable[Held]) -> Held:
    """What a place holds that may hold any of these: the one that matters most."""
    best: Held = None
    for value in values:
        if value is None or value == best:
            continue
        if isinstance(value, str) and isinstance(best, str):
            best = max(best, value, key=lambda each: _ORDER.index(each) if each in _ORDER else len(_ORDER))
        elif isinstance(value, tuple) and isinstance(best, tuple) and len(value) == len(best):
            best = tuple(join(pair) for pair in zip(best, value, strict=True))
        elif not isinstance(value, str):
            best = value if best is None or isinstance(best, str) else frozenset({join((*best, *value))})
        elif best is None:
            best = value
    return best


def _flat(value: Held, depth: int = 2) -> Held:
    """A container in a container in a container is no longer told apart: `x = (x, x)` must not grow without end."""
    if value is None or isinstance(value, str):
        return value
    if depth == 0:
        return _flat(join(value), 0)
    return type(value)(_flat(place, depth - 1) for place in value)


def _dictionary(value: Held) -> Held:
    return None if value is None else _flat(frozenset({value}))


def _list(value: Held, *, local: bool = False) -> Held:
    """A list of peers' tensors or addresses is one thing; of anything else, a container."""
    if isinstance(value, str) and not value.startswith(KERNEL):
        return _MANY.get(value, value)
    return "local" if value is None and local else _dictionary(value)


def _one(value: Held) -> Held:
    """What an index or a loop gets out of it."""
    return _ONE.get(value, value) if isinstance(value, str) else join(value or ())


class Values:
    def __init__(self, source: Source, tree: ast.Module) -> None:
        self.source = source
        self.is_extract = not has_solution(tree)
        self.scopes = scopes = live_scopes(tree, extract=self.is_extract)
        self.jits = {scope.name for scope in scopes if self._is_jit(scope)}
        self.functions: dict[str, list[PythonScope]] = {}
        self._constants = Constants()
        self._held: dict[tuple[int, str], Held] = {}
        """By scope and name; scope 0 holds attributes, whatever the object, and scope -1 the results of functions."""
        self._cache: dict[int, Held] = {}
        for scope in scopes:
            if scope.name and len(same := self.functions.setdefault(scope.name, [])) < _NAMESAKES:
                same.append(scope)
        steps = [(scope, node) for scope in scopes for node in scope.nodes if isinstance(node, _FLOWS)]
        for _ in range(_PASSES):
            before = dict(self._held)
            self._cache.clear()
            for scope, node in steps:
                self._follow(scope, node)
            if before == self._held:
                break
        self._cache.clear()

    def _is_jit(self, scope: PythonScope) -> bool:
        decorators = getattr(scope.function, "decorator_list", [])
        targets = [each.func if isinstance(each, ast.Call) else each for each in decorators]
        return any(self.source.names.dotted(target) in _JITS for target in targets)

    def of(self, scope: PythonScope, node: ast.expr | None) -> Held:
        if isinstance(node, ast.Name):
            return self._lookup(scope, node.id)
        if node is None or isinstance(node, ast.Constant):
            return None
        if id(node) not in self._cache:  # without this, nesting costs exponentially
            self._cache[id(node)] = self._evaluate(scope, node)
        return self._cache[id(node)]

    def text(self, scope: PythonScope, node: ast.expr | None) -> str | None:
        """What a string expression says, `{}` where only a run knows."""
        with suppress(Dynamic):
            known = self._constants.value(node, scope) if isinstance(node, ast.Name) else None
            return known if isinstance(known, str) else fold(node)
        return None

    def arguments(self, scope: PythonScope, node: ast.Call) -> list[Held]:
        """What the positional arguments are, with a starred tuple spread out."""
        found: list[Held] = []
        for argument in node.args:
            value = self.of(scope, argument)
            found += value if isinstance(argument, ast.Starred) and isinstance(value, tuple) else (value,)
        return found

    def _lookup(self, scope: PythonScope | None, name: str) -> Held:
        if scope is None or (id(scope), name) in self._held or name in scope.parameters:
            return self._held.get((id(scope), name))
        return self._lookup(scope.outer, name)

    def _evaluate(self, scope: PythonScope, node: ast.expr) -> Held:
        match node:
            case ast.Attribute(attr="T" | "mT" | "data", value=value):
                return self.of(scope, value)
            case ast.Attribute(attr=attr):
                return _ATTRIBUTES.get(attr) or self._held.get((0, attr))
            case ast.Subscript(value=value, slice=index):
                base = self.of(scope, value)
                if isinstance(base, tuple) and isinstance(index, ast.Constant) and isinstance(index.value, int):
                    return base[index.value] if -len(base) <= index.value < len(base) else None
                return None if base in _ONE and self.of(scope, index) == "own" else _one(base)
            case ast.Starred(value=value) | ast.Await(value=value) | ast.NamedExpr(value=value):
                return self.of(scope, value)
            case ast.Call():
                return self._call(scope, node)
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
                # In Triton `pointer + offset`; elsewhere an address and an offset, or two lists.
                sides = {self.of(scope, left), self.of(scope, right)}
                return "local" if sides == {"table", "own"} else join(sides - {"own"})
            case ast.Tuple(elts=items):
                return _flat(tuple(self.of(scope, each) for each in items))
            case ast.List(elts=items) | ast.Set(elts=items):
                return _list(join(self.of(scope, each) for each in items), local=any(map(_takes_address, items)))
            case ast.ListComp(elt=item) | ast.GeneratorExp(elt=item) | ast.SetComp(elt=item):
                return _list(self.of(scope, item), local=_takes_address(item))
            case ast.Dict(values=items):
                return _dictionary(join(self.of(scope, each) for each in items))
            case ast.DictComp(value=item):
                return _dictionary(self.of(scope, item))
            case ast.IfExp(body=one, orelse=other):
                return join((self.of(scope, one), self.of(scope, other)))
            case ast.BoolOp(values=items):
                return join(self.of(scope, each) for each in items)
        return None

    def _call(self, scope: PythonScope, node: ast.Call) -> Held:
        first = node.args[0] if node.args else None
        made = self._method(scope, node, node.func, first) if isinstance(node.func, ast.Attribute) else None
        if made is not None:
            return made
        name = self.source.names.dotted(node.func)
        if name is not None:
            return self._imported(scope, name, node, first)
        called = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
        return self._held.get((-1, called)) if called in self.functions else None

    def _method(self, scope: PythonScope, node: ast.Call, function: ast.Attribute, first: ast.expr | None) -> Held:
        method = function.attr
        if method in GETTERS:
            own = self.of(scope, first) == "own"
            return None if own else "peers" if method == "get_remote_tensors" else "peer"
        if method in ("kernel", "get_function", "get_kernel"):
            return KERNEL + (self.text(scope, first) or UNKNOWN)
        base = self.of(scope, function.value)
        if method == "to" and any(map(self._is_pointer_type, (*node.args, *(each.value for each in node.keywords)))):
            return self._pointer(function.value, base, node)
        if method == "data_ptr":
            return "address" if base == "peer" else base if base in ("table", "local") else None
        if isinstance(base, tuple | frozenset):
            one = join(base)
            several: dict[str, Held] = {"items": frozenset({(None, one)}), "values": base, "copy": base}
            return one if method in ("get", "pop", "setdefault") else several.get(method)
        return base if method in VIEWS else None

    def _imported(self, scope: PythonScope, name: str, node: ast.Call, first: ast.expr | None) -> Held:
        value = self.of(scope, first)
        if name in _FIXED or name in _SAME:
            return _FIXED.get(name, value)
        if name in _TENSORS:
            value = value if value is None or isinstance(value, str) else join(value)
            local = value == "local" or (value is None and first is not None and _takes_address(first))
            return "table" if value in ("address", "peers", "table", "peer") else "local" if local else None
        if name == "triton.language.load":
            return "address" if value == "table" else value if value == "local" else None
        if name == "triton.language.cast" and len(node.args) > 1 and self._is_pointer_type(node.args[1]):
            return self._pointer(node.args[0], value, node)
        return None

    def _is_pointer_type(self, node: ast.expr) -> bool:
        called = node.func if isinstance(node, ast.Call) else None
        return self.source.names.dotted(called) == "triton.language.pointer_type"

    def _pointer(self, operand: ast.expr, value: Held, node: ast.Call) -> Held:
        """A number turned into a pointer: a peer's, unless the table is known to be this rank's own. A parameter turned
        into a pointer to 64-bit numbers is the table itself."""
        if value == "local":
            return "local"
        loaded = any(self.source.names.dotted(each) == "triton.language.load" for each in ast.walk(operand))
        parts = [each for argument in node.args for each in ast.walk(argument)]
        wide = any(isinstance(each, ast.Attribute) and each.attr in ("int64", "uint64") for each in parts)
        return "table" if wide and not loaded and value != "address" else "peer"

    def _follow(self, scope: PythonScope, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(scope, target, self.of(scope, value), written=value)
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target) | ast.AugAssign(target=target):
                self._assign(scope, target, self.of(scope, node.value), written=node.value)
            case ast.For(target=target, iter=several) | ast.comprehension(target=target, iter=several):
                self._assign(scope, target, self._element(scope, several))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._assign(scope, target, self.of(scope, value))
            case ast.Return(value=result) if scope.name:
                self._set((-1, scope.name), self.of(scope, result))
            case ast.Call():
                self._pass_on(scope, node)

    def _set(self, key: tuple[int, str], value: Held) -> None:
        if value is not None:
            self._held[key] = join((self._held.get(key), value))

    def _assign(self, scope: PythonScope, target: ast.expr, value: Held, written: ast.expr | None = None) -> None:
        if value is None:
            return
        if isinstance(target, ast.Name):
            self._set((id(scope), target.id), value)
        elif isinstance(target, ast.Attribute):
            self._set((0, target.attr), value)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, each in enumerate(target.elts):
                known = value[index : index + 1] if isinstance(value, tuple) else (_one(value),)
                self._assign(scope, each, join(known))
        elif isinstance(target, ast.Subscript) and (value not in ("peer", "peers") or isinstance(written, ast.Call)):
            # `table[r] = handle.get_buffer(...)` fills a table; `out[r] = peer` copies into a tensor.
            owner = target.value
            while isinstance(owner, ast.Subscript):
                owner = owner.value
            place = scope
            while isinstance(owner, ast.Name) and place.outer is not None and owner.id not in place.bound:
                place = place.outer
            self._assign(place, owner, _list(value) if value in _MANY else _dictionary(value))

    def _element(self, scope: PythonScope, node: ast.expr) -> Held:
        called = self.source.names.dotted(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and called in ("builtins.enumerate", "builtins.zip"):
            inner = tuple(self._element(scope, each) for each in node.args)
            return inner if called == "builtins.zip" else (None, *inner[:1])
        return _one(self.of(scope, node))

    def _pass_on(self, scope: PythonScope, node: ast.Call) -> None:
        """Arguments of a call, or of a launch `kernel[grid](...)`, into parameters."""
        function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        name = getattr(function, "id", "") or getattr(function, "attr", "")
        arguments = self.arguments(scope, node)
        if name in ("append", "extend", "add") and isinstance(node.func, ast.Attribute) and arguments:
            self._assign(scope, node.func.value, _list(arguments[0]))
        method = isinstance(function, ast.Attribute) and self.source.names.dotted(function) is None
        for callee in self.functions.get(name, ()):
            place, names = id(callee), callee.parameters
            skipped = 1 if method and names[:1] in (["self"], ["cls"]) else 0
            for parameter, value in zip(names[skipped:], arguments, strict=False):
                self._set((place, parameter), value)
            for keyword in node.keywords:
                if keyword.arg in names:
                    self._set((place, keyword.arg), self.of(scope, keyword.value))


def _takes_address(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "data_ptr" for each in ast.walk(node))
