"""The same candidates by the published protocol and by ours, and what they lose between the two."""

from rich import box
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pkb.analysis.lost import PlanComparison
from pkb.types.words import number_words


def _faster(count: int, untimed: int, *, of: int) -> str:
    """Nobody has timed it is not that it is not faster."""
    if untimed and untimed == of:
        return "not timed"
    return f"{count}, {untimed} not timed" if untimed else str(count)


def plans_part(compared: PlanComparison) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"of {compared.candidates} candidates judged by both plans")
    table.add_column("as published", justify="right")
    table.add_column("ours", justify="right")
    table.add_row("right", str(compared.right_as_published), str(compared.right))
    table.add_row(
        "faster",
        _faster(compared.faster_as_published, compared.untimed_as_published, of=compared.right_as_published),
        _faster(compared.faster, compared.untimed, of=compared.right),
    )
    told = "faster: as published by point estimate than the reference; ours proven, than the problem's baseline"
    parts: list[RenderableType] = [table, Text(told, style="dim")]
    if compared.lost:
        lost = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        lost.add_column(f"lost by the {len(compared.lost)} that are correct as published only")
        lost.add_column("", justify="right")
        lost.add_column("problems")
        for loss, count in compared.counts.items():
            problems = sorted({sample.problem for sample in compared.lost if sample.loss is loss})
            lost.add_row(loss.words, str(count), number_words(problems))
        parts.append(lost)
    if compared.only_by_ours:
        parts.append(Text(f"{compared.only_by_ours} are correct, and not correct as published", style="dim"))
    if compared.other_rules:
        words = "judged by both, but of two versions of the problem or the judge: not compared"
        parts.append(Text(f"{compared.other_rules} were {words}", style="yellow"))
    return Lines(*parts, "")
