"""`pkb agent 13 --model M --steps 20`: a model that hands in kernels, reads the verdicts and tries again."""

from typing import Annotated

import typer

from pkb.cli import shared_options as options
from pkb.cli.command import JsonTarget
from pkb.cli.platform_option import PlatformOption
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.runs_option import StoreFolder
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError


def agent(
    ctx: typer.Context,
    problems: options.Problems = None,
    named: options.NamedProblems = None,
    model: options.ModelName = None,
    backend: options.Backend = "cuda",
    samples: options.Samples = 1,
    steps: Annotated[int, typer.Option(help="Answers for each problem and sample.")] = 20,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens for each, in and out together.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="US dollars for each; needs --prices.")] = None,
    budget_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time of model and judge for each.")
    ] = None,
    platform: PlatformOption = AUTO,
    ranks: options.Ranks = 4,
    size: options.Size = None,
    dtype: options.Dtype = None,
    plan: options.PlanName = "standard",
    hardware: options.HardwareName = "h100x8",
    shots: options.Shots = None,
    parts: options.PartsFolder = None,
    temperature: options.Temperature = None,
    max_tokens: options.MaxTokens = None,
    time_limit: options.TimeLimit = 600.0,
    retries: options.Retries = 4,
    concurrency: options.Concurrency = 4,
    prices: options.PricesFile = None,
    name: options.RunName = "",
    resume: options.Resume = None,
    out: options.OutFolder = None,
    store: StoreFolder = None,
    folder: ProblemsFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """Let a model work on problems: it submits kernels, gets the judge's feedback, and tries again."""
    from pkb.cli import model_runs

    fields = dict(
        backend=backend, case=Case("", platform, ranks, size or AUTO, dtype or AUTO, plan), hardware=hardware,
        shots=shots, parts_folder=options.path_text(parts), problems_folder=options.path_text(folder), temperature=temperature,
        max_tokens=max_tokens, time_limit_s=time_limit, retries=retries, parallel=concurrency, steps=steps,
        budget_tokens=budget_tokens, budget_usd=budget_usd, budget_seconds=budget_seconds,
    )  # fmt: skip
    options.check_resume(ctx, resume)
    if problems is not None and named is not None:
        raise UserError("problems are named twice", "name them before the options, or with --problems")
    model_runs.begin_or_resume(
        store, resume=resume, kind="agent", problems=problems or named, model=model, fields=fields, prices=prices,
        samples=samples, name=name, evaluate=True, out=out, json_out=json_out,
    )  # fmt: skip
