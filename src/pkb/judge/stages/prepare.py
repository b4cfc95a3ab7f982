"""What is decided before anything of the candidate runs: its text, and its build."""

from pkb.candidates.build_records import BuildError
from pkb.candidates.libraries import LIBRARIES, missing_words
from pkb.candidates.rules import Finding, Inspection
from pkb.candidates.source import Source, has_solution
from pkb.judge.crew.sides import build_environment
from pkb.judge.decision import Decided
from pkb.judge.stages.build import BuildReport, prebuild
from pkb.platforms.base import EMULATED_CUDA, PlatformFacts
from pkb.types.job import Job
from pkb.types.verdict import Evidence, Failure, FailureKind, Stage, Verdict


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
        raise Decided(
            Verdict.REJECTED,
            Stage.INSPECT,
            f"line {finding.line}: {finding.message}",
            Evidence(failure=broken_rule(finding)),
        )


def why_unsupported(inspection: Inspection, facts: PlatformFacts) -> str:
    """Why such a platform cannot run the candidate, by its text alone; empty if it can. Nothing is compiled in vain."""
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


def broken_rule(finding: Finding) -> Failure:
    return Failure(FailureKind.STATIC_RULE, f"line {finding.line}: {finding.text}", name=finding.rule)


def compiler_failure(error: BuildError) -> Failure:
    return Failure(FailureKind.COMPILER, error.first_error, trace=error.log[:8000], name=error.kind)


def build(job: Job, inspection: Inspection, facts: PlatformFacts) -> BuildReport:
    """Compile what can be compiled before ranks wait for it. The report's folder is the caller's to discard."""
    report = prebuild(job.candidate, limit_s=job.build_limit_s, environment=build_environment(facts))
    try:
        _decide(report, job, inspection)
    except Decided:
        report.discard()
        raise
    return report


def refusal(report: BuildReport) -> Failure | None:
    """The compiler option that is not allowed, if there is one."""
    if report.rejected is None:
        return None
    option, line = report.rejected.option, report.rejected.line
    text = f"line {line}: the compiler option {option} is not among those that candidates may use"
    return Failure(FailureKind.COMPILER_OPTION, text, name=option)


def _decide(report: BuildReport, job: Job, inspection: Inspection) -> None:
    if refused := refusal(report):
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
            f"the build took more than {job.build_limit_s:.0f} s",
            Evidence(failure=Failure(FailureKind.BUILD_LIMIT, f"{job.build_limit_s:.0f} s")),
        )
    if report.error is not None:
        failure = compiler_failure(report.error)
        raise Decided(Verdict.COMPILE_ERROR, Stage.BUILD, failure.message, Evidence(failure=failure))
    if report.unavailable and "cuda" in inspection.needs:
        raise Decided(Verdict.UNSUPPORTED, Stage.BUILD, report.unavailable)
