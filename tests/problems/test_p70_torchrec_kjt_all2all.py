"""Problem 70, jagged features exchanged, segment by segment in plain lists."""

from functools import partial
from typing import Any

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def jagged_exchange(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: sources come in plain rank order, or (without stagger) source by source instead of feature by feature."""
    w, first = len(ranks), ranks[0]
    stagger, splits = first["stagger"], first["key_splits"]
    table = [list(range(row * (w // stagger), (row + 1) * (w // stagger))) for row in range(stagger)]
    order = [table[row][column] for column in range(w // stagger) for row in range(stagger)]
    plain = list(range(w))
    jagged = []  # by rank, then feature: the lengths and the position of the first value
    for a in ranks:
        strides = a["stride_per_key"] or [a["batch_size"]] * sum(splits)
        features, at, value = [], 0, 0
        for stride in strides:
            own = a["lengths"][at : at + stride].tolist()
            features.append((own, value))
            at, value = at + stride, value + sum(own)
        assert value == len(a["values"])
        jagged.append(features)
    results = []
    for r in range(w):
        owned = range(sum(splits[:r]), sum(splits[: r + 1]))
        segments = [(s, f) for f in owned for s in (plain if mistake else order)]
        if mistake and stagger == 1:
            segments = [(s, f) for s in plain for f in owned]
        lengths: list[int] = []
        values: list[int] = []
        weights: list[float] = []
        for s, f in segments:
            own, start = jagged[s][f]
            lengths += own
            values += ranks[s]["values"][start : start + sum(own)].tolist()
            if first["weights"] is not None:
                weights += ranks[s]["weights"][start : start + sum(own)].tolist()
        out: list[Any] = [torch.tensor(lengths, dtype=torch.int64), torch.tensor(values, dtype=torch.int64)]
        if first["stride_per_key"] is None:
            batches = torch.tensor([a["batch_size"] for a in ranks])
            out += [batches.sum(), batches]
        else:
            strides_by_source = [[len(jagged[s][f][0]) for s in order] for f in owned]
            out.append(torch.tensor(strides_by_source, dtype=torch.int64).view(len(owned), w))
        if first["weights"] is not None:
            out.append(torch.tensor(weights, dtype=torch.float64))
        results.append(out)
    return results


class TestModel(ModelTests):
    spec = Spec(
        70,
        jagged_exchange,
        honest=0.7,
        calls=(1, 2, 3, 4),  # all modes
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"sources in plain rank order": partial(jagged_exchange, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")],
        widened=False,
        silent_raises=True,
    )


def test_jagged_calls_cover_all_modes() -> None:
    calls = [all_arguments(70, 4, "tiny", "fp32", call)[0] for call in range(100)]
    modes = {(a["weights"] is not None, a["stride_per_key"] is not None, a["stagger"]) for a in calls}
    assert len(modes) == 8
    assert len({tuple(a["key_splits"]) for a in calls}) > 3
