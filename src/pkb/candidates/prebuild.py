"""Compile what a candidate will compile, before any rank starts: `python -m pkb.candidates.prebuild FILE`.

A build takes seconds to minutes. Done here it happens once, in a process of its own that the judge bounds, and a compile
error becomes a verdict rather than eight crashed ranks. The candidate's Python is read, never run, and compilers run behind
walls (`walled_build`). The results lie in `PKB_BUILD_DIR`, where the ranks look first; what could not be foreseen is built by
the first rank that asks.

One JSON document goes to standard output:

    {"built":   [{"name", "kind", "line", "seconds", "cached", "file", "checked_only"}],
     "skipped": [{"line", "why"}],
     "error":   null | {"name", "kind", "line", "first_error", "log"},
     "rejected": null | {"name", "line", "option"},
     "walls":   {layer: "on..." | "off: why"} of the last build, empty when all was found,
     "unavailable": null | "why this machine cannot build it"}

`line` is the call's line in the candidate; `checked_only` says the object was compiled but not linked (a CPU build of
torch). Exit status: 0 built or nothing to build, 1 an error or a
refused option, 2 wrong usage.
"""

import ast
import ctypes
import json
import os
import re
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pkb.candidates.constants import Dynamic, Scope
from pkb.candidates.walled_build import BuildStopped, build_behind_walls
from pkb.kit.errors import CompileError, CompilerMissing, OptionRefused
from pkb.kit.recipes import recipe

PR_SET_PDEATHSIG = 1

# Where each builder is imported from, and what it is called in the report.
_KINDS = {
    "pkb.kit.compile": "cubin",
    "pkb.kit.cuda.compile": "cubin",
    "pkb.kit.build_cpp": "cpp",
    "pkb.kit.cpp.build_cpp": "cpp",
    "utils.cuda_helpers.compile_cuda_extension": "extension",
    "pkb.kit.extension.compile_cuda_extension": "extension",
}
_PARAMETERS = {
    "cubin": ("source", "name", "options", "arch"),
    "cpp": ("source", "name", "options"),
    "extension": ("name", "cuda_src", "extra_cuda_cflags", "extra_include_paths", "extra_ldflags"),
}
# Headers and libraries that the stubs for a CPU build of torch do not cover: not compiling there proves nothing.
_NOT_CHECKABLE = re.compile(r"No such file|cannot open source file|cublas|cusparse|cusolver|cudnn|nccl|nvshmem", re.I)


@dataclass(frozen=True)
class Call:
    """One call of a builder in the candidate."""

    node: ast.Call
    kind: str
    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    guarded: bool
    """Inside a `try`: a failure there may be foreseen by the candidate."""


@dataclass(frozen=True)
class Built:
    name: str
    kind: str
    line: int
    seconds: float
    cached: bool
    file: str
    """Its name in the folder of builds."""
    checked_only: bool = False


def find_calls(tree: ast.Module) -> list[Call]:
    """Calls of builders, under whatever name the file imports them, in the order of the text."""
    aliases = _aliases(tree)
    calls: list[Call] = []

    def visit(node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef | None, guarded: bool) -> None:
        if isinstance(node, ast.Call):
            kind = _KINDS.get(_full_name(node.func, aliases))
            if kind:
                calls.append(Call(node=node, kind=kind, function=function, guarded=guarded))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, guarded = node, False
        for field, value in ast.iter_fields(node):
            inside = guarded or (isinstance(node, ast.Try) and field == "body" and bool(node.handlers))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, function, inside)

    visit(tree, None, False)
    return calls


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Local name -> full dotted name, from every import in the file. A bare `compile` is Python's own unless
    imported.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or top] = top
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(parts)])


