"""What an expression of a candidate's Python, Triton included, holds: a peer's tensor, an address, a table, ..."""

import ast

from pkb.candidates.names import fold
from pkb.candidates.paths.held import Items, Kernel, Plain, Value, join, one_of, pack
from pkb.candidates.paths.live import Scope
from pkb.candidates.source import Source

GETTERS = frozenset({"get_buffer", "get_remote_tensor", "get_remote_tensors", "get_remote_storage"})
TABLES = frozenset({"buffer_ptrs", "buffer_ptrs_dev", "signal_pad_ptrs", "signal_pad_ptrs_dev"})
VIEWS = frozenset(
    {"view", "view_as", "reshape", "narrow", "flatten", "unflatten", "chunk", "split", "unbind", "transpose", "permute"}
    | {"t", "squeeze", "unsqueeze", "expand", "select", "as_strided", "contiguous", "detach", "to", "cuda"}
)
_WRAPPERS = (
    "ctypes.c_void_p",
    "ctypes.c_uint64",
    "ctypes.c_int64",
    "pkb.kit.ptr",
    "pkb.kit.u64",
    "pkb.kit.i64",
    "builtins.int",
)
_SEQUENCES = (
    "builtins.list",
    "builtins.tuple",
    "builtins.reversed",
    "builtins.sorted",
    "builtins.iter",
    "builtins.next",
)
_TENSORS = ("torch.tensor", "torch.as_tensor", "pkb.kit.pointer_table", "numpy.array", "torch.stack")
_POINTER_TYPE = "triton.language.pointer_type"


def is_jit(source: Source, scope: Scope) -> bool:
    decorators = getattr(scope.function, "decorator_list", [])
    targets = [each.func if isinstance(each, ast.Call) else each for each in decorators]
    names = [source.names.dotted(target) or "" for target in targets]
    return any(name in ("triton.jit", "triton.runtime.jit", "triton.experimental.gluon.jit") for name in names)


