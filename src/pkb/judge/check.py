"""Inspect and build only: what `pkb check` does, on any machine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pkb.candidates.build_records import Built
from pkb.candidates.libraries import LIBRARIES, missing_words
from pkb.candidates.machine_code import binary_paths
from pkb.candidates.rules import inspect_source
from pkb.candidates.source import has_solution, read
from pkb.judge.crew.sides import build_environment
from pkb.judge.stages.build import BuildReport, prebuild
from pkb.judge.stages.prepare import broken_rule, compiler_failure, refusal
from pkb.platforms.base import EMULATED_CUDA
from pkb.platforms.cpu import CpuPlatform
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
    read_well = CheckReport(
        ok=True,
        verdict=None,
        detail="",
        paths=tuple(dict.fromkeys(use.path for use in inspection.paths)),
        backend=inspection.backend,
        warnings=tuple(f"line {f.line}: {f.message}" for f in inspection.findings if f.severity == "warn"),
        hints=tuple(_to_install(inspection.needs)),
    )
    if source.tree is not None and not has_solution(source.tree):
        return _refused(read_well, Verdict.LOAD_ERROR, "the file defines no function called solution")
    for finding in inspection.findings:
        if finding.severity == "reject":
            failure = broken_rule(finding)
            return _refused(read_well, Verdict.REJECTED, finding.message, failure)
    progress("build")
    build, for_cpu = prebuild(path, limit_s=build_limit_s, environment={}), ""
    if (
        build.unavailable
        and "gpu" not in inspection.needs
        and EMULATED_CUDA in (here := CpuPlatform().facts()).capabilities
    ):
        build.discard()  # nothing to build it for a GPU with: as the platform cpu builds it
        for_cpu = f"by g++ for the platform cpu; for a GPU not: {build.unavailable}"
        build = prebuild(path, limit_s=build_limit_s, environment=build_environment(here))
    try:
        report = _built(build, read_well, build_limit_s=build_limit_s)
        if not report.ok:
            return report
        if for_cpu:
            return replace(report, detail=f"{report.detail} {for_cpu}")
        progress("machine code")
        return replace(report, machine_code=tuple(_machine_code(build)))
    finally:
        build.discard()


def _to_install(needs: frozenset[str]) -> Iterator[str]:
    """Of packages, which ranks import; what a build misses, it says itself."""
    for library in LIBRARIES:
        if library.packages and library.name in needs and (words := missing_words(library.name)):
            yield f"to run it here: {words}"


def _refused(found: CheckReport, verdict: Verdict, detail: str, failure: Failure | None = None) -> CheckReport:
    return replace(found, ok=False, verdict=verdict, detail=detail, failure=failure)


def _built(build: BuildReport, read_well: CheckReport, *, build_limit_s: float) -> CheckReport:
    found = replace(
        read_well,
        skipped=tuple(f"line {item.line}: {item.why}" for item in build.skipped),
        built=tuple((item.name, _kind(item), item.seconds) for item in build.built),
    )
    if refused := refusal(build):
        return _refused(found, Verdict.REJECTED, refused.message, refused)
    if build.stopped:
        return _refused(found, Verdict.COMPILE_ERROR, f"the build was stopped: {build.stopped}")
    if build.timed_out:
        return _refused(found, Verdict.COMPILE_ERROR, f"the build took more than {build_limit_s:.0f} s")
    if build.error is not None:
        failure = compiler_failure(build.error)
        return _refused(found, Verdict.COMPILE_ERROR, failure.message, failure)
    if build.unavailable:
        return _refused(found, Verdict.UNSUPPORTED, build.unavailable)
    built = len(build.built)
    return replace(found, detail=f"reads well; {built} source{'s' * (built != 1)} built")


def _kind(item: Built) -> str:
    of_torch = "torch header: " if item.kind == "extension" else ""
    return f"{item.kind}, {of_torch}{item.headers}" if item.headers else item.kind


def _machine_code(build: BuildReport) -> Iterator[str]:
    """One line a kernel and way of moving data, with the first instruction that shows it."""
    for item in build.built:
        if item.kind == "cpp":
            continue
        name, read = item.name, binary_paths(build.folder / item.file, timeout_s=DISASSEMBLY_LIMIT_S)
        if read.uses is None:
            yield f"{name}: not read: {read.problem}"
            continue
        first = {(use.kernel, use.path): use.text for use in reversed(read.uses)}
        yield from (f"{kernel}: {path} ({text})" for (kernel, path), text in sorted(first.items()))
        if not read.uses:
            yield f"{name}: no instruction that reaches beyond the GPU by its looks"
