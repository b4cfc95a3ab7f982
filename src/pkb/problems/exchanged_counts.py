"""How many rows go to and come from every rank, for baselines: one wait for the device."""

import torch
import torch.distributed as dist


def exchanged_counts(
    owners: torch.Tensor, world_size: int, group: dist.ProcessGroup | None
) -> tuple[list[int], list[int]]:
    """From the ranks that rows go to, in order: where each begins is found without a wait, which bincount would take."""
    counts = torch.empty((2, world_size), dtype=torch.int64, device=owners.device)
    counts[0] = torch.searchsorted(owners, torch.arange(world_size + 1, device=owners.device)).diff()
    dist.all_to_all_single(counts[1], counts[0], group=group)
    send, receive = counts.tolist()
    return send, receive
