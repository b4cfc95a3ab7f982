"""`pkb probe`: measures this machine and writes the hardware file that the roofline then uses."""

from pathlib import Path
from typing import Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.platform_option import PlatformOption
from pkb.types.case import AUTO
from pkb.types.errors import UserError


def probe(
    platform: PlatformOption = AUTO,
    ranks: Annotated[int | None, typer.Option(help="How many ranks. Default: 4, or all GPUs of a node.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The hardware file. Default: where the roofline finds it.")
    ] = None,
    json_out: JsonTarget = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the bandwidths between ranks: .png or .svg.")
    ] = None,
) -> None:
    """Measure this machine's peak rates for the roofline: matrix products, memory, every path between ranks, latencies."""
    from pkb.cli.output import PIPED_WIDTH, announced, check_json_target, show_progress, stdout_console, write_json
    from pkb.cli.plot_target import check_plot_target
    from pkb.cli.probe_hardware import above_ideal, to_hardware, write
    from pkb.cli.probe_plot import plot as draw
    from pkb.cli.probe_table import render
    from pkb.platforms.registry import pick
    from pkb.roofline.hardware import cache_path

    check_json_target(json_out)
    if plot is not None:
        check_plot_target(plot, endings=(".png", ".svg"))  # before the measurement, not after it
    with announced("looking at this machine"):
        facts = pick(platform)
    count = ranks if ranks is not None else 4 if facts.shares_device else facts.max_ranks
    if not 2 <= count <= facts.max_ranks:
        raise UserError(f"--ranks {count}: a probe on {facts.name} needs 2 to {facts.max_ranks}", "--ranks 2")
    path = out if out is not None else cache_path(facts.hardware, shared_gpu=facts.shares_device)
    if path.is_dir():
        raise UserError(f"--out {path} is a directory", "give a file")

    from pkb.judge.oracle_only.probe import probe as measure

    with show_progress() as progress:
        found = measure(platform=facts.name, ranks=count, quick=quick, progress=progress)
    if json_out is not None:  # first of all: whatever follows, what was measured is kept
        write_json(json_out, found.to_dict())
    hardware = to_hardware(found, facts)
    write(path, hardware, found)
    if plot is not None:
        draw(found, hardware, plot)
    if json_out == "-":
        return
    console = stdout_console(piped_width=PIPED_WIDTH)
    console.print(render(found, hardware))
    for figure in above_ideal(hardware):
        console.print(f"suspicious: {figure}", style="bold red")
    console.print(f"hardware file: {path}")
    if plot is not None:
        console.print(f"plot: {plot}")
