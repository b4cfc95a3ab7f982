"""Moves arguments and outputs between the two sides. The judge relays descriptors and never looks inside.

A *slot* is one call on one set of arguments: drawn by the oracle, handed to the candidate, compared by the oracle.
"""

import itertools
import os
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure
from pkb.types.difference import Difference, Mismatch, Pattern

TRUTH_SHARE = 0.15
"""Of the platform's memory that the truths of several calls may take together."""


@dataclass(frozen=True)
class Case:
    """What a slot is drawn for."""

    problem: str
    size: str
    dtype: str
    upstream: bool = False


@dataclass
class Outcome:
    """What comparing one batch of slots gave."""

    mismatch: Mismatch | None = None
    rejected: str | None = None
    digests: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    worst_ratio: float = 0.0


class CallBytes(NamedTuple):
    """Of one call, all ranks together."""

    outputs: int
    truth: int
    truth_s: float = 0.0
    """How long it took to know the truth."""


class Exchange:
    """Both sides of one world size, with a counter so that no two calls ever see the same data."""

    def __init__(self, oracle: Crew, candidate: Crew, *, limit_s: float) -> None:
        self.oracle, self.candidate, self.limit_s = oracle, candidate, limit_s
        self._slots = itertools.count()

    def open(self, *, name: str, layout: dict[str, list[list[int]]], mutates: list[str], returns_input: bool) -> None:
        message = {"do": "open", "name": name, "layout": layout, "mutates": mutates, "returns_input": returns_input}
        self.oracle.tell_all(message)
        self.candidate.tell_all(message)
        for crew in (self.oracle, self.candidate):
            answers = crew.collect(timeout_s=120)
            crew.facts = {str(k): str(v) for k, v in dict(answers[0][0].get("facts", {})).items()}

    def deliver(self, case: Case, count: int, *, keep: bool = False) -> list[int]:
        """Draw arguments for some calls and hand each rank its own. `keep`: the oracle will run them too."""
        slots = list(itertools.islice(self._slots, count))
        for slot in slots[:1]:
            self._draw(case, slot, keep=keep)
        for slot, following in itertools.zip_longest(slots, slots[1:]):
            drawn = self.oracle.collect(timeout_s=300, expect=("arguments",))
            try:
                if following is not None:  # while the candidate's ranks read these, the oracle's draw the next
                    self._draw(case, following, keep=keep)
                for rank, (message, fds) in drawn.items():
                    self.candidate.tell(rank, {"do": "arguments", "slot": slot, "tree": message["tree"]}, fds)
            finally:
                for _, fds in drawn.values():
                    for fd in fds:
                        os.close(fd)
            self._quiet(self.candidate.collect(timeout_s=300))
        return slots

    def _draw(self, case: Case, slot: int, *, keep: bool) -> None:
        self.oracle.tell_all(
            {
                "do": "draw",
                "slot": slot,
                "call": slot,
                "problem": case.problem,
                "size": case.size,
                "dtype": case.dtype,
                "upstream": case.upstream,
                "keep": keep,
                "send": True,
            }
        )

    @staticmethod
    def _quiet(answers: dict[int, tuple[dict[str, Any], list[int]]]) -> dict[int, dict[str, Any]]:
        for _, fds in answers.values():
            for fd in fds:
                os.close(fd)
        return {rank: message for rank, (message, _) in answers.items()}

    def know_truth(self, slots: list[int]) -> CallBytes:
        """Compute what the outputs of these calls must be; and how large they are."""
        start = time.monotonic()
        answers = self.oracle.ask({"do": "truth", "slots": slots}, timeout_s=600).values()
        seconds = (time.monotonic() - start) / max(1, len(slots))
        return CallBytes(sum(a["output_bytes"] for a in answers), sum(a["truth_bytes"] for a in answers), seconds)

    def run_candidate(
        self,
        slots: list[int],
        *,
        inspect: bool = False,
        profile: bool = False,
        records: bool = False,
        per_rank: dict[int, dict[str, Any]] | None = None,
        extra_s: float = 0.0,
        **schedule: Any,
    ) -> dict[int, dict[str, Any]]:
        """One batch on the candidate's ranks; `per_rank` adds to a rank's schedule, `records` asks what ran on the device."""
        limit = self.limit_s + extra_s
        for rank in self.candidate.ranks:
            own = {"slots": slots, "barrier_timeout_s": limit + 30} | schedule | (per_rank or {}).get(rank, {})
            message = {"do": "run", "schedule": own, "inspect": inspect, "profile": profile, "records": records}
            self.candidate.tell(rank, message)
        return self._quiet(self.candidate.collect(timeout_s=limit))

    def run_oracle(
        self, slots: list[int], *, records: bool = False, extra_s: float = 0.0, **schedule: Any
    ) -> dict[int, dict[str, Any]]:
        own = {"slots": slots, "barrier_timeout_s": 600.0} | schedule
        self.oracle.tell_all({"do": "run", "schedule": own, "records": records})
        return self._quiet(self.oracle.collect(timeout_s=600 + extra_s))

    @cached_property
    def _room_for_truths(self) -> float:
        return TRUTH_SHARE * self.oracle.platform.facts().memory_bytes

    def check(self, slots: list[int], *, words: str) -> Outcome:
        """Know the truth of these calls and compare. All truths are known before the first comparison, so that a result of
        another call is recognised as such, unless they take too much memory: then each is forgotten before the next."""
        first = self.know_truth(slots[:1])
        if len(slots) * first.truth <= self._room_for_truths:
            if slots[1:]:
                self.know_truth(slots[1:])
            return self.compare(slots, words=words)
        outcome = Outcome()
        for position, slot in enumerate(slots):
            if position:
                self.know_truth([slot])
            if not self._compare_one(slot, outcome, words=f"{words}, call {position}"):
                break
            self.oracle.ask({"do": "forget", "slot": slot}, timeout_s=120)
        return outcome

    def wake(self) -> None:
        """Make sure that inside what is measured next on the judge's clock no rank has to wake up, and no limit is due.
        The oracle's ranks are last: however long a candidate takes over it, they do not fall asleep meanwhile."""
        sides = (self.candidate, self.oracle)
        for crew in sides:
            crew.check_limits()
        for crew in sides:
            crew.ask({"do": "wake"}, timeout_s=120)

    def release(self) -> None:
        """The oracle has run these calls and needs its arguments no more; finding a truth may take all the room there is."""
        self.oracle.ask({"do": "release"}, timeout_s=120)

    def compare(self, slots: list[int], *, words: str) -> Outcome:
        """Fetch the outputs of these slots from every rank and have the oracle compare each with the truth it knows."""
        outcome = Outcome()
        for position, slot in enumerate(slots):
            if not self._compare_one(slot, outcome, words=f"{words}, call {position}"):
                break
        return outcome

    def _compare_one(self, slot: int, outcome: Outcome, *, words: str) -> bool:
        """Add what comparing one slot gives; False when that settles it."""
        self.candidate.tell_all({"do": "output", "slot": slot})
        outputs = self.candidate.collect(timeout_s=self.limit_s + 120, expect=("output", "bad_output"))
        try:
            for message, _ in outputs.values():
                if message.get("reply") == "bad_output":
                    outcome.rejected = str(message.get("message", ""))[:300]
                    return False
            for rank, (message, fds) in outputs.items():
                if len(fds) != 1:
                    failure = CrewFailure("garbage", [rank], "an output without its bytes")
                    failure.role = "candidate"
                    raise failure
                self.oracle.tell(rank, {"do": "compare", "slot": slot, "tree": message.get("tree")}, fds)
        finally:
            for _, fds in outputs.values():
                for fd in fds:
                    os.close(fd)
        results = self._quiet(self.oracle.collect(timeout_s=300))
        for rank, result in results.items():
            outcome.digests[slot, rank] = [str(word) for word in result.get("digest", [])]
            outcome.worst_ratio = max(outcome.worst_ratio, float(result.get("ratio") or 0.0))
        wrong = {rank: result for rank, result in results.items() if not result["ok"]}
        if wrong:
            outcome.mismatch = describe_mismatch(wrong, self.oracle.spec.world_size, words)
        return not wrong

    def drop(self, *, keep_memory: bool = False) -> None:
        for crew in (self.oracle, self.candidate):
            crew.ask({"do": "drop", "keep_memory": keep_memory}, timeout_s=120)


def describe_mismatch(wrong: dict[int, dict[str, Any]], world_size: int, case: str) -> Mismatch:
    """The first wrong rank's difference, in the light of which ranks are wrong."""
    rank = min(wrong)
    result = wrong[rank]
    patterns = [Pattern(result["pattern"])] if result.get("pattern") else []
    if len(wrong) < world_size:
        patterns.insert(0, Pattern.SOME_RANKS)
    regions = [(str(name), float(share)) for name, share in result.get("regions", [])]
    if 0 < sum(share > 0 for _, share in regions) < len(regions):
        patterns.append(Pattern.SOME_ROWS)
    index = result.get("first_index")
    return Mismatch(
        case=case,
        ranks=tuple(sorted(wrong)),
        rank=rank,
        output=str(result.get("output", "")),
        what=str(result["what"]),
        difference=Difference(result["difference"]),
        patterns=tuple(patterns),
        amount=result.get("amount"),
        argument=str(result.get("argument", "")),
        error_ratio=result.get("ratio"),
        first_index=tuple(index) if index is not None else None,
        first_got=result.get("first_got"),
        first_expected=result.get("first_expected"),
        differing_fraction=result.get("differing_fraction"),
        regions=tuple(regions),
    )
