"""81: each rank's block is widened into its place: a pass less, and W launches."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get


def alternative(
    low_res_masks_local: torch.Tensor,
    obj_scores_local: torch.Tensor,
    num_obj_per_gpu: list[int],
    last_occluded: torch.Tensor,
    iou_threshold: float = 0.7,
    reverse: bool = False,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)

    def gather(local: torch.Tensor) -> torch.Tensor:
        padded = local.new_zeros(max(num_obj_per_gpu), *local.shape[1:])
        padded[: num_obj_per_gpu[rank]] = local
        gathered = local.new_empty(world_size * padded.numel())
        dist.all_gather_into_tensor(gathered, padded.view(-1), group=group)
        blocks = gathered.view(world_size, *padded.shape)
        out = torch.empty((sum(num_obj_per_gpu), *local.shape[1:]), dtype=torch.float32, device=local.device)
        for block, part in zip(blocks, out.split(num_obj_per_gpu), strict=True):
            part.copy_(block[: part.shape[0]])
        return out

    masks, scores = gather(low_res_masks_local), gather(obj_scores_local)
    inside = (masks > 0).flatten(1).to(torch.float32)
    area = inside.sum(dim=1)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    inter = torch.matmul(inside, inside.t())
    torch.set_float32_matmul_precision(precision)
    union = (area[:, None] + area[None, :] - inter).clamp(min=1)
    overlap = inter / union >= iou_threshold
    overlap.fill_diagonal_(False)
    mine, other = last_occluded[:, None], last_occluded[None, :]
    loses = mine < other if reverse else mine > other
    suppress = (overlap & loses & (other > -1)).any(dim=1)
    masks[suppress] = -10.0
    return masks, scores, suppress


PROBLEM = replace(get(81), id=8102, name="widened_in_place", baseline=alternative)
