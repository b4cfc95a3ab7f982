"""Problem 60, distributed irfft2: one transform of the whole spectrum."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, joined


def irfft(ranks: list[Arguments], mistake: str = "") -> list[Outputs]:
    a = ranks[0]
    spectrum = joined(ranks, "x", -2)
    if mistake == "mirror off by one":  # rows of the missing half read as H - 1 - h
        n = 2 * (spectrum.shape[-1] - 1) if a["s"] is None else a["s"][1]
        mirror = spectrum[..., 1 : n - spectrum.shape[-1] + 1].flip(-2, -1).conj()
        field = torch.fft.ifft2(torch.cat([spectrum, mirror], -1), norm=a["norm"]).real
    else:
        field = torch.fft.irfft2(spectrum, s=a["s"], dim=a["dim"], norm=a["norm"])
    return [[block] for block in field.chunk(len(ranks), dim=-1)]


class TestModel(ModelTests):
    spec = Spec(
        60,
        irfft,
        dtypes=("fp32",),
        every_rank=True,
        spoilt=1.2,
        large_bytes=20e9,
        mistaken_once=1.5,
        mistaken_always=1.5,
        mistake_cases=((4, "tiny", "fp32"), (4, "odd", "fp32")),
        mistakes={"mirror off by one": lambda ranks: irfft(ranks, "mirror off by one")},
        refused=[(r"(\d|fit)", lambda _: {"s": (24, 50)})],
    )
