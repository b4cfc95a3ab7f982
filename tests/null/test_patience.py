"""How long an evaluation waits: a hang costs what the reference needed and a margin, and no honest kernel is cut off."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pkb.cluster.settings import JUDGES_LIMIT_S, QUICK_LIMIT_S, SweepSettings
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.patience import LATE_COMPILER_S, WARM_FLOOR_S, first_call_extra_s, warm_limit_s
from pkb.judge.exchange import IN_PROCESS_S, Exchange
from pkb.types.case import Case
from pkb.types.protocol.commands import Schedule


def warm(
    limit_s: float = 60.0,
    *,
    reference_s: float = 0.01,
    first_call_s: float = 0.1,
    call_s: float = 0.005,
    calls: int = 6,
    device: str = "cuda",
) -> float:
    return warm_limit_s(
        limit_s, reference_s=reference_s, first_call_s=first_call_s, call_s=call_s, calls=calls, device=device
    )


def test_a_warm_batch_has_seconds() -> None:
    assert WARM_FLOOR_S <= warm() < 10


def test_no_batch_has_more_than_was_asked_for() -> None:
    assert warm(3.0) == 3.0
    assert warm(reference_s=9.0) == 60.0


def test_what_was_slow_at_first_may_be_slow_again() -> None:
    """Triton compiles anew where other sizes come; a candidate may lay out its buffers again."""
    assert warm(first_call_s=12.0) >= 2 * 12.0


def test_a_slow_kernel_is_no_deadlock_because_a_batch_has_many_calls() -> None:
    assert warm(first_call_s=2.0, call_s=2.0, calls=6) >= 2 * 6 * 2.0


def test_a_cpu_that_others_use_decides_nothing() -> None:
    assert warm(device="cpu") == 60.0


@pytest.mark.parametrize(
    ("lazily_built", "triton", "seconds"),
    [(False, False, 0.0), (True, False, 600.0), (True, True, 600.0), (False, True, LATE_COMPILER_S)],
)
def test_compiling_in_the_first_call(lazily_built: bool, triton: bool, seconds: float) -> None:
    assert first_call_extra_s(600.0, lazily_built=lazily_built, triton=triton) == seconds


@pytest.mark.parametrize(
    ("platform", "size", "seconds"),
    [("virtual", "paper", QUICK_LIMIT_S), ("virtual", "real", JUDGES_LIMIT_S), ("cpu", "tiny", JUDGES_LIMIT_S)],
)
def test_first_calls_in_a_sweep(platform: str, size: str, seconds: float) -> None:
    case = Case("01_allreduce", platform, 4, size)
    assert SweepSettings().call_limit_for(case) == seconds
    assert SweepSettings(call_limit_s=7.0).call_limit_for(case) == 7.0
    assert SweepSettings.of({"settings": SweepSettings().to_dict()}) == SweepSettings()


class WaitingCrew:
    """Keeps how long it is waited for: at most, and while no compiler is at work."""

    ranks = range(2)
    platform = SimpleNamespace(device="cuda")

    def tell(self, rank: int, command: object) -> None:
        return

    def hear(self, command: object, *, timeout_s: float, quiet_s: float = math.inf) -> dict[int, Any]:
        self.limits = (timeout_s, min(timeout_s, quiet_s))
        return {}


def waited(exchange: Exchange, **allowed: float) -> tuple[float, float]:
    exchange._keys |= {0: "key"}
    exchange.run_candidate(Schedule((0,)), **cast(Any, allowed))
    return cast(WaitingCrew, exchange.candidate).limits


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(cast(Crew, WaitingCrew()), cast(Crew, WaitingCrew()), limit_s=60.0)


def test_only_what_is_for_compilers_ends_early_without_one(exchange: Exchange) -> None:
    assert waited(exchange) == (60.0, 60.0)
    assert waited(exchange, extra_s=330.0) == (390.0, 390.0), "a batch as long as the reference's"
    assert waited(exchange, compiling_s=600.0) == (660.0, 60.0 + IN_PROCESS_S)
    assert waited(exchange, compiling_s=600.0, extra_s=30.0) == (690.0, 90.0 + IN_PROCESS_S)


def test_calls_of_another_size_do_not_shorten_the_limit_of_this_one(exchange: Exchange) -> None:
    exchange.has_answered(reference_s=0.1, first_call_s=8.0, call_s=2.0)
    (before, _) = waited(exchange)
    with exchange.other_size():
        exchange.has_answered(reference_s=0.001, first_call_s=0.01, call_s=0.001)
        assert waited(exchange)[0] < before
    assert waited(exchange)[0] == before
    exchange.is_new_size()
    assert waited(exchange) == (60.0, 60.0)
