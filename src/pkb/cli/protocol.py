"""`pkb protocol`: the whole published protocol for models that one has keys for, with its price told before it starts."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pkb.cli import shared_options as options
from pkb.cli.platform_option import PlatformOption
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.run_sweep import Asked, SweepWorkers, begin, carry_on, tasks_of, why_not_here
from pkb.cli.runs_option import StoreFolder
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.cluster.protocol import CostEstimate
    from pkb.store import Run

MOST_LOOKED_AT = 200
"""Stored verdicts, the latest, by which the judge's time is estimated."""


def protocol(
    models: Annotated[list[str], typer.Option("--model", metavar="M", help="Once for each model.")],
    problems: Annotated[str, typer.Option(metavar="IDS", help="all, or ids, names and ranges such as 1-8,13.")] = "all",
    samples: Annotated[int, typer.Option(help="Single answers: the first counts alone, and the best of all.")] = 3,
    steps: Annotated[int, typer.Option(help="Answers of an agent for each problem; 0 for no agent.")] = 20,
    backend: options.Backend = "cuda",
    platform: PlatformOption = AUTO,
    ranks: options.Ranks = 4,
    size: options.Size = None,
    plan: options.PlanName = "standard",
    hardware: options.HardwareName = "h100x8",
    prices: options.PricesFile = None,
    answer_tokens: Annotated[int, typer.Option(help="Tokens of one answer, for the estimate.")] = 12_000,
    name: Annotated[str, typer.Option(help="Name of its runs; the same command again continues them.")] = "protocol",
    yes: Annotated[bool, typer.Option("--yes", help="Start; without it only the estimate is printed.")] = False,
    store: StoreFolder = None,
    folder: ProblemsFolder = None,
) -> None:
    """Every model on every problem: single shot, best of 3, and an agent of 20 steps. Says what it will cost, then needs --yes.

    Exit status 0: every task has an outcome; 2: some have none, and the same command continues them.
    """
    if samples < 1 or steps < 0:
        raise UserError(
            f"--samples {samples} --steps {steps} requests nothing", "--samples 1 or more, --steps 0 or more"
        )
    case, problems = _possible(problems, Case("", platform, ranks, size or AUTO, AUTO, plan), folder)
    found = _estimates(
        models, problems, case=case, backend=backend, hardware=hardware, folder=folder, samples=samples, steps=steps,
        prices=prices, answer_tokens=answer_tokens,
    )  # fmt: skip
    label = {model: "".join(c if c.isalnum() or c in "-." else "-" for c in model) for model in models}
    if len(set(label.values())) < len(models):
        raise UserError(
            "two of these models have the same name for a run", "name each once, or give each its own --name"
        )
    agents = {model: f"{name}-agent-{label[model]}" for model in models if steps}
    runs = [f"{name}-samples", *agents.values()]
    _tell(found, runs, case, store)
    if not yes:
        print(
            "nothing was asked yet: the same command with --yes starts, and goes on where it was stopped",
            file=sys.stderr,
        )
        return
    asked = Asked(
        candidates=[], models=models, problems=problems, samples=samples, backend=backend, case=case, timing=None,
        hardware=hardware, temperature=None, max_tokens=None, prices=prices, problems_folder=folder, eval_limit_s=3600.0,
        name=runs[0], against="reference",
    )  # fmt: skip
    # All of them before anything is paid for.
    begun = {run: _existing(run, store) for run in runs}
    _same(runs[0], _other_samples(begun[runs[0]], asked, store))
    for model, run in agents.items():
        _same(run, _other_agent(begun[run], asked, model, steps))
    statuses = [_samples(begun[runs[0]], asked, store)]
    for model, run in agents.items():
        statuses.append(_agent(begun[run], asked, model, steps=steps, name=run, store=store))
        print(f"{model}: {_curve(run, steps, store)}")
    where = f" --store {store}" if store else ""
    print(f"single shot, best of {samples}, agents: pkb report {' '.join(runs)}{where}", file=sys.stderr)
    raise typer.Exit(2 if any(statuses) else 0)


def _possible(problems: str, case: Case, folder: Path | None) -> tuple[Case, str]:
    """The platform by name, and the problems that can run so, in the words of `--problems`: no answer is paid for that cannot
    be judged. What this machine has counts if it has the platform; elsewhere it is only estimated."""
    from pkb.cli.problems_option import open_registry
    from pkb.judge.settling import check_words
    from pkb.platforms.registry import create, resolve

    check_words(case)
    platform = create(resolve(AUTO) if case.platform == AUTO else case.platform)
    facts, kept, notes = platform.facts(), list[str](), list[str]()
    for problem in open_registry(folder).select(problems):
        settled = case.resolve(
            problem=problem.stem, platform=platform.name, size=platform.default_size, dtype=problem.default_dtype
        )
        why_not = why_not_here(settled, problem, facts if facts.available else None)
        notes += [f"left out: {why_not}"] if why_not else []
        kept += [] if why_not else [problem.stem]
    print("".join(f"{note}\n" for note in dict.fromkeys(notes)), end="", file=sys.stderr)
    if not kept:
        raise UserError("no problem can run so", "other --ranks, --size or --problems")
    return replace(case, platform=platform.name), ",".join(kept)


