"""The readable verdict: one panel that says what, where, why and what to do, at 80 columns and without colours too.

Messages, traces and stacks come from the candidate. They are shown as plain text with control characters removed, so
that a candidate cannot print an escape sequence that clears the screen and paints `correct` in green.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pkb.types.failure import READ_FROM_THE_TOP
from pkb.types.profile import SideProfile
from pkb.types.race import RaceProof
from pkb.types.race_words import finding_lines, timeline_lines, weak_lines
from pkb.types.units import time_words
from pkb.types.verdict import Evaluation, Failure, Mismatch, Verdict
from pkb.types.words import TRACE_LINES, clean, number_words, share_words, value_words

if TYPE_CHECKING:
    from pkb.types.verdict import RankState

STYLES = dict.fromkeys(Verdict, "red") | {
    Verdict.CORRECT: "green",
    Verdict.REJECTED: "magenta",
    Verdict.UNSUPPORTED: "yellow",
    Verdict.HARNESS_ERROR: "yellow",
}


def plain(text: str, *, style: str = "") -> Text:
    """Text of unknown origin: no escape sequences, no rich markup, not endless."""
    return Text(clean(text), style=style)


def render(evaluation: Evaluation) -> RenderableType:
    """The whole verdict as one panel."""
    from pkb.cli.panel_timing import timing_part

    verdict = evaluation.verdict
    parts: list[RenderableType] = [_title(evaluation), _case_line(evaluation)]
    if evaluation.detail:
        parts += ["", plain(evaluation.detail)]
    if evaluation.race_kind:
        parts += ["", Text.assemble(("race of kind ", "bold"), plain(evaluation.race_kind, style="bold red"))]
    if evaluation.race_proof is not None and evaluation.race_proof.findings:
        parts += ["", race_part(evaluation.race_proof)]
    if evaluation.mismatch is not None:
        parts += ["", _mismatch_part(evaluation.mismatch)]
    if evaluation.rank_states:
        parts += ["", _ranks_part(evaluation.rank_states)]
    if evaluation.failure is not None:
        parts += ["", failure_part(evaluation.failure, rule=verdict is Verdict.REJECTED)]
    if evaluation.timing is not None:
        parts += ["", timing_part(evaluation.timing, platform=evaluation.platform, believed=verdict.is_timed)]
    parts += ["", _communication_line(evaluation)]
    if evaluation.profile is not None and evaluation.profile.candidate is not None:
        parts.append(plain(profile_words(evaluation.profile.candidate)))
    if evaluation.failing_ranks and evaluation.mismatch is None:
        parts.append(Text(f"failing ranks  {number_words(evaluation.failing_ranks)}"))
    parts += bullets("hints", evaluation.hints)
    parts += bullets("checks", evaluation.checks)
    if evaluation.output_tail.strip():
        tail = "\n".join(evaluation.output_tail.rstrip().splitlines()[-TRACE_LINES:])
        parts += [Text("the candidate printed", style="bold"), Padding(plain(tail, style="dim"), (0, 0, 0, 2))]
    if evaluation.stage_seconds:
        seconds = ", ".join(f"{stage} {value:.1f}" for stage, value in evaluation.stage_seconds.items())
        parts.append(Text(f"seconds: {seconds} (together {sum(evaluation.stage_seconds.values()):.1f})", style="dim"))
    return Panel(Group(*parts), box=box.ROUNDED, border_style=STYLES[verdict], padding=(0, 1))


def bullets(title: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row(" -", plain(line))
    return [Text(title, style="bold"), table]


def failure_part(failure: Failure, *, rule: bool = False) -> RenderableType:
    head = Text("broke the rule: " if rule else "", style="bold")
    head.append_text(plain(failure.title, style="bold"))
    if failure.rank is not None:
        head.append(f" on rank {failure.rank}")
    lines = failure.trace.rstrip().splitlines()
    parts: list[RenderableType] = [head]
    if not lines or lines[0] != failure.message:  # a compiler's log may begin with it
        parts.append(Padding(plain(failure.message), (0, 0, 0, 2)))
    if lines:
        if (more := len(lines) - TRACE_LINES) > 0:
            gap = f"... {more} lines left out; --json has them"
            top = failure.kind in READ_FROM_THE_TOP
            lines = [*lines[:TRACE_LINES], gap] if top else [gap, *lines[-TRACE_LINES:]]
        parts.append(Padding(plain("\n".join(lines), style="dim"), (0, 0, 0, 2)))
    return Group(*parts)


def race_part(proof: RaceProof) -> RenderableType:
    """The first finding and the ranks' timelines; `--race-report` prints the others."""
    finding, *others = proof.findings
    lines = finding_lines(finding) + weak_lines(proof)
    if others:
        lines.append(f"{len(others)} more: pkb eval --race-report")
    return Group(*(Text(line) for line in lines), "", *(Text(line, no_wrap=True) for line in timeline_lines(proof)))


