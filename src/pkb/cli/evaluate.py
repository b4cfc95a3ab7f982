"""`pkb eval FILE`: checks the request, has the judge evaluate, prints the verdict."""

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from pkb.cli import shared_options as options
from pkb.cli.against_option import AgainstOption, known_against
from pkb.cli.command import JsonTarget, note_unused_gpus
from pkb.cli.platform_option import PlatformOption
from pkb.cli.problems_option import ProblemsFolder
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.cli.output import Progress
    from pkb.types.job import Job
    from pkb.types.race import RaceSchedule
    from pkb.types.verdict import Evaluation


def evaluate(
    file: Annotated[Path, typer.Argument(help="The candidate: a .py file that defines solution(...).")],
    problem: Annotated[str | None, typer.Option(help="Id, name or stem. Default: from the beginning of the file name.")] = None,
    platform: PlatformOption = AUTO,
    ranks: options.Ranks = 4,
    size: Annotated[
        str | None,
        typer.Option(help="tiny, paper, real, odd or decode, or several of them (tiny,paper). Default: paper, on cpu tiny."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="bf16, fp16, fp32 or fp64. Default: bf16 if the problem supports it.")
    ] = None,
    plan: options.PlanName = "standard",
    json_out: JsonTarget = None,
    timing: options.Timed = None,
    against: AgainstOption = "baseline",
    starts: Annotated[
        int,
        typer.Option(min=0, help="Number of starts of the ranks to time it in. Default (0): one, or more if needed."),
    ] = 0,
    as_published: Annotated[
        bool,
        typer.Option("--as-published", help="Exit with 0 for reused_output too: the published protocol counts it as correct."),
    ] = False,
    folder: ProblemsFolder = None,
    call_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of one batch of calls; beyond it the verdict is deadlock.")
    ] = 60.0,
    build_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of the build.")] = 600.0,
    memory_limit: Annotated[
        float | None, typer.Option(metavar="GIB", help="Memory of all candidate ranks. Default: the platform decides.")
    ] = None,
    require_isolation: Annotated[
        bool,
        typer.Option(
            "--require-isolation", help="Refuse to run a candidate if an isolation layer is missing on this machine."
        ),
    ] = False,
    nvls: Annotated[
        bool, typer.Option("--nvls", help="On cpu: give CUDA candidates an emulated switch, and with it multicast addresses.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="On cpu: fixes the order in which threads of CUDA candidates run. Default: random.")
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="On cpu, in recorded calls: ranks begin together, late (one of them), or both.")
    ] = "both",
    race_report: Annotated[
        bool, typer.Option("--race-report", help="On cpu: print all that the race detector found, with the ranks' timelines.")
    ] = False,
) -> None:  # fmt: skip
    """Evaluate a candidate: is it correct on every rank, free of races, and faster than PyTorch + NCCL?"""
    from pkb.cli.candidate_file import check_readable, infer_problem
    from pkb.cli.output import check_json_target, load_torch

    check_readable(file)
    check_json_target(json_out)
    _import_ahead(platform)
    load_torch()
    from pkb.cli.problems_option import open_registry
    from pkb.judge.settling import check_words, settle
    from pkb.types.job import Job

    if nvls:
        os.environ["PKB_NVLS"] = "1"
    if seed is not None:
        os.environ["PKB_EMULATOR_SEED"] = str(seed)
    cases = [Case("", platform, ranks, word, dtype or AUTO, plan) for word in (size or AUTO).split(",")]
    for case in cases:
        check_words(case)
    for option, value in (
        ("--call-limit", call_limit),
        ("--build-limit", build_limit),
        ("--memory-limit", memory_limit),
    ):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{option} {value:g} is not a limit", "give a number above 0")
    registry = open_registry(folder)
    chosen = registry.get(problem) if problem is not None else infer_problem(file, registry)
    settled = [settle(replace(case, problem=chosen.stem), registry).case for case in cases]
    if platform == AUTO:
        note_unused_gpus(settled[0].platform)
    sizes = [case.size for case in settled]
    if len(set(sizes)) < len(sizes):
        raise UserError(f"--size {size} names a size twice", "name each once")
    job = Job(
        candidate=file, case=settled[0], timing=timing, against=known_against(against), problems_folder=folder,
        call_limit_s=call_limit, build_limit_s=build_limit, race_schedule=_known_schedule(schedule),
        starts=starts,
    )  # fmt: skip
    if memory_limit is not None:
        job = replace(job, memory_limit_bytes=int(memory_limit * 2**30))

    if require_isolation:
        from pkb.rank.isolation import report

        report.require_isolation(report.probe_isolation())
    raise typer.Exit(_judge(job, sizes, json_out=json_out, as_published=as_published, race_report=race_report))


