"""`pkb runs show RUN`: its evaluations, and the tasks that have none yet."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.runs_option import StoreFolder, open_reader
from pkb.platforms.registry import traits
from pkb.types.case import Case
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.store import EvaluationRow, Task

_STYLES = {"correct": "green", "harness_error": "magenta", "unsupported": "yellow"}


def show(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(help="Id, the beginning of one, a name, or latest.")],
    problem: Annotated[str | None, typer.Option(help="Only these: ids, names, stems, ranges: 1-8,13.")] = None,
    store: StoreFolder = None,
    json_out: Annotated[bool, typer.Option("--json", help="A JSON document on standard output.")] = False,
) -> None:
    """One run: a row for each evaluation, and one for each task that has none yet."""
    from pkb.cli.output import PIPED_WIDTH, stdout_console, write_json

    with open_reader(store or ctx.obj) as reader:
        chosen = reader.run(run)
        tasks = [task for task in reader.tasks(chosen.id) if is_asked_for(task.problem, problem)]
        rows = [row for row in reader.evaluations([chosen.id]) if is_asked_for(row.case.problem, problem)]
        if problem is not None and not tasks:
            raise UserError(f"run {chosen.id} has no task for --problem {problem}", "`pkb runs show` lists them all")
        if json_out:
            found = {"task_rows": [task.to_dict() for task in tasks], "evaluations": [row.to_dict() for row in rows]}
            write_json("-", reader.summary(chosen).to_dict() | found)
            return
        summary = reader.summary(chosen)
    judged = {row.task_key for row in rows}
    console = stdout_console(piped_width=PIPED_WIDTH)
    title = f"{chosen.id}  {chosen.name}  {chosen.kind}, {summary.shown_state}, {chosen.created_at[:19]}Z"
    console.print(title, style="bold")
    if chosen.note:
        console.print(chosen.note)
    console.print(_table(rows, [task for task in tasks if task.key not in judged]))
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


def _table(rows: "list[EvaluationRow]", tasks: "list[Task]") -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("problem", "collection", "backend"):
        table.add_column(name, overflow="fold")
    for name in ("sample", "step"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("verdict", "speedup (95 %)", "platform", "moved by", "detail"):
        table.add_column(name, overflow="fold")
    for row in rows:
        place = _place(row.case)
        table.add_row(
            row.case.problem, row.collection, row.backend, str(row.sample), str(row.step),
            Text(row.verdict, style=_STYLES.get(row.verdict, "red")), speedup_words(row), place, row.communication,
            Text(" ".join(row.detail.split())),
        )  # fmt: skip
    for task in tasks:
        place = _place(task.case)
        detail = task.error or (f"claimed by {task.claimed_by}" if task.state == "claimed" else "")
        table.add_row(
            task.problem, task.collection, task.backend, str(task.sample), "-", Text(task.state, style="dim"), "-",
            place, "-", Text(detail),
        )  # fmt: skip
    return table


def speedup_words(row: "EvaluationRow") -> str:
    if row.speedup is None:
        return "-"
    return f"{row.speedup:.2f}x ({row.speedup_low:.2f}-{row.speedup_high:.2f}) {row.decision}"
