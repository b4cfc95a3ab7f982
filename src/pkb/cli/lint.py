"""`pkb lint`: shows that no null candidate passes, and by how much; and that the problem's baseline does."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.platform_option import PlatformOption
from pkb.cli.problems_option import ProblemsFolder
from pkb.types.case import AUTO
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pkb.types.lint import LintRow


ROOM = 0.5
"""What the honest computation may take of a tolerance: no limit is below twice the worst honest kernel."""


def lint(
    ids: Annotated[str, typer.Argument(metavar="IDS", help="Ids, names, ranges: 1-8,13; or all.")] = "all",
    size: Annotated[
        str | None,
        typer.Option(help="Sizes, with commas. Default: tiny,paper; on a CPU, where paper takes hours, tiny."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(help="Numbers of ranks, with commas. Default: 2,4,8; on a CPU 2,4.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Dtypes, with commas.")] = "bf16,fp32",
    platform: PlatformOption = AUTO,
    json_out: JsonTarget = None,
    folder: ProblemsFolder = None,
) -> None:
    """Prove per problem, size and number of ranks that no null candidate passes."""
    from pkb.cli.output import check_json_target, load_torch, show_progress, stdout_console, write_json
    from pkb.cli.problems_option import open_registry
    from pkb.platforms.registry import create, pick, traits

    load_torch()
    from pkb.problems.base import DTYPES, KNOWN_SIZES

    check_json_target(json_out)
    facts = pick(platform)
    name = facts.name
    sizes = _words(
        size or ",".join(dict.fromkeys(("tiny", create(name).default_size))), option="--size", known=KNOWN_SIZES
    )
    dtypes = _words(dtype, option="--dtype", known=tuple(DTYPES))
    counts = _words(ranks or ("2,4" if traits(name).device == "cpu" else "2,4,8"), option="--ranks", known=None)
    world_sizes = [_count(word) for word in counts]
    chosen = open_registry(folder).select(ids)
    if max(world_sizes) > facts.max_ranks:
        raise UserError(
            f"platform {name} can have at most {facts.max_ranks} ranks here, not {max(world_sizes)}",
            "give smaller --ranks",
        )

    from pkb.judge.oracle_only.lint import lint as run_lint

    with show_progress() as progress:
        rows = run_lint(
            chosen, platform=name, sizes=sizes, world_sizes=world_sizes, dtypes=dtypes, problems_folder=folder,
            progress=progress,
        )  # fmt: skip
    guilty = [row for row in rows if row.is_bad]
    if json_out != "-":
        from pkb.cli.output import PIPED_WIDTH

        console = stdout_console(piped_width=PIPED_WIDTH)
        console.print(render_rows(rows))
        console.print(summarize(rows))
    if json_out is not None:
        write_json(json_out, [row.to_dict() for row in rows])
    # No rows is no proof: it must not look like one to a script.
    raise typer.Exit(1 if guilty else 0 if rows else 2)


def _words(text: str, *, option: str, known: tuple[str, ...] | None) -> list[str]:
    words = list(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    if not words:
        raise UserError(f"{option} is empty", "give words with commas between them")
    for word in words:
        if known is not None and word not in known:
            raise UserError(f"{option} {word!r} is not known", f"one of {', '.join(known)}")
    return words


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise UserError(f"--ranks {word!r} is not a number of ranks", "such as --ranks 2,4")
    return int(word)


def ratio_words(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.3g}" if math.isfinite(ratio) else "inf"


def render_rows(rows: list["LintRow"]) -> "RenderableType":
    """One line a case: the null candidate that came nearest to passing, how much further from the truth it is than the
    honest computation (gap), how far int8 communication is where that is only reported, and how much of the tolerance the
    problem's baseline takes. `--json` has every row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    numbers = ("ranks", "margin", "honest", "gap", "int8", "baseline")
    for column in ("problem", "size", "ranks", "dtype", "nearest null candidate", *numbers[1:], ""):
        table.add_column(column, justify="right" if column in numbers else "left")
    cases: dict[tuple[int, str, int, str], list[LintRow]] = {}
    for row in rows:
        cases.setdefault((row.problem_id, row.size, row.ranks, row.dtype), []).append(row)
    for members in cases.values():
        nulls = [row for row in members if row.is_null]
        nearest = min(nulls, key=lambda row: (not row.passed, row.margin))
        own = [row for row in members if row.must_pass]
        baseline = max((row.margin for row in own), default=None)
        int8 = next((row.margin for row in members if row.tolerated), None)
        honest = max((row.honest_ratio for row in members if row.honest_ratio is not None), default=None)
        verdict = Text("PASSES", style="bold red") if nearest.passed else Text("clean", style="green")
        if any(row.is_bad for row in own):
            verdict = Text("BASELINE FAILS", style="bold red")
        if nearest.note:
            verdict.append(f"  {nearest.note}", style="dim")
        table.add_row(
            f"{nearest.problem_id:02d}_{nearest.name}", nearest.size, str(nearest.ranks), nearest.dtype,
            f"{nearest.null_candidate} (of {len(nulls)})", ratio_words(nearest.margin), ratio_words(honest),
            ratio_words(nearest.gap), ratio_words(int8), ratio_words(baseline), verdict,
        )  # fmt: skip
    return table


def _guilt(row: "LintRow") -> str:
    case = f"size {row.size}, {row.ranks} ranks, {row.dtype}"
    if row.must_pass:
        return f"its own {row.null_candidate} fails with {case}: {row.note}"
    if row.honest_ratio is None:
        return f"{row.null_candidate} fails with {case}: {row.note}"
    return f"{row.null_candidate} passes with {case} (margin {ratio_words(row.margin)})"


def summarize(rows: list["LintRow"]) -> "RenderableType":
    from rich.text import Text

    guilty = [row for row in rows if row.is_bad]
    if guilty:
        lines = [f"{len(guilty)} null candidates pass, baselines fail, or cases could not be linted:"]
        lines += [f"  problem {row.problem_id} {row.name}: {_guilt(row)}" for row in guilty]
        return Text("\n".join(lines), style="bold red")
    if not rows:
        return Text("nothing was checked: no problem runs with these sizes, ranks and dtypes", style="bold red")
    judged = [row for row in rows if row.is_null]
    words = (
        f"no null candidate passes: {len(judged)} tried, the nearest has "
        f"{ratio_words(min(row.margin for row in judged))} times the tolerated error"
    )
    narrow = {row.name: row.honest_ratio for row in rows if (row.honest_ratio or 0) > ROOM}
    if narrow:
        listed = ", ".join(f"{name} {ratio_words(ratio)}" for name, ratio in narrow.items())
        return Text(f"{words}\nhonest rounding takes more than half of the tolerance: {listed}", style="yellow")
    return Text(words, style="green")
