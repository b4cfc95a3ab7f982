"""17: heads are turned in one pass by torch.compile, into this rank's own place of the gathered tensor."""

from dataclasses import replace

import torch
import torch.distributed as dist

from pkb.problems import get
from pkb.problems.compiled import compiled


@compiled
def turn_into(place: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    first, second = x.transpose(0, 1).chunk(2, dim=-1)
    (cos_1, cos_2), (sin_1, sin_2) = (t.transpose(0, 1).unsqueeze(2).chunk(2, dim=-1) for t in (cos, sin))
    place.copy_(torch.cat([first * cos_1 - second * sin_1, second * cos_2 + first * sin_2], dim=-1))


def alternative(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    started = []
    for x in (q_local, k_local):
        batch, positions, *rest = x.shape
        everything = x.new_empty((world_size * positions, batch, *rest))
        own = everything[rank * positions : (rank + 1) * positions]
        turn_into(own, x, cos_local, sin_local)
        started.append((everything, dist.all_gather_into_tensor(everything, own, async_op=True)))
    for _, work in started:
        assert work is not None
        work.wait()
    q, k = (everything.transpose(0, 1).contiguous() for everything, _ in started)
    return q, k


PROBLEM = replace(get(17), id=1701, name="one_pass", baseline=alternative)
