"""Compile what a candidate will compile, before any rank starts: `python -m pkb.candidates.prebuild FILE`.

A build takes seconds to minutes. Done here it happens once, in a process of its own that the judge bounds, and a compile
error becomes a verdict rather than eight crashed ranks. The candidate's Python is read, never run, and compilers run behind
walls (`walled_build`). The results lie in `PKB_BUILD_DIR`, where the ranks look first; what could not be foreseen is built by
the first rank that asks.

One JSON document, a `Prebuilt`, goes to standard output. Exit status: 0 built or nothing to build, 1 an error or a refused
option, 2 wrong usage.
"""

import ast
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from pkb.candidates import torch_adaptor
from pkb.candidates.build_records import BuildError, Built, Prebuilt, RefusedOption, Skipped
from pkb.candidates.compiler_log import in_candidate
from pkb.candidates.constants import Constants, Dynamic
from pkb.candidates.names import Names, under
from pkb.candidates.scopes import PythonScope, every_scope
from pkb.candidates.walled_build import BuildStopped, build_behind_walls
from pkb.kit import kittens, slim, torch_facts
from pkb.kit.cache import Artifact
from pkb.kit.emulated import recipe as emulated
from pkb.kit.errors import CompileError, CompilerMissing, OptionRefused
from pkb.kit.recipes import BadArgument, Given, recipe
from pkb.types.processes import die_with_parent

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
_WHOSE_FAULT = (
    ". A mistake of yours or something that the emulator lacks? A CUDA compiler would say: `pip install 'pkb[cuda]'`"
)
# Headers and libraries that the stubs for a CPU build of torch do not cover: not compiling there proves nothing.
_NOT_CHECKABLE = re.compile(r"No such file|cannot open source file|cublas|cusparse|cusolver|cudnn|nccl|nvshmem", re.I)


@dataclass(frozen=True)
class BuilderCall:
    """One call of a builder in the candidate."""

    node: ast.Call
    kind: str
    scope: PythonScope
    guarded: bool
    """Inside a `try`: a failure there may be foreseen by the candidate."""


def find_calls(tree: ast.Module) -> list[BuilderCall]:
    """Calls of builders, under whatever name the file imports them, in the order of the text."""
    names = Names(tuple(ast.walk(tree)))
    calls: list[BuilderCall] = []
    for scope in every_scope(tree):
        tries = [node for node in scope.nodes if isinstance(node, ast.Try) and node.handlers]
        guarded = {id(part) for node in tries for statement in node.body for part in ast.walk(statement)}
        for node in scope.nodes:
            kind = _KINDS.get(names.dotted(node.func) or "") if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and kind:
                calls.append(BuilderCall(node, kind, scope, guarded=id(node) in guarded))
    return sorted(calls, key=lambda call: (call.node.lineno, call.node.col_offset))


