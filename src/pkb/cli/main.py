"""Entry point: puts the commands together, and turns wrong usage into one line and exit status 2."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import pkb
from pkb.cli import (
    agent,
    check,
    demo,
    doctor,
    evaluate,
    generate,
    lint,
    probe,
    problems,
    prompt,
    protocol,
    records,
    report,
    roofline,
    run,
    runs,
    score,
    show,
)
from pkb.types.errors import UserError


class CommandGroup(TyperGroup):
    """Where a user's mistake and Ctrl-C stop. Every other exception is a bug of ours and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            print("error: " + " ".join(str(error).split()), file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("interrupted: no verdict", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help starts faster and pipes well
    help="ParallelKernelBench: is a multi-GPU kernel right, fast, and how near to the hardware's limit?",
    epilog="Exit status: 0 said yes (correct, clean, built), 1 said no, 2 wrong usage or harness error.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pkb {pkb.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("problems")(problems.problems)
app.command("show")(show.show)
app.command("prompt")(prompt.prompt)
app.command("eval")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.command("agent")(agent.agent)
app.command("check")(check.check)
app.command("lint")(lint.lint)
app.command("roofline")(roofline.roofline)
app.command("score")(score.score)
app.command("probe")(probe.probe)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("protocol")(protocol.protocol)
app.command("report")(report.report)
app.add_typer(runs.app, name="runs")
app.add_typer(records.app, name="records")


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A candidate's message may hold characters that the terminal's encoding lacks; that must not hide the verdict.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="pkb")


if __name__ == "__main__":
    main()
