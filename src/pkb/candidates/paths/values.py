"""Follows peers' tensors and addresses through a candidate's Python, Triton kernels included.

Through names, attributes, tuples, dictionaries, loops, the parameters and results of its own functions, and from a launch
into the parameters of a kernel. Nothing is run: a value that is put together in another way stays unknown.
"""

import ast

from pkb.candidates.names import fold
from pkb.candidates.paths.expressions import Expressions
from pkb.candidates.paths.held import Items, Value, join, one_of, pack, part
from pkb.candidates.paths.live import Scope
from pkb.candidates.source import Source

_PASSES = 6
_FLOWS = (
    ast.Assign,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.AugAssign,
    ast.For,
    ast.comprehension,
    ast.withitem,
    ast.Return,
    ast.Call,
)


class Values(Expressions):
    def __init__(self, source: Source, scopes: list[Scope]) -> None:
        super().__init__(source, scopes)
        self.classes: dict[str, list[str]] = {}
        self.constants: dict[str, str] = {}
        """Module-level names of strings."""
        for scope in scopes:
            for node in scope.nodes:
                if isinstance(node, ast.ClassDef):
                    fields = [
                        each.target.id
                        for each in node.body
                        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                    ]
                    self.classes[node.name] = fields
                elif isinstance(node, ast.Assign) and (text := fold(node.value)) is not None:
                    self.constants |= {target.id: text for target in node.targets if isinstance(target, ast.Name)}
        steps = [(scope, node) for scope in scopes for node in scope.nodes if isinstance(node, _FLOWS)]
        for _ in range(_PASSES):
            self._changed = False
            self._cache.clear()
            for scope, node in steps:
                self._follow(scope, node)
            if not self._changed:
                break
        self._cache.clear()

    def _set(self, key: tuple[int, str], value: Value) -> None:
        if value is None:
            return
        joined = join((self._env.get(key), value))
        if joined != self._env.get(key):
            self._env[key] = joined
            self._changed = True

    def _follow(self, scope: Scope, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            value = self.of(scope, node.value)
            for target in node.targets:
                self._assign(scope, target, value, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
            self._assign(scope, node.target, self.of(scope, node.value), node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            self._assign(scope, node.target, self._element(scope, node.iter), None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(scope, node.optional_vars, self.of(scope, node.context_expr), None)
        elif isinstance(node, ast.Return):
            value = join((self._returns.get(scope.name), self.of(scope, node.value)))
            if scope.name and value != self._returns.get(scope.name):
                self._returns[scope.name] = value
                self._changed = True
        elif isinstance(node, ast.Call):
            self._pass_on(scope, node)

    def _assign(self, scope: Scope, target: ast.expr, value: Value, written: ast.expr | None) -> None:
        if value is None:
            return
        if isinstance(target, ast.Name):
            self._set((id(scope), target.id), value)
        elif isinstance(target, ast.Attribute):
            self._set((0, target.attr), value)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, each in enumerate(target.elts):
                self._assign(scope, each, part(value, index), None)
        elif isinstance(target, ast.Subscript):
            self._fill(scope, target, value, written)

    def _fill(self, scope: Scope, target: ast.Subscript, value: Value, written: ast.expr | None) -> None:
        """`table[r] = handle.get_buffer(...)` fills a table; `out[r] = peer` copies into a tensor."""
        if value in ("peer", "peers") and not isinstance(written, ast.Call):
            return
        made: Value = "peers" if value == "peer" else "table" if value == "address" else pack([value], any_key=True)
        owner = target.value
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        if isinstance(owner, ast.Name):
            place: Scope | None = scope
            while place is not None and place.outer is not None and owner.id not in place.bound:
                place = place.outer
            self._set((id(place), owner.id), made)
        elif isinstance(owner, ast.Attribute):
            self._set((0, owner.attr), made)

    def _element(self, scope: Scope, node: ast.expr) -> Value:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            if node.func.id == "enumerate":
                return pack([None, self._element(scope, node.args[0])])
            if node.func.id == "zip":
                return pack([self._element(scope, each) for each in node.args])
        value = self.of(scope, node)
        return join(value.places) if isinstance(value, Items) else one_of(value)

    def _pass_on(self, scope: Scope, node: ast.Call) -> None:
        function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        name = (
            function.id
            if isinstance(function, ast.Name)
            else function.attr
            if isinstance(function, ast.Attribute)
            else ""
        )
        if name in ("append", "extend", "add") and isinstance(node.func, ast.Attribute) and node.args:
            value = self.of(scope, node.args[0])
            if value is not None:
                self._assign(scope, node.func.value, self._several(value), None)
        method = isinstance(function, ast.Attribute) and self.source.names.dotted(function) is None
        for callee in self.functions.get(name, ()):
            parameters = callee.parameters
            offset = 1 if method and parameters[:1] in (["self"], ["cls"]) else 0
            for index, value in enumerate(self.arguments(scope, node)):
                if index + offset < len(parameters):
                    self._set((id(callee), parameters[index + offset]), value)
            for keyword in node.keywords:
                if keyword.arg in parameters:
                    self._set((id(callee), keyword.arg), self.of(scope, keyword.value))
        fields = self.classes.get(name, [])
        for field, value in zip(fields, self.arguments(scope, node), strict=False):
            self._set((0, field), value)
        for keyword in node.keywords if name in self.classes else ():
            self._set((0, keyword.arg or ""), self.of(scope, keyword.value))
