"""`pkb report`: stored runs as a site to look at. It works from disk, without a network."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.completion import run_names
from pkb.cli.output import check_json_target
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.runs_option import StoreFolder
from pkb.types.errors import UserError


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Ids, names, or latest, which is the default.", autocompletion=run_names),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the site goes; replaced if it is a report.")] = Path(
        "pkb-report"
    ),
    figures: Annotated[bool, typer.Option("--figures", help="Also write the figures as PNG and SVG files.")] = False,
    published: Annotated[
        bool, typer.Option("--published/--no-published", help="Also show the published results.")
    ] = True,
    records: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also show the records in this folder: other machines, published kernels."),
    ] = None,
    title: Annotated[str, typer.Option(help="Name of the site.")] = "ParallelKernelBench",
    serve: Annotated[bool, typer.Option("--serve", help="Serve it on loopback until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="Port for --serve; 0 chooses a free one.")] = 8017,
    store: StoreFolder = None,
    folder: ProblemsFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """Write runs as a static site: leaderboard, problems, candidates, failures, comparisons.

    With --serve and no RUN, an existing site is served unchanged.
    """
    if json_out == "-" and serve:
        raise UserError("--json - and --serve both want standard output", "give a file to --json")
    check_json_target(json_out)
    if not (serve and not runs and (out / "index.html").is_file()):
        _write(
            runs or ["latest"], out, figures=figures, published=published, records=records, title=title, store=store,
            folder=folder, json_out=json_out,
        )  # fmt: skip
    if serve:
        _serve(out, port)


def _write(
    names: list[str],
    out: Path,
    *,
    figures: bool,
    published: bool,
    records: Path | None,
    title: str,
    store: Path | None,
    folder: Path | None,
    json_out: str | None,
) -> None:
    from pkb.cli.output import load_torch, show_progress, write_json
    from pkb.cli.problems_option import open_registry
    from pkb.cli.runs_option import open_reader

    _need("jinja2", "report")
    if figures:
        _need("matplotlib", "plot")
    load_torch()
    from pkb.report.site import Options, build

    with open_reader(store) as reader:
        chosen = list({run.id: run for run in map(reader.run, names)}.values())
        with show_progress() as tell:
            built = build(
                reader, chosen, out=out, registry=open_registry(folder), tell=tell,
                options=Options(title=title, figures=figures, published=published, records=records),
            )  # fmt: skip
    if json_out is not None:
        write_json(
            json_out,
            {"index": str(built.index), "pages": built.pages, "collections": built.contenders,
             "candidates": built.tries, "seconds": built.seconds},
        )  # fmt: skip
    if json_out != "-":
        print(f"{built.index}: {built.pages} pages, {built.tries} candidates in {built.contenders} collections")


def _need(package: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise UserError(f"a report needs {package}", f"pip install 'pkb[{extra}]'")


def _serve(out: Path, port: int) -> None:
    from pkb.report.serve import open_server

    server = open_server(out, port)
    address = f"http://{server.server_address[0]!s}:{server.server_address[1]}/"
    print(address, flush=True)
    print("serving on this machine only; Ctrl-C stops", file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        server.server_close()
