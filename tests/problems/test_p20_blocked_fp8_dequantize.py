"""Problem 20, blocked FP8 dequantisation and all-to-all: element by element."""

import numpy as np
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Array


def blocked_fp8_dequantize(ranks: list[Arguments]) -> list[list[Array]]:
    outputs = []
    for r, _ in enumerate(ranks):
        slices = []
        for source in ranks:
            y, s = source["local_y"].float().numpy(), source["local_s"].numpy()
            number = np.arange(y[r].size) // source["block_size"]
            slices.append(y[r] * s[r][number].reshape(y[r].shape))
        outputs.append([np.stack(slices)])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        20,
        blocked_fp8_dequantize,
        results=(torch.float32,),
        ordered=True,
        calls=(0, 3),
        more_cases=((1, "tiny", "fp32"), (3, "odd", "bf16")),
        honest=0.7,
        exactness=1e-12,
        mistaken_always=3.0,
        mistake_calls=(1,),
        mistakes={
            "scales of the next slice": lambda ranks: blocked_fp8_dequantize(
                [a | {"local_s": a["local_s"].roll(1, dims=0)} for a in ranks]
            ),
            "slots by destination": lambda ranks: [[own[0][::-1]] for own in blocked_fp8_dequantize(ranks)],
        },
        refused=[
            ("", lambda a: {"local_y": a["local_y"][:1]}),
            ("", lambda a: {"block_size": 33}),
            ("", lambda a: {"local_s": a["local_s"][:, :-1]}),
        ],
    )
