"""Interferes with other processes, or with how the harness watches its own.

What it finds: `ptrace`, `process_vm_readv` and `process_vm_writev`, also in embedded C++; `/proc/PID/mem`; `os.kill`
and its kin; handlers for SIGUSR1 and SIGUSR2; `ctypes` access to interpreter frames and threads; writes of
LD_PRELOAD; names of the recorder of memory accesses (`__tsan_*`) in code. A warning: a new session or process group.

Why: other ranks, the warden and the judge are other processes. Reading their memory gives the inputs and truth of all
ranks; a signal makes a slow reference slower or a watchdog blind.

Example:

    memory = open(f"/proc/{os.getppid()}/mem", "rb")

Use instead: symmetric memory to reach peers' buffers. Ranks that are no longer needed are ended by the harness.
"""

import ast
import re

from pkb.candidates.constants import fold
from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_TRACING = frozenset({"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise"})
_TRACING_IN_C = re.compile(rf"\b({'|'.join(sorted(_TRACING))})\s*\(|\bSYS_(ptrace|process_vm_\w+)\b")
_RECORDER = re.compile(r"\b(?:__tsan_|emu_record)\w*")
_MEMORY = re.compile(r"/proc/[^/\s]+/(?:task/[^/\s]+/)?mem\b")
_SIGNALS = ("os.kill", "os.killpg", "signal.pidfd_send_signal", "signal.pthread_kill", "_signal.pthread_kill")
_WATCHED = ("signal.SIGUSR1", "signal.SIGUSR2", "signal.SIGKILL", "signal.Signals.SIGUSR1", "signal.Signals.SIGUSR2")
_HANDLERS = (
    "signal.signal", "signal.siginterrupt", "signal.pthread_sigmask", "faulthandler.register",
    "faulthandler.unregister",
)  # fmt: skip
_INTERPRETER = re.compile(r"(?:ctypes\.)pythonapi\._?Py(?:Frame|Eval|ThreadState|Interpreter|Runtime|GILState)\w*")
_SESSIONS = ("os.setsid", "os.setpgid", "os.setpgrp", "os.unshare", "os.setns")
_PRELOAD = frozenset({"LD_PRELOAD", "LD_AUDIT"})


def check(source: Source, report: Reporter) -> None:
    for name, _, line in source.names.references:
        if under(name, *_SIGNALS):
            report.reject(line, f"{name} sends signals to processes")
        elif _INTERPRETER.match(name):
            report.reject(line, "looks into the interpreter through ctypes")
        elif under(name, "faulthandler.disable"):
            report.reject(line, "switches off the harness's crash reports")
        elif under(name, *_SESSIONS):
            report.warn(line, f"{name} leaves the process group that the harness watches")
    for name, call in source.names.calls:
        if name in _HANDLERS and any(_is_watched(part, source) for part in ast.walk(call)):
            report.reject(call.lineno, "takes over a signal that the harness uses")
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _TRACING:
            report.reject(node.lineno, f"{node.attr} reaches into another process")
    for key, line in environment_writes(source):
        if key in _PRELOAD:
            report.reject(line, f"writes {key}: foreign code in every process started later")
    _check_literals(source, report)


def _is_watched(node: ast.AST, source: Source) -> bool:
    return source.names.dotted(node) in _WATCHED or (isinstance(node, ast.Constant) and node.value in (10, 12))


def _check_literals(source: Source, report: Reporter) -> None:
    for literal in source.names.literals:
        code = literal.code if ";" in literal.text else literal.text  # "//" may be part of a path
        if code in _TRACING:  # getattr(libc, "ptrace")
            report.reject(literal.line, f"{code} reaches into another process")
        for pattern, what in (
            (_TRACING_IN_C, "reaches into another process"),
            (_MEMORY, "reads a process's memory"),
            (_RECORDER, "is a name of the recorder of memory accesses"),
        ):
            # A message may name the call; only code can make it.
            for match in pattern.finditer(code) if pattern is _MEMORY or ";" in code else ():
                report.reject(literal.line_of(match.start()), f"{match.group().rstrip('( ')} {what}")


def environment_writes(source: Source) -> list[tuple[str, int]]:
    """Names of environment variables that are set: item assignment, `setdefault`, `update`, `putenv`."""
    found: list[tuple[str, int]] = []
    for node in source.nodes:
        stored = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        if stored and isinstance(node, ast.Subscript) and source.names.dotted(node.value) == "os.environ":
            found.append((fold(node.slice) or "", node.lineno))
    for name, call in source.names.calls:
        if name in ("os.environ.setdefault", "os.putenv") and call.args:
            found.append((fold(call.args[0]) or "", call.lineno))
        elif name == "os.environ.update":
            keys = [fold(key) for argument in call.args if isinstance(argument, ast.Dict) for key in argument.keys]
            keys += [keyword.arg for keyword in call.keywords]
            found += [(key or "", call.lineno) for key in keys]
    return found
