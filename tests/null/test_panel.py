"""The readable verdict carries the facts of each verdict at 80 columns, without colours, and cannot be painted over."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from verdict_examples import PROFILE, TIMING, example

from pkb.cli.panel import render
from pkb.types.timing import KindSpeedup
from pkb.types.verdict import Decision, Evaluation, Failure, FailureKind, RankState, Standing, Verdict


def rendered(evaluation: Evaluation, *, width: int = 80, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=terminal, highlight=False, markup=False).print(render(evaluation))
    return out.getvalue()


def words(text: str) -> str:
    """The text without borders and line breaks, since a sentence may be wrapped."""
    return " ".join(text.replace("│", " ").split())


FACTS: dict[Verdict, list[str]] = {
    Verdict.CORRECT: [
        "CORRECT", "right on every rank in every call", "communication custom", "sm_load_store",
        "158.1 us (p10 147.7 us, p90 170.2 us)", "92.27 us (p10 84.8 us, p90 98.43 us)", "1.71x, 95 % interval 1.67 to 1.76",
        "faster than the reference", "floor 8.693 us", "9% of that limit", "queued calls on the judge's clock: 189 us",
        "taken on virtual", "ranks share one GPU; says nothing about NVLink", "run one after the other: cut the work into",
        "5 calls at paper with 8 ranks", "200 calls in 8 rounds", "277.5 ms", "h200-shared datasheet",
    ],
    Verdict.WRONG: [
        "WRONG in stage correctness", "3 differ; described for rank 3", "the result", "values differ", "trial 0",
        "rank 3 only", "one rank differs: check",
    ],
    Verdict.RACE: [
        "RACE in stage races", "race of kind missing_synchronisation", "right in isolation", "2 calls at tiny with 4 ranks",
        "two calls in a row disturb each other",
    ],
    Verdict.REUSED_OUTPUT: [
        "REUSED OUTPUT in stage races", "is overwritten by a later call", "(3 calls later)", "allocate the output in every",
        "each result copied before the next call",
    ],
    Verdict.DEADLOCK: [
        "DEADLOCK", "no answer within 10 s", "finished", "waiting", "idle", "barrier(channel=1)", "failing ranks 1-3",
    ],
    Verdict.COMPILE_ERROR: [
        "COMPILE ERROR in stage build", "error: ‘missing_name’ was not declared", "cpp", "In function ‘void add(float*)’",
    ],
    Verdict.LOAD_ERROR: [
        "LOAD ERROR in stage start", "ModuleNotFoundError on rank", "No module named 'a_module_that_nobody_has'",
    ],
    Verdict.RUNTIME_ERROR: [
        "RUNTIME ERROR", "ValueError on rank 1", "an odd number of elements", "line 36, in solution",
    ],
    Verdict.CRASH: ["CRASH", "process ended on rank", "was ended by SIGSEGV", "failing ranks 0-1"],
    Verdict.REJECTED: [
        "REJECTED in stage timing", "broke the rule: clock", "do not account for the time that passed", "not validated",
    ],
    Verdict.UNSUPPORTED: ["UNSUPPORTED", "the cpu platform has no CUDA device", "NoCudaDevice on rank", "`pkb doctor`"],
    Verdict.HARNESS_ERROR: ["HARNESS ERROR", "the oracle failed", "no space left on the device", "p901_no_reference.py"],
}  # fmt: skip


def numbers(evaluation: Evaluation) -> list[str]:
    """What differs from one evaluation of a candidate to the next."""
    found = [f"{stage} {seconds:.1f}" for stage, seconds in evaluation.stage_seconds.items()]
    mismatch = evaluation.mismatch
    if mismatch is not None:
        assert mismatch.first_index is not None
        assert mismatch.differing_fraction is not None
        index = ", ".join(map(str, mismatch.first_index))
        found += [
            f"[{index}] is {mismatch.first_got:.6g}, expected {mismatch.first_expected:.6g}",
            f"{100 * mismatch.differing_fraction:.3g} % of the elements",
            f"{mismatch.error_ratio:.3g} times the tolerance",
            *(f"{name} {100 * share:.3g} %" for name, share in mismatch.regions),
        ]
    return found


@pytest.mark.parametrize("verdict", Verdict)
def test_panel_states_the_facts_at_80_columns(verdict: Verdict) -> None:
    evaluation = example(verdict)
    text = rendered(evaluation)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    for fact in (
        *FACTS[verdict], *numbers(evaluation), f"{evaluation.problem.id} {evaluation.problem.name}",
        f"{evaluation.ranks} ranks on",
        evaluation.hardware, f"size {evaluation.size}", evaluation.dtype, f"plan {evaluation.plan}",
    ):  # fmt: skip
        assert fact in words(text)


@pytest.mark.parametrize("verdict", Verdict)
def test_the_title_names_the_candidate(verdict: Verdict) -> None:
    evaluation = example(verdict)
    title = rendered(evaluation).splitlines()[1]
    assert evaluation.candidate.file in title
    assert str(verdict).replace("_", " ").upper() in title


def test_what_ran_on_the_device_is_a_line() -> None:
    assert "per call: 3 kernels, 2 copies; communication 41 us, 63 % of it hidden" in words(
        rendered(example(Verdict.CORRECT, profile=PROFILE))
    )


def test_a_long_trace_keeps_its_end() -> None:
    long = Failure(FailureKind.EXCEPTION, "no", 1, "\n".join(f"frame {n}" for n in range(30)), "RuntimeError")
    text = words(rendered(example(Verdict.RUNTIME_ERROR, failure=long)))
    assert "frame 29" in text
    assert "22 lines left out" in text
    assert "frame 3 " not in text


def test_what_the_candidate_printed_is_shown() -> None:
    assert "last words" in rendered(example(Verdict.CRASH, output_tail="last words\n"))


def test_deadlock_table_ties_state_and_place_to_its_rank() -> None:
    first, *rest = example(Verdict.DEADLOCK).rank_states
    states = (first, replace(rest[0], stack=(*rest[0].stack, "an_outer_frame.py:1 in main")), *rest[1:])
    text = rendered(example(Verdict.DEADLOCK, rank_states=states), width=160)
    lines = [line for line in text.splitlines() if "barrier(channel=1) waiting for rank 0" in line]
    assert [line.split()[1:3] for line in lines] == [[rank, "waiting"] for rank in "123"]
    assert all("1_allreduce_deadlock.py:17" in line for line in lines)
    assert "an_outer_frame" not in text


@pytest.mark.parametrize(("platform", "says"), [("cpu", True), ("virtual", True), ("node", False)])
def test_times_name_their_platform(platform: str, says: bool) -> None:
    text = words(rendered(example(Verdict.CORRECT, platform=platform, timing=replace(TIMING, note=""))))
    assert f"taken on {platform}" in text
    assert ("NVLink" in text) is says


def test_nothing_is_called_faster_on_a_cpu() -> None:
    fast = replace(TIMING, decision=Decision.FASTER)
    assert "faster than the reference" in words(rendered(example(Verdict.CORRECT, platform="node", timing=fast)))
    text = words(rendered(example(Verdict.CORRECT, platform="cpu", timing=fast)))
    assert "faster" not in text
    assert "says nothing about the speed of a kernel" in text


def test_kinds_of_calls_have_a_line_each() -> None:
    kinds = {
        "causal": KindSpeedup(0.5, 400.0, 100.0, 4.0, 3.9, 4.1),
        "full": KindSpeedup(0.5, 90.0, 100.0, 0.9, 0.8, 1.0),
    }
    text = words(rendered(example(Verdict.CORRECT, timing=replace(TIMING, speedup_by_kind=kinds))))
    assert "causal 4.00x, 3.90 to 4.10 (400 us to 100 us)" in text
    assert "full 0.90x, 0.80 to 1.00" in text


@pytest.mark.parametrize(
    ("value", "high", "says"),
    [(1.4, 1.5, "1.40x on the host wall clock, interval 1.30 to 1.50"), (None, None, "interval 1.30 to no bound")],
)
def test_the_window_is_shown_beside_the_devices_figure(value: float | None, high: float | None, says: str) -> None:
    timing = replace(TIMING, window_speedup=value, window_speedup_low=1.3, window_speedup_high=high)
    assert says in words(rendered(example(Verdict.CORRECT, timing=timing)))
    timing = replace(timing, empty_walls_us=(50.0, 61.0, 400.0))
    assert f"{says}, without the 61 us a call that the window itself takes" in words(
        rendered(example(Verdict.CORRECT, timing=timing))
    )


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
        Verdict.RUNTIME_ERROR,
        failure=Failure(FailureKind.EXCEPTION, evil, 1, evil, evil),
        output_tail=evil,
        hints=(evil,),
        detail=evil,
    )
    text = rendered(evaluation, terminal=terminal)
    assert "\x1b[2J" not in text
    assert "\x1b[H" not in text
    assert "\x1b]" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold green]CORRECT[/bold green]" in text
    stuck = example(Verdict.DEADLOCK, rank_states=(RankState(0, Standing.WAITING, evil, (evil,)),))
    assert "\x1b]" not in rendered(stuck, terminal=terminal)


def test_an_endless_message_is_cut() -> None:
    text = rendered(example(Verdict.RUNTIME_ERROR, failure=Failure(FailureKind.EXCEPTION, "word " * 20_000, 1)))
    assert len(text.splitlines()) < 60