def _known_schedule(word: str) -> "RaceSchedule":
    from pkb.types.race import RaceSchedule

    for known in get_args(RaceSchedule):
        if word == known:
            return cast("RaceSchedule", known)
    raise UserError(f"--schedule {word} is not a schedule", f"give one of {', '.join(get_args(RaceSchedule))}")


def _import_ahead(platform: str) -> None:
    """Where cores are idle, ranks-to-be import torch while this process does."""
    from pkb.judge.crew.warm import import_ahead
    from pkb.platforms.registry import create, resolve

    if len(os.sched_getaffinity(0)) > 2:
        with contextlib.suppress(UserError):  # said in its turn
            import_ahead(create(resolve(platform)))


def _warn(evaluation: "Evaluation") -> None:
    """Names the isolation layers that did not stand between this candidate and the machine."""
    from pkb.rank.isolation.report import missing_walls

    missing = missing_walls(evaluation.isolation)
    if missing:
        print(f"warning: this candidate ran without: {', '.join(missing)}", file=sys.stderr)
        for layer, words in missing.items():
            print(f"  {layer}: {words}", file=sys.stderr)
        print("  --require-isolation refuses to run candidates so; see `pkb doctor`", file=sys.stderr)


def _print_races(evaluation: "Evaluation") -> None:
    from pkb.cli.output import stdout_console
    from pkb.types.race_words import report_lines

    console, proof = stdout_console(), evaluation.race_proof
    if proof is None:
        console.print(f"no race report: {why_no_report(evaluation.platform)}", markup=False, highlight=False)
        return
    for line in report_lines(proof, width=max(60, console.width - 2)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def why_no_report(platform: str) -> str:
    from pkb.platforms.registry import traits

    if traits(platform).device != "cpu":
        return "calls are recorded on platform cpu only: `pkb eval --platform cpu --race-report`"
    return "no calls were recorded (it failed before, the plan has no stage for races, or no memory of peers is used)"


def _judge(job: "Job", sizes: list[str], *, json_out: str | None, as_published: bool, race_report: bool) -> int:
    """Shows each verdict as soon as it is there; the worst exit status of all."""
    from pkb.cli.output import show_progress, stdout_console, write_json
    from pkb.judge.session import evaluate_sizes

    decided: list[Evaluation] = []
    say: list[Progress] = []
    verdicts = evaluate_sizes(job, sizes, progress=lambda text: say[-1](text))
    try:
        for _ in sizes:
            with show_progress() as progress:  # over before a verdict is printed: on a terminal it owns the last line
                say.append(progress)
                decided.append(next(verdicts))
            if len(decided) == 1:
                _warn(decided[0])
            if json_out != "-":
                from pkb.cli.panel import render

                stdout_console().print(render(decided[-1]))
                if race_report:
                    _print_races(decided[-1])
    finally:  # after Ctrl-C in a later size too: what has been decided is not lost
        verdicts.close()
        if json_out is not None and decided:
            several = [evaluation.to_dict() for evaluation in decided]
            write_json(json_out, several if len(sizes) > 1 else decided[0].to_json())
    return max(evaluation.verdict.exit_status_as(as_published=as_published) for evaluation in decided)
