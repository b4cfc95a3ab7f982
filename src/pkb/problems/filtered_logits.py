"""Draws vocabulary-parallel logits for problems that filter them by top-k and top-p, with no doubt about what is kept.

Where the cut falls is a matter of rounding when a cumulative probability comes near 1 - top_p, and of taste when it
divides a tie. The leading logits of each row are therefore planned by all ranks together: several sets are drawn and the
first is taken whose cut is clear. Every sound order of summation, in the logits' dtype or a wider one, keeps the same set.
"""

import math
from typing import NamedTuple

import torch

from pkb.problems.base import Size
from pkb.problems.draw import Arguments, Draw
from pkb.problems.sharding import round_up

GRID = 0.0625
"""Planned logits are multiples of it below 16: exact in bf16, and so are their ties."""
EXTRA = 3
"""Planned logits beside the k largest: ties with the k-th, which are kept, or the next below it."""
CLEARANCE = 0.05
"""How far every cumulative probability stays from 1 - top_p, relative to it: bf16 sums of 50 terms err by far less."""
ATTEMPTS = 48
STEEPEST = 8
"""Steps of the second half of the attempts, half of which have a clear cut; of smaller ones, with a k of 10 or 50, one in ten
has, and among thousands of rows there were some without any."""
KINDS = {"top_p": 0.5, "top_k_only": 0.5}
"""Top-p sorts the logits that are left; without it the call is another, much shorter one."""


class Rows(NamedTuple):
    """This rank's slice of all rows, and what all ranks share."""

    logits: torch.Tensor
    """(tokens, vocab / W)."""
    target: torch.Tensor
    """(tokens,), in [0, vocab)."""
    top_p: float


class FilteredRows(NamedTuple):
    values: torch.Tensor
    """(tokens, k + EXTRA) float64, descending."""
    positions: torch.Tensor
    """(tokens, k + EXTRA) in [0, vocab), distinct in a row."""
    ceiling: torch.Tensor
    """(tokens,): every other logit of the row is at most this, which is less than all of `values`."""
    target: torch.Tensor


def is_clear(values: torch.Tensor, kth: torch.Tensor, dropped: float) -> torch.Tensor:
    """Whether no cumulative probability is near `dropped` and the cut divides no tie, for descending values."""
    kept_by_k = values >= kth
    probabilities = values.masked_fill(~kept_by_k, float("-inf")).softmax(-1)
    cumulative = probabilities.flip(-1).cumsum(-1).flip(-1)  # from the smallest; 0 where the k-filter dropped
    kept = (cumulative > dropped) & kept_by_k
    smallest_kept = values.masked_fill(~kept, float("inf")).amin(-1)
    largest_dropped = values.masked_fill(kept, float("-inf")).amax(-1)
    distance = (cumulative - dropped).abs().amin(-1)
    return (distance > CLEARANCE * dropped) & (smallest_kept > largest_dropped)


