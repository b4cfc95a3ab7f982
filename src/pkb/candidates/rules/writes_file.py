"""Writes or removes files.

What it finds: `open` for writing, `Path.write_text` and `write_bytes`, `os.open` with writing flags, `os.remove`,
`shutil.rmtree`, `torch.save`, `numpy.save`.

Why: a file is a way to carry results from one call or run to the next, or to reach another rank beside the measured
path. Build folders are honest, so it is a warning; at run time a rank can write only to a scratch folder of its own.

Example:

    open("/tmp/answers.bin", "wb").write(out.cpu().numpy().tobytes())

Use instead: module-level variables for buffers that are kept between calls; `pkb.kit` for builds.
"""

import ast

from pkb.candidates.constants import fold
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_OPENS = ("builtins.open", "io.open", "os.fdopen")
_CALLS = frozenset(
    {"os.remove", "os.unlink", "os.rename", "os.replace", "os.truncate", "shutil.rmtree", "shutil.copy", "shutil.move"}
    | {"shutil.copyfile", "torch.save", "numpy.save", "numpy.savez", "numpy.memmap"}
)
_METHODS = frozenset({"write_text", "write_bytes"})
_FLAGS = ("os.O_WRONLY", "os.O_RDWR", "os.O_CREAT", "os.O_APPEND", "os.O_TRUNC")


def check(source: Source, report: Reporter) -> None:
    for name, call in source.names.calls:
        if name in _OPENS and _writes(_mode(call, position=1)):
            report.warn(call.lineno, "opens a file for writing")
        elif name in _CALLS:
            report.warn(call.lineno, f"{name} changes files")
        elif name == "os.open" and any(source.names.dotted(part) in _FLAGS for part in ast.walk(call)):
            report.warn(call.lineno, "opens a file for writing")
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path_open = node.func.attr == "open" and source.names.dotted(node.func) is None
            if node.func.attr in _METHODS or (path_open and _writes(_mode(node, position=0))):
                report.warn(node.lineno, "writes a file")


def _mode(call: ast.Call, *, position: int) -> str:
    for keyword in call.keywords:
        if keyword.arg == "mode":
            return fold(keyword.value) or ""
    return (fold(call.args[position]) or "") if len(call.args) > position else ""


def _writes(mode: str) -> bool:
    return 0 < len(mode) <= 4 and bool(set(mode) & set("wax+")) and set(mode) <= set("rwaxbt+")
