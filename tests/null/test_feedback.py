"""What an agent is told is what a person is shown, and no more."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from verdict_examples import example

from pkb.cli.panel import render
from pkb.generate.feedback import feedback
from pkb.types.verdict import CandidateRef, Evaluation, Failure, FailureKind, Verdict

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def panel_text(evaluation: Evaluation) -> str:
    out = io.StringIO()
    Console(file=out, width=2000, highlight=False).print(render(evaluation))
    return out.getvalue()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_number_in_the_feedback_is_in_the_panel(verdict: Verdict) -> None:
    """A field that the panel leaves out, or shows with fewer digits, would bring a number that is not there."""
    evaluation = replace(
        example(verdict),
        environment={"oracle seed": "918273645", "torch": "7.7.7"},
        isolation={"landlock": "on 55555"},
        candidate=CandidateRef("x.py", "31337" * 12, "cuda"),
    )
    shown = set(_NUMBER.findall(panel_text(evaluation)))
    told = set(_NUMBER.findall(feedback(evaluation)))
    assert told - shown == set()


@pytest.mark.parametrize(
    ("verdict", "parts"),
    [
        (
            Verdict.WRONG,
            ["WRONG in stage", "values differ", "ranks 3 differ", "pattern: rank 3 only", "hint: one rank differs"],
        ),
        (Verdict.RACE, ["race of kind missing_synchronisation", "right in isolation, wrong when calls are queued"]),
        (Verdict.DEADLOCK, ["rank 0:", "waiting"]),
        (Verdict.COMPILE_ERROR, ["COMPILE ERROR in stage build"]),
        (
            Verdict.CORRECT,
            ["95 % interval 1.67 to 1.76", "faster than the reference", "communication: ", "hardware limit"],
        ),
        (Verdict.REJECTED, ["broke the rule: clock"]),
        (Verdict.RUNTIME_ERROR, ["ValueError on rank 1: an odd number of elements"]),
        (Verdict.HARNESS_ERROR, ["says nothing about your kernel"]),
    ],
)
def test_what_helps_is_told(verdict: Verdict, parts: list[str]) -> None:
    text = feedback(example(verdict))
    for part in parts:
        assert part in text


def test_bandwidths_stand_beside_the_times_of_what_moves_data() -> None:
    timing = example(Verdict.CORRECT).timing
    assert timing is not None
    rates: dict[str, Any] = {
        "reference_alg_gbps": 100.0,
        "reference_bus_gbps": 175.0,
        "candidate_alg_gbps": 171.4,
        "candidate_bus_gbps": 300.0,
    }
    text = feedback(replace(example(Verdict.CORRECT), timing=replace(timing, **rates)))
    assert "algBW 100 GB/s, busBW 175 GB/s; candidate algBW 171 GB/s, busBW 300 GB/s" in text
    nothing: dict[str, Any] = dict.fromkeys(rates)
    assert "algBW" not in feedback(replace(example(Verdict.CORRECT), timing=replace(timing, **nothing)))


def test_times_that_are_not_believed_are_not_told() -> None:
    rejected = replace(example(Verdict.REJECTED), timing=example(Verdict.CORRECT).timing)
    text = feedback(rejected)
    assert "not validated" in text
    assert "speedup" not in text


def test_a_candidate_cannot_flood_the_conversation() -> None:
    loud = Failure(FailureKind.EXCEPTION, "x" * 100_000, rank=0, trace="y\n" * 50_000, name="RuntimeError")
    evaluation = replace(
        example(Verdict.RUNTIME_ERROR), failure=loud, detail="z" * 50_000, output_tail="\x1b[2J" + "w\n" * 9999
    )
    text = feedback(evaluation)
    assert len(text) < 8000
    assert "\x1b" not in text
