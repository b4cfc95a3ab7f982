"""79: the top k of a row are looked for in its k best blocks of 32 samples: a maximum of each block, and two short top-ks."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.leading_logits import largest_by_blocks


def alternative(
    test_features_rank: torch.Tensor,
    train_features_rank_T: torch.Tensor,
    train_labels_rank: torch.Tensor,
    max_k: int,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    device, features = test_features_rank.device, test_features_rank.shape[1]
    table = torch.empty(world_size, dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(table, torch.tensor([test_features_rank.shape[0]], device=device), group=group)
    queries = table.tolist()
    padded = test_features_rank.new_zeros((max(queries), features))
    padded[: queries[rank]] = test_features_rank
    gathered = padded.new_empty((world_size, *padded.shape))
    dist.all_gather_into_tensor(gathered.view(-1), padded.view(-1), group=group)
    everyone = torch.cat([block[:count] for block, count in zip(gathered, queries, strict=True)])

    best, index = largest_by_blocks(torch.matmul(everyone, train_features_rank_T), max_k, 32)
    labels = train_labels_rank.view(-1)[index]
    receive = [queries[rank]] * world_size
    candidates = best.new_empty((world_size * queries[rank], max_k))
    candidate_labels = labels.new_empty(candidates.shape)
    dist.all_to_all_single(candidates, best.contiguous(), receive, queries, group=group)
    dist.all_to_all_single(candidate_labels, labels, receive, queries, group=group)
    candidates, candidate_labels = (
        t.view(world_size, -1, max_k).transpose(0, 1).flatten(1) for t in (candidates, candidate_labels)
    )
    top, position = candidates.topk(max_k, dim=1)
    return top, candidate_labels.gather(1, position)


PROBLEM = replace(get(79), id=7901, name="best_of_blocks", baseline=alternative)
