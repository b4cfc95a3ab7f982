"""`pkb eval FILE`: checks the request, has the judge evaluate, prints the verdict."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.problems_option import ProblemsFolder
from pkb.types.errors import UserError
from pkb.types.plan import PLANS

if TYPE_CHECKING:
    from pkb.cli.output import Progress
    from pkb.platforms.base import PlatformFacts
    from pkb.problems.base import Problem
    from pkb.types.job import Job
    from pkb.types.verdict import Evaluation

PLATFORMS = ("auto", "cpu", "virtual", "node")


def evaluate(
    file: Annotated[Path, typer.Argument(help="The candidate: a .py file that defines solution(...).")],
    problem: Annotated[str | None, typer.Option(help="Id, name or stem. Default: as the file name begins.")] = None,
    platform: Annotated[str, typer.Option(help=f"One of {', '.join(PLATFORMS)}.")] = "auto",
    ranks: Annotated[int, typer.Option(help="How many ranks.")] = 4,
    size: Annotated[
        str | None,
        typer.Option(help="tiny, paper, real or odd, or several of them (tiny,paper). Default: paper, on cpu tiny."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="bf16, fp16, fp32 or fp64. Default: bf16 where the problem has it.")
    ] = None,
    plan: Annotated[str, typer.Option(help=f"How thorough: {', '.join(PLANS)}.")] = "standard",
    json_out: Annotated[
        str | None,
        typer.Option("--json", metavar="OUT", help="Write the verdict (an array of several) as JSON; - is standard output."),
    ] = None,
    timing: Annotated[bool, typer.Option("--timing/--no-timing", help="Time it against the reference.")] = True,
    folder: ProblemsFolder = None,
    call_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="What one batch of calls may take before it is a deadlock.")
    ] = 60.0,
    build_limit: Annotated[float, typer.Option(metavar="SECONDS", help="What the build may take.")] = 600.0,
    memory_limit: Annotated[
        float | None, typer.Option(metavar="GIB", help="Memory of all candidate ranks. Default: the platform decides.")
    ] = None,
) -> None:  # fmt: skip
    """Evaluate a candidate: is it right on every rank, free of races, and faster than the reference?"""
    from pkb.cli.candidate_file import check_readable, infer_problem
    from pkb.cli.output import check_json_target
    from pkb.cli.problems_option import open_registry
    from pkb.types.job import Job
    from pkb.types.plan import plan as plan_named

    check_readable(file)
    check_json_target(json_out)
    chosen_plan = plan_named(plan)
    if platform not in PLATFORMS:
        raise UserError(f"no platform is called {platform!r}", f"platforms are {', '.join(PLATFORMS)}")
    if ranks < 1:
        raise UserError(f"--ranks {ranks} makes no group", "give 1 or more")
    for option, value in (
        ("--call-limit", call_limit),
        ("--build-limit", build_limit),
        ("--memory-limit", memory_limit),
    ):
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{option} {value:g} is no limit", "give a number above 0")
    asked_sizes = size.split(",") if size is not None else []
    _check_words(size=None, dtype=dtype)
    for word in asked_sizes:
        _check_words(size=word, dtype=None)
    if len(set(asked_sizes)) < len(asked_sizes):
        raise UserError(f"--size {size} names a size twice", "name each once")
    registry = open_registry(folder)
    chosen = registry.get(problem) if problem is not None else infer_problem(file, registry)

    name, facts = pick_platform(platform)
    sizes = asked_sizes or ["tiny" if name == "cpu" else "paper"]
    dtype = dtype or chosen.default_dtype
    for case_size in sizes:
        check_case(chosen, facts, size=case_size, ranks=ranks, dtype=dtype)
    job = Job(
        candidate=file, problem=chosen.stem, platform=name, ranks=ranks, size=sizes[0], dtype=dtype, plan=chosen_plan,
        timing=timing, problems_folder=folder, call_limit_s=call_limit, build_limit_s=build_limit,
    )  # fmt: skip
    if memory_limit is not None:
        job = replace(job, memory_limit_bytes=int(memory_limit * 2**30))

    raise typer.Exit(_judge(job, sizes, json_out=json_out))


def _judge(job: "Job", sizes: list[str], *, json_out: str | None) -> int:
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
            if json_out != "-":
                from pkb.cli.panel import render

                stdout_console().print(render(decided[-1]))
    finally:  # after Ctrl-C in a later size too: what has been decided is not lost
        verdicts.close()
        if json_out is not None and decided:
            several = [evaluation.to_dict() for evaluation in decided]
            write_json(json_out, several if len(sizes) > 1 else decided[0].to_json())
    return max(evaluation.verdict.exit_status for evaluation in decided)


def _check_words(*, size: str | None, dtype: str | None) -> None:
    from pkb.problems.base import DTYPES, SIZE_NAMES

    if size is not None and size not in SIZE_NAMES:
        raise UserError(f"no size is called {size!r}", f"sizes are {', '.join(SIZE_NAMES)}")
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"no dtype is called {dtype!r}", f"dtypes are {', '.join(DTYPES)}")


def pick_platform(asked: str) -> tuple[str, "PlatformFacts"]:
    """The platform's name and facts; wrong usage if this machine does not have it."""
    from pkb.platforms import registry as platforms

    name = platforms.resolve(asked)
    return name, platforms.detect()[name]


def check_case(problem: "Problem", facts: "PlatformFacts", *, size: str, ranks: int, dtype: str) -> None:
    """Refuses what cannot run before any process starts."""
    if ranks > facts.max_ranks:
        raise UserError(
            f"platform {facts.name} can have at most {facts.max_ranks} ranks here, not {ranks}",
            f"--ranks {facts.max_ranks}",
        )
    why_not = problem.why_not(size, ranks, dtype)
    if why_not is not None:
        raise UserError(why_not, f"`pkb show {problem.id}` lists what it can run with")
    there = facts.memory_bytes
    if facts.name == "node":  # a GPU per rank: the memory of GPUs that no rank uses does not help
        there = there * ranks // facts.max_ranks
    needed = memory_estimate(problem, size=size, ranks=ranks, dtype=dtype)
    if there and needed > there:
        from pkb.types.words import bytes_words

        smaller = [name for name in problem.sizes if name in ("tiny", "paper") and name != size]
        raise UserError(
            f"size {size} of problem {problem.stem} with {ranks} ranks needs about {bytes_words(needed)}, "
            f"and platform {facts.name} has {bytes_words(there)} for them",
            f"a smaller size ({' or '.join(smaller)}) or fewer ranks",
        )  # fmt: skip


def memory_estimate(problem: "Problem", *, size: str, ranks: int, dtype: str) -> int:
    """Rough bytes for all ranks: arguments and as much of outputs, for both sides, and in float64 for the truth."""
    from pkb.problems.base import DTYPES

    both_sides = 2.0
    truth = 8 / DTYPES[dtype].itemsize if problem.truth == "float64" else 1.0
    return int(2 * problem.argument_bytes(size, ranks, dtype) * (both_sides + truth)) * ranks
