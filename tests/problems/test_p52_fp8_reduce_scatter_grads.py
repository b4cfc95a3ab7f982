"""Problem 52, gradients through FP8, then reduce-scatter."""

import pytest
import torch
import torch.distributed as dist
from harness import ModelTests, Spec
from model_fp8 import check_maxima, through_fp8
from on_ranks import Arguments, Outputs

from pkb.problems import p52_fp8_reduce_scatter_grads as p52


def fp8_reduce_scatter(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    pairs = [through_fp8(a["flat_grads"], a["amax_history"], mistake) for a in ranks]
    mean = torch.stack([values for values, _ in pairs]).mean(0)
    return [[part, new] for part, (_, new) in zip(mean.chunk(len(ranks)), pairs, strict=True)]


class TestModel(ModelTests):
    spec = Spec(
        52,
        fp8_reduce_scatter,
        results=(None, torch.bfloat16),
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "bf16"), (4, "odd", "bf16")),
        mistakes={"not quantised": lambda ranks: fp8_reduce_scatter(ranks, "not quantised")},
        refused=[(r"(\d|fit)", lambda _: {"flat_grads": torch.ones(7)})],
    )


def test_maxima_are_fair_and_tell_old_entries_from_new() -> None:
    check_maxima(52, "flat_grads")


@pytest.mark.parametrize(
    ("dtype", "compiles"), [(torch.bfloat16, True), (torch.float16, False), (torch.float32, False)]
)
def test_only_what_an_approximate_division_codes_alike_is_compiled(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, compiles: bool
) -> None:
    """Triton's division is one: in fp32 about one code in two million would be another."""
    seen: list[torch.dtype] = []

    def approximate(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        seen.append(x.dtype)
        return (x.float() * (1 / scale)).to(torch.float8_e4m3fn)

    monkeypatch.setattr(p52, "quantised", approximate)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(dist, "all_to_all_single", lambda into, given: into.copy_(given))
    monkeypatch.setattr(dist, "all_gather_into_tensor", lambda into, given: into.copy_(given))
    monkeypatch.setattr(dist, "reduce_scatter_tensor", lambda into, given, op: into.copy_(given))
    gradient = torch.randn(200_000, generator=torch.Generator().manual_seed(1)).to(dtype)
    history = torch.full((16,), 3.1, dtype=torch.bfloat16)
    mean, _ = p52.baseline(gradient, history)
    assert torch.equal(mean, p52.solution(gradient, history)[0])
    assert bool(seen) == compiles
