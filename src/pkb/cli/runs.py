"""`pkb runs`: what is stored. Without a word behind it, the list of runs, newest first."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from pkb.cli import runs_files, runs_show, runs_transcript
from pkb.cli.command import JsonTarget, PkbCommand, PkbGroup
from pkb.cli.runs_option import StoreFolder, open_reader

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.analysis.outcomes import RunCounts
    from pkb.store import RunSummary

app = typer.Typer(
    cls=PkbGroup, invoke_without_command=True, rich_markup_mode=None,
    help="Stored runs: list, show, read, check, export, import, delete. Without a subcommand: the list.",
)  # fmt: skip


@app.callback()
def list_runs(ctx: typer.Context, store: StoreFolder = None, json_out: JsonTarget = None) -> None:
    """Stored runs, newest first."""
    ctx.obj = store  # `pkb runs --store DIR show RUN` means the same as `pkb runs show RUN --store DIR`
    if ctx.invoked_subcommand is not None:
        return
    from pkb.analysis.outcomes import counts, run_outcomes
    from pkb.cli.output import PIPED_WIDTH, check_json_target, stdout_console, write_json

    check_json_target(json_out)
    with open_reader(store) as reader:
        found = [(reader.summary(run), counts(run_outcomes(reader, run))) for run in reader.runs()]
    if json_out is not None:
        write_json(json_out, [summary.to_dict() | counted.to_dict() for summary, counted in found])
        if json_out == "-":
            return
    console = stdout_console(piped_width=PIPED_WIDTH)
    if found:
        console.print(_table(found))
    else:
        console.print("no runs yet")


def _table(found: list[tuple["RunSummary", "RunCounts"]]) -> "RenderableType":
    from rich import box
    from rich.table import Table

    from pkb.cli.counts_words import outcomes_words, spent_words

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "name", "kind", "state"):
        table.add_column(name, no_wrap=name != "name", overflow="fold")
    table.add_column("done", justify="right", no_wrap=True)
    for name in ("outcomes", "models", "platform", "hardware"):
        table.add_column(name)
    table.add_column("age", justify="right", no_wrap=True)
    for summary, counted in found:
        run = summary.run
        table.add_row(
            run.id, run.name, run.kind, summary.shown_state, f"{counted.ended}/{counted.tasks}",
            outcomes_words(counted.outcomes) or "-", spent_words(counted.spent) or "-",
            ", ".join(summary.platforms) or "-", ", ".join(summary.hardware) or "-", age_words(run.created_at),
        )  # fmt: skip
    return table


def age_words(created_at: str, *, now: datetime | None = None) -> str:
    seconds = ((now or datetime.now(UTC)) - datetime.fromisoformat(created_at)).total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


app.command("show", cls=PkbCommand, short_help="One run: every verdict, answer and waiting task.")(runs_show.show)
app.command("transcript", cls=PkbCommand, short_help="What models were asked and said, step by step.")(
    runs_transcript.transcript
)
app.command("check", cls=PkbCommand, short_help="Check that everything is present and undamaged.")(runs_files.check)
app.command("export", cls=PkbCommand, short_help="Write evaluations as JSON lines or Parquet.")(runs_files.export)
app.command("import", cls=PkbCommand, short_help="Make a run from candidate files.")(runs_files.import_candidates)
app.command("delete", cls=PkbCommand, short_help="Delete runs and what only they refer to.")(runs_files.delete)
