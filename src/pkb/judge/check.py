"""Inspect and build only: what `pkb check` does, on any machine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pkb.candidates.build_records import Built
from pkb.candidates.libraries import LIBRARIES, missing_words
from pkb.candidates.machine_code import binary_paths
from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read
from pkb.judge.crew.sides import build_environment
from pkb.judge.decision import Decided
from pkb.judge.stages import prepare
from pkb.judge.stages.build import BuildReport, prebuild
from pkb.platforms.base import EMULATED_CUDA
from pkb.platforms.cpu import CpuPlatform
from pkb.types.check import CheckReport
from pkb.types.verdict import Stage, Verdict

DISASSEMBLY_LIMIT_S = 30.0


def check(path: Path, *, build_limit_s: float, progress: Callable[[str], None] = lambda text: None) -> CheckReport:
    """Inspect and build only: no GPU needed, nothing of the candidate is run."""
    found = CheckReport(ok=True, verdict=None, detail="")
    try:
        progress("inspect")
        source = read(path)
        prepare.check_syntax(source)
        inspection = inspect_source(source)
        found = replace(
            found,
            paths=tuple(dict.fromkeys(use.path for use in inspection.paths)),
            backend=inspection.backend,
            warnings=tuple(f"line {f.line}: {f.message}" for f in inspection.warnings),
            hints=tuple(_to_install(inspection.needs)),
        )
        prepare.check_rules(source, inspection)
        progress("build")
        build, for_cpu = prebuild(path, limit_s=build_limit_s, environment={}), ""
        if (
            build.unavailable
            and "gpu" not in inspection.needs
            and EMULATED_CUDA in (here := CpuPlatform().facts()).capabilities
        ):
            build.discard()  # nothing to build it for a GPU with: as the platform cpu builds it
            for_cpu = f" by g++ for the platform cpu; for a GPU not: {build.unavailable}"
            build = prebuild(path, limit_s=build_limit_s, environment=build_environment(here))
        try:
            found = replace(
                found,
                skipped=tuple(f"line {item.line}: {item.why}" for item in build.skipped),
                built=tuple((item.name, _kind(item), item.seconds) for item in build.built),
            )
            prepare.decide_build(build, limit_s=build_limit_s)
            if build.unavailable:
                raise Decided(Verdict.UNSUPPORTED, Stage.BUILD, build.unavailable)
            found = replace(
                found, detail=f"reads well; {len(build.built)} source{'s' * (len(build.built) != 1)} built{for_cpu}"
            )
            if for_cpu:
                return found
            progress("machine code")
            return replace(found, machine_code=tuple(_machine_code(build)))
        finally:
            build.discard()
    except Decided as decided:
        failure = decided.evidence.failure
        return replace(found, ok=False, verdict=decided.verdict, detail=decided.detail, failure=failure)


def _to_install(needs: frozenset[str]) -> Iterator[str]:
    """Of packages, which ranks import; what a build misses, it says itself."""
    for library in LIBRARIES:
        if library.packages and library.name in needs and (words := missing_words(library.name)):
            yield f"to run it here: {words}"


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
