"""How long an evaluation waits: a hang costs what the reference needed and a margin, and no honest kernel is cut off."""

import pytest

from pkb.cluster.settings import JUDGES_LIMIT_S, QUICK_LIMIT_S, SweepSettings
from pkb.judge.crew.patience import LATE_COMPILER_S, WARM_FLOOR_S, first_call_extra_s, warm_limit_s
from pkb.types.case import Case


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
