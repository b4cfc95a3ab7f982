"""FP8 with delayed scaling: codes worked out by hand, and histories that may drop their largest entry."""

import torch
from on_ranks import all_arguments


def e4m3(value: torch.Tensor) -> torch.Tensor:
    """Nearest float8_e4m3fn, ties to even, by hand: four significant bits, and steps of 2^-9 below 2^-6."""
    value = value.double()
    exponent = value.abs().clamp(min=2.0**-6).log2().floor()
    step = (exponent - 3).exp2()
    return ((value / step).round() * step).clamp(-448, 448)


def through_fp8(values: torch.Tensor, history: torch.Tensor, mistake: str = "") -> tuple[torch.Tensor, torch.Tensor]:
    """Values after the FP8 round trip (rounded to their dtype, then float64), and the new history."""
    largest = values.abs().max().to(torch.bfloat16)
    new = torch.tensor([*history.tolist()[1:], float(largest)], dtype=torch.bfloat16)
    peak = max(history.tolist()) if mistake == "old entry kept" else max(new.tolist())
    scale = torch.tensor(peak, dtype=torch.float32) / torch.tensor(448.0)
    if mistake == "not quantised":
        return values.double(), new
    coded = e4m3(values.float() / scale).float() * scale
    return coded.to(values.dtype).double(), new


def check_maxima(number: int, name: str) -> None:
    """A multiplication by a reciprocal gives the same codes of bf16 data; the entry that leaves often was the largest."""
    dropped, own_is_largest = 0, 0
    for call in range(40):
        arguments = all_arguments(number, 2, "odd", "bf16", call)[1]
        values, history = arguments[name], arguments["amax_history"]
        new = through_fp8(values, history)[1]
        scale = new.max().float() / torch.tensor(448.0)
        assert torch.equal(scale, new.max().float() * torch.tensor(1 / 448))
        divided = (values.float() / scale).to(torch.float8_e4m3fn).view(torch.uint8)
        multiplied = (values.float() * (1 / scale)).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(divided, multiplied)
        dropped += bool(history.max() > new.max())
        own_is_largest += bool(new[-1] == new.max())
        if history.max() > new.max():
            wrong = through_fp8(values, history, "old entry kept")[0]
            assert float((wrong - through_fp8(values, history)[0]).norm() / values.double().norm()) > 1e-2
    assert 8 <= dropped <= 32
    assert 8 <= own_is_largest <= 32
