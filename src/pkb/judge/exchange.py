"""Moves arguments and outputs between the two sides. The judge relays descriptors and never looks inside.

A *slot* is one call on one set of arguments: drawn by the oracle, handed to the candidate, compared by the oracle. The oracle
seals arguments with a key that the judge makes and sends to a side with the order to run them, so that nobody has seen them
before (docs/window.md).
"""

import contextlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from pkb.judge.crew.company import Watch
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.patience import warm_limit_s
from pkb.judge.kinds import KindPlan
from pkb.types.channel import discard
from pkb.types.difference import Mismatch, Pattern
from pkb.types.protocol.commands import (
    KEY_BYTES,
    CheckBaseline,
    Compare,
    DrawArguments,
    DrawOnly,
    DrawSpec,
    Drop,
    FetchOutput,
    FindTruth,
    Forget,
    GiveArguments,
    Open,
    Release,
    RunBatch,
    Schedule,
    Wake,
)
from pkb.types.protocol.replies import BadOutput, BatchReport, Comparison, OutputReply
from pkb.types.protocol.trees import tensor_nodes
from pkb.types.stock import StockFunction

TRUTH_SHARE = 0.15
"""Of the platform's memory that the truths of several calls may take together."""
ORACLE_LIMIT_S = 600.0
IN_PROCESS_S = 20.0
"""Of what a batch may take longer to compile: so much may pass without a compiler's process. Triton's own passes run in the
rank. A candidate that hangs in its first call costs this, not what a build may take."""
Reports = dict[int, BatchReport]
"""Of one batch, by rank."""


@dataclass
class Outcome:
    """The result of comparing one batch of slots."""

    mismatch: Mismatch | None = None
    slot: int | None = None
    """Of the mismatch."""
    rejected: str | None = None
    overwritten: bool = False
    """Every rank that differs in the call of the mismatch has a later call's result there, in whole."""
    digests: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    worst_ratio: float = 0.0


class CallBytes(NamedTuple):
    """Sizes of one call, all ranks together."""

    outputs: int
    truth: int
    truth_s: float = 0.0
    """How long it took to know the truth."""


