"""Arguments that are harder than those a problem draws. Each function changes a draw's arguments in place."""

from typing import Any

import torch

from pkb.problems.draw import Draw

Arguments = dict[str, Any]


def hard_masks(arguments: Arguments, draw: Draw) -> Arguments:
    """81: zeros of both signs, NaN, masks that cover nothing, thresholds that are met exactly."""
    masks = arguments["low_res_masks_local"]
    if masks.numel():
        flat = masks.view(-1)
        flat[:: 7 + draw.rank], flat[3 :: 11 + draw.rank], flat[5::97] = 0.0, -0.0, float("nan")
        if draw.call % 2:
            masks[0].fill_(-1.0)
    arguments["iou_threshold"] = (0.0, 0.5, 1.0)[draw.call % 3]
    return arguments


def ties(arguments: Arguments, draw: Draw) -> Arguments:
    """82: few different logits, or one; targets that are often kept; k = 1 now and then."""
    logits = arguments["vocab_parallel_logits"]
    values = draw.integers("tied", tuple(logits.shape), -2, 3) if draw.call % 3 else torch.full(logits.shape, 3)
    logits.copy_(values)
    arguments["target"] = draw.integers("likely", tuple(arguments["target"].shape), 0, 20, key="all")
    arguments["top_p"] = 1.0  # where a tie is cut under top-p is open
    if draw.call % 2:
        arguments["top_k"] = 1
    return arguments


def no_top_k(arguments: Arguments, draw: Draw) -> Arguments:
    """82: without a k that bounds what is kept."""
    arguments["top_k"], arguments["top_p"] = ((None, 1.0), (0, 0.9), (10**6, 1.0))[draw.call % 3]
    return arguments
