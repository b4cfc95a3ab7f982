"""Ulysses, after attention: from the whole sequence with a part of the heads to a part of the sequence with all heads.

DeepSpeed-Ulysses and VeOmni bring the attention output back to the layout of the rest of the model this way. `seq_dim`
and `head_dim` are the indices of the sequence and heads axes (head_dim is not a head size). Rank r holds `x`, all S
positions of its h heads. If W does not divide S, zeros are appended to the sequence up to the next multiple S' of W.
Rank r then receives the r-th of W equal parts of the sequence from every rank j and joins them along head_dim in the
order of j. With axes (batch, sequence, heads, channel):

    out[b, s, j * h + q, :] = x of rank j, padded [b, r * S' / W + s, q, :]

The padding stays in the result: the last ranks return zeros there, exact ones. All else keeps its bits.

The runs that stay together in memory are h heads at one position, so a good kernel reads and writes the two layouts
directly across the links and makes no packed copy on either side. Padding need not travel, but must be written in
every call: memory that is used again holds older data.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # seq: positions of the whole sequence, or up to W - 1 fewer; heads: of one rank
    "tiny": {"batch": 2, "seq": 24, "heads": 4, "channels": 8},
    "paper": {"batch": 16, "seq": 16, "heads": 8, "channels": 64},
    "real": {"batch": 1, "seq": 65536, "heads": 8, "channels": 128},  # Llama-3-70B attention output on 8 ranks
    "odd": {"batch": 3, "seq": 53, "heads": 3, "channels": 5},
}
KINDS = {"bshd": 1 / 3, "bhsd": 1 / 3, "sbhd": 1 / 3}
"""By the order of the axes, which decides how long the pieces are that stay together."""
"""Orders of batch, sequence, heads and channel that attention codes use; upstream only knows the first."""


def inputs(draw: Draw) -> Arguments:
    source = draw.random("axes and length", key="all")
    order = draw.kind_of(KINDS)
    missing = source.randrange(draw.world_size) if source.random() < 0.6 else 0  # upstream never needs padding
    seq = draw.size["seq"] - missing
    lengths = {"b": draw.size["batch"], "s": seq, "h": draw.size["heads"], "d": draw.size["channels"]}
    return {
        "x": draw.normal("x", tuple(lengths[axis] for axis in order)),
        "seq_dim": order.index("s"),
        "head_dim": order.index("h"),
        "group": draw.group("world"),
    }


def solution(x: torch.Tensor, seq_dim: int, head_dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if not all(-x.dim() <= axis < x.dim() for axis in (seq_dim, head_dim)):
        raise ValueError(f"a tensor {tuple(x.shape)} has no axes {seq_dim} and {head_dim}")
    seq_dim, head_dim = seq_dim % x.dim(), head_dim % x.dim()
    if seq_dim == head_dim:
        raise ValueError(f"axis {seq_dim} cannot be both the sequence and the heads")

    missing = -x.shape[seq_dim] % world_size
    if missing > 0:
        shape = list(x.shape)
        shape[seq_dim] = missing
        x = torch.cat([x, torch.zeros(shape, dtype=x.dtype, device=x.device)], dim=seq_dim)

    # Part d of the sequence to rank d; then the part from rank j stands at index j of the first axis.
    send = x.unflatten(seq_dim, (world_size, -1)).movedim(seq_dim, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    return received.movedim(0, head_dim).flatten(head_dim, head_dim + 1)


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    position = size["batch"] * size["heads"] * size["channels"] * element_bytes
    part = size["seq"] // w  # with up to W - 1 positions fewer, a rank's part is at least this long
    return Cost.all_to_all(
        w * part * position,
        w,
        hbm_bytes=2 * part * w * position,
        note="the shortest sequence of a call; padding need not travel, but the last rank sends no padding anyway",
    )


def requires(size: Size, world_size: int) -> str | None:
    if size["seq"] < 2 * world_size:
        return f"{size['seq']} positions, some of them padding, are too few for {world_size} ranks"
    return None


PROBLEM = Problem(
    id=37,
    name="ulysses_gather_heads_scatter_seq",
    source="VeOmni and DeepSpeed-Ulysses, layout switch after attention",
    taxonomy=Taxonomy(
        parallelism=("sp",),
        layer="attention",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="RL post-training",
        fusable="padding and transposition (neighbour: output projection)",
    ),
    sizes=SIZES,
    inputs=inputs,
    kinds=KINDS,
    reference=solution,
    baseline_reason="one copy before the exchange and one after it, which the layouts ask for",
    cost=cost,
    compare=Exact(),
    truth="native",
    requires=requires,
    version=2,  # kinds of calls
)