class Exchange:
    """Both sides of one world size, with a counter so that no two calls ever see the same data."""

    def __init__(
        self, oracle: Crew, candidate: Crew, *, limit_s: float, kinds: Mapping[str, float] | None = None
    ) -> None:
        self.oracle, self.candidate = oracle, candidate
        self._first_limit_s = limit_s
        self._limit_for: Callable[[int], float] = lambda calls: limit_s
        """Of a batch of so many of the candidate's calls."""
        self._kinds = KindPlan(kinds or {})
        self._slots = itertools.count()
        self._keys: dict[int, str] = {}
        """Of slots whose arguments are at hand."""
        self._given: dict[int, DrawArguments] = {}
        """How the arguments that the candidate has were drawn, by slot."""
        self._watch = Watch(oracle, candidate)
        self.calls = 0
        """That the candidate was told to make."""
        self.copies = False
        """Both sides copy each result before the next call: this candidate's are overwritten by later ones."""

    def beside(self, candidate: Crew) -> "Exchange":
        """The same oracle with another side of the candidate, which has made no call yet. One of the two is used at a time."""
        other = Exchange(self.oracle, candidate, limit_s=self._first_limit_s)
        other._kinds, other._slots, other.copies = self._kinds, self._slots, self.copies
        return other

    def open(self, command: Open) -> None:
        self.oracle.tell_all(command)
        self.candidate.tell_all(command)
        for crew in (self.oracle, self.candidate):
            crew.facts = crew.hear(command, timeout_s=120)[0].facts
        self._watch.get_used_to_company()

    def deliver(
        self, spec: DrawSpec, count: int, *, keep: bool = False, kinds: Sequence[str] = (), sizes: Sequence[str] = ()
    ) -> tuple[int, ...]:
        """Draw arguments for some calls and hand each rank its own. `keep`: the oracle will run them too. `kinds`: of the
        calls; by default all that the problem has, round-robin. `sizes`: of the calls, if they are not all of the spec's."""
        slots, key = self.new_slots(count), secrets.token_hex(KEY_BYTES)
        of_calls = zip(slots, kinds or self._kinds.round_robin(count), sizes or (spec.size,) * count, strict=True)
        self._hand_out(
            [DrawArguments(replace(spec, kind=kind, size=size), slot, keep, key) for slot, kind, size in of_calls]
        )
        return slots

    def repeat(self, slot: int, *, words: str) -> Outcome:
        """Repeats one earlier call alone on the same arguments, drawn again since a call may change them. It uses the same
        key, so that digests of outputs can be compared."""
        draw = self._given[slot]
        self.drop()
        self._hand_out([draw])
        self.run_candidate(Schedule((slot,)))
        return self.check((slot,), words=words)

    def _hand_out(self, draws: Sequence[DrawArguments]) -> None:
        self._keys |= {draw.slot: draw.key for draw in draws}
        self._given |= {draw.slot: draw for draw in draws}
        for draw in draws[:1]:
            self.oracle.tell_all(draw)
        for draw, following in itertools.zip_longest(draws, draws[1:]):
            drawn = self.oracle.collect(draw, timeout_s=300)
            try:
                if following is not None:  # while the candidate's ranks read these, the oracle's draw the next
                    self.oracle.tell_all(following)
                for rank, (arguments, fds) in drawn.items():
                    gift = GiveArguments(draw.slot, arguments.tree)
                    if self.candidate.patience is not None:
                        self.candidate.patience.earn(
                            copied_bytes=sum(node.size for node in tensor_nodes(arguments.tree))
                        )
                    self.candidate.tell(rank, gift, fds)
            finally:
                for answer in drawn.values():
                    discard(answer.fds)
            self.candidate.hear(gift, timeout_s=300)

    def has_answered(self, *, reference_s: float, first_call_s: float, call_s: float) -> None:
        """A call has returned, so the next ones are warm: from now on a batch has the limit of warm calls."""
        self._limit_for = lambda calls: warm_limit_s(
            self._first_limit_s,
            reference_s=reference_s,
            first_call_s=first_call_s,
            call_s=call_s,
            calls=calls,
            device=self.candidate.platform.device,
        )

    @contextlib.contextmanager
    def other_size(self) -> Iterator[None]:
        """Calls inside the block are of another size: their times say nothing about later calls."""
        before = self._limit_for
        try:
            yield
        finally:
            self._limit_for = before

    def is_new_size(self) -> None:
        """The next call may be slower than any before, and gets the whole limit."""
        self._limit_for = lambda calls: self._first_limit_s

    def know_truth(self, slots: Sequence[int]) -> CallBytes:
        """Computes what the outputs of these calls must be, and their sizes."""
        start = time.monotonic()
        sizes = self.oracle.ask(FindTruth(tuple(slots)), timeout_s=600).values()
        seconds = (time.monotonic() - start) / max(1, len(slots))
        return CallBytes(sum(size.output_bytes for size in sizes), sum(size.truth_bytes for size in sizes), seconds)

    def run_candidate(
        self,
        schedule: Schedule,
        *,
        inspect: bool = False,
        profile: bool = False,
        records: bool = False,
        late: Mapping[int, Schedule] | None = None,
        told_late_s: Mapping[int, float] | None = None,
        extra_s: float = 0.0,
        compiling_s: float = 0.0,
    ) -> Reports:
        """One batch on the candidate's ranks; `late` has schedules for some of them that differ in how late they come.

        `told_late_s`: ranks that learn of it after the others, with the key of their arguments. No rank can undo it.
        `compiling_s`: what it may take beyond `extra_s` as long as compilers are at work. Never in a timed batch: whether
        there are any is looked up while it runs, and the reference's has no such step.
        """
        self.calls += len(schedule.slots)
        quiet_s = self._limit_for(len(schedule.slots)) + extra_s
        limit = quiet_s + compiling_s
        common = RunBatch(self._released(schedule, limit + 30), inspect=inspect, profile=profile, records=records)
        own = {rank: replace(common, schedule=self._released(one, limit + 30)) for rank, one in (late or {}).items()}
        told_late_s, waited = told_late_s or {}, 0.0
        for rank in sorted(self.candidate.ranks, key=lambda rank: told_late_s.get(rank, 0.0)):
            if (late_s := told_late_s.get(rank, 0.0)) > waited:  # to sleep for no time at all takes 60 us, a rank
                time.sleep(late_s - waited)
                waited = late_s
            self.candidate.tell(rank, own.get(rank, common))
        if not compiling_s:
            return self.candidate.hear(common, timeout_s=limit)
        return self.candidate.hear(common, timeout_s=limit, quiet_s=quiet_s + min(compiling_s, IN_PROCESS_S))

    def run_oracle(
        self, schedule: Schedule, *, function: StockFunction, records: bool = False, extra_s: float = 0.0
    ) -> Reports:
        run = RunBatch(self._released(schedule, ORACLE_LIMIT_S), records=records, function=function)
        return self.oracle.ask(run, timeout_s=ORACLE_LIMIT_S + extra_s)

    def new_slots(self, count: int) -> tuple[int, ...]:
        """Slots of calls that only the oracle makes."""
        return tuple(itertools.islice(self._slots, count))

    def draw(self, spec: DrawSpec, slots: Sequence[int], kinds: Sequence[str]) -> None:
        """Arguments for the oracle alone. Those of a slot are the same each time."""
        self._keys |= dict.fromkeys(slots, "")
        for slot, kind in zip(slots, kinds, strict=True):
            self.oracle.ask(DrawOnly(replace(spec, kind=kind), slot), timeout_s=300)

    def check_baseline(self, spec: DrawSpec, slots: tuple[int, ...]) -> dict[int, Comparison]:
        """Compares the baseline's outputs of these calls with the ground truth, by rank."""
        return self.oracle.ask(CheckBaseline(spec, slots), timeout_s=ORACLE_LIMIT_S)

    def ends_with_the_candidate(self) -> bool:
        """Whether the work seen on the device ends when the candidate's side is ended; ends that side to find out."""
        return self._watch.ends_with_the_candidate()

    @property
    def company_note(self) -> str:
        """A note for readers of the times; empty if the device was ours alone before the candidate was loaded."""
        seen = self._watch.shared_before
        return f"others were at work on the device before the candidate was loaded ({seen})" if seen else ""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Every process of the candidate's side is stopped inside the block, and its device at rest, or it ends with
        `Disturbed`."""
        with self._watch.alone():
            yield

    def look(self) -> None:
        """Fill the device as it was filled before the reference's batch, while the candidate's ranks are idle."""
        self._watch.look()

    def _released(self, schedule: Schedule, barrier_timeout_s: float) -> Schedule:
        """With the key of its slots, which were delivered together."""
        keys = {self._keys[slot] for slot in schedule.slots}
        assert len(keys) == 1, "slots of several deliveries in one batch"
        return replace(schedule, key=keys.pop(), copies=self.copies, barrier_timeout_s=barrier_timeout_s)

    @cached_property
    def _room_for_truths(self) -> float:
        return TRUTH_SHARE * self.oracle.platform.facts().memory_for(self.oracle.spec.world_size)

    def check(self, slots: Sequence[int], *, words: str) -> Outcome:
        """Know the truth of these calls and compare. All truths are known before the first comparison, so that a result of
        another call is recognised as such, unless they take too much memory: then each is forgotten before the next, and a
        wrong result is held against the last call's too, which is what a buffer used for all of them shows."""
        first = self.know_truth(slots[:1])
        if len(slots) * first.truth <= self._room_for_truths:
            if slots[1:]:
                self.know_truth(slots[1:])
            return self.compare(slots, words=words)
        outcome = Outcome()
        for position, slot in enumerate(slots):
            if position:
                self.know_truth([slot])
            case = f"{words}, call {position}"
            if not self._compare_one(slot, outcome, words=case):
                if outcome.mismatch and slot != slots[-1] and 2 * first.truth <= self._room_for_truths:
                    self.know_truth(slots[-1:])
                    self._compare_one(slot, outcome, words=case)
                break
            self.oracle.ask(Forget(slot), timeout_s=120)
        return outcome

    def wake(self, crew: Crew) -> None:
        """Makes sure that in the next measurement on the host wall clock no rank has to wake up, and no limit is due."""
        for side in (self.candidate, self.oracle):
            side.check_limits()
        crew.ask(Wake(), timeout_s=120)

    def release(self) -> None:
        """The oracle has run these calls and drops their arguments; computing a ground truth may need all the memory."""
        self.oracle.ask(Release(), timeout_s=120)

    def compare(self, slots: Sequence[int], *, words: str) -> Outcome:
        """Fetch the outputs of these slots from every rank and have the oracle compare each with the truth it knows."""
        outcome = Outcome()
        for position, slot in enumerate(slots):
            if not self._compare_one(slot, outcome, words=f"{words}, call {position}"):
                break
        return outcome

    def _compare_one(self, slot: int, outcome: Outcome, *, words: str) -> bool:
        """Add what comparing one slot gives; False when that settles it."""
        fetch = FetchOutput(slot)
        self.candidate.tell_all(fetch)
        outputs = self.candidate.collect(fetch, timeout_s=self._first_limit_s + 120)
        try:
            for output, _ in outputs.values():
                if isinstance(output, BadOutput):
                    outcome.rejected = output.message[:300]
                    return False
            for rank, (output, fds) in outputs.items():
                assert isinstance(output, OutputReply)
                comparison = Compare(slot, output.tree)
                self.oracle.tell(rank, comparison, fds)
        finally:
            for answer in outputs.values():
                discard(answer.fds)
        results = self.oracle.hear(comparison, timeout_s=300)
        for rank, result in results.items():
            outcome.digests[slot, rank] = result.digest
            outcome.worst_ratio = max(outcome.worst_ratio, result.ratio or 0.0)
        wrong = {rank: result for rank, result in results.items() if result.difference is not None}
        if wrong:
            patterns = [result.difference.pattern for result in wrong.values() if result.difference is not None]
            outcome.overwritten = all(pattern is Pattern.OVERWRITTEN for pattern in patterns)
            outcome.mismatch, outcome.slot = describe_mismatch(wrong, self.oracle.spec.world_size, words), slot
        return not wrong

    def drop(self, *, keep_memory: bool = False) -> None:
        self.drop_drawn(keep_memory=keep_memory)
        self.candidate.ask(Drop(keep_memory), timeout_s=120)

    def drop_drawn(self, *, keep_memory: bool = True) -> None:
        """Drops what the oracle holds; the candidate's side may be stopped meanwhile."""
        self._keys.clear()
        self._given.clear()
        self.oracle.ask(Drop(keep_memory), timeout_s=120)


def describe_mismatch(wrong: dict[int, Comparison], world_size: int, case: str) -> Mismatch:
    """The first wrong rank's difference, with a pattern that takes into account which ranks are wrong."""
    rank = min(wrong)
    difference = wrong[rank].difference
    assert difference is not None
    patterns = [difference.pattern] if difference.pattern is not None else []
    if len(wrong) < world_size:
        patterns.insert(0, Pattern.SOME_RANKS)
    if 0 < sum(share > 0 for _, share in difference.regions) < len(difference.regions):
        patterns.append(Pattern.SOME_ROWS)
    return Mismatch(
        case=f"{case}, {difference.scalars}" if difference.scalars else case,
        ranks=tuple(sorted(wrong)),
        rank=rank,
        output=difference.output,
        what=difference.what,
        difference=difference.kind,
        patterns=tuple(patterns),
        amount=difference.amount,
        argument=difference.argument,
        error_ratio=wrong[rank].ratio,
        first_index=difference.first_index,
        first_got=difference.first_got,
        first_expected=difference.first_expected,
        differing_fraction=difference.differing_fraction,
        regions=difference.regions,
    )