def _title(evaluation: Evaluation) -> Text:
    title = Text(str(evaluation.verdict).replace("_", " ").upper(), style=f"bold {STYLES[evaluation.verdict]}")
    if evaluation.verdict is not Verdict.CORRECT:
        title.append(f" in stage {evaluation.stage}", style="default")
    return title.append("  ").append_text(plain(evaluation.candidate.file, style="default"))


def _case_line(evaluation: Evaluation) -> Text:
    problem = evaluation.problem
    line = f"problem {problem.id} {problem.name}, {evaluation.ranks} ranks on {evaluation.platform}"
    line += f" ({evaluation.hardware})" if evaluation.hardware else ""
    return Text(f"{line}, size {evaluation.size}, {evaluation.dtype}, plan {evaluation.plan}", style="dim")


def _mismatch_part(mismatch: Mismatch) -> RenderableType:
    rows: list[tuple[str, str]] = [
        ("case", mismatch.case),
        ("ranks", f"{number_words(mismatch.ranks)} differ; described for rank {mismatch.rank}"),
        ("output", mismatch.output),
        ("what", mismatch.what),
    ]
    if mismatch.first_index is not None:
        index = ", ".join(map(str, mismatch.first_index))
        got, expected = value_words(mismatch.first_got), value_words(mismatch.first_expected)
        rows.append(("first", f"[{index}] is {got}, expected {expected}"))
    if mismatch.differing_fraction is not None:
        rows.append(("share", f"{share_words(mismatch.differing_fraction)} of the elements differ"))
    if mismatch.error_ratio is not None:
        rows.append(("error", f"{mismatch.error_ratio:.3g} times the tolerance"))
    if mismatch.pattern:
        rows.append(("pattern", mismatch.pattern))
    if mismatch.regions:
        rows.append(("where", ", ".join(f"{name} {share_words(share)}" for name, share in mismatch.regions)))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, words in rows:
        if words:
            table.add_row(name, plain(words))
    return table


def _ranks_part(states: "Sequence[RankState]") -> RenderableType:
    """One line a rank; its innermost frame says which line of the candidate it stands at."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("where", ratio=2, overflow="fold")
    table.add_column("line of the candidate", ratio=1, overflow="fold", style="dim")
    for state in states:
        style = {"waiting": "yellow", "gone": "red", "finished": "green"}.get(state.state, "")
        last = state.stack[0] if state.stack else ""
        table.add_row(str(state.rank), plain(state.state, style=style), plain(state.where), plain(last.strip()))
    return table


def profile_words(side: SideProfile) -> str:
    """`per call: 3 kernels, 2 copies; communication 41 us, 63 % of it hidden under compute`."""
    counts = [(side.kernels_per_call, "kernel"), (side.copies_per_call, "copy"), (side.fills_per_call, "fill")]
    plural = {"copy": "copies"}
    launched = ", ".join(
        f"{count:.3g} {noun if count == 1 else plural.get(noun, noun + 's')}" for count, noun in counts if count
    )
    words = f"per call: {launched or 'nothing'}"
    if side.fused:
        return f"{words}; {time_words(side.fused_us)} in kernels that communicate and compute at once"
    if not side.communication_us:
        return f"{words}; no communication recognised among them"
    words += f"; communication {time_words(side.communication_us)}"
    if side.overlap is None:
        return f"{words}; {side.overlap_note}"
    return f"{words}, {share_words(side.overlap)} of it hidden under compute"


def _communication_line(evaluation: Evaluation) -> Text:
    line = f"communication  {evaluation.communication}"
    if evaluation.paths:
        line += f"; paths: {paths_words(evaluation.paths)}"
    return plain(line)


def paths_words(paths: Sequence[str]) -> str:
    """What is known comes first; where no CUDA can be read here, that is no riddle."""
    from pkb.candidates.paths.cuda import available

    unread = "unknown" in paths and not available()
    words = [*(path for path in paths if path != "unknown"), *(path for path in paths if path == "unknown")]
    return ", ".join(words) + " (CUDA is not read without: pip install 'pkb[analysis]')" * unread
