"""Scores of one collection: pass@k, fast_p, speedups, utilisation. Every figure carries its denominator and an interval."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pkb.analysis.compare import differing
from pkb.analysis.estimate import (
    Interval,
    bootstrap,
    first_at_k,
    geometric_mean,
    share_interval,
    unbiased_at_k,
)
from pkb.analysis.modes import FailureMode
from pkb.analysis.samples import Sample, best, by_problem, judged_by_problem, total
from pkb.types.stock import Against

Estimator = Literal["unbiased", "first"]
CURVE = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
"""Values of p for the curve; the published one has 0, 0.5, 1, 2 and 3."""


@dataclass(frozen=True)
class Share:
    """A share of problems."""

    value: float
    problems: int
    """The denominator: problems with at least one judged sample."""
    interval: Interval
    short: int = 0
    """Problems with fewer than k judged samples; all they have were used, so the value can only be too low."""

    @property
    def count(self) -> float:
        """The numerator in problems; not whole where the estimator averages over tries."""
        return self.value * self.problems


@dataclass(frozen=True)
class Figure:
    """A mean or median over problems that have it."""

    value: float
    problems: int
    interval: Interval


@dataclass(frozen=True)
class Score:
    collection: str
    samples: int
    problems: int
    judged_problems: int
    """The denominator of every share."""
    not_judged: int
    """Samples that are unsupported or a harness error: in no denominator."""
    verdicts: Mapping[str, int]
    modes: Mapping[FailureMode, int]
    communication: Mapping[str, int]
    """Correct samples by what moved their data."""
    most_tries: int
    """The largest number of judged samples of one problem."""
    pass_at: Mapping[int, Share]
    pass_first: Mapping[int, Share]
    """As published: the best of the first k."""
    reused: int
    """Samples whose outputs are overwritten by later calls."""
    pass_published_at: Mapping[int, Share]
    """As pass_at, counting reused outputs as right."""
    custom_pass_at: Mapping[int, Share]
    """As pass_at, counting only samples that move their data by kernels of their own."""
    fast_1_at: Mapping[int, Share] | None
    """Correct and proven faster, than the baseline or what `against` says; None where no correct sample was timed."""
    custom_fast_1_at: Mapping[int, Share] | None
    fast_1_first: Mapping[int, Share] | None
    """As published: point estimates, best of the first k."""
    curve: Mapping[float, Share] | None
    """fast_p at one try, proven."""
    curve_point: Mapping[float, Share] | None
    """fast_p at one try by point estimates, as published."""
    untimed: int
    """Correct samples without a time: they count as not faster."""
    unproven: int
    """Correct samples whose gain the host wall clock does not confirm."""
    speedup: Figure | None
    """Geometric mean over problems of the best correct sample's speedup; unproven ones left out."""
    custom_speedup: Figure | None
    utilisation: Figure | None
    """Median over problems of the roofline's ideal time over the best correct sample's time."""
    reference_utilisation: Figure | None
    conditions: Mapping[tuple[str, ...], int]
    """(platform, hardware, ranks, size, dtype) of the samples that have a verdict."""
    against: Against
    """The reading that speeds are of."""
    suites: Mapping[str, int]
    """Versions of the suite, of the samples that have a verdict."""
    mixed: tuple[str, ...]
    """Problems whose samples were not asked the same, or not by the same rules: their tries are no tries at one question."""
    cost_usd: float | None
    tokens: int | None
    tokens_in: int | None
    tokens_out: int | None
    """Sums over the samples that name them; None where none does."""


Hit = Callable[[Sample], bool]


def share_at(
    samples: Sequence[Sample], hit: Hit, *, k: int, estimator: Estimator = "unbiased", seed: int = 0
) -> Share | None:
    """The share of problems with a hit in k tries; None where nothing was judged."""
    values, short = [], 0
    for tries in judged_by_problem(samples).values():
        outcomes = [hit(sample) for sample in tries]
        short += len(outcomes) < k
        if estimator == "first":
            values.append(first_at_k(outcomes, k))
        else:
            values.append(unbiased_at_k(sum(outcomes), len(outcomes), k))
    interval = share_interval(values, seed=seed)
    return None if interval is None else Share(statistics.fmean(values), len(values), interval, short)


def is_fast(sample: Sample, p: float, *, proven: bool = True) -> bool:
    """Correct and more than p times as fast as what it was timed against. At p = 0 being correct is enough, timed or not."""
    if not sample.is_correct:
        return False
    if p <= 0:
        return True
    return sample.speed is not None and sample.speed.beats(p, proven=proven)


def fast_share(
    samples: Sequence[Sample],
    p: float,
    *,
    k: int = 1,
    proven: bool = True,
    custom: bool = False,
    seed: int = 0,
) -> Share | None:
    """fast_p@k. None where it cannot be said: nothing judged, or correct samples of which none was timed."""
    if p > 0 and _nothing_timed(samples):
        return None

    def hit(sample: Sample) -> bool:
        return is_fast(sample, p, proven=proven) and (sample.is_custom or not custom)

    return share_at(samples, hit, k=k, seed=seed)


