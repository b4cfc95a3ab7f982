"""Top-k and top-p filters of vocabulary-parallel rows from each rank's largest logits alone, for baselines.

No logit outside a rank's own `SPARE * k` largest is kept, unless more of them tie with the k-th than the rank has sent. Whoever
filters a row sees that (`doubtful`), and the baseline then takes the reference's way: the result is right for all logits.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist

SPARE = 2
"""Logits that a rank sends of a row, in k: those that tie with the k-th are kept too."""


class Leaders(NamedTuple):
    values: torch.Tensor
    """(tokens, m), descending: the m largest of this rank's slice of each row."""
    columns: torch.Tensor
    """Where in the slice they stand."""


class Filtered(NamedTuple):
    """Of each of some rows, what is left of it."""

    smallest: torch.Tensor
    """The smallest logit kept, in the logits' dtype."""
    lse: torch.Tensor
    """Log of the sum of the exponentials of those kept, in float32."""
    target: torch.Tensor
    """The target's logit, in the logits' dtype."""
    doubtful: torch.Tensor
    """Whether logits may be missing that belong to it."""


def largest(slices: torch.Tensor, top_k: int) -> Leaders:
    return Leaders(*slices.topk(min(SPARE * top_k, slices.shape[1]), dim=1))


def largest_by_blocks(rows: torch.Tensor, count: int, block: int) -> Leaders:
    """The `count` largest of each row, of those blocks of columns whose largest are the largest: a top-k of a row is slow, a
    maximum is not."""
    blocks = rows.shape[1] // block
    if blocks <= count:
        return Leaders(*rows.topk(min(count, rows.shape[1]), dim=1))
    whole, rest = rows[:, : blocks * block].unflatten(1, (blocks, block)), rows.shape[1] - blocks * block
    chosen = whole.amax(dim=2).topk(count, dim=1, sorted=False).indices
    inside = torch.arange(block, device=rows.device)
    columns = (chosen[..., None] * block + inside).flatten(1)
    if rest:
        last = torch.arange(blocks * block, rows.shape[1], device=rows.device)
        columns = torch.cat([columns, last.expand(len(rows), rest)], dim=1)
    values, place = rows.gather(1, columns).topk(count, dim=1)
    return Leaders(values, columns.gather(1, place))


def filter_rows(
    slices: torch.Tensor,
    leaders: Leaders,
    targets: torch.Tensor,
    group: dist.ProcessGroup | None,
    top_k: int,
    top_p: float,
) -> Filtered:
    """Each rank filters its share of the rows (tokens / W, in order), of which every rank sends it the leaders."""
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    (tokens, width), sent = slices.shape, leaders.values.shape[1]
    column = targets.reshape(-1, 1) - rank * width
    elsewhere = (column < 0) | (column >= width)
    target = slices.gather(1, column.clamp(0, width - 1)).masked_fill(elsewhere, float("-inf"))
    send = torch.cat([leaders.values, target], dim=1)
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    received = received.view(world_size, tokens // world_size, sent + 1).transpose(0, 1)

    ascending = received[:, :, :sent].flatten(1).sort(dim=1).values
    kth_largest = ascending[:, -min(top_k, world_size * width), None]
    doubtful = (received[:, :, sent - 1] >= kth_largest).any(dim=1)  # a rank's last one: there may be more like it
    if sent == width:
        doubtful = torch.zeros_like(doubtful)
    ascending = ascending.masked_fill(ascending < kth_largest, float("-inf"))
    if top_p < 1.0:
        drop = ascending.softmax(dim=1).cumsum(dim=1) <= 1.0 - top_p
        drop[:, -1] = False  # the largest always stays
        ascending = ascending.masked_fill(drop, float("-inf"))
    smallest = ascending.masked_fill(ascending == float("-inf"), float("inf")).amin(dim=1)
    return Filtered(smallest, ascending.float().logsumexp(dim=1), received[:, :, sent].amax(dim=1), doubtful)


def gather_rows(columns: list[torch.Tensor], group: dist.ProcessGroup | None) -> torch.Tensor:
    """(tokens, columns) in float32 on every rank, of (tokens / W,) each on every rank."""
    own = torch.stack([column.float() for column in columns], dim=1)
    everything = own.new_empty((dist.get_world_size(group) * own.shape[0], own.shape[1]))
    dist.all_gather_into_tensor(everything, own, group=group)
    return everything


def log_probabilities(
    logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None, top_k: int, top_p: float
) -> torch.Tensor | None:
    """(B, S) log-probabilities of the targets among what is kept, on every rank, or on every rank None: in doubt."""
    slices = logits.reshape(-1, logits.shape[-1])
    rows = filter_rows(slices, largest(slices, top_k), target, group, top_k, top_p)
    own = torch.where(rows.target >= rows.smallest, rows.target.float() - rows.lse, float("-inf"))
    everything = gather_rows([own, rows.doubtful], group)
    # Asked at the very end: by then nothing is left to be launched.
    return None if bool(everything[:, 1].any()) else everything[:, 0].reshape(target.shape)
