"""Ulysses on a fused QKV projection: from a part of the sequence with all heads to all of it with a part of the heads.

VeOmni applies the layout switch before attention to Q, K and V at once. The last axis of `qkv_tensor`, P wide, holds
all of Q, then all of K, then all of V, each with its heads one after another. Rank r holds the r-th of W equal parts
of the sequence (axis `seq_dim`). It receives the r-th of W equal parts of each of Q, K and V from every rank j and
joins them along seq_dim in the order of j. The last axis of the result is then its part of Q, of K and of V, P / W
wide in all; with restore_shape=False these three stand on an axis of their own, (..., 3, P / (3 W)).

A sequence that W does not divide was padded at its end: if `unpadded_dim_size` is not None, 0 or a multiple
of W, the result is cut to that many positions; in all other cases nothing is cut. Nothing is computed, so the bits
must be the same.

Three separate runs of P / (3 W) elements go to each peer for every position; cutting the last axis into W pieces as it
is would give Q alone to the first ranks. A good kernel moves these runs directly between the two layouts, without a
packed copy on either side.
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
    "tiny": {"batch": 2, "seq": 8, "heads": 8, "head_size": 4},
    "paper": {"batch": 16, "seq": 16, "heads": 8, "head_size": 64},
    "real": {"batch": 1, "seq": 8192, "heads": 32, "head_size": 128},  # Llama-2-7B, 65536 positions on 8 ranks
    "odd": {"batch": 3, "seq": 11, "heads": 24, "head_size": 3},
}
KINDS = {"seq_dim_0": 0.5, "seq_dim_1": 0.5}
LENGTHS = ("not given", "cut", "cut", "multiple", "zero")
"""What `unpadded_dim_size` says, as often as it stands here."""


def inputs(draw: Draw) -> Arguments:
    w, batch, seq = draw.world_size, draw.size["batch"], draw.size["seq"]
    width = 3 * draw.size["heads"] * draw.size["head_size"]
    seq_dim = int(draw.kind_of(KINDS, published="seq_dim_1") == "seq_dim_1")
    length = draw.in_turn("length", LENGTHS)
    unpadded: int | None = None
    if length == "cut" and w > 1:
        unpadded = w * seq - draw.random("length", key="all").randrange(1, w)
    elif length == "multiple":  # of W: no cut
        unpadded = w * (seq - 1)
    elif length == "zero":
        unpadded = 0
    return {
        "qkv_tensor": draw.normal("qkv_tensor", (batch, seq, width) if seq_dim == 1 else (seq, batch, width)),
        "seq_dim": seq_dim,
        "group": draw.group("world"),
        "unpadded_dim_size": unpadded,
        "restore_shape": draw.in_turn("restore_shape", (True, True, False)),
    }


def solution(
    qkv_tensor: torch.Tensor,
    seq_dim: int,
    group: dist.ProcessGroup | None = None,
    unpadded_dim_size: int | None = None,
    restore_shape: bool = True,
) -> torch.Tensor:
    world_size = dist.get_world_size(group)
    if not 0 <= seq_dim < qkv_tensor.dim() - 1:
        raise ValueError(f"seq_dim must be an axis before the last of {tuple(qkv_tensor.shape)}, not {seq_dim}")
    if qkv_tensor.shape[-1] % (3 * world_size) != 0:
        raise ValueError(f"the thirds of {qkv_tensor.shape[-1]} cannot be shared equally by {world_size} ranks")
    unpadded = unpadded_dim_size or 0
    if not 0 <= unpadded <= world_size * qkv_tensor.shape[seq_dim]:
        raise ValueError(f"{unpadded} positions, but {world_size} x {qkv_tensor.shape[seq_dim]} are gathered")

    # (..., 3, W, P / 3W), of which part d goes to rank d; then the part from rank j stands at index j of the first axis.
    send = qkv_tensor.unflatten(-1, (3, world_size, -1)).movedim(-2, 0).contiguous()
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send, group=group)
    out = received.movedim(0, seq_dim).flatten(seq_dim, seq_dim + 1)

    if restore_shape:
        out = out.flatten(-2)
    if unpadded % world_size != 0:
        out = out.narrow(seq_dim, 0, unpadded)
    return out


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w = world_size
    tensor = size["batch"] * size["seq"] * 3 * size["heads"] * size["head_size"] * element_bytes
    return Cost.all_to_all(
        tensor,
        w,
        hbm_bytes=2 * tensor,
        note="a cut leaves out fewer than W positions of the last ranks; the first rank sends and the last receives all",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["heads"], "heads", world_size)


PROBLEM = Problem(
    id=38,
    name="ulysses_gather_seq_scatter_heads_qkv",
    source="VeOmni, Ulysses layout switch of a fused QKV projection",
    taxonomy=Taxonomy(
        parallelism=("sp",),
        layer="attention",
        stage=("training-forward",),
        pattern=("all-to-all",),
        system="RL post-training",
        fusable="transposition (neighbour: QKV GEMM)",
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
