"""Entry point: puts the commands together, and turns wrong usage into one line and exit status 2."""

import sys
from typing import Annotated

import typer

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
from pkb.cli.command import HELP_NAMES, PkbCommand, PkbGroup

app = typer.Typer(
    cls=PkbGroup,
    context_settings=HELP_NAMES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help starts faster and pipes well
    help="ParallelKernelBench: is a multi-GPU kernel correct, how fast is it, and how close to the hardware's limit?",
    epilog="Exit status: 0 pass (correct, clean, built), 1 fail, 2 wrong usage or harness error.",
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


for _name, _function, _in_short in (
    ("problems", problems.problems, "List the problems, filtered by taxonomy."),
    ("show", show.show, "Show one problem: reference, arguments, sizes, bounds."),
    ("eval", evaluate.evaluate, "Judge one candidate."),
    ("check", check.check, "Read and build one candidate; nothing is run."),
    ("demo", demo.demo, "Judge four bundled candidates."),
    ("run", run.run, "Judge many candidates, from files or from models; resumable."),
    ("protocol", protocol.protocol, "The whole published protocol: models x problems, one shot, best of 3, agent."),
    ("prompt", prompt.prompt, "Print the prompt that asks a model for a candidate."),
    ("generate", generate.generate, "Ask a model for candidates, one answer each; judge them."),
    ("agent", agent.agent, "Let a model work on problems with the judge's feedback."),
    ("score", score.score, "Score verdicts: pass@k, fast_p, failure modes, costs."),
    ("report", report.report, "Write runs as a static site."),
    ("roofline", roofline.roofline, "Bounds on the time of a call, and how close results come."),
    ("lint", lint.lint, "Check that no null candidate (one that does no work) passes."),
    ("probe", probe.probe, "Measure this machine's peak rates for the roofline."),
    ("doctor", doctor.doctor, "Say which platforms work here and what is missing."),
):
    app.command(_name, cls=PkbCommand, short_help=_in_short)(_function)
app.add_typer(runs.app, name="runs", short_help="Stored runs: list, show, read, check, export, import, delete.")
app.add_typer(records.app, name="records", short_help="Records of other machines: show, merge, make tables.")


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A candidate's message may hold characters that the terminal's encoding lacks; that must not hide the verdict.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="pkb")


if __name__ == "__main__":
    main()