def _arguments(call: Call, scope: Scope) -> dict[str, Any]:
    """The call's arguments by name, all constant, or `Dynamic`."""
    names = scope.inside(call.function)
    parameters = _PARAMETERS[call.kind]
    if any(isinstance(item, ast.Starred) for item in call.node.args) or any(k.arg is None for k in call.node.keywords):
        raise Dynamic("arguments are passed with a star")
    if len(call.node.args) > len(parameters):
        raise Dynamic("too many arguments")
    found = {parameter: names.value(node) for parameter, node in zip(parameters, call.node.args, strict=False)}
    found.update({keyword.arg: names.value(keyword.value) for keyword in call.node.keywords if keyword.arg})
    unknown = set(found) - set(parameters)
    if unknown:
        raise Dynamic(f"unknown argument {sorted(unknown)[0]!r}")
    for required in ("name", "cuda_src") if call.kind == "extension" else ("source",):
        if not isinstance(found.get(required), str):
            raise Dynamic(f"`{required}` is missing or no string")
    for parameter, value in found.items():
        is_list = parameter in ("options", "extra_cuda_cflags", "extra_include_paths", "extra_ldflags")
        if is_list:
            good = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        else:
            good = isinstance(value, str)
        if not good and value is not None:
            raise Dynamic(f"`{parameter}` is no {'list of strings' if is_list else 'string'}")
    return found


def prebuild(source: str) -> dict[str, Any]:
    """Build all that can be foreseen; the first compile error ends it."""
    report: dict[str, Any] = {
        "built": [], "skipped": [], "error": None, "rejected": None, "walls": {}, "unavailable": None
    }  # fmt: skip
    try:
        tree = ast.parse(source)
        scope, calls = Scope(tree), find_calls(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Python's own error is the judge's to report when it inspects or loads the file.
        report["skipped"].append({"line": getattr(error, "lineno", None) or 0, "why": f"cannot be read: {error}"})
        return report
    for call in calls:
        line = call.node.lineno
        try:
            given = _arguments(call, scope)
        except (Dynamic, RecursionError) as why:
            report["skipped"].append({"line": line, "why": f"{why}: built when a rank asks for it"})
            continue
        name = str(given.get("name") or {"cubin": "kernel", "cpp": "library"}.get(call.kind))
        try:
            order = recipe(call.kind, given)
            name = order.name
            artifact, walls = build_behind_walls(call.kind, given, order)
            report["walls"] |= walls
        except CompilerMissing as missing:
            report["unavailable"] = str(missing)
            return report
        except OptionRefused as refused:
            report["rejected"] = {"name": refused.name, "line": line, "option": refused.option}
            return report
        except BuildStopped as stopped:
            text = str(stopped)
            report["error"] = {"name": name, "kind": stopped.kind, "line": line, "first_error": text[:500], "log": text}
            return report
        except CompileError as error:
            doubt = _doubt(call, error)
            if doubt:
                report["skipped"].append({"line": line, "why": f"{doubt}: {error.first_error}"})
                continue
            first = {"name": name, "kind": call.kind, "line": line, "first_error": error.first_error, "log": error.log}
            report["error"] = first
            return report
        checked_only = artifact.path.suffix == ".o"
        seconds, file = round(artifact.seconds, 3), artifact.path.name
        built = Built(name, call.kind, line, seconds, artifact.cached, file, checked_only=checked_only)
        report["built"].append(asdict(built))
    return report


def _doubt(call: Call, error: CompileError) -> str | None:
    """Why a compile error must not be held against the candidate, or None."""
    if call.guarded:
        return "does not compile, but inside a try, so the candidate may have another way"
    if call.kind == "extension" and _NOT_CHECKABLE.search(error.first_error):
        import torch

        if torch.version.cuda is None:
            return "cannot be checked without a CUDA build of torch"
    return None


def end_with(parent: int) -> None:
    """Take the compilers along when the judge that asked for the build ends, however it ends."""

    def end(number: int, frame: object) -> None:
        os.killpg(os.getpgrp(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        end(0, None)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 3):
        print("usage: python -m pkb.candidates.prebuild FILE [--parent PID]", file=sys.stderr)
        return 2
    if len(arguments) == 3:
        end_with(int(arguments[2]))
    report = prebuild(Path(arguments[0]).read_text(encoding="utf-8-sig", errors="replace"))
    print(json.dumps(report))
    return 1 if report["error"] or report["rejected"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
