"""All-to-all of uneven pieces: the exchange of tokens between ranks that hold different experts.

The primitive under VeOmni's and xorl's expert parallelism, used to dispatch tokens and to bring them back. Rank r
cuts the rows of `local_tensor` in order by `input_split_sizes` and sends piece d to rank d; its result is the
concatenation, by source rank, of what the others sent here, source s contributing output_split_sizes[s] rows. Every
rank knows its own two lists only. Both input_split_sizes and output_split_sizes are always given (None, which the signature
allows, would stand for equal pieces).
Nothing is computed, so the bits must be the same.

A rank that pushes needs to know where its piece starts at the destination, one that pulls where it starts at the
source, and neither follows from its own lists: offsets must travel first. Pieces may be empty, and row counts differ
from rank to rank and from call to call, so a shared buffer must be sized for the largest need of all ranks, by a
decision of all ranks.
"""

import random

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # m: rows of a rank, on average over the ranks
    "tiny": {"m": 32, "n": 16},
    "paper": {"m": 1024, "n": 1024},
    "real": {"m": 32768, "n": 7168},  # DeepSeek-V3 dispatch: 4096 tokens to 8 experts each
    "odd": {"m": 53, "n": 37},
    "decode": {"m": 1024, "n": 7168},  # 128 tokens to 8 experts each
}
EMPTY_PIECES = 0.2


def cut(total: int, pieces: int, source: random.Random) -> list[int]:
    """Random sizes, some of them zero, that add up to the total. Of two, none: a rank must receive something."""
    empty = EMPTY_PIECES if pieces > 2 else 0.0
    weights = [0.0 if source.random() < empty else source.uniform(0.1, 1.0) for _ in range(pieces)]
    if not any(weights):
        weights[source.randrange(pieces)] = 1.0
    bounds = [round(total * sum(weights[:i]) / sum(weights)) for i in range(pieces)] + [total]
    return [bounds[i + 1] - bounds[i] for i in range(pieces)]


def split_matrix(draw: Draw) -> list[list[int]]:
    """Entry [s][d]: how many rows rank s sends to rank d, the same matrix on every rank.

    However uneven, in total as many rows stay at home and as many travel as in an equal exchange. The busiest rank is
    at least as busy as an average one, so the cost below is a minimum for every call.
    """
    w, m = draw.world_size, draw.size["m"]
    source = draw.random("splits", key="all")
    at_home = cut(w * (m // w), w, source)
    travelling = iter(cut(w * (m - m // w), w * (w - 1), source) if w > 1 else [])
    return [[at_home[s] if s == d else next(travelling) for d in range(w)] for s in range(w)]


def inputs(draw: Draw) -> Arguments:
    matrix = split_matrix(draw)
    return {
        "local_tensor": draw.normal("local_tensor", (sum(matrix[draw.rank]), draw.size["n"])),
        "input_split_sizes": matrix[draw.rank],
        "output_split_sizes": [row[draw.rank] for row in matrix],
        "group": draw.group("world"),
    }


def solution(
    local_tensor: torch.Tensor,
    input_split_sizes: list[int] | torch.Tensor | None = None,
    output_split_sizes: list[int] | torch.Tensor | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    if dist.get_world_size(group) == 1:
        return local_tensor.clone(memory_format=torch.contiguous_format)
    send = None if input_split_sizes is None else [int(rows) for rows in input_split_sizes]
    receive = None if output_split_sizes is None else [int(rows) for rows in output_split_sizes]
    if send is not None and sum(send) != local_tensor.shape[0]:
        raise ValueError(f"input splits {send} do not add up to the {local_tensor.shape[0]} rows of local_tensor")
    rows = local_tensor.shape[0] if receive is None else sum(receive)
    output = torch.empty((rows, *local_tensor.shape[1:]), dtype=local_tensor.dtype, device=local_tensor.device)
    dist.all_to_all_single(output, local_tensor.contiguous(), receive, send, group=group)
    return output


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    m, row, w = size["m"], size["n"] * element_bytes, world_size
    return Cost(
        flops=0,
        hbm_bytes=2 * m * row,
        link_sent_bytes=(m - m // w) * row,
        link_received_bytes=(m - m // w) * row,
        phases=1 if w > 1 else 0,
        note="an average rank; the splits of a call make some rank busier",
        payload_bytes=m * row,
    )


PROBLEM = Problem(
    id=27,
    name="moe_all2all_primitive",
    source="VeOmni and xorl, expert-parallel all-to-all",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="moe",
        stage=("training-forward", "training-backward", "inference"),
        pattern=("all-to-all-v",),
        system="RL post-training",
    ),
    sizes=SIZES,
    inputs=inputs,
    reference=solution,
    baseline_reason="the reference is one NCCL collective",
    cost=cost,
    compare=Exact(),
    truth="native",
)
