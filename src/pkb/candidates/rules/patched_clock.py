"""Replaces what measures it or checks it.

What it finds: assignment to, `setattr` on, or mock patches of attributes of `torch.cuda` (Event, synchronize, ...),
`torch.distributed`, `torch.Tensor`, `time`, `builtins` and `torch.utils.benchmark`; operators of torch's own
namespaces registered anew with `torch.library`.

Why: a clock that stands still makes any kernel fast, and a comparison that always says yes makes it right. Settings
such as `torch.backends.cuda.matmul.allow_tf32` are not behaviour, and stay allowed.

Example:

    torch.cuda.Event.elapsed_time = lambda self, end: 0.001

Use instead: functions and classes of your own; nothing of torch needs to be changed to write a kernel.
"""

import ast
from collections.abc import Iterator

from pkb.candidates.constants import UNKNOWN, fold
from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_PROTECTED = (
    "torch.cuda", "torch.distributed", "torch.Tensor", "torch._C", "torch.utils.benchmark", "time", "builtins",
)  # fmt: skip
_SETTINGS = (
    "torch.distributed.config",
    "torch._C._distributed_c10d._SymmetricMemory.signal_pad_size",
    # An object rather than a function: candidates hang buffers on it that they keep between calls.
    "torch.distributed.group.WORLD",
)
_COMPARISONS = ("torch.allclose", "torch.equal", "torch.isclose", "torch.testing")
_SETTERS = ("builtins.setattr", "builtins.delattr", "builtins.object.__setattr__", "builtins.type.__setattr__")
_PATCHERS = ("unittest.mock.patch", "mock.patch")
_TORCH_NAMESPACES = frozenset({"aten", "prims", "prim", "c10d", "_c10d_functional", "symm_mem"})
_REGISTRATIONS = ("torch.library.Library", "torch.library.impl", "torch.library.register_kernel")


def check(source: Source, report: Reporter) -> None:
    for target in _targets(source):
        name = source.names.dotted(target)
        if isinstance(target, ast.Attribute | ast.Subscript) and name is not None:
            _judge(name, target.lineno, report)
    for name, call in source.names.calls:
        _check_call(name, call, source=source, report=report)
    for node in source.nodes:
        # monkeypatch.setattr(torch.cuda, "synchronize", ...), whoever made the monkeypatch
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            _check_setter(node, source, report)


def _targets(source: Source) -> Iterator[ast.expr]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def _check_call(name: str, call: ast.Call, *, source: Source, report: Reporter) -> None:
    if name in _SETTERS or under(name, *_PATCHERS):
        _check_setter(call, source, report)
    elif name.endswith((".__dict__.update", ".__dict__.__setitem__", ".__dict__.setdefault", ".__dict__.pop")):
        _judge(name.rpartition(".__dict__")[0] + ".", call.lineno, report)
    elif name in _REGISTRATIONS and call.args:
        namespace = (fold(call.args[0]) or "").partition("::")[0]
        new_kernels = name != "torch.library.Library" or any(fold(argument) == "IMPL" for argument in call.args[1:])
        if namespace in _TORCH_NAMESPACES and new_kernels:
            report.reject(call.lineno, f"registers operators of torch's own namespace {namespace} anew")


def _check_setter(call: ast.Call, source: Source, report: Reporter) -> None:
    """`setattr(torch.cuda, name, ...)`, `patch.object(torch.cuda, "Event")`, `patch("torch.cuda.Event")`."""
    if not call.args:
        return
    path = fold(call.args[0])
    if path is not None:
        _judge(path, call.lineno, report)
        return
    owner = source.names.dotted(call.args[0])
    if owner is not None:
        attribute = fold(call.args[1]) if len(call.args) > 1 else None
        # An attribute known only at run time counts as any attribute of its owner.
        _judge(f"{owner}.{attribute if attribute and UNKNOWN not in attribute else ''}", call.lineno, report)


def _judge(name: str, line: int, report: Reporter) -> None:
    protected = any(name.startswith(f"{prefix}.") for prefix in _PROTECTED) or under(name, *_COMPARISONS)
    if protected and not under(name, *_SETTINGS):
        report.reject(line, f"replaces {name.rstrip('.')}, which measuring or checking may rely on")
