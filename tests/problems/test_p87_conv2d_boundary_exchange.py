"""Problem 87, Conv2d across stripes: the whole image, cut with its neighbours' edges."""

import pytest
import torch
from harness import ModelTests, Spec
from model_convolution import convolve
from on_ranks import Arguments, Outputs, all_arguments, joined


def halo_convolution(ranks: list[Arguments]) -> list[Outputs]:
    first, outputs = ranks[0], []
    p, stride, rows = first["padding"], first["stride"], first["x"].shape[2]
    image = joined(ranks, "x", 2)
    sky = torch.zeros_like(image[:, :, :p])
    image = torch.cat([sky, image, sky], dim=2)
    for rank in range(len(ranks)):
        stripe = image[:, :, rank * rows : (rank + 1) * rows + 2 * p]
        out = convolve(stripe, first["weight"].double(), stride=(stride, stride), padding=(0, p), dilation=(1, 1))
        outputs.append([out if first["bias"] is None else out + first["bias"].double()[:, None, None]])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        87,
        halo_convolution,
        honest=0.85,
        spoilt=1.2,
        calls=(1, 2),  # with a bias and without
        widened_sizes=("odd",),
    )


@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_a_convolution_without_halo_is_refused(size: str) -> None:
    ranks, spec = all_arguments(87, 4, size, "bf16", 0), TestModel.spec
    alone = [halo_convolution([arguments])[0] for arguments in ranks]
    assert spec.worst(ranks, halo_convolution(ranks), spec.native(alone, "bf16"), "bf16") > 10
