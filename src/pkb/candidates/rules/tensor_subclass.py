"""Returns or passes things that only look like tensors.

What it finds: subclasses of `torch.Tensor` and of torch's function and dispatch modes, methods `__torch_function__`
and `__torch_dispatch__`, `_make_subclass`, `_make_wrapper_subclass`.

Why: a lazy tensor computes when it is looked at, which may be after the clock has stopped, and a mode changes what
every torch function does. At run time, outputs must be plain tensors; that check decides, this is the early notice.

Example:

    class Later(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None): ...

Use instead: plain tensors.
"""

import ast

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_BASES = (
    "torch.Tensor", "torch.nn.Parameter", "torch.overrides.TorchFunctionMode", "torch.overrides.BaseTorchFunctionMode",
    "torch.utils._python_dispatch.TorchDispatchMode",
)  # fmt: skip
_PROTOCOLS = frozenset({"__torch_function__", "__torch_dispatch__"})
_MAKERS = frozenset({"_make_subclass", "_make_wrapper_subclass", "as_subclass"})


def check(source: Source, report: Reporter) -> None:
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                name = source.names.dotted(base)
                if name is not None and under(name, *_BASES):
                    report.warn(node.lineno, f"{node.name} is a subclass of {name}")
        elif isinstance(node, ast.FunctionDef) and node.name in _PROTOCOLS:
            report.warn(node.lineno, f"{node.name} changes what torch functions do")
        elif isinstance(node, ast.Attribute) and node.attr in _MAKERS:
            report.warn(node.lineno, f"{node.attr} makes a tensor of another class")
