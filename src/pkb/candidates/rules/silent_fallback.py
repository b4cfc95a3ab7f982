"""Falls back to torch when its kernel fails, without a word.

What it finds: a `try` whose broad handler (bare, `Exception`, `RuntimeError`, ...) does not raise and either computes
a result with torch, or swallows the failure of a build (`kit.compile`, `compile_cuda_extension`, `load_inline`, ...).

Why: the verdict would be about the fallback, which is the reference again: right, never faster, and no word about the
kernel that did not compile. It is honest in a library and misleading in a benchmark, so it is a warning.

Example:

    try:
        return fast_allreduce(x)
    except Exception:
        dist.all_reduce(x)
        return x

Use instead: let it fail, so that the verdict says why; or test for the capability beforehand (`if x.is_cuda:`).
"""

import ast

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_BROAD = frozenset(
    {"Exception", "BaseException", "RuntimeError", "OSError", "CompileError", "CompilerMissing", "DriverError"}
)
_BUILDS = frozenset({"compile_cuda_extension", "load_inline", "build_cpp", "RawKernel", "RawModule"})
_QUESTIONS = (
    "torch.device", "torch.empty", "torch.cuda.current_device", "torch.cuda.is_available", "torch.cuda.synchronize",
    "torch.cuda.get_device_capability", "torch.cuda.get_device_properties", "torch.distributed.get_rank",
    "torch.distributed.get_world_size", "torch.distributed.is_initialized", "torch.distributed.init_process_group",
    "torch.distributed.group", "torch.backends", "torch.distributed._symmetric_memory",
)  # fmt: skip


def check(source: Source, report: Reporter) -> None:
    for node in source.nodes:
        if not isinstance(node, ast.Try):
            continue
        builds = any(_is_build(part, source) for statement in node.body for part in ast.walk(statement))
        for handler in node.handlers:
            if not _is_broad(handler) or any(isinstance(part, ast.Raise) for part in ast.walk(handler)):
                continue
            if builds:
                report.warn(handler.lineno, "swallows the failure of a build")
            elif _calls_something(node) and _computes(handler, source):
                report.warn(handler.lineno, "falls back to torch when the kernel fails")


def _is_broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(_tail(kind) in _BROAD for kind in kinds)


def _tail(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_build(node: ast.AST, source: Source) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return _tail(node.func) in _BUILDS or source.names.dotted(node.func) in ("pkb.kit.compile", "pkb.kit.cuda.compile")


def _calls_something(node: ast.Try) -> bool:
    return any(isinstance(part, ast.Call) for statement in node.body for part in ast.walk(statement))


def _computes(handler: ast.ExceptHandler, source: Source) -> bool:
    """A torch function (not a question such as `get_rank`), a matrix product, or a returned call."""
    for part in ast.walk(handler):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult):
            return True
        if isinstance(part, ast.Return) and isinstance(part.value, ast.Call) and not _asks(part.value, source):
            return True
        if isinstance(part, ast.Call):
            name = source.names.dotted(part.func)
            if name is not None and under(name, "torch") and not _asks(part, source):
                return True
    return False


def _asks(call: ast.Call, source: Source) -> bool:
    name = source.names.dotted(call.func)
    return name is not None and under(name, "builtins", *_QUESTIONS)
