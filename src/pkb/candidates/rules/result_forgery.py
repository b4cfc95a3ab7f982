"""Writes to descriptors that it did not open.

What it finds: `os.write`, `os.fdopen`, `open(NUMBER)` and sockets made from a descriptor number, where the file opens
no descriptor of its own; any look at `/proc/self/fd`. Where the candidate does open descriptors itself
(`tempfile.mkstemp`, `os.open`, `os.memfd_create`, `socket.recv_fds`), the uses are a warning, since they are most
likely its own.

Why: a rank inherits the channel on which its results go to the judge. Who finds that descriptor can try to answer in
the harness's place.

Example:

    for fd in os.listdir("/proc/self/fd"):
        os.write(int(fd), b'{"ok": true}')

Use instead: return the result. Printing goes through `print`, or `os.write(1, ...)` and `os.write(2, ...)`.
"""

import ast
import re

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_FD_FOLDER = re.compile(r"/proc/[^/\s]+/(?:task/[^/\s]+/)?fd(?:info)?\b|/dev/fd\b")
_WRITES = ("os.write", "os.writev", "os.pwrite", "os.pwritev", "os.sendfile")
_WRAPS = ("os.fdopen", "io.FileIO", "socket.fromfd", "socket.fromshare", "socket.send_fds")
_OWN = (
    "tempfile.mkstemp", "os.open", "os.pipe", "os.pipe2", "os.memfd_create", "socket.recv_fds", "os.eventfd",
    "os.pidfd_open",
)  # fmt: skip
_STANDARD = frozenset({1, 2})


def check(source: Source, report: Reporter) -> None:
    opens_own = any(under(name, *_OWN) for name, _ in source.names.calls)
    tell = report.warn if opens_own else report.reject
    for name, call in source.names.calls:
        first = _number(call.args[0]) if call.args else None
        if name in _WRITES and first not in _STANDARD:
            tell(call.lineno, f"{name} to a descriptor that it did not open")
        elif name in _WRAPS and not (name == "io.FileIO" and first is None) and first not in _STANDARD:
            tell(call.lineno, f"{name} on a descriptor that it did not open")
        elif name in ("builtins.open", "io.open") and first is not None and first not in _STANDARD:
            report.reject(call.lineno, f"opens descriptor {first}, which it did not make")
        elif name == "socket.socket" and any(keyword.arg == "fileno" for keyword in call.keywords):
            tell(call.lineno, "makes a socket of a descriptor that it did not open")
    for literal in source.names.literals:
        for match in _FD_FOLDER.finditer(literal.text):
            report.reject(literal.line_of(match.start()), f"looks through open descriptors ({match.group()})")


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None
