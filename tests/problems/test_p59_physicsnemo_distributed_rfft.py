"""Problem 59, distributed rfft2: one transform of the whole field."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined


def rfft(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    a = ranks[0]
    spectrum = torch.fft.rfft2(joined(ranks, "x", -1), s=a["s"], dim=a["dim"], norm=a["norm"])
    if mistake == "imaginary part dropped":
        spectrum = torch.complex(spectrum.real, torch.zeros_like(spectrum.real))
    if mistake == "conjugate":
        spectrum = spectrum.conj().resolve_conj()
    return [[block] for block in spectrum.chunk(len(ranks), dim=-2)]


class TestModel(ModelTests):
    spec = Spec(
        59,
        rfft,
        dtypes=("fp32",),
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "fp32"), (4, "odd", "fp32")),
        mistakes={
            "imaginary part dropped": lambda ranks: rfft(ranks, "imaginary part dropped"),
            "conjugate": lambda ranks: rfft(ranks, "conjugate"),
        },
        refused=[
            (r"(\d|fit)", lambda _: {"s": (7, 8)}),
            (r"(\d|fit)", lambda _: {"x": torch.zeros(2, 4, 4, dtype=torch.bfloat16)}),
        ],
    )


def test_every_other_call_pads_the_rows_and_trims_the_columns() -> None:
    lengths = [all_arguments(59, 2, "tiny", "fp32", call)[0]["s"] for call in range(8)]
    assert sorted(lengths) == [(24, 48)] * 4 + [(26, 45)] * 4
