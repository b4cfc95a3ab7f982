"""Problem 81, suppression of overlapping masks, pair by pair."""

import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments, joined


def suppression(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    masks, scores = joined(ranks, "low_res_masks_local", 0), joined(ranks, "obj_scores_local", 0)
    seen, sign = first["last_occluded"].tolist(), -1 if first["reverse"] else 1
    out, suppressed = masks.clone(), torch.zeros(len(masks), dtype=torch.bool)
    for i in range(len(masks)):
        for j in range(len(masks)):
            both = int(((masks[i] > 0) & (masks[j] > 0)).sum())
            either = int(((masks[i] > 0) | (masks[j] > 0)).sum())
            overlap = both / max(1, either)
            assert i == j or abs(overlap - first["iou_threshold"]) > 1e-5, "a quotient's rounding would decide"
            if i != j and overlap >= first["iou_threshold"] and seen[j] > -1 and sign * (seen[i] - seen[j]) > 0:
                suppressed[i] = True
        if suppressed[i]:
            out[i] = -10.0
    return [[out, scores, suppressed] for _ in ranks]


class TestModel(ModelTests):
    spec = Spec(
        81,
        suppression,
        results=(torch.float32, torch.float32),
        honest=0.85,
        spoilt=1.2,
        calls=(0, 1),
        widened_sizes=("odd",),
    )


def test_inputs_of_suppression_suppress() -> None:
    """Upstream's never do: then a plain all-gather would pass."""
    counts, directions, empty = [], set(), 0
    for call in range(30):
        ranks = all_arguments(81, 4, "odd", "bf16", call)
        counts.append(int(suppression(ranks)[0][2].sum()))
        directions.add(ranks[0]["reverse"])
        empty += ranks[0]["num_obj_per_gpu"].count(0)
    assert sum(count > 0 for count in counts) > 25
    assert max(counts) < 20
    assert directions == {True, False}
    assert empty > 0


def test_some_of_the_background_is_exactly_zero() -> None:
    masks = torch.cat([a["low_res_masks_local"] for a in all_arguments(81, 2, "tiny", "bf16", 0)])
    assert 0.05 < (masks == 0).float().mean() < 0.25