def _estimates(
    models: list[str], problems: str, *, case: Case, backend: str, hardware: str, folder: Path | None, samples: int, steps: int,
    prices: Path | None, answer_tokens: int,
) -> "list[CostEstimate]":  # fmt: skip
    from pkb.cluster.protocol import estimate
    from pkb.generate.prices import price_of
    from pkb.generate.settings import Settings

    settings = Settings(
        model=models[0], backend=backend, case=case, hardware=hardware, problems_folder=options.path_text(folder)
    )
    chosen = settings.registry().select(problems)
    lengths = []
    for problem, task in zip(chosen, settings.tasks(chosen, samples=1), strict=True):
        prompt = settings.prompt(problem, task)
        lengths.append(len(prompt.system) + len(prompt.user))
    return [
        estimate(model, lengths, samples=samples, steps=steps, answer_tokens=answer_tokens,
                 price=price_of(model, prices) if prices else None)
        for model in models
    ]  # fmt: skip


def _tell(found: "list[CostEstimate]", runs: list[str], case: Case, store: Path | None) -> None:
    """What it will cost, and what of it there is already."""
    from pkb.cli.runs_option import open_reader
    from pkb.cluster.protocol import judge_words, total
    from pkb.store import root_folder

    for one in [*found, *([total(found)] if len(found) > 1 else [])]:
        print(one.words, file=sys.stderr)
    documents, begun = [], []
    if (root_folder(store) / "pkb.db").is_file():
        with open_reader(store) as reader:
            every = reader.runs()
            rows = [row for row in reader.evaluations([run.id for run in every]) if row.case.platform == case.platform]
            documents = [reader.document(row.document_sha) for row in rows[-MOST_LOOKED_AT:]]
            begun = [(run.name, reader.tasks(run.id)) for run in every if run.name in runs]
    print(judge_words(sum(one.verdicts for one in found), documents), file=sys.stderr)
    for name, tasks in begun:
        done = sum(task.state == "done" for task in tasks)
        print(f"{name}: {done} of {len(tasks)} tasks are done, and not paid for again", file=sys.stderr)


def _existing(name: str, store: Path | None) -> "Run | None":
    """The run with that name, if the store has one."""
    from pkb.cli.runs_option import open_store

    with open_store(store) as writer:
        return next((run for run in writer.runs() if run.name == name), None)


def _same(name: str, differing: list[str]) -> None:
    """A run goes on as it was begun; what was asked for now must be that."""
    if differing:
        raise UserError(
            f"the run {name} was begun with other {', '.join(differing)}", "give the same, or another --name"
        )


def _curve(name: str, steps: int, store: Path | None) -> str:
    """`solved after 1, 2, 4 steps: 3, 5, 6`."""
    from pkb.analysis.plateau import StepOutcome, plateau
    from pkb.cli.runs_option import open_reader

    with open_reader(store) as reader:
        run = reader.run(name)
        points = plateau(
            StepOutcome(row.problem_id, row.step, row.verdict == "correct", row.decision == "faster")
            for row in reader.evaluations([run.id])
            if row.step < steps  # an agent's best is measured once more, as a step beyond the last
        )
    shown = [point for point in points if point.steps in (1, 2, 3, 5, 10, 15, len(points))]
    words = ", ".join(str(point.steps) for point in shown)
    return (
        f"solved after {words} steps: {', '.join(str(point.correct) for point in shown)}" if shown else "nothing solved"
    )


def _other_samples(run: "Run | None", asked: Asked, store: Path | None) -> list[str]:
    """What the run was begun with and is not asked for now."""
    from pkb.cli.runs_option import open_reader

    if run is None:
        return []
    with open_reader(store) as reader:
        there = {task.key for task in reader.tasks(run.id)}
    other = there != {task.key for task in tasks_of(asked)}
    return ["models, problems, samples, backend or case"] * other + _other(
        run.config["settings"], {"hardware": asked.hardware}
    )


def _other_agent(run: "Run | None", asked: Asked, model: str, steps: int) -> list[str]:
    case = asked.case
    wanted = {"model": model, "backend": asked.backend, "hardware": asked.hardware, "steps": steps, "ranks": case.ranks,
              "plan": case.plan, "problems": asked.problems.split(",")}  # fmt: skip
    return _other(run.config, wanted | ({"size": case.size} if case.size != AUTO else {})) if run else []


def _other(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [word for word, value in wanted.items() if config.get(word) != value]


def _samples(run: "Run | None", asked: Asked, store: Path | None) -> int:
    if run is None:
        return begin(asked, store=store, work=SweepWorkers()).exit_status_for(limited=False)
    return carry_on(run.id, store=store, work=SweepWorkers(), retry_errors=True).exit_status_for(limited=False)


def _agent(run: "Run | None", asked: Asked, model: str, *, steps: int, name: str, store: Path | None) -> int:
    from pkb.cli.model_runs import begin_or_resume

    fields = dict(backend=asked.backend, case=asked.case, hardware=asked.hardware, steps=steps,
                  problems_folder=options.path_text(asked.problems_folder))  # fmt: skip
    try:
        begin_or_resume(
            store, resume=run.id if run else None, kind="agent", problems=None if run else asked.problems,
            model=None if run else model, fields=fields, prices=asked.prices, samples=1, name=name, evaluate=True, out=None,
            json_out=None,
        )  # fmt: skip
    except typer.Exit as ended:
        if ended.exit_code == 130:
            raise
        return int(ended.exit_code)
