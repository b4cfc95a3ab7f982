"""What is decided before anything of the candidate runs: its text, and its build."""

from pkb.candidates.rules import Inspection
from pkb.candidates.source import Source, has_solution
from pkb.judge.crew.sides import build_environment
from pkb.judge.decision import Decided
from pkb.judge.stages.build import BuildReport, prebuild
from pkb.platforms.base import PlatformFacts
from pkb.types.job import Job
from pkb.types.verdict import Failure, Stage, Verdict


def check_syntax(source: Source) -> None:
    if source.syntax_error is not None:
        raise Decided(
            Verdict.COMPILE_ERROR,
            Stage.INSPECT,
            f"not Python: {source.syntax_error.message}",
            {"failure": source.syntax_error},
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
            {"failure": Failure(finding.rule, f"line {finding.line}: {finding.text}")},
        )


def check_needs(inspection: Inspection, facts: PlatformFacts) -> None:
    missing = sorted(inspection.needs - set(facts.capabilities))
    if missing:
        raise Decided(
            Verdict.UNSUPPORTED,
            Stage.INSPECT,
            f"the {facts.name} platform cannot run {', '.join(missing)} candidates",
        )


def build(job: Job, inspection: Inspection, facts: PlatformFacts) -> BuildReport:
    """Compile what can be compiled before ranks wait for it."""
    report = prebuild(job.candidate, limit_s=job.build_limit_s, environment=build_environment(facts.hardware))
    if report.timed_out:
        raise Decided(
            Verdict.COMPILE_ERROR,
            Stage.BUILD,
            f"the build took more than {job.build_limit_s:.0f} s",
            {"failure": Failure("build limit", f"{job.build_limit_s:.0f} s")},
        )
    if report.error is not None:
        first = str(report.error.get("first_error"))
        trace = str(report.error.get("log", ""))[-8000:]
        raise Decided(
            Verdict.COMPILE_ERROR,
            Stage.BUILD,
            first,
            {"failure": Failure(str(report.error.get("kind")), first, trace=trace)},
        )
    if report.unavailable and "cuda" in inspection.needs:
        raise Decided(Verdict.UNSUPPORTED, Stage.BUILD, report.unavailable)
    return report
