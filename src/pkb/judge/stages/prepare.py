"""What is decided before any code of the candidate runs: the checks of its source, and its build."""

from dataclasses import dataclass

from pkb.candidates.libraries import LIBRARIES, missing_words
from pkb.candidates.rules import Inspection
from pkb.candidates.source import Source, has_solution
from pkb.candidates.source_lines import SourceLines
from pkb.judge.crew.patience import first_call_extra_s
from pkb.judge.crew.sides import build_environment
from pkb.judge.decision import Decided
from pkb.judge.stages.build import BuildReport, prebuild
from pkb.platforms.base import EMULATED_CUDA, PlatformFacts
from pkb.types.job import Job
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict


@dataclass(frozen=True)
class Prepared:
    """A candidate that was read and built: what the stages of every world want to know of it."""

    source: Source
    inspection: Inspection
    build: BuildReport
    build_limit_s: float
    on_gpu: bool

    @property
    def backend(self) -> str:
        return self.inspection.backend

    @property
    def emulated(self) -> bool:
        """Its kernels run on an emulated GPU."""
        return self.backend == "cuda" and not self.on_gpu

    @property
    def waits_itself(self) -> bool:
        """Whether it may wait for peers other than by a barrier of the library."""
        return self.backend != "torch" or SourceLines(self.source).may_poll

    def first_call_extra_s(self, *, new_ranks: bool = True) -> float:
        return first_call_extra_s(
            self.build_limit_s,
            lazily_built=new_ranks and bool(self.build.skipped),
            triton=self.backend == "triton" and self.on_gpu,
        )


def check_syntax(source: Source) -> None:
    if source.syntax_error is not None:
        raise Decided(
            Verdict.COMPILE_ERROR,
            Stage.INSPECT,
            f"not Python: {source.syntax_error.message}",
            Evidence(failure=source.syntax_error),
        )


def check_rules(source: Source, inspection: Inspection) -> None:
    """The file has a `solution` and breaks no rule."""
    if source.tree is not None and not has_solution(source.tree):
        raise Decided(Verdict.LOAD_ERROR, Stage.INSPECT, "the file defines no function called solution")
    for finding in inspection.rejections:
        failure = Failure(FailureKind.STATIC_RULE, f"line {finding.line}: {finding.text}", name=finding.rule)
        said = f"line {finding.line}: {finding.message}"
        raise Decided(Verdict.REJECTED, Stage.INSPECT, said, Evidence(failure=failure))


def why_unsupported(inspection: Inspection, facts: PlatformFacts) -> str:
    """Why such a platform cannot run the candidate, by its source alone; empty if it can. This avoids useless builds."""
    offered = set(facts.capabilities)
    if "cuda" in offered:
        offered.add("gpu")
    elif EMULATED_CUDA in offered:
        offered.add("cuda")
    offered |= {library.name for library in LIBRARIES if library.found()}
    missing = sorted(inspection.needs - offered)
    fixes = (
        [facts.without_cuda] if missing == ["cuda"] else [missing_words(name) for name in missing if "gpu" in offered]
    )
    if "triton" in missing:  # a platform that lacks it lacks the package alone
        fixes.append("Triton is not installed: pip install 'pkb[triton]'")
    fix = "; ".join(filter(None, fixes))
    return f"the {facts.name} platform cannot run {', '.join(missing)} candidates{fix and ': '}{fix}" if missing else ""


def check_needs(inspection: Inspection, facts: PlatformFacts) -> None:
    if why := why_unsupported(inspection, facts):
        raise Decided(Verdict.UNSUPPORTED, Stage.INSPECT, why)


def build(job: Job, inspection: Inspection, facts: PlatformFacts) -> BuildReport:
    """Compiles what can be compiled before ranks would wait for it. The caller must discard the report's folder."""
    report = prebuild(job.candidate, limit_s=job.build_limit_s, environment=build_environment(facts))
    try:
        decide_build(report, limit_s=job.build_limit_s)
        if report.unavailable and "cuda" in inspection.needs:
            raise Decided(Verdict.UNSUPPORTED, Stage.BUILD, report.unavailable)
    except Decided:
        report.discard()
        raise
    return report


def _refusal(report: BuildReport) -> Failure | None:
    """The compiler option that is not allowed, if there is one."""
    if report.rejected is None:
        return None
    option, line = report.rejected.option, report.rejected.line
    text = f"line {line}: the compiler option {option} is not among those that candidates may use"
    return Failure(FailureKind.COMPILER_OPTION, text, name=option)


def decide_build(report: BuildReport, *, limit_s: float) -> None:
    """What a build that did not succeed means for the candidate."""
    if refused := _refusal(report):
        raise Decided(Verdict.REJECTED, Stage.BUILD, refused.message, Evidence(failure=refused))
    if report.stopped:
        raise Decided(
            Verdict.COMPILE_ERROR,
            Stage.BUILD,
            f"the build was stopped: {report.stopped}",
            Evidence(failure=Failure(FailureKind.BUILD_LIMIT, report.stopped)),
        )
    if report.timed_out:
        raise Decided(
            Verdict.COMPILE_ERROR,
            Stage.BUILD,
            f"the build took more than {limit_s:.0f} s",
            Evidence(failure=Failure(FailureKind.BUILD_LIMIT, f"{limit_s:.0f} s")),
        )
    if report.error is not None:
        error = report.error
        failure = Failure(FailureKind.COMPILER, error.first_error, trace=error.log[:8000], name=error.kind)
        raise Decided(Verdict.COMPILE_ERROR, Stage.BUILD, failure.message, Evidence(failure=failure))
