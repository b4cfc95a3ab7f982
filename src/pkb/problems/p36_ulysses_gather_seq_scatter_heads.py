"""Ulysses, before attention: from a part of the sequence with all heads to the whole sequence with a part of the heads.

DeepSpeed-Ulysses and VeOmni switch the layout of Q, K and V this way. `seq_dim` and `head_dim` are the indices of the
sequence and heads axes (head_dim is not a head size). Rank r holds `x`, the r-th of W equal parts of the sequence; it
receives the r-th of W equal parts of the heads from every rank j and joins them along seq_dim in the order of j. So
with axes (batch, sequence, heads, channel), S positions a rank and h heads in all:

    out[b, j * S + s, q, :] = x of rank j [b, s, r * h / W + q, :]

A sequence that W does not divide was padded at its end: if `unpadded_dim_size` is neither 0 nor a multiple of W, the
result is cut to that many positions; in all other cases nothing is cut, even if unpadded_dim_size is smaller than the
gathered length. Nothing is computed, so the bits must be the same.

The runs that stay together in memory are h / W heads at one position, so a good kernel reads and writes the two
layouts directly across the links and makes no packed copy on either side. Positions that are cut need not travel.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # seq: positions a rank; heads: of the whole layer
    "tiny": {"batch": 2, "seq": 8, "heads": 8, "channels": 8},
    "paper": {"batch": 16, "seq": 16, "heads": 8, "channels": 64},
    "real": {"batch": 1, "seq": 8192, "heads": 64, "channels": 128},  # Llama-3-70B queries, 65536 positions on 8 ranks
    "odd": {"batch": 3, "seq": 13, "heads": 24, "channels": 5},
}
KINDS = {"bshd": 1 / 3, "bhsd": 1 / 3, "sbhd": 1 / 3}
"""By the order of the axes, which decides how long the pieces are that stay together."""
"""Orders of batch, sequence, heads and channel that attention codes use; upstream only knows the first."""
LENGTHS = ("not given", "not given", "cut", "cut", "multiple")
"""What `unpadded_dim_size` says, as often as it stands here."""


def inputs(draw: Draw) -> Arguments:
    w, seq = draw.world_size, draw.size["seq"]
    source = draw.random("length", key="all")
    order = draw.kind_of(KINDS)
    lengths = {"b": draw.size["batch"], "s": seq, "h": draw.size["heads"], "d": draw.size["channels"]}
    length = draw.in_turn("length", LENGTHS)
    if length == "not given" or w == 1:
        unpadded = 0
    elif length == "cut":
        unpadded = w * seq - source.randrange(1, w)
    else:  # a smaller multiple of W: no cut
        unpadded = w * source.randrange(max(1, seq - 2), seq)
    return {
        "x": draw.normal("x", tuple(lengths[axis] for axis in order)),
        "seq_dim": order.index("s"),
        "head_dim": order.index("h"),
        "group": draw.group("world"),
        "unpadded_dim_size": unpadded,
    }


def solution(
    x: torch.Tensor,
    seq_dim: int,
    head_dim: int,
    group: dist.ProcessGroup | None = None,
    unpadded_dim_size: int = 0,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if not all(-x.dim() <= axis < x.dim() for axis in (seq_dim, head_dim)):
        raise ValueError(f"a tensor {tuple(x.shape)} has no axes {seq_dim} and {head_dim}")
    seq_dim, head_dim = seq_dim % x.dim(), head_dim % x.dim()
    if seq_dim == head_dim:
        raise ValueError(f"axis {seq_dim} cannot be both the sequence and the heads")
    if x.shape[head_dim] % world_size != 0:
        raise ValueError(f"{x.shape[head_dim]} heads cannot be shared equally by {world_size} ranks")
    if not 0 <= unpadded_dim_size <= world_size * x.shape[seq_dim]:
        raise ValueError(f"{unpadded_dim_size} positions, but {world_size} x {x.shape[seq_dim]} are gathered")

    # Part d of the heads to rank d; then the part from rank j stands at index j of the first axis.
    send = x.unflatten(head_dim, (world_size, -1)).movedim(head_dim, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    out = received.movedim(0, seq_dim).flatten(seq_dim, seq_dim + 1)

    if unpadded_dim_size % world_size != 0:
        out = out.narrow(seq_dim, 0, unpadded_dim_size)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    tensor = size["batch"] * size["seq"] * size["heads"] * size["channels"] * element_bytes
    return Cost.all_to_all(
        tensor,
        w,
        hbm_bytes=2 * tensor,
        note="a cut leaves out fewer than W positions of the last ranks; the first rank sends and the last receives all",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["heads"], "heads", world_size)


PROBLEM = Problem(
    id=36,
    name="ulysses_gather_seq_scatter_heads",
    source="VeOmni and DeepSpeed-Ulysses, layout switch before attention",
    taxonomy=Taxonomy(
        parallelism=("sp",),
        layer="attention",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="RL post-training",
        fusable="transposition (neighbours: QKV projection, rotary embedding)",
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
    version=3,  # lengths that cut nothing come in turn
)
