"""`pkb runs show RUN`: its evaluations, and the tasks that have none yet."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.completion import run_names
from pkb.cli.runs_option import StoreFolder, open_reader
from pkb.platforms.registry import traits
from pkb.types.case import Case
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.analysis.outcomes import RunOutcome
    from pkb.store import EvaluationRow

_STYLES = {"correct": "green", "harness_error": "magenta", "unsupported": "yellow"}


def show(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(help="Id, the beginning of one, a name, or latest.", autocompletion=run_names)],
    problem: Annotated[str | None, typer.Option(help="Only these: ids, names, stems, ranges: 1-8,13.")] = None,
    store: StoreFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """One run: a row for each verdict and each answer of a model, and one for each task that has none yet."""
    from pkb.analysis.outcomes import counts, run_outcomes
    from pkb.cli.counts_words import outcomes_words, spent_words
    from pkb.cli.output import PIPED_WIDTH, check_json_target, stdout_console, write_json

    check_json_target(json_out)
    with open_reader(store or ctx.obj) as reader:
        chosen = reader.run(run)
        every = run_outcomes(reader, chosen)
        summary = reader.summary(chosen)
    found = [outcome for outcome in every if is_asked_for(outcome.task.problem, problem)]
    if problem is not None and not found:
        raise UserError(f"run {chosen.id} has no task for --problem {problem}", "`pkb runs show` lists them all")
    rows = [row for outcome in found for row in outcome.judged]
    counted = counts(found)
    if json_out is not None:
        parts = {
            "task_rows": [outcome.task.to_dict() | outcome.to_dict() for outcome in found],
            "evaluations": [row.to_dict() for row in rows],
        }
        write_json(json_out, summary.to_dict() | counted.to_dict() | parts)
        if json_out == "-":
            return
    console = stdout_console(piped_width=PIPED_WIDTH)
    title = f"{chosen.id}  {chosen.name}  {chosen.kind}, {summary.shown_state}, {chosen.created_at[:19]}Z"
    console.print(title, style="bold")
    if chosen.note:
        console.print(chosen.note)
    console.print(_table(found))
    told = "; ".join(filter(None, (outcomes_words(counted.outcomes), spent_words(counted.spent))))
    console.print(f"{counted.tasks} tasks: {told}")
    timed = {row.case.platform for row in rows if row.speedup is not None}
    if shared := sorted(name for name in timed if traits(name).shares_device):
        console.print(f"times taken on {' and '.join(shared)} say nothing about NVLink", style="yellow")


def _place(case: Case) -> str:
    return f"{case.platform} x{case.ranks} {case.size} {case.dtype}"


def is_asked_for(stem: str, wanted: str | None) -> bool:
    """Whether a task's problem is among `1-8,13,gemm_allreduce`. Told from the stem, so that a run with problems of
    somebody's own can be read without them."""
    if wanted is None:
        return True
    number, _, name = stem.partition("_")
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        if span := re.fullmatch(r"(\d+)-(\d+)", part):
            if int(span[1]) <= int(number) <= int(span[2]):
                return True
        elif part in (stem, name) or (part.isdigit() and int(part) == int(number)):
            return True
    return False


def _table(outcomes: "list[RunOutcome]") -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from pkb.cli.counts_words import word_words

    asked = any(outcome.steps for outcome in outcomes)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("problem", "collection", "backend"):
        table.add_column(name, overflow="fold")
    for name in ("sample", "step"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("verdict", "speedup (95 %)", "platform", "moved by"):
        table.add_column(name, overflow="fold")
    for name in ("tokens in", "out", "USD") if asked else ():
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("detail", overflow="fold")
    for outcome in outcomes:
        task = outcome.task
        whose = (task.problem, task.collection, task.backend, str(task.sample))
        said = {step.step: step for step in outcome.steps}
        judged = {row.step: row for row in outcome.judged}
        numbers: list[int | None] = [*sorted({*said, *judged})]
        for number in numbers or [None]:
            step, row = (None, None) if number is None else (said.get(number), judged.get(number))
            cost: tuple[str, ...] = ()
            if asked:
                cost = (
                    ("-", "-", "-")
                    if step is None
                    else (_cell(step.tokens_in), _cell(step.tokens_out), _usd(step.cost_usd))
                )
            if row is not None:
                verdict = Text(row.verdict, style=_STYLES.get(row.verdict, "red"))
                cells = (verdict, speedup_words(row), _place(row.case), row.communication)
                detail = row.detail
            else:
                word = "-" if outcome.judged else word_words(outcome.word)
                cells = (Text(word, style="dim"), "-", _place(outcome.case), "-")
                detail = (step.error or "nothing was handed in") if outcome.judged and step else outcome.reason
            table.add_row(*whose, _cell(number), *cells, *cost, Text(" ".join(detail.split())))
    return table


def _cell(number: int | None) -> str:
    return "-" if number is None else str(number)


def _usd(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.4f}"


def speedup_words(row: "EvaluationRow") -> str:
    if row.speedup is None:
        return "-"
    return f"{row.speedup:.2f}x ({row.speedup_low:.2f}-{row.speedup_high:.2f}) {row.decision}"
