"""`pkb problems`: the list, filtered and grouped by taxonomy."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.problems_option import ProblemsFolder
from pkb.types.errors import UserError
from pkb.types.taxonomy import LAYER, PARALLELISM, STAGE

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.problems.base import Problem
    from pkb.types.json_value import Json

GROUPS = ("parallelism", "layer", "pattern", "source")
# Below this many columns the seven-column table would break every cell, so a problem becomes a small paragraph.
TABLE_WIDTH = 140


def problems(
    parallelism: Annotated[str | None, typer.Option(help=f"Only these: {', '.join(PARALLELISM)}.")] = None,
    layer: Annotated[str | None, typer.Option(help=f"Only these: {', '.join(LAYER)}.")] = None,
    stage: Annotated[str | None, typer.Option(help=f"Only these: {', '.join(STAGE)}.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Only this communication pattern, such as all-reduce.")] = None,
    source: Annotated[str | None, typer.Option(help="Only those whose source contains this text.")] = None,
    group_by: Annotated[str | None, typer.Option(help=f"Group by one of {', '.join(GROUPS)}.")] = None,
    json_out: JsonTarget = None,
    folder: ProblemsFolder = None,
) -> None:
    """List the problems, filtered by taxonomy."""
    for option, word, words in (
        ("--parallelism", parallelism, PARALLELISM),
        ("--layer", layer, LAYER),
        ("--stage", stage, STAGE),
        ("--group-by", group_by, GROUPS),
    ):
        if word is not None and word not in words:
            raise UserError(f"{option} {word!r} is not known", f"one of {', '.join(words)}")

    from pkb.cli.output import PIPED_WIDTH, check_json_target, stdout_console, write_json
    from pkb.cli.problems_option import open_registry

    check_json_target(json_out)
    everything = open_registry(folder).all()
    patterns = sorted({word for problem in everything for word in problem.taxonomy.pattern})
    if pattern is not None and pattern not in patterns:
        raise UserError(f"no problem has the pattern {pattern!r}", f"patterns are {', '.join(patterns)}")
    chosen = [
        problem
        for problem in everything
        if (parallelism is None or parallelism in problem.taxonomy.parallelism)
        and (layer is None or layer == problem.taxonomy.layer)
        and (stage is None or stage in problem.taxonomy.stage)
        and (pattern is None or pattern in problem.taxonomy.pattern)
        and (source is None or source.lower() in problem.source.lower())
    ]
    if json_out is not None:
        write_json(json_out, [as_row(problem) for problem in chosen])
        if json_out == "-":
            return
    console = stdout_console(piped_width=PIPED_WIDTH)
    for title, members in _grouped(chosen, group_by):
        if title:
            console.print(f"\n{title} ({len(members)})", style="bold")
        console.print(
            _table(members, wrap=console.is_terminal) if console.width >= TABLE_WIDTH else _paragraphs(members)
        )
    console.print(f"{len(chosen)} of {len(everything)} problems", style="dim")


def as_row(problem: "Problem") -> "dict[str, Json]":
    names = ("id", "name", "stem", "source", "world_sizes", "dtypes", "version", "summary")
    return {name: getattr(problem, name) for name in names} | asdict(problem.taxonomy) | {"sizes": list(problem.sizes)}


def _grouped(chosen: list["Problem"], by: str | None) -> list[tuple[str, list["Problem"]]]:
    """Groups in the order of their names. A problem with two patterns is under its first, so that counts add up."""
    if by is None:
        return [("", chosen)]
    groups: dict[str, list[Problem]] = {}
    for problem in chosen:
        if by == "source":
            word = problem.source
        else:
            value = getattr(problem.taxonomy, by)
            word = value if isinstance(value, str) else (value[0] if value else "none")
        groups.setdefault(word, []).append(problem)
    return sorted(groups.items())


def _table(chosen: list["Problem"], *, wrap: bool) -> "RenderableType":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", justify="right", no_wrap=True)
    for name in ("name", "parallelism", "layer", "pattern"):
        table.add_column(name, no_wrap=True, overflow="ignore")
    table.add_column("source", no_wrap=not wrap)
    table.add_column("summary", no_wrap=not wrap)
    for problem in chosen:
        taxonomy = problem.taxonomy
        table.add_row(
            str(problem.id), problem.name, ",".join(taxonomy.parallelism), taxonomy.layer,
            ",".join(taxonomy.pattern), problem.source, problem.summary,
        )  # fmt: skip
    return table


def _paragraphs(chosen: list["Problem"]) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="bold")
    table.add_column(ratio=1)
    for problem in chosen:
        taxonomy = problem.taxonomy
        words = ",".join(taxonomy.parallelism), taxonomy.layer, ",".join(taxonomy.pattern)
        table.add_row(
            str(problem.id),
            Text.assemble(
                (problem.name, "bold"), ("  " + " · ".join(words), "cyan"), "\n",
                (problem.source, "dim"), "\n", problem.summary, "\n",
            ),
        )  # fmt: skip
    return table
