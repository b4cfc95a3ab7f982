"""`pkb runs transcript RUN`: what was asked, what came back and what was said about it, step by step."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.completion import run_names
from pkb.cli.runs_option import StoreFolder, open_reader
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.analysis.conversation import Turn

_STYLES = {"system": "dim", "user": "cyan", "assistant": "default", "tool": "yellow", "verdict": "bold", "note": "red"}


def transcript(
    ctx: typer.Context,
    run: Annotated[str, typer.Argument(help="Id, the beginning of one, a name, or latest.", autocompletion=run_names)],
    problem: Annotated[str | None, typer.Option(help="Only these: ids, names, stems, ranges: 1-8,13.")] = None,
    sample: Annotated[int | None, typer.Option(help="Only this sample.")] = None,
    step: Annotated[int | None, typer.Option(help="Only this step, counted from 0.")] = None,
    prompts: Annotated[bool, typer.Option("--prompts/--no-prompts", help="Show the prompts.")] = True,
    store: StoreFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """Print the conversations of a run with a model: prompt, answers, feedback and verdicts, step by step."""
    from pkb.analysis.conversation import conversation
    from pkb.analysis.outcomes import run_outcomes
    from pkb.cli.output import check_json_target, stdout_console, write_json
    from pkb.cli.runs_show import is_asked_for

    check_json_target(json_out)
    with open_reader(store or ctx.obj) as reader:
        chosen = reader.run(run)
        found = [
            (outcome, [turn for turn in conversation(reader, outcome) if step in (None, turn.step)])
            for outcome in run_outcomes(reader, chosen)
            if is_asked_for(outcome.task.problem, problem) and sample in (None, outcome.task.sample) and outcome.steps
        ]
    if not found:
        raise UserError(
            f"no model was asked for such a task of run {chosen.id}", f"`pkb runs show {chosen.id}` lists all"
        )
    if not prompts:
        found = [(outcome, [turn for turn in turns if turn.role not in ("system", "user")]) for outcome, turns in found]
    if json_out is not None:
        document = [
            {"task": outcome.task.to_dict() | outcome.to_dict(), "turns": [asdict(turn) for turn in turns]}
            for outcome, turns in found
        ]
        write_json(json_out, document)
        if json_out == "-":
            return
    console = stdout_console()
    for outcome, turns in found:
        task = outcome.task
        console.rule(f"{task.problem}  {task.collection}  sample {task.sample}", style="bold")
        for turn in turns:
            console.print(f"-- step {turn.step}, {turn.role}", style="bold")
            console.print(shown(turn), style=_STYLES[turn.role], soft_wrap=True)


def shown(turn: "Turn") -> str:
    """A model's words must not steer a terminal: no escape sequence, nothing that turns the direction of text."""
    from pkb.types.words import without_controls

    return without_controls(turn.text)
