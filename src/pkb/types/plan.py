"""How thorough an evaluation is."""

from dataclasses import dataclass

from pkb.types.errors import UserError

MORE_S = 120.0
"""What rounds beyond the planned ones may take, and likewise starts of the ranks beyond the first."""


@dataclass(frozen=True)
class Plan:
    name: str
    trials: int
    """Correctness calls at the asked size, each on fresh data."""
    odd_trials: int
    second_world_trials: int
    """Calls with another number of ranks, where races are provoked once too; 0 leaves that out (it costs a second start)."""
    race_calls: int
    """Queued calls per race scenario; 0 leaves the stage out."""
    race_repeats: int
    timing_rounds: int
    """Rounds in which reference and candidate alternate; 0 leaves timing out."""
    calls_per_round: int
    warmup_calls: int
    verify_share: float
    """Share of the timed calls whose outputs are fetched and compared, chosen after the calls are over."""
    upstream_tolerance: bool = False
    as_published: bool = False
    """By the published benchmark's rules: its kind of inputs (all ranks hold equally much), nothing but what is returned is
    compared, dtypes are not, each result is read before the next call, timed calls are not checked, and no round is added to
    the planned ones. What is right by this plan is called right as published, never right."""
    race_traces: int = 3
    """Of recorded calls on an emulated GPU, each with another order of threads, in which a race is looked for; none where
    `race_calls` is 0."""
    observe: bool = True
    """What moves the data is observed in one call, with a profiler. Every plan that judges does it; without it, `communication`
    is unknown unless a collective of torch's was seen."""


PLANS = {
    plan.name: plan
    for plan in (
        Plan("quick", trials=2, odd_trials=1, second_world_trials=0, race_calls=4, race_repeats=1, race_traces=1,
             timing_rounds=0, calls_per_round=0, warmup_calls=0, verify_share=0),
        Plan("standard", trials=5, odd_trials=2, second_world_trials=2, race_calls=6, race_repeats=3,
             timing_rounds=8, calls_per_round=25, warmup_calls=20, verify_share=0.1),
        Plan("paper", trials=5, odd_trials=0, second_world_trials=0, race_calls=6, race_repeats=1,
             timing_rounds=5, calls_per_round=20, warmup_calls=500, verify_share=0.1, upstream_tolerance=True),
        Plan("published", trials=1, odd_trials=0, second_world_trials=0, race_calls=0, race_repeats=0,
             timing_rounds=5, calls_per_round=20, warmup_calls=500, verify_share=0, upstream_tolerance=True,
             as_published=True),
    )
}  # fmt: skip


PUBLISHED = "published"
"""The plan whose results stand beside the others' and never among them."""


def plan(name: str) -> Plan:
    if name not in PLANS:
        raise UserError(f"no plan is called {name!r}", f"plans are {', '.join(PLANS)}")
    return PLANS[name]
