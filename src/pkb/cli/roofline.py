"""`pkb roofline`: how fast each problem could be at best on a machine, and how near to it stored results are. No GPU needed."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.problems_option import ProblemsFolder
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.problems.registry import Registry
    from pkb.roofline.rows import BoundsRow
    from pkb.types.hardware import Hardware
    from pkb.types.json_value import Json

DEFAULT_HARDWARE = "h100x8"


def roofline(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="IDS", help="Problems: 13, gemm_allreduce, 1-8,13 or all.")
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            help="A machine (h100x8, l40sx8, rtx4090x8, ...: docs/roofline.md) or a .toml file. Default: h100x8."
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="tiny, paper, real, odd or decode.")] = "paper",
    ranks: Annotated[int, typer.Option(help="Number of ranks, with one GPU each.")] = 4,
    dtype: Annotated[str | None, typer.Option(help="Default: bf16 if a problem supports it.")] = None,
    ceilings: Annotated[
        str, typer.Option(help="ideal: datasheet. reachable: what the best published kernels reach.")
    ] = "ideal",
    link_efficiency: Annotated[
        float, typer.Option(help="Fraction of the link's and the switch's rate to assume, such as 0.7.")
    ] = 1.0,
    results: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE...", help="Verdicts written by --json: how close to the roofline their times are."),
    ] = None,
    json_out: JsonTarget = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the bounds: .png, .svg or .pdf (needs pkb[plot]).")
    ] = None,
    folder: ProblemsFolder = None,
) -> None:
    """Lower bounds on the time of a call, interconnect included, and the utilisation of stored results."""
    from pkb.cli.output import check_json_target, load_torch
    from pkb.cli.problems_option import open_registry

    load_torch()
    from pkb.roofline.bounds import CEILINGS
    from pkb.roofline.hardware import load

    if ceilings not in CEILINGS:
        raise UserError(f"--ceilings {ceilings!r} is not known", f"one of {', '.join(CEILINGS)}")
    if not 0 < link_efficiency <= 1:
        raise UserError(f"--link-efficiency {link_efficiency:g} is not a fraction", "give a number above 0, at most 1")
    if ranks < 1:
        raise UserError(f"--ranks {ranks} is not a number of ranks", "give 1 or more")
    check_json_target(json_out)
    words = ids or []
    registry = open_registry(folder)
    if results:
        from pkb.cli.roofline_results import read_rows, results_table

        if plot is not None:
            raise UserError("--plot draws bounds, not results", "leave out --results or --plot")
        files = [*results, *(Path(word) for word in words if Path(word).is_file())]
        chosen = {p.id for p in registry.select(_keys([w for w in words if not Path(w).is_file()]))}
        rows = [
            row
            for row in read_rows(files, registry=registry, hardware=load(hardware) if hardware else None)
            if row.id in chosen
        ]
        _emit([row.to_dict() for row in rows], partial(results_table, rows), json_out=json_out)
        return

    from pkb.cli.roofline_table import bounds_table

    machine = load(hardware or DEFAULT_HARDWARE)
    bounds = _bounds(registry, _keys(words), machine=machine, size=size, ranks=ranks, dtype=dtype,
                     ceilings=ceilings, link_efficiency=link_efficiency)  # fmt: skip
    if plot is not None:
        from pkb.cli.roofline_plot import draw

        draw(plot, bounds, hardware=machine, ceilings=ceilings, link_efficiency=link_efficiency)
        print(f"drawn: {plot}", file=sys.stderr)
    _emit([asdict(row) for row in bounds], partial(bounds_table, bounds), json_out=json_out)


def _keys(words: list[str]) -> str:
    return ",".join(words) or "all"


def _bounds(
    registry: "Registry", keys: str, *, machine: "Hardware", size: str, ranks: int, dtype: str | None, **more: Any
) -> "list[BoundsRow]":
    from pkb.problems.base import DTYPES, KNOWN_SIZES
    from pkb.roofline.bounds import cost_of
    from pkb.roofline.rows import bounds_row

    if size not in KNOWN_SIZES:
        raise UserError(f"no size is called {size!r}", f"sizes are {', '.join(KNOWN_SIZES)}")
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"no dtype is called {dtype!r}", f"dtypes are {', '.join(DTYPES)}")
    if ranks > machine.domain:
        raise UserError(
            f"{machine.name} joins {machine.domain} GPUs, and {ranks} ranks are asked for",
            "give fewer --ranks, or --hardware with a larger domain",
        )
    rows = []
    for problem in registry.select(keys):
        kind = dtype or problem.default_dtype
        if (why_not := problem.why_not(size, ranks, kind)) is not None:
            print(f"left out: {why_not}", file=sys.stderr)
            continue
        if not cost_of(problem, size=size, world_size=ranks, dtype=kind).is_known:
            print(f"left out: {problem.stem} declares no cost, so nothing bounds it", file=sys.stderr)
            continue
        rows.append(bounds_row(problem, size=size, ranks=ranks, dtype=kind, hardware=machine, **more))
    if not rows:
        raise UserError("no problem can run like this", "other --size, --ranks or --dtype; reasons are above")
    return rows


def _emit(
    rows: "Sequence[Mapping[str, Json]]", table: "Callable[[int], RenderableType]", *, json_out: str | None
) -> None:
    from pkb.cli.output import PIPED_WIDTH, stdout_console, write_json

    if json_out is not None:
        write_json(json_out, rows)
    if json_out != "-":
        console = stdout_console(piped_width=PIPED_WIDTH)
        console.print(table(console.width))