class Expressions:
    """Evaluates expressions over what names are known to hold. `Values` fills that in."""

    def __init__(self, source: Source, scopes: list[Scope]) -> None:
        self.source = source
        self.scopes = scopes
        self._env: dict[tuple[int, str], Value] = {}
        """By scope and name; scope 0 holds attributes, whatever the object."""
        self._returns: dict[str, Value] = {}
        self._cache: dict[int, Value] = {}
        self._jits = {scope.name for scope in scopes if is_jit(source, scope)}
        self.functions: dict[str, list[Scope]] = {}
        for scope in scopes:
            if scope.name:
                self.functions.setdefault(scope.name, []).append(scope)

    def of(self, scope: Scope, node: ast.expr | None) -> Value:
        if isinstance(node, ast.Name):
            return self._lookup(scope, node.id)
        if node is None or isinstance(node, ast.Constant):
            return None
        if (
            id(node) not in self._cache
        ):  # asked again for every node around it: without this, nesting costs exponentially
            self._cache[id(node)] = self._evaluate(scope, node)
        return self._cache[id(node)]

    def _evaluate(self, scope: Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Attribute):
            return self._attribute(scope, node)
        if isinstance(node, ast.Subscript):
            return self._item(scope, node)
        if isinstance(node, ast.Starred | ast.Await | ast.NamedExpr):
            return self.of(scope, node.value)
        if isinstance(node, ast.Call):
            return self._call(scope, node)
        if isinstance(node, ast.BinOp):
            return self._sum(scope, node)
        if isinstance(node, ast.Tuple):
            return pack([self.of(scope, each) for each in node.elts])
        if isinstance(node, ast.List | ast.Set):
            values = [self.of(scope, each) for each in node.elts]
            return self._several(join(values), local=any(_takes_addresses(each) for each in node.elts))
        if isinstance(node, ast.Dict):
            return pack([join([self.of(scope, each) for each in node.values])], any_key=True)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            return self._several(self.of(scope, node.elt), local=_takes_addresses(node.elt))
        if isinstance(node, ast.DictComp):
            return pack([self.of(scope, node.value)], any_key=True)
        if isinstance(node, ast.IfExp):
            return join((self.of(scope, node.body), self.of(scope, node.orelse)))
        if isinstance(node, ast.BoolOp):
            return join(self.of(scope, each) for each in node.values)
        return None

    def plain(self, scope: Scope, node: ast.expr | None) -> Plain | None:
        value = self.of(scope, node)
        return value if isinstance(value, str) else None

    def holds_peer(self, scope: Scope, node: ast.expr | None) -> bool:
        return self.plain(scope, node) in ("peer", "peers")

    def is_jit_function(self, name: str) -> bool:
        return name in self._jits

    def _lookup(self, scope: Scope, name: str) -> Value:
        inside: Scope | None = scope
        while inside is not None:
            key = (id(inside), name)
            if key in self._env:
                return self._env[key]
            if name in inside.parameters:
                return None
            inside = inside.outer
        return None

    def _attribute(self, scope: Scope, node: ast.Attribute) -> Value:
        if node.attr in TABLES:
            return "table"
        if node.attr == "multicast_ptr":
            return "multicast"
        if node.attr == "rank":
            return "own"
        if node.attr in ("T", "mT", "data"):
            return self.of(scope, node.value)
        return self._env.get((0, node.attr))

    def _item(self, scope: Scope, node: ast.Subscript) -> Value:
        base = self.of(scope, node.value)
        if isinstance(base, Items):
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if not base.any_key and isinstance(index, int) and -len(base.places) <= index < len(base.places):
                return base.places[index]
            return join(base.places)
        if base in ("peers", "table") and self._is_own(scope, node.slice):
            return None
        return one_of(base)

    def _is_own(self, scope: Scope, index: ast.expr) -> bool:
        return self.of(scope, index) == "own"

    def _several(self, value: Value, *, local: bool = False) -> Value:
        if value == "peer":
            return "peers"
        if value == "address":
            return "table"
        if value is None and local:
            return "local"
        return pack([value], any_key=True) if value is not None and not isinstance(value, str) else value

    def _sum(self, scope: Scope, node: ast.BinOp) -> Value:
        """In Triton `pointer + offset`; elsewhere an address and an offset, or two lists."""
        left, right = self.of(scope, node.left), self.of(scope, node.right)
        if isinstance(node.op, ast.Add) and "table" in (left, right) and "own" in (left, right):
            return "local"
        if left == "own" or right == "own":
            left, right = (None if each == "own" else each for each in (left, right))
        return join((left, right)) if isinstance(node.op, ast.Add | ast.Sub) else None

    def _call(self, scope: Scope, node: ast.Call) -> Value:
        name = self.source.names.dotted(node.func)
        first = node.args[0] if node.args else None
        if isinstance(node.func, ast.Attribute):
            made = self._method(scope, node, node.func, first)
            if made is not None:
                return made
        if name is not None:
            return self._imported(scope, name, node, first)
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            return self._returns.get(node.func.id)
        if isinstance(node.func, ast.Attribute) and node.func.attr in self.functions:
            return self._returns.get(node.func.attr)
        return None

    def _method(self, scope: Scope, node: ast.Call, function: ast.Attribute, first: ast.expr | None) -> Value:
        method = function.attr
        if method in GETTERS:
            own = first is not None and self._is_own(scope, first)
            return None if own else "peers" if method == "get_remote_tensors" else "peer"
        if method in ("kernel", "get_function", "get_kernel"):
            text = fold(first)
            return Kernel(text) if text is not None else None
        base = self.of(scope, function.value)
        if method == "to" and any(
            self._pointer_type(argument) for argument in (*node.args, *(k.value for k in node.keywords))
        ):
            return self._cast(function.value, base, node)
        if base is None:
            return None
        if method == "data_ptr":
            return "address" if base == "peer" else base if base in ("table", "local") else None
        if isinstance(base, Items) and method in ("get", "pop", "setdefault"):
            return join(base.places)
        if isinstance(base, Items) and method in ("values", "copy"):
            return base
        if isinstance(base, Items) and method == "items":
            return Items((Items((None, join(base.places))),), any_key=True)
        if isinstance(base, str) and method in VIEWS:
            return base
        return None

    def _imported(self, scope: Scope, name: str, node: ast.Call, first: ast.expr | None) -> Value:
        if name in _WRAPPERS or name in _SEQUENCES:
            return self.of(scope, first)
        if name in _TENSORS:
            value = self.of(scope, first)
            if isinstance(value, Items):
                value = join(value.places)
            local = value is None and first is not None and _takes_addresses(first)
            return (
                "local"
                if local
                else "table"
                if value in ("address", "peers", "table", "peer")
                else value
                if value == "local"
                else None
            )
        if name == "torch.distributed.get_rank":
            return "own"
        if name in ("pkb.kit.buffers", "pkb.kit.pads"):
            return "table"
        if name == "pkb.kit.barrier_pads":
            return Items(("table", "own", None))
        if name == "pkb.kit.multicast":
            return "multicast"
        if name == "cupy.RawKernel" and len(node.args) > 1 and (text := fold(node.args[1])) is not None:
            return Kernel(text)
        if name == "triton.language.load":
            return (
                "address" if self.of(scope, first) == "table" else "local" if self.of(scope, first) == "local" else None
            )
        if name == "triton.language.cast" and len(node.args) > 1 and self._pointer_type(node.args[1]):
            return self._cast(node.args[0], self.of(scope, first), node)
        if name in ("triton.language.multiple_of", "triton.language.max_contiguous", "triton.language.advance"):
            return self.of(scope, first)
        return None

    def _pointer_type(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.source.names.dotted(node.func) == _POINTER_TYPE

    def _cast(self, operand: ast.expr, value: Value, node: ast.Call) -> Value:
        """A number turned into a pointer: a peer's, unless the table is known to be this rank's own. A parameter turned
        into a pointer to 64-bit numbers is the table itself."""
        if value == "local":
            return "local"
        loaded = any(self.source.names.dotted(each) == "triton.language.load" for each in ast.walk(operand))
        wide = any(
            isinstance(each, ast.Attribute) and each.attr in ("int64", "uint64")
            for argument in node.args
            for each in ast.walk(argument)
        )
        return "table" if wide and not loaded and value != "address" else "peer"

    def arguments(self, scope: Scope, node: ast.Call) -> list[Value]:
        """What the positional arguments are, with a starred tuple spread out."""
        found: list[Value] = []
        for argument in node.args:
            value = self.of(scope, argument)
            spread = isinstance(argument, ast.Starred) and isinstance(value, Items)
            found += value.places if spread and isinstance(value, Items) else [value]
        return found


def _takes_addresses(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "data_ptr" for each in ast.walk(node))
