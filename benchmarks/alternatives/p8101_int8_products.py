"""81: products of zeros and ones in int8 (torch._int_mm), padded to the sizes that it takes."""

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
        return torch.cat([block[:n] for block, n in zip(blocks, num_obj_per_gpu, strict=True)]).to(torch.float32)

    masks, scores = gather(low_res_masks_local), gather(obj_scores_local)
    objects, pixels = masks.shape[0], masks[0].numel() if len(masks) else 0
    inside = torch.zeros((max(32, objects + -objects % 8), pixels + -pixels % 8), dtype=torch.int8, device=masks.device)
    inside[:objects, :pixels] = (masks > 0).flatten(1)
    inter = torch._int_mm(inside, inside.t())[:objects, :objects].to(torch.float32)
    area = inter.diagonal().clone()
    union = (area[:, None] + area[None, :] - inter).clamp(min=1)
    overlap = inter / union >= iou_threshold
    overlap.fill_diagonal_(False)
    mine, other = last_occluded[:, None], last_occluded[None, :]
    loses = mine < other if reverse else mine > other
    suppress = (overlap & loses & (other > -1)).any(dim=1)
    masks[suppress] = -10.0
    return masks, scores, suppress


PROBLEM = replace(get(81), id=8101, name="int8_products", baseline=alternative)
