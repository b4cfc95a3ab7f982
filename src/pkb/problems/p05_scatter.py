"""Scatter: one rank cuts its tensor into W pieces and gives every rank one of them.

This is how a rank that has loaded a checkpoint hands out the shards of a weight. Rank `src` holds `tensor` (W,
M, N); every other rank holds a placeholder (M, N) that says the shape and dtype of its piece and whose contents
are ignored, so **shapes differ between ranks**. Afterwards rank s holds piece s (M, N) as a fresh tensor, the
source included. In general axis 0 of the source is k * W and pieces have k rows; where k is 1, that axis is
dropped. `src` differs from call to call.

W-1 pieces must leave the source's link, and no algorithm does better. A good kernel keeps that link busy in all
directions at once, and sizes its buffers by the piece, which is the one size that all ranks agree on.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {
    "tiny": {"m": 32, "n": 32},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 1792, "n": 4096},  # Llama-3-8B gate projection in TP 8 shards
    "odd": {"m": 43, "n": 29},
}


def inputs(draw: Draw) -> Arguments:
    # The same on all ranks but different from call to call: a hard-coded root must fail.
    src = draw.random("root", key="all").randrange(draw.world_size)
    piece = (draw.size["m"], draw.size["n"])
    # Placeholders are random too, so that one read as data shows.
    return {"tensor": draw.normal("tensor", (draw.world_size, *piece) if draw.rank == src else piece), "src": src}


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """All elements of piece i are i + 1; placeholders are zeros."""
    w, piece = draw.world_size, (draw.size["m"], draw.size["n"])
    if draw.rank != drawn["src"]:
        return {"tensor": torch.zeros(piece, dtype=draw.dtype, device=draw.device)}
    numbers = torch.arange(1, w + 1, dtype=draw.dtype, device=draw.device)
    return {"tensor": numbers.view(w, 1, 1).expand(w, *piece).contiguous()}


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    world_size = dist.get_world_size()
    if not 0 <= src < world_size:
        raise ValueError(f"src is {src}, but there are {world_size} ranks")
    pieces: list[torch.Tensor] | None = None
    like = tensor
    if dist.get_rank() == src:
        if tensor.dim() == 0 or tensor.shape[0] == 0 or tensor.shape[0] % world_size != 0:
            raise ValueError(
                f"a tensor {tuple(tensor.shape)} cannot be cut into {world_size} equal pieces along axis 0"
            )
        pieces = list(tensor.contiguous().chunk(world_size))
        if pieces[0].shape[0] == 1:
            pieces = [piece.squeeze(0) for piece in pieces]
        like = pieces[0]
    out = torch.empty_like(like, memory_format=torch.contiguous_format)
    dist.scatter(out, pieces, src=src)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    piece, w = size["m"] * size["n"] * element_bytes, world_size
    return Cost(
        flops=0,
        hbm_bytes=(w + 1) * piece,  # the source reads everything and writes its own piece
        link_sent_bytes=(w - 1) * piece,
        link_received_bytes=piece if w > 1 else 0,
        phases=1 if w > 1 else 0,
        mean_hbm_bytes=2 * piece,  # every piece is read once and written once
        mean_link_bytes=(w - 1) / w * piece,
        payload_bytes=w * piece,
    )


PROBLEM = Problem(
    id=5,
    name="scatter",
    source="plain collective (handing out the shards of a checkpoint)",
    taxonomy=Taxonomy(
        parallelism=("collective", "tp", "other"),
        layer="collective",
        stage=("training-forward", "inference"),
        pattern=("scatter",),
        system="collectives",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline_reason="the reference is one NCCL collective",
    cost=cost,
    compare=Exact(),
    truth="native",
)