def plan_rows(draw: Draw, *, tokens: int, vocab: int, top_k: int, top_p: float) -> FilteredRows:
    k, exact = min(top_k, vocab), torch.float64
    m = k + EXTRA
    # Logits rise in steps of 0 to 3 grid lines, steep rows and flat ones, at different heights: no fixed threshold
    # separates the leading logits from the others.
    steep = draw.integers("steep", (tokens, 1, 1), 2, 5, key="all").repeat(1, ATTEMPTS, 1)
    steep[:, ATTEMPTS // 2 :] = STEEPEST
    height = draw.integers("height", (tokens, 1), 32, 81, key="all")
    steps = draw.uniform("steps", (tokens, ATTEMPTS, k), 0, 1, key="all", dtype=exact).mul_(steep).floor_()
    rising = steps.cumsum(-1)
    rising *= (150 / rising[..., -1:].clamp(min=150)).clamp(max=1)  # below 16 also for a large k
    leading = (rising.floor() + height[..., None]).mul_(GRID).flip(-1)
    kth = leading[..., -1:]
    ties = draw.integers("ties", (tokens, ATTEMPTS, 1), 0, EXTRA + 1, key="all")
    extra = torch.where(torch.arange(EXTRA, device=draw.device) < ties, kth, kth - GRID)
    values = torch.cat([leading, extra], dim=-1)
    clear = is_clear(values, kth, 1 - top_p)
    row = torch.arange(tokens, device=draw.device)
    values = values[row, clear.to(torch.int8).argmax(dim=1)]

    # Positions stand `stride` apart: 1 puts all of a row's leaders into one or two slices, a large one spreads them.
    widest = (vocab - 1) // m
    stride = draw.uniform("stride", (tokens, 1), 0, math.log(widest), key="all", dtype=exact).exp().long()
    stride = stride.clamp(1, widest)
    start = draw.integers("start", (tokens, 1), 0, vocab, key="all")
    shuffle = draw.uniform("shuffle", (tokens, m), 0, 1, key="all", dtype=exact).argsort(-1)
    jitter = draw.uniform("jitter", (tokens, m), 0, 1, key="all", dtype=exact).mul(stride).long().clamp(max=stride - 1)
    positions = (start + shuffle * stride + jitter) % vocab

    # Three targets in four are a leader, which top-p may still drop; the others are never kept.
    choice = draw.integers("choice", (tokens, 1), 0, m, key="all")
    elsewhere = draw.uniform("elsewhere", (tokens, 1), 0, 1, key="all", dtype=exact) * (vocab - m * stride)
    elsewhere = (start + m * stride + elsewhere.long()) % vocab
    leads = draw.uniform("leads", (tokens, 1), 0, 1, key="all", dtype=exact) < 0.75
    target = torch.where(leads, positions.gather(1, choice), elsewhere)
    return FilteredRows(values, positions, values[:, -1] - GRID / 2, target[:, 0])


def draw_rows(draw: Draw, *, tokens: int, width: int, top_k: int, top_p: float) -> Rows:
    """`width` entries of the vocabulary on each rank; half of the calls have no top-p filter."""
    logits = draw.normal("logits", (tokens, width))
    call_top_p = top_p if draw.kind_of(KINDS) == "top_p" else 1.0
    if draw.device.type == "meta":
        return Rows(logits, torch.empty((tokens,), dtype=torch.int64, device="meta"), call_top_p)
    plan = plan_rows(draw, tokens=tokens, vocab=width * draw.world_size, top_k=top_k, top_p=top_p)
    torch.minimum(logits, plan.ceiling[:, None].to(draw.dtype), out=logits)
    column = plan.positions - draw.rank * width
    token, leader = ((column >= 0) & (column < width)).nonzero(as_tuple=True)
    logits[token, column[token, leader]] = plan.values[token, leader].to(draw.dtype)
    return Rows(logits, plan.target, call_top_p)


def round_up_tokens(size: Size, name: str, world_size: int) -> int:
    """`size[name]` positions of a sequence, or as many more as let W divide the tokens of the whole batch."""
    return round_up(size[name], world_size // math.gcd(size["batch"], world_size))


def why_too_small(size: Size, world_size: int) -> str | None:
    vocab, leaders = size["vocab"] // world_size * world_size, size["top_k"] + EXTRA
    return f"a vocabulary of {vocab} is too small for {leaders} leading logits" if vocab <= leaders else None


def published_rows(draw: Draw, drawn: Arguments, *, step: int, first: int) -> Arguments:
    """What the published benchmark draws: normal logits, and 8 more for the target, which is then nearly always the only one
    kept; targets are `step` apart, from `first` on."""
    given = drawn["vocab_parallel_logits"]
    assert isinstance(given, torch.Tensor)
    batch, seq, width = given.shape
    token = torch.arange(batch * seq, device=draw.device).view(batch, seq, 1)
    target = (step * token + first + draw.call) % (width * draw.world_size)
    column = target - draw.rank * width
    boost = 8 * ((column >= 0) & (column < width)).to(draw.dtype)
    logits = draw.normal("logits, published", (batch, seq, width))
    logits.scatter_add_(2, column.clamp(0, width - 1), boost)
    return {"vocab_parallel_logits": logits, "target": target.view(batch, seq)}
