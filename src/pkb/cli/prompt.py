"""`pkb prompt 13 --backend triton`: the prompt that asks a model for a candidate, as text or JSON."""

from pathlib import Path
from typing import Annotated

import typer

from pkb.cli import shared_options as options
from pkb.cli.command import JsonTarget
from pkb.cli.completion import problem_names
from pkb.cli.problems_option import ProblemsFolder
from pkb.types.errors import UserError


def prompt(
    problem: Annotated[
        str | None,
        typer.Argument(help="Id, name or stem: 13, gemm_allreduce, 13_gemm_allreduce.", autocompletion=problem_names),
    ] = None,
    backend: options.Backend = "cuda",
    hardware: options.HardwareName = "h100x8",
    ranks: Annotated[int | None, typer.Option(help="Default: 8, or what problem and machine support.")] = None,
    size: Annotated[str, typer.Option(help="The size that is timed: tiny, paper, real, odd or decode.")] = "paper",
    dtype: options.Dtype = None,
    shots: options.Shots = None,
    parts: options.PartsFolder = None,
    json_out: JsonTarget = None,
    list_parts: Annotated[bool, typer.Option("--list-parts", help="Name the parts, and stop.")] = False,
    copy_parts: Annotated[
        Path | None,
        typer.Option("--copy-parts", metavar="DIR", help="Write the parts to a folder for editing, and stop."),
    ] = None,
    folder: ProblemsFolder = None,
) -> None:
    """Print the prompt that asks a model for a candidate."""
    if list_parts or copy_parts is not None:
        _parts(copy_parts)
        return
    if problem is None:
        raise UserError("no problem was named", "pkb prompt 13; `pkb problems` lists ids and names")
    from pkb.cli.output import check_json_target, load_torch, write_json
    from pkb.cli.problems_option import open_registry

    load_torch()
    from pkb.generate.prompt import compose

    check_json_target(json_out)
    text = compose(
        open_registry(folder).get(problem),
        backend=backend,
        hardware=hardware,
        ranks=ranks,
        size=size,
        dtype=dtype,
        shots=shots,
        parts_folder=parts,
    )
    if json_out is not None:
        write_json(json_out, text.to_dict())
    if json_out != "-":
        print(f"{text.system}\n\n{text.user}", end="")


def _parts(copy_to: Path | None) -> None:
    from pkb.generate import prompt_parts

    if copy_to is not None:
        for path in prompt_parts.copy_parts(copy_to):
            print(path)
        return
    for name, what in prompt_parts.part_files():
        print(f"{name + '.md':<26} {what}")
