"""Reaches for the harness that judges it.

What it finds: imports of `pkb` other than `pkb.kit`, also by `importlib`, `__import__` or `sys.modules`; `__main__`;
walks over the interpreter's objects (`gc.get_objects`, `gc.get_referrers`) or over its callers' frames
(`sys._getframe`, `inspect.stack`, `f_back`); tracing hooks. A warning: listing `sys.modules`, and `__globals__` or
`__closure__` of functions.

Why: the process that runs a candidate holds the channel to the judge and the arguments of calls to come. A kernel
needs none of that; code that looks for it wants to change its own result.

Example:

    import sys
    sys._getframe(1).f_locals["expected"]   # the caller's variables

Use instead: the arguments of `solution`, and `pkb.kit`.
"""

import ast

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_FORBIDDEN = {
    "gc.get_objects": "walks over all objects of the process",
    "gc.get_referrers": "walks over all objects of the process",
    "gc.get_referents": "walks over the objects of the process",
    "sys._getframe": "reads its callers' frames",
    "sys._getframemodulename": "reads its callers' frames",
    "sys._current_frames": "reads the frames of all threads",
    "sys._current_exceptions": "reads the frames of all threads",
    "inspect.stack": "reads its callers' frames",
    "inspect.currentframe": "reads its callers' frames",
    "inspect.getouterframes": "reads its callers' frames",
    "traceback.walk_stack": "reads its callers' frames",
    "sys.settrace": "traces the harness",
    "sys.setprofile": "traces the harness",
    "sys.monitoring": "traces the harness",
    "sys.addaudithook": "traces the harness",
    "threading.settrace": "traces the harness",
    "threading.setprofile": "traces the harness",
}
_LISTINGS = ("sys.modules.items", "sys.modules.values", "sys.modules.keys", "sys.modules.copy")


def check(source: Source, report: Reporter) -> None:
    for name, line in source.names.imports:
        _check_name(name, line, report)
    for name, node, line in source.names.references:
        _check_name(name, line, report)
        if name == "pkb" and not isinstance(node, ast.Name):
            report.reject(line, "looks the harness's package up at run time")
        if name in _LISTINGS:
            report.warn(line, "lists the modules of the process")
    for part in source.nodes:
        if isinstance(part, ast.Attribute) and part.attr == "f_back":
            report.reject(part.lineno, "reads its callers' frames")
        elif isinstance(part, ast.Attribute) and part.attr in ("__globals__", "__closure__"):
            report.warn(part.lineno, f"looks into a function through {part.attr}")
        elif isinstance(part, ast.For | ast.comprehension) and _lists_modules(part.iter, source):
            report.warn(part.iter.lineno, "lists the modules of the process")


def _check_name(name: str, line: int, report: Reporter) -> None:
    if name.startswith("pkb.") and not under(name, "pkb.kit"):
        report.reject(line, f"imports {name}: only pkb.kit is for candidates")
    elif under(name, "__main__"):
        report.reject(line, "reaches for the program that runs it (__main__)")
    for forbidden, what in _FORBIDDEN.items():
        if under(name, forbidden):
            report.reject(line, f"{forbidden} {what}")


def _lists_modules(node: ast.expr, source: Source) -> bool:
    inner = node.args[0] if isinstance(node, ast.Call) and node.args else node
    return source.names.dotted(inner) == "sys.modules"
