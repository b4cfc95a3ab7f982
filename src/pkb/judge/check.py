"""Inspect and build only: what `pkb check` does, on any machine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pkb.candidates.machine_code import binary_paths
from pkb.candidates.rules import inspect_source
from pkb.candidates.source import has_solution, read
from pkb.judge.stages.build import BuildReport, prebuild
from pkb.types.check import CheckReport
from pkb.types.verdict import Failure, Verdict

DISASSEMBLY_LIMIT_S = 30.0


def check(path: Path, *, build_limit_s: float, progress: Callable[[str], None] = lambda text: None) -> CheckReport:
    """Inspect and build only: no GPU needed, nothing of the candidate is run."""
    progress("inspect")
    source = read(path)
    if source.syntax_error is not None:
        return CheckReport(
            ok=False,
            verdict=Verdict.COMPILE_ERROR,
            detail=f"not Python: {source.syntax_error.message}",
            failure=source.syntax_error,
        )
    inspection = inspect_source(source)
    common: dict[str, Any] = {
        "paths": tuple(dict.fromkeys(use.path for use in inspection.paths)),
        "backend": inspection.backend,
        "warnings": tuple(f"line {f.line}: {f.message}" for f in inspection.findings if f.severity == "warn"),
    }
    if source.tree is not None and not has_solution(source.tree):
        return CheckReport(
            ok=False, verdict=Verdict.LOAD_ERROR, detail="the file defines no function called solution", **common
        )
    for finding in inspection.findings:
        if finding.severity == "reject":
            failure = Failure(finding.rule, f"line {finding.line}: {finding.text}")
            return CheckReport(ok=False, verdict=Verdict.REJECTED, detail=finding.message, failure=failure, **common)
    progress("build")
    build = prebuild(path, limit_s=build_limit_s, environment={})
    common["skipped"] = tuple(f"line {item.get('line')}: {item.get('why')}" for item in build.skipped)
    common["built"] = tuple((str(i.get("name")), str(i.get("kind")), float(i.get("seconds", 0))) for i in build.built)
    if build.timed_out:
        return CheckReport(
            ok=False, verdict=Verdict.COMPILE_ERROR, detail=f"the build took more than {build_limit_s:.0f} s", **common
        )
    if build.error is not None:
        first = str(build.error.get("first_error"))
        failure = Failure(str(build.error.get("kind")), first, trace=str(build.error.get("log", ""))[-8000:])
        return CheckReport(ok=False, verdict=Verdict.COMPILE_ERROR, detail=first, failure=failure, **common)
    if build.unavailable:
        return CheckReport(ok=False, verdict=Verdict.UNSUPPORTED, detail=build.unavailable, **common)
    progress("machine code")
    common["machine_code"] = tuple(_machine_code(build))
    built = len(build.built)
    return CheckReport(ok=True, verdict=None, detail=f"reads well; {built} source{'s' * (built != 1)} built", **common)


def _machine_code(build: BuildReport) -> Iterator[str]:
    """One line a kernel and way of moving data, with the first instruction that shows it."""
    for item in build.built:
        if item.get("kind") == "cpp":
            continue
        name, read = item.get("name"), binary_paths(build.folder / str(item.get("file")), timeout_s=DISASSEMBLY_LIMIT_S)
        if read.uses is None:
            yield f"{name}: not read: {read.problem}"
            continue
        first = {(use.kernel, use.path): use.text for use in reversed(read.uses)}
        yield from (f"{kernel}: {path} ({text})" for (kernel, path), text in sorted(first.items()))
        if not read.uses:
            yield f"{name}: no instruction that reaches beyond the GPU by its looks"
