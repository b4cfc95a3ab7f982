"""Scores for people: counts with bars, shares with their denominators, a curve in text."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pkb.analysis.compare import RunComparison
from pkb.analysis.groups import Group
from pkb.analysis.modes import PUBLISHED, FailureMode
from pkb.analysis.published import Published
from pkb.analysis.score import Figure, Score, Share
from pkb.cli.panel import plain
from pkb.platforms.registry import traits

BAR = 30
SHOWN_CONDITIONS = 5


def score_part(score: Score, groups: Sequence[Group], *, problems_known: int) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble(("collection ", "bold"), plain(score.collection, style="bold cyan")),
        Text(_coverage(score)),
        *_conditions(score),
        "",
        _counts(score),
        _verdicts(score),
        "",
        _figures(score),
        *_caveats(score),
        "",
    ]
    if score.curve and score.curve_point:
        parts += [_curve(score.curve, score.curve_point), ""]
    parts += [_by_group(groups), ""]
    if problems_known < score.problems:
        parts.append(
            Text("problems that this pkb does not have are under `unknown problem` (--problems DIR)", style="dim")
        )
    return Lines(*parts)


def bar(share: float) -> str:
    return "█" * round(BAR * share) or ("▏" if share > 0 else "")


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _coverage(score: Score) -> str:
    text = f"{score.samples} samples of {score.problems} problems"
    if score.not_judged:
        text += (
            f"; {score.not_judged} not judged (unsupported or harness error): nobody's failure, in no share below;"
            f" {score.judged_problems} problems judged"
        )
    if score.cost_usd is not None:
        text += f"; {score.cost_usd:.2f} USD"
    if score.tokens is not None:
        text += f"; {score.tokens:.0f} tokens"
    return text


def _conditions(score: Score) -> list[Text]:
    ordered = sorted(score.conditions.items(), key=lambda item: -item[1])
    lines = [
        plain(f"{platform}, {hardware}, {ranks} ranks, size {size}, {dtype}: {count} samples", style="dim")
        for (platform, hardware, ranks, size, dtype), count in ordered[:SHOWN_CONDITIONS]
    ]
    if len(ordered) > SHOWN_CONDITIONS:
        lines.append(Text(f"and {len(ordered) - SHOWN_CONDITIONS} more conditions", style="dim"))
    shared = sorted(name for name in {key[0] for key in score.conditions} if traits(name).shares_device)
    if shared and score.speedup is not None:
        lines.append(Text(f"times on {' and '.join(shared)} say nothing about NVLink", style="yellow"))
    if len(ordered) > 1 and score.speedup is not None:
        lines.append(Text("speedups of different conditions are mixed in the figures below", style="yellow"))
    if score.speedup is not None:
        lines.append(Text(f"speedups are against the {score.against}", style="dim"))
    if len(score.suites) > 1:
        lines.append(
            plain(f"verdicts of several suites: {', '.join(sorted(score.suites))} (docs/suite.md)", style="yellow")
        )
    lines += [plain(f"not one question: {why}", style="yellow") for why in score.mixed[:SHOWN_CONDITIONS]]
    return lines


def _verdicts(score: Score) -> Text:
    counts = sorted(score.verdicts.items(), key=lambda item: -item[1])
    words = ", ".join(f"{name} {count}" for name, count in counts)
    return Text(f"* not among the published categories. Verdicts: {words}", style="dim")


def _counts(score: Score) -> Table:
    """Failure modes in the published order, then ours."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("failure mode")
    table.add_column("samples", justify="right")
    table.add_column("", no_wrap=True)
    for mode in FailureMode:
        count = score.modes.get(mode, 0)
        if not count and not mode.is_published:
            continue
        name = mode.words if mode.is_published else f"{mode.words} *"
        table.add_row(name, str(count), bar(count / score.samples), style="" if mode.is_judged else "dim")
    return table


