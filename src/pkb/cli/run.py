"""`pkb run`: a whole sweep, of candidates in files or written by models. It can be stopped at any moment and resumed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli import shared_options as options
from pkb.cli.against_option import AgainstOption, known_against
from pkb.cli.command import JsonTarget, given_options
from pkb.cli.completion import run_names
from pkb.cli.counts_words import cost_words, tokens_words, word_words
from pkb.cli.platform_option import PlatformOption
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.runs_option import StoreFolder
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.cluster.tally import Tally

_SHOWN_FAILURES = 5
_WITH_RESUME = {"resume", "retry_errors", "limit", "workers", "builders", "concurrency", "cluster", "store", "json_out"}
_OF_MODELS = {
    "problems", "samples", "hardware", "temperature", "max_tokens", "shots", "parts", "time_limit", "retries",
    "prices", "concurrency",
}  # fmt: skip


def run(
    ctx: typer.Context,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Candidates: files, or folders of them.")
    ] = None,
    candidates: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Candidate files, or folders of them.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="M", help="Ask this model for candidates.")] = None,
    problems: Annotated[
        str, typer.Option(metavar="IDS", help="For models: all, or ids, names and ranges such as 1-8,13.")
    ] = "all",
    samples: Annotated[int, typer.Option(help="For models: candidates per problem.")] = 1,
    backend: Annotated[
        str | None, typer.Option(help="For models: what to write, cuda if not given. For files: when names give none.")
    ] = None,
    platform: PlatformOption = AUTO,
    ranks: options.Ranks = 4,
    size: options.Size = None,
    dtype: options.Dtype = None,
    plan: options.PlanName = "standard",
    timing: options.Timed = None,
    against: AgainstOption = "baseline",
    profile: Annotated[
        bool, typer.Option("--profile", help="Also profile the calls on the device: a second per evaluation.")
    ] = False,
    hardware: Annotated[str | None, typer.Option(help="For models: the machine that prompts describe.")] = None,
    temperature: Annotated[float | None, typer.Option(help="For models. Default: the model's own.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="For models: limit for one answer.")] = None,
    shots: Annotated[
        int | None, typer.Option(help="For models: worked examples. Default: 1 where there are any.")
    ] = None,
    parts: Annotated[Path | None, typer.Option(metavar="DIR", help="For models: prompt parts of your own.")] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="For models: for one answer, retries included.")
    ] = 600.0,
    retries: Annotated[int, typer.Option(help="For models: after rate limits and lost connections.")] = 4,
    prices: Annotated[Path | None, typer.Option(metavar="FILE", help="For models: prices, see docs/models.md.")] = None,
    problems_folder: ProblemsFolder = None,
    eval_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of one evaluation.")] = 3600.0,
    name: Annotated[str, typer.Option(help="The run's name.")] = "",
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Continue a stored run: its id, its name, or latest.", autocompletion=run_names
        ),
    ] = None,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="With --resume: retry tasks that got no verdict.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most N tasks now; the rest can be resumed.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Evaluations at a time. Default: one for each GPU; on cpu one.")
    ] = None,
    builders: Annotated[int | None, typer.Option(help="Builds at a time. Default: half the cores.")] = None,
    concurrency: Annotated[int, typer.Option(help="Requests to models at a time.")] = 8,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Use a Ray cluster: its address, or auto.")
    ] = None,
    store: StoreFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """Evaluate many candidates. Exit status 0: every task has a verdict; 2: some have none."""
    from pkb.cli.output import check_json_target, load_torch, write_json
    from pkb.cli.run_sweep import Asked, SweepWorkers, begin, carry_on

    check_json_target(json_out)
    work = SweepWorkers(workers=workers, builders=builders, concurrency=concurrency, cluster=cluster, limit=limit)
    if resume is not None:
        options.check_resume(ctx, resume, allowed=_WITH_RESUME)
        load_torch()
        tally = carry_on(resume, store=store, work=work, retry_errors=retry_errors)
    else:
        if retry_errors:
            raise UserError("--retry-errors needs --resume RUN", "--resume latest --retry-errors")
        if not model:
            every = {parameter.name for parameter in ctx.command.params}
            if only_models := given_options(ctx, every - _OF_MODELS):
                raise UserError(f"{', '.join(only_models)} is for models, and no --model is given", "leave it out")
        asked = Asked(
            candidates=[*(candidates or []), *(more or [])], models=model or [], problems=problems, samples=samples,
            backend=backend, case=Case("", platform, ranks, size or AUTO, dtype or AUTO, plan), timing=timing,
            against=known_against(against), hardware=hardware, temperature=temperature, max_tokens=max_tokens, prices=prices,
            problems_folder=problems_folder, eval_limit_s=eval_limit, name=name, profile=profile,
            shots=shots, parts_folder=parts, time_limit_s=time_limit, retries=retries,
        )  # fmt: skip
        load_torch()
        tally = begin(asked, store=store, work=work)
    _write_log(tally.run, store)
    status = tally.exit_status_for(limited=limit is not None)
    if json_out is not None:
        write_json(json_out, tally.to_dict() | {"exit_status": status})
    if json_out != "-":
        print("\n".join(summary_lines(tally, store=store)))
    raise typer.Exit(status)


def _write_log(run_id: str, store: Path | None) -> None:
    """Of a run that asked models. Without inspect-ai, which then asked on other machines, there is none."""
    from importlib.util import find_spec

    from pkb.cli.runs_option import open_reader

    with open_reader(store) as reader:
        if reader.steps(run_id) and find_spec("inspect_ai") is not None:
            from pkb.generate.logs import write_log

            write_log(reader, reader.run(run_id))


def summary_lines(tally: "Tally", *, store: Path | None) -> list[str]:
    where = f" --store {store}" if store else ""
    lines = [f"{tally.run}: {tally.state}, {sum(tally.verdicts.values())} verdicts for {tally.tasks} tasks"]
    lines += [f"  {count:>4} {word_words(verdict)}" for verdict, count in tally.verdicts.items()]
    if tally.no_answer:
        lines.append(f"  {tally.no_answer:>4} no answer with a candidate in it")
    if tally.timed:
        lines.append(f"  {tally.faster:>4} proven faster than the reference, of {tally.timed} timed")
    spent = tokens_words(tally.tokens_in, tally.tokens_out)
    if tally.cost_usd is not None:
        spent.append(cost_words(tally.cost_usd))
    if spent:
        lines.append(f"  models: {', '.join(spent)}")
    lines += [f"no verdict: {key}: {' '.join(why.split())[:160]}" for key, why in tally.failed[:_SHOWN_FAILURES]]
    if (unseen := len(tally.failed) - _SHOWN_FAILURES) > 0:
        lines.append(f"no verdict: {unseen} more")
    if tally.failed:
        lines.append(f"try those again: pkb run --resume {tally.run} --retry-errors{where}")
    if tally.waiting:
        lines.append(f"{tally.waiting} tasks wait: pkb run --resume {tally.run}{where}")
    if tally.elsewhere:
        lines.append(f"{tally.elsewhere} tasks are claimed by another sweep")
    lines.append(f"results: pkb runs show {tally.run}{where}")
    lines.append(f"scores:  pkb score {tally.run}{where}")
    if tally.tokens_in is not None or tally.cost_usd is not None:
        lines.append(f"said:    pkb runs transcript {tally.run}{where}")
    return lines
