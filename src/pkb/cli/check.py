"""`pkb check FILE`: inspects and builds a candidate without running it, on a machine with or without a GPU."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.types.check import CheckReport


def check(
    file: Annotated[Path, typer.Argument(help="The candidate: a .py file that defines solution(...).")],
    json_out: JsonTarget = None,
    build_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of the build.")] = 600.0,
) -> None:
    """Inspect and build only: no GPU needed, nothing is run."""
    from pkb.cli.candidate_file import check_readable
    from pkb.cli.output import announced, check_json_target, show_progress, stdout_console, write_json

    check_readable(file)
    check_json_target(json_out)
    if not 0 < build_limit < float("inf"):
        raise UserError(f"--build-limit {build_limit:g} is not a time limit", "give a number above 0")

    with announced("reading"):
        from pkb.judge.check import check as inspect_and_build

    with show_progress() as progress:
        report = inspect_and_build(file, build_limit_s=build_limit, progress=progress)
    if json_out != "-":
        stdout_console().print(render_check(report))
    if json_out is not None:
        write_json(json_out, report.to_dict())
    raise typer.Exit(report.exit_status)


def render_check(report: "CheckReport") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from pkb.cli.panel import STYLES, bullets, failure_part, paths_words, plain

    if report.verdict is None:
        title = Text("ok", style="bold green")
        title.append(": nothing speaks against it so far; it has not been run", style="default")
    else:
        title = Text(str(report.verdict), style=f"bold {STYLES[report.verdict]}")
    parts: list[RenderableType] = [title]
    if report.detail:
        parts.append(plain(report.detail))
    if report.failure is not None:
        parts.append(failure_part(report.failure))
    if report.backend:
        parts.append(Text(f"backend  {report.backend}"))
    if report.paths:
        parts.append(Text(f"paths    {paths_words(report.paths)} (guessed from the source)"))
    parts += bullets("built", [f"{name} ({kind}) in {seconds:.1f} s" for name, kind, seconds in report.built])
    parts += bullets("machine code", report.machine_code)
    parts += bullets("not built here", report.skipped)
    parts += bullets("warnings", report.warnings)
    parts += bullets("hints", report.hints)
    return Group(*parts)
