"""Stage 3: several calls, each on fresh data, every output of every rank compared in full."""

from collections.abc import Callable

from pkb.judge.cases import Case, Exchange
from pkb.judge.decision import Decided
from pkb.types.verdict import Communication, Stage, Verdict


def check_calls(
    exchange: Exchange, case: Case, *, trials: int, words: str, progress: Callable[[str], None], first_call_extra_s: float = 0.0
) -> tuple[Communication, float]:
    """Run the trials one by one; what the last of them used to move data, and the worst ratio of error to tolerance."""
    seen = Communication.UNKNOWN
    worst = 0.0
    for trial in range(trials):
        progress(f"correctness: {words}, call {trial + 1} of {trials}")
        slots = exchange.deliver(case, 1)
        # Set-up may happen in the first call, so what a call does to communicate is observed in the last.
        last = trial == trials - 1
        answers = exchange.run_candidate(
            slots, inspect=True, profile=last, digests=True, extra_s=first_call_extra_s if trial == 0 else 0.0
        )
        exchange.know_truth(slots)
        check_conduct(answers, slots, stage=Stage.CORRECTNESS, returns_input=False)
        outcome = exchange.compare(slots, words=f"{words}, trial {trial}")
        if outcome.rejected:
            raise Decided(Verdict.REJECTED, Stage.CORRECTNESS, f"an output is {outcome.rejected}; plain tensors are expected")
        if outcome.mismatch:
            raise wrong(outcome.mismatch, Stage.CORRECTNESS)
        worst = max(worst, outcome.worst_ratio)
        if last:
            seen = communication(answers)
        exchange.drop()
    return seen, worst


def wrong(mismatch, stage: Stage) -> Decided:  # type: ignore[no-untyped-def]
    who = f"rank {mismatch.ranks[0]}" if len(mismatch.ranks) == 1 else f"ranks {', '.join(map(str, mismatch.ranks))}"
    return Decided(
        Verdict.WRONG, stage, f"{who}: {mismatch.output}: {mismatch.what} ({mismatch.case})",
        {"mismatch": mismatch, "failing_ranks": mismatch.ranks},
    )  # fmt: skip


def check_conduct(answers: dict, slots: list[int], *, stage: Stage, returns_input: bool) -> None:  # type: ignore[type-arg]
    """Arguments must be left as they were, and results must have memory of their own."""
    for rank, answer in answers.items():
        changed = [slot for slot, yes in dict(answer.get("changed", {})).items() if yes]
        if changed:
            raise Decided(
                Verdict.REJECTED, stage, f"rank {rank} changed its arguments in place; this problem forbids it",
                {"failing_ranks": (rank,)},
            )  # fmt: skip


def communication(answers: dict) -> Communication:  # type: ignore[type-arg]
    """`library` if any rank called a collective, `custom` if any rank took a peer's memory, else `none`."""
    observed = [dict(answer.get("observed", {})) for answer in answers.values()]
    if any(seen.get("collectives") or seen.get("library_events") for seen in observed):
        return Communication.LIBRARY
    if any(seen.get("symmetric") or seen.get("peer_copies") for seen in observed):
        return Communication.CUSTOM
    return Communication.NONE