def _figures(score: Score) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure")
    for name in ("value", "problems", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    rows: list[tuple[str, Mapping[int, Share] | None]] = [
        ("pass@{k}", score.pass_at),
        ("  custom communication only", score.custom_pass_at),
        *([("  reused outputs counted as right", score.pass_published_at)] if score.reused else []),
        ("  first {k}, as published", score.pass_first),
        ("fast_1@{k}, proven", score.fast_1_at),
        ("  custom communication only", score.custom_fast_1_at),
        ("  first {k} by point estimate, as published", score.fast_1_first),
    ]
    for k in score.pass_at:
        for name, shares in rows:
            if shares is None:
                table.add_row(name.format(k=k), "not timed", "", "")
                continue
            share = shares[k]
            table.add_row(
                name.format(k=k), percent(share.value), f"{share.count:.4g} of {share.problems}",
                f"{percent(share.interval.low)} to {percent(share.interval.high)}",
            )  # fmt: skip
    for name, figure, unit in (
        ("geometric mean speedup, correct", score.speedup, "x"),
        ("  custom communication only", score.custom_speedup, "x"),
        ("median utilisation, correct", score.utilisation, "%"),
        ("  the reference on these problems", score.reference_utilisation, "%"),
    ):
        if figure is not None:
            table.add_row(name, *_figure_cells(figure, unit))
    return table


def _figure_cells(figure: Figure, unit: str) -> tuple[str, str, str]:
    def show(value: float) -> str:
        return percent(value) if unit == "%" else f"{value:.3g} x"

    return show(figure.value), str(figure.problems), f"{show(figure.interval.low)} to {show(figure.interval.high)}"


def _caveats(score: Score) -> list[Text]:
    said = []
    moved = ", ".join(f"{name} {count}" for name, count in sorted(score.communication.items()))
    if moved:
        said.append(f"communication of the correct samples: {moved}")
    if score.reused:
        said.append(
            f"{score.reused} samples return memory that their next call overwrites (reused output): the published protocol "
            "counts them as right, and so does --as-published"
        )
    if score.untimed:
        said.append(f"{score.untimed} correct samples were not timed and count as not faster")
    if score.unproven:
        said.append(f"{score.unproven} gains are unproven (not confirmed by the host wall clock) and count nowhere")
    short = {k: share.short for k, share in score.pass_at.items() if share.short}
    said += [
        f"{count} problems have fewer than {k} judged samples; all they have were used" for k, count in short.items()
    ]
    return [Text(text, style="dim") for text in said]


def _curve(proven: Mapping[float, Share], point: Mapping[float, Share]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("p", justify="right")
    table.add_column("fast_p", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("by point estimate", justify="right")
    for p, share in proven.items():
        table.add_row(f"{p:g}", percent(share.value), bar(share.value), percent(point[p].value))
    return table


def _by_group(groups: Sequence[Group]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(groups[0].axis if groups else "group", no_wrap=True)
    for name in ("problems", "judged", "pass@1", "custom", "fast_1@1"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        judged = str(group.passed.problems) if group.passed else "0"
        cells = (_share_cell(share) for share in (group.passed, group.custom, group.fast))
        table.add_row(group.name, str(group.problems), judged, *cells)
    return table


def _share_cell(share: Share | None) -> str:
    return "-" if share is None else f"{share.count:.1f} {100 * share.value:3.0f} %"


def comparison_part(comparison: RunComparison) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("problem", justify="right")
    table.add_column("answer")
    table.add_column("why")
    for row in comparison.rows:
        if row.answer in ("better", "worse"):
            table.add_row(str(row.problem), row.answer, row.why)
    counts = ", ".join(f"{name} {comparison.count(name)}" for name in ("better", "worse", "same", "not compared"))
    title = Text.assemble(
        plain(comparison.second, style="bold cyan"), " against ", plain(comparison.first, style="cyan")
    )
    return Lines(title, table, Text(counts), plain(comparison.summary, style="bold"), "")


def published_part(results: Published) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"published, of {results.problems}")
    models = list(results.models.values())
    for model in models:
        table.add_column(model.name, justify="right")
    for name, values in (
        ("pass@1 to 3", [f"{model.solved.pass_at_1} to {model.solved.pass_at_3}" for model in models]),
        ("fast_1@1 to 3", [f"{model.solved.fast_at_1} to {model.solved.fast_at_3}" for model in models]),
        *((mode.words, [str(model.modes[mode]) for model in models]) for mode in PUBLISHED),
        *((f"fast_p, p = {p:g}", [percent(model.curve[p]) for model in models]) for p in models[0].curve),
    ):
        table.add_row(name, *values)
    agent = results.agent
    loop = f"{results.models[agent.model].name} in a loop ({agent.scaffold}): {agent.correct} correct, {agent.faster} faster"
    notes = [Text(f"- {note.about}: {note.text}", style="dim") for note in results.notes]
    return Lines(table, Text(loop), Text("what contradicts what in them:", style="dim"), *notes, "")
