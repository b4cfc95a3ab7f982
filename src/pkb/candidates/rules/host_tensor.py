"""Makes a tensor without saying on which device.

What it finds: `torch.empty`, `zeros`, `full`, `arange`, `tensor`, ..., and symmetric memory's `empty`, without `device=`, where
neither the result is moved (`.to(...)`, `.cuda()`) or read on the host (`.item()`, `.tolist()`), nor a default device is set.
A candidate in C++ works on the host and is left alone.

Why: such a tensor is in host memory. On platform cpu that is where everything is, so the candidate is right there and
fails on a GPU, at the first operation that mixes it with an argument. A tensor that is meant for the host is honest, so
it is a warning.

Example:

    out = torch.zeros(x.shape, dtype=x.dtype)
    out += x

Use instead: `torch.zeros_like(x)`, or `device=x.device`.
"""

import ast

from pkb.candidates.backend import backend
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_FACTORIES = frozenset(
    f"torch.{name}"
    for name in (
        "empty", "zeros", "ones", "full", "tensor", "arange", "linspace", "logspace", "eye", "rand", "randn", "randint",
        "randperm", "empty_strided", "tril_indices", "triu_indices",
    )
) | {"torch.distributed._symmetric_memory.empty"}  # fmt: skip
_SAYS_WHERE = frozenset({"device", "out", "pin_memory", None})
"""Keywords that settle it; None is `**options`."""
_MOVES = frozenset({"to", "cuda", "cpu", "item", "tolist", "numpy", "pin_memory", "type_as"})


def check(source: Source, report: Reporter) -> None:
    if backend(source) == "cpp" or _in_device_context(source):
        return
    if any(name == "torch.set_default_device" for name, _ in source.names.calls):
        return
    moved_names = {
        node.value.id
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in _MOVES and isinstance(node.value, ast.Name)
    }
    parents = {id(child): node for node in source.nodes for child in ast.iter_child_nodes(node)}
    for name, call in source.names.calls:
        if name not in _FACTORIES or any(keyword.arg in _SAYS_WHERE for keyword in call.keywords):
            continue
        if name == "torch.tensor" and call.args and isinstance(call.args[0], ast.Constant):
            continue  # a scalar of the host goes with tensors of any device
        if not _is_moved(call, parents, moved_names):
            report.warn(call.lineno, f"{name} without device= makes a tensor in host memory, which fails on a GPU")


def _in_device_context(source: Source) -> bool:
    return any(
        isinstance(node, ast.With)
        and any(
            isinstance(item.context_expr, ast.Call) and source.names.dotted(item.context_expr.func) == "torch.device"
            for item in node.items
        )
        for node in source.nodes
    )


def _is_moved(call: ast.Call, parents: dict[int, ast.AST], moved_names: set[str]) -> bool:
    """`torch.arange(n).view(-1, 1).to(x.device)`, or a name that is moved somewhere."""
    node: ast.AST = call
    while isinstance(above := parents.get(id(node)), ast.Attribute | ast.Call):
        if isinstance(above, ast.Call) and above.func is not node:
            return False
        if isinstance(above, ast.Attribute) and above.attr in _MOVES:
            return True
        node = above
    targets = above.targets if isinstance(above, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id in moved_names for target in targets)
