"""The readable verdict carries the facts of each verdict at 80 columns, without colours, and cannot be painted over."""

import io

import pytest
from rich.console import Console
from verdict_examples import example

from pkb.cli.panel import render
from pkb.types.verdict import Evaluation, Failure, RankState, Verdict


def rendered(evaluation: Evaluation, *, width: int = 80, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, highlight=False, markup=False).print(render(evaluation))
    return out.getvalue()


def words(text: str) -> str:
    """The text without borders and line breaks, since a sentence may be wrapped."""
    return " ".join(text.replace("│", " ").split())


FACTS: dict[Verdict, list[str]] = {
    Verdict.CORRECT: [
        "CORRECT", "all ranks right in 9 calls", "communication custom", "SM load/store, copy engine",
        "812.5 us (p10 800 us, p90 840 us)", "406.2 us (p10 401 us, p90 433 us), algBW 20.6 GB/s, busBW 31 GB/s",
        "2.00x, 95 % interval 1.91 to 2.08",
        "faster than the reference", "floor 101.6 us", "25% of that limit", "the judge's clock saw 1.02",
        "taken on virtual", "ranks share one GPU; says nothing about NVLink", "the reduction reads every peer twice",
        "5 trials at size paper", "build 1.6", "correctness 3.2", "70 calls in 7 rounds", "91.23 ms",
    ],
    Verdict.WRONG: [
        "WRONG in stage correctness", "ranks 1-3 differ; described for rank 2", "output 0", "values differ", "trial 3",
        "[16, 5] is 0.25, expected -1.5", "25 % of the elements", "41.7 times what is tolerated",
        "looks like the data of the call before", "rows 0-15 0 %", "rows 16-31 100 %",
    ],
    Verdict.RACE: ["RACE in stage races", "race of kind buffer reuse", "size tiny, 4 ranks, trial 3"],
    Verdict.DEADLOCK: [
        "DEADLOCK", "no answer after 60 s", "finished", "waiting", "running", "gone", "the device is busy",
        "failing ranks 1-2",
    ],
    Verdict.COMPILE_ERROR: ["COMPILE ERROR in stage build", 'error: identifier "blockIdy" is undefined', "nvcc"],
    Verdict.LOAD_ERROR: ["LOAD ERROR in stage start", "ImportError on rank 0", "No module named 'cupy'"],
    Verdict.RUNTIME_ERROR: [
        "RUNTIME ERROR", "RuntimeError on rank 1", "shape [3] is no good", "frame 29", "22 lines left out",
    ],
    Verdict.CRASH: ["CRASH", "SIGSEGV on rank 3", "segmentation fault", "last words"],
    Verdict.REJECTED: [
        "REJECTED in stage timing", "broke the rule clock-agreement", "reported 2 us", "2.00x", "not to be believed",
    ],
    Verdict.UNSUPPORTED: ["UNSUPPORTED", "needs multicast, which virtual does not have"],
    Verdict.HARNESS_ERROR: ["HARNESS ERROR", "the oracle did not start", "OSError", "no space left"],
}  # fmt: skip


@pytest.mark.parametrize("verdict", Verdict)
def test_panel_states_the_facts_at_80_columns(verdict: Verdict) -> None:
    text = rendered(example(verdict))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    for fact in (
        *FACTS[verdict], "13 gemm_allreduce", "4 ranks on virtual", "NVIDIA H200", "size paper", "bf16",
        "plan standard", "13_gemm_allreduce.py",
    ):  # fmt: skip
        assert fact in words(text)


def test_deadlock_table_ties_state_and_place_to_its_rank() -> None:
    text = rendered(example(Verdict.DEADLOCK), width=160)
    (line,) = [line for line in text.splitlines() if "wait_signal" in line]
    assert line.split()[1:3] == ["1", "waiting"]
    assert "candidate.py:41" in line
    assert "launch()" not in text


@pytest.mark.parametrize(("platform", "says"), [("cpu", True), ("virtual", True), ("node", False)])
def test_times_name_their_platform(platform: str, says: bool) -> None:
    text = words(rendered(example(Verdict.CORRECT, platform=platform)))
    assert f"taken on {platform}" in text
    assert ("NVLink" in text) is says


def test_a_rejected_candidate_is_never_called_faster() -> None:
    assert "faster" not in rendered(example(Verdict.REJECTED))


def test_terminal_colours_a_verdict() -> None:
    assert "\x1b[1;32mCORRECT" in rendered(example(Verdict.CORRECT), terminal=True)
    assert "\x1b[1;31mWRONG" in rendered(example(Verdict.WRONG), terminal=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_candidate_cannot_paint_over_its_verdict(terminal: bool) -> None:
    """Its messages reach the panel; an escape sequence or markup in them must stay harmless text."""
    evil = "\x1b[2J\x1b[H[bold green]CORRECT[/bold green]\x1b]0;title\x07 [/nonsense] \u202egnorw"
    evaluation = example(
        Verdict.RUNTIME_ERROR, failure=Failure(evil, evil, 1, evil), output_tail=evil, hints=(evil,), detail=evil
    )
    text = rendered(evaluation, terminal=terminal)
    assert "\x1b[2J" not in text
    assert "\x1b[H" not in text
    assert "\x1b]" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold green]CORRECT[/bold green]" in text
    stuck = example(Verdict.DEADLOCK, rank_states=(RankState(0, "waiting", evil, (evil,)),))
    assert "\x1b]" not in rendered(stuck, terminal=terminal)


def test_an_endless_message_is_cut() -> None:
    text = rendered(example(Verdict.RUNTIME_ERROR, failure=Failure("E", "word " * 20_000, 1)))
    assert len(text.splitlines()) < 60
