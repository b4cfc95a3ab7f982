"""Copies of results, and whether results share memory: what a rank does for a candidate whose outputs are overwritten."""

from collections import namedtuple
from pathlib import Path

import torch

import pkb.report
from pkb.analysis.modes import FailureMode
from pkb.judge.hints import hints_for
from pkb.judge.stages.races import SCENARIOS, kind_of
from pkb.rank.execute import copy_of, share_memory
from pkb.report.breakdown import ORDER
from pkb.report.words import MODE_TONES, VERDICT_MEANING, VERDICT_MODE
from pkb.types.difference import Mismatch, Pattern
from pkb.types.verdict import Evidence, RaceKind, Verdict

Pair = namedtuple("Pair", "first second")


def test_a_copy_has_memory_of_its_own_and_the_same_structure() -> None:
    first, second = torch.ones(3), torch.zeros(2, 2).t()
    returned = {"pair": Pair(first, [second, None, 3]), "text": "x"}
    copied = copy_of(returned)
    first.fill_(7)
    second.fill_(7)
    assert copied["pair"][0].tolist() == [1.0] * 3
    assert copied["pair"][1][0].tolist() == [[0.0, 0.0]] * 2
    assert copied["pair"][1][1:] == [None, 3]
    assert copied["text"] == "x"


def test_what_shares_memory() -> None:
    buffer, other = torch.ones(8), torch.ones(8)
    assert share_memory([buffer[:4], (other, buffer[4:]), torch.ones(8)]) == (True, True, False)
    assert share_memory([buffer, other]) == (False, False)
    assert share_memory([torch.empty(0), torch.empty(0)]) == (False, False), "nothing is shared where nothing is"
    assert share_memory([object(), object()]) == (False, False), "an odd result is refused when it is fetched"


def mismatch(*patterns: Pattern, ranks: tuple[int, ...] = (0,)) -> Mismatch:
    return Mismatch("", ranks, ranks[0], "the result", "values differ", patterns=patterns, amount=1.0)


def test_the_kind_of_a_race_follows_what_was_read() -> None:
    queued = SCENARIOS[0]
    assert kind_of(queued, mismatch(Pattern.STALE)) is RaceKind.STALE_READ
    assert kind_of(queued, mismatch(Pattern.LATER)) is RaceKind.MISSING_END_BARRIER
    assert kind_of(queued, mismatch(Pattern.OVERWRITTEN)) is RaceKind.MISSING_END_BARRIER
    assert kind_of(queued, mismatch()) is queued.kind


def hints(verdict: Verdict, evidence: Evidence) -> str:
    return " ".join(hints_for(verdict, evidence, platform="cpu", backend="torch"))


def test_hints_lead_to_the_cause() -> None:
    reused = hints(Verdict.REUSED_OUTPUT, Evidence(mismatch=mismatch(Pattern.OVERWRITTEN)))
    assert "allocate the output" in reused
    assert "symmetric" not in reused
    repeated = hints(Verdict.WRONG, Evidence(mismatch=mismatch(Pattern.SOME_RANKS, Pattern.RIGHT_WHEN_REPEATED)))
    assert "wait for every peer" in repeated
    assert "ring's ends" not in repeated, "of two hints, the one that has evidence"
    assert "ring's ends" in hints(Verdict.WRONG, Evidence(mismatch=mismatch(Pattern.SOME_RANKS)))
    assert "transposed" in hints(Verdict.WRONG, Evidence(mismatch=mismatch(Pattern.TRANSPOSED)))


def test_the_site_knows_every_verdict_and_mode() -> None:
    assert set(ORDER) == set(FailureMode)
    assert set(MODE_TONES) == {mode.value for mode in FailureMode}
    assert {str(verdict) for verdict in Verdict} <= VERDICT_MODE.keys() & VERDICT_MEANING.keys()
    script = Path(pkb.report.__file__).with_name("static") / "table.js"
    named = next(line for line in script.read_text().splitlines() if "VERDICT_MODE = {" in line)
    assert all(f"{verdict}: " in named for verdict in Verdict)