def fast_curve(
    samples: Sequence[Sample], *, k: int = 1, proven: bool = True, seed: int = 0
) -> dict[float, Share] | None:
    """fast_p@k for each p: never rises with p. None where one of them cannot be said."""
    shares = {p: fast_share(samples, p, k=k, proven=proven, seed=seed) for p in CURVE}
    found = {p: share for p, share in shares.items() if share is not None}
    return found if len(found) == len(shares) else None


def figure(
    samples: Sequence[Sample],
    value: Callable[[Sample], float | None],
    statistic: Callable[[Sequence[float]], float],
    *,
    seed: int = 0,
) -> Figure | None:
    """A statistic over problems of the best correct sample's value."""
    chosen = (best(tries) for tries in judged_by_problem(samples).values())
    values = [found for sample in chosen if sample is not None and (found := value(sample)) is not None]
    interval = bootstrap(values, statistic, seed=seed)
    return None if interval is None else Figure(statistic(values), len(values), interval)


def score(samples: Sequence[Sample], *, ks: Sequence[int] = (1,), seed: int = 0) -> Score:
    """All figures of one collection."""
    names = {sample.collection for sample in samples}
    if len(names) != 1:
        raise ValueError(f"one collection is scored at a time, and these samples are of {sorted(names)}")
    correct = [sample for sample in samples if sample.is_correct]
    judged = judged_by_problem(samples)

    def at_ks(hit: Hit, estimator: Estimator = "unbiased") -> dict[int, Share]:
        shares = ((k, share_at(samples, hit, k=k, estimator=estimator, seed=seed)) for k in ks)
        return {k: share for k, share in shares if share is not None}

    timed = not _nothing_timed(samples)
    customs = [sample for sample in samples if sample.is_custom]
    return Score(
        collection=names.pop(),
        samples=len(samples),
        problems=len(by_problem(samples)),
        judged_problems=len(judged),
        not_judged=sum(not sample.is_judged for sample in samples),
        verdicts=Counter(sample.verdict for sample in samples),
        modes=Counter(sample.mode for sample in samples),
        communication=Counter(sample.communication for sample in correct),
        most_tries=max(map(len, judged.values()), default=0),
        pass_at=at_ks(lambda sample: sample.is_correct),
        pass_first=at_ks(lambda sample: sample.is_correct, "first"),
        reused=sum(sample.is_reused for sample in samples),
        pass_published_at=at_ks(lambda sample: sample.is_correct or sample.is_reused),
        custom_pass_at=at_ks(lambda sample: sample.is_custom),
        fast_1_at=at_ks(lambda sample: is_fast(sample, 1)) if timed else None,
        custom_fast_1_at=at_ks(lambda sample: is_fast(sample, 1) and sample.is_custom) if timed else None,
        fast_1_first=at_ks(lambda sample: is_fast(sample, 1, proven=False), "first") if timed else None,
        curve=fast_curve(samples, seed=seed),
        curve_point=fast_curve(samples, proven=False, seed=seed),
        untimed=sum(sample.speed is None for sample in correct),
        unproven=sum(sample.speed is not None and sample.speed.decision == "unproven" for sample in correct),
        speedup=figure(samples, believed_speedup, geometric_mean, seed=seed),
        custom_speedup=figure(customs, believed_speedup, geometric_mean, seed=seed),
        utilisation=figure(samples, lambda sample: sample.utilisation, statistics.median, seed=seed),
        reference_utilisation=figure(
            samples, lambda sample: sample.reference_utilisation, statistics.median, seed=seed
        ),
        conditions=Counter(sample.conditions for sample in samples if sample.evaluation is not None),
        against=samples[0].reading,
        suites=Counter(suite_of(sample) for sample in samples if sample.evaluation is not None),
        mixed=tuple(
            f"problem {problem}: {why}" for problem, tries in judged.items() if (why := differing("question", tries))
        ),
        cost_usd=total(sample.cost_usd for sample in samples),
        tokens=total(sample.tokens for sample in samples),
        tokens_in=total(sample.tokens_in for sample in samples),
        tokens_out=total(sample.tokens_out for sample in samples),
    )


def suite_of(sample: Sample) -> str:
    suite = (sample.evaluation or {}).get("suite") or {}
    return str(suite.get("version", "none"))


def believed_speedup(sample: Sample) -> float | None:
    speed = sample.speed
    return speed.value if speed is not None and speed.decision != "unproven" else None


def _nothing_timed(samples: Sequence[Sample]) -> bool:
    correct = [sample for sample in samples if sample.is_correct]
    return bool(correct) and all(sample.speed is None for sample in correct)