def arguments_of(call: BuilderCall, constants: Constants) -> Given:
    """The call's arguments by name, all constant, or `Dynamic`."""
    parameters = _PARAMETERS[call.kind]
    if any(isinstance(item, ast.Starred) for item in call.node.args) or any(k.arg is None for k in call.node.keywords):
        raise Dynamic("arguments are passed with a star")
    if len(call.node.args) > len(parameters):
        raise Dynamic("too many arguments")
    given = dict(zip(parameters, call.node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.node.keywords if keyword.arg}
    found = {parameter: constants.value(node, call.scope) for parameter, node in given.items()}
    unknown = set(found) - set(parameters)
    if unknown:
        raise Dynamic(f"unknown argument {sorted(unknown)[0]!r}")
    return found


def prebuild(source: str) -> Prebuilt:
    """Build all that can be foreseen; the first compile error ends it."""
    report = Prebuilt()
    try:
        tree = ast.parse(source)
        calls = find_calls(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Python's own error is the judge's to report when it inspects or loads the file.
        report.skipped.append(Skipped(getattr(error, "lineno", None) or 0, f"cannot be read: {error}"))
        return report
    constants = Constants()
    report.skipped += _compiled_in_ranks(tree)
    emulates = os.environ.get("PKB_EMULATE_CUDA") == "1"
    for part in emulated.parts(source, {call.kind for call in calls}) if emulates else ():
        order = emulated.recipe(part, {}) if part in emulated.KINDS else recipe(part, {})
        artifact, walls = build_behind_walls(part, {}, order)
        report.walls |= walls
        report.built.append(_record(order.name, part, 0, artifact))
    if any(call.kind == "extension" for call in calls) and not emulates:
        torch_adaptor.provide()
    for call in calls:
        line = call.node.lineno
        name = ""
        try:
            given = arguments_of(call, constants)
            kind = emulated.emulated(call.kind) if emulates else call.kind
            order = emulated.recipe(kind, given) if kind in emulated.KINDS else recipe(kind, given)
            name = order.name
            artifact, walls = build_behind_walls(kind, given, order)
            report.walls |= walls
        except (Dynamic, RecursionError, BadArgument) as why:
            report.skipped.append(Skipped(line, f"{why}: built when a rank asks for it"))
            continue
        except CompilerMissing as missing:
            report.unavailable = str(missing)
            return report
        except emulated.NotEmulated as what:
            if call.guarded:
                report.skipped.append(Skipped(line, f"not emulated, inside a try: {what}"))
                continue
            try:
                found = _by_real_compiler(given) if call.kind == "cubin" else None
                advice = ""
            except CompilerMissing:
                found, advice = None, _WHOSE_FAULT if emulated.BY_GXX in str(what) else ""
            if found is not None:
                report.error = _error(found, call=call, name=name, given=given, candidate=source)
                return report
            placed = in_candidate(str(what), compiled=_compiled(given), candidate=source)
            report.unavailable = f"not emulated on a CPU: {placed}{advice}"
            return report
        except OptionRefused as refused:
            report.rejected = RefusedOption(refused.name, line, refused.option)
            return report
        except BuildStopped as stopped:
            text = str(stopped)
            report.error = BuildError(name, stopped.kind, line, first_error=text[:500], log=text)
            return report
        except CompileError as error:
            doubt = _doubt(call, error)
            if doubt:
                report.skipped.append(Skipped(line, f"{doubt}: {error.first_error}"))
                continue
            report.error = _error(error, call=call, name=name, given=given, candidate=source)
            return report
        report.built.append(_record(name, call.kind, line, artifact, _compiled(given)))
    return report


def _compiled_in_ranks(tree: ast.Module) -> list[Skipped]:
    """CuTe DSL traces Python with the arguments of a call and compiles what comes out: no source can be built before."""
    names = Names(tuple(ast.walk(tree)))
    lines = [line for name, line in names.imports if under(name, "cutlass")]
    return (
        [Skipped(min(lines), "CuTe DSL compiles in each rank, at its first call: not to be seen before")]
        if lines
        else []
    )


def _by_real_compiler(given: Given) -> CompileError | None:
    """What CUDA's own compiler says of a source that the emulator cannot build: whose fault it is. Raises `CompilerMissing`."""
    try:
        build_behind_walls("cubin", given, recipe("cubin", given))
    except CompileError as error:
        return error
    except BuildStopped:
        pass
    return None


def _compiled(given: Given) -> str:
    return str(given.get("source") or given.get("cuda_src"))


def _error(error: CompileError, *, call: BuilderCall, name: str, given: Given, candidate: str) -> BuildError:
    log = in_candidate(error.log, compiled=_compiled(given), candidate=candidate)
    # The same line of the log, now with its place in the candidate.
    first = next((said for said in log.splitlines() if said.strip().endswith(error.first_error)), "")
    return BuildError(name, call.kind, call.node.lineno, first_error=first.strip() or error.first_error, log=log)


def _record(name: str, kind: str, line: int, artifact: Artifact, source: str = "") -> Built:
    headers = []
    if kind == "extension":
        headers.append("ours" if slim.used_in(artifact.path) else "torch's own")
    headers += kittens.identity(source)
    return Built(
        name=name,
        kind=kind,
        line=line,
        seconds=round(artifact.seconds, 3),
        cached=artifact.cached,
        file=artifact.path.name,
        headers=", ".join(headers),
    )


def _doubt(call: BuilderCall, error: CompileError) -> str | None:
    """Why a compile error must not be held against the candidate, or None."""
    if call.guarded:
        return "does not compile, but inside a try, so the candidate may have another way"
    if call.kind == "extension" and _NOT_CHECKABLE.search(error.first_error) and torch_facts.cuda_version() is None:
        return "cannot be checked without a CUDA build of torch"
    return None


def end_with(parent: int) -> None:
    """Take the compilers along when the judge that asked for the build ends, however it ends."""

    def end(number: int, frame: object) -> None:
        os.killpg(os.getpgrp(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(parent, signal=signal.SIGTERM)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 3):
        print("usage: python -m pkb.candidates.prebuild FILE [--parent PID]", file=sys.stderr)
        return 2
    if len(arguments) == 3:
        end_with(int(arguments[2]))
    report = prebuild(Path(arguments[0]).read_text(encoding="utf-8-sig", errors="replace"))
    print(report.to_json())
    return 1 if report.error or report.rejected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
