"""SwiGLU feed-forward layer on a two-dimensional mesh: weights gathered over FSDP, partial products summed over TP.

The Llama feed-forward layer as torchtitan runs it. Rank r = f * n_tp + t has column block t and FSDP part f of three
weights: W1_shard and W2_shard (D / n_fsdp, F / n_tp) are row blocks, W3_shard (F / n_tp, D / n_fsdp) is a column block.
x_local (rows, D) depends on f alone. Ranks with equal t gather their weights along the sharded axis; then y =
(silu(x W1) * (x W2)) W3 with the columns t of W1 and W2 and the rows t of W3, each product rounded to the dtype, and
ranks with equal f (consecutive ones) add their y. Afterwards each rank holds y (rows, D), equal for equal f.

W1 and W2 are gathered along the contraction, so a slice can be multiplied when it arrives, before the others are there;
W3 is needed last and can travel meanwhile. It is cut along its columns: a flat gather has the wrong layout. Two or three
ranks have no TP pairs (n_tp = 1) and nothing to add.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # rows: of all FSDP ranks together
    "tiny": {"rows": 24, "d": 48, "f": 64},
    "paper": {"rows": 2048, "d": 256, "f": 1024},
    "real": {"rows": 16384, "d": 8192, "f": 28672},  # Llama-3-70B, TP 2 x FSDP 4, 4096 tokens a rank
    "odd": {"rows": 132, "d": 60, "f": 86},
}


def mesh(world_size: int) -> tuple[int, int]:
    """(n_tp, n_fsdp): the smallest TP group of at least two that leaves at least two FSDP ranks, else none."""
    for n_tp in range(2, world_size // 2 + 1):
        if world_size % n_tp == 0:
            return n_tp, world_size // n_tp
    return 1, world_size


def inputs(draw: Draw) -> Arguments:
    n_tp, n_fsdp = mesh(draw.world_size)
    d, f = draw.size["d"], draw.size["f"]
    rows, d_part, f_part = draw.size["rows"] // n_fsdp, d // n_fsdp, f // n_tp
    return {
        "x_local": draw.normal("x_local", (rows, d), key=("fsdp", draw.rank // n_tp)),
        "W1_shard": draw.normal("W1_shard", (d_part, f_part), scale=d**-0.5),
        "W2_shard": draw.normal("W2_shard", (d_part, f_part), scale=d**-0.5),
        "W3_shard": draw.normal("W3_shard", (f_part, d_part), scale=f**-0.5),
        "n_tp": n_tp,  # the mesh follows from the number of ranks
        "n_fsdp": n_fsdp,
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Weights that are not scaled: results are in the thousands."""
    n_tp, n_fsdp = mesh(draw.world_size)
    d_part, f_part = draw.size["d"] // n_fsdp, draw.size["f"] // n_tp
    return {
        "W1_shard": draw.normal("W1_shard, published", (d_part, f_part)),
        "W2_shard": draw.normal("W2_shard, published", (d_part, f_part)),
        "W3_shard": draw.normal("W3_shard, published", (f_part, d_part)),
    }


def solution(
    x_local: torch.Tensor,
    W1_shard: torch.Tensor,
    W2_shard: torch.Tensor,
    W3_shard: torch.Tensor,
    n_tp: int,
    n_fsdp: int,
) -> torch.Tensor:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size != n_tp * n_fsdp:
        raise ValueError(f"{n_tp} TP ranks times {n_fsdp} FSDP ranks are not {world_size} ranks")
    d_part, f_part = W1_shard.shape
    if W2_shard.shape != (d_part, f_part) or W3_shard.shape != (f_part, d_part) or x_local.shape[1] != n_fsdp * d_part:
        raise ValueError(
            f"shapes do not fit: x_local {tuple(x_local.shape)}, shards {tuple(W1_shard.shape)}, "
            f"{tuple(W2_shard.shape)}, {tuple(W3_shard.shape)}"
        )
    t, f = rank % n_tp, rank // n_tp
    tp_group = [f * n_tp + i for i in range(n_tp)]
    fsdp_group = [i * n_tp + t for i in range(n_fsdp)]

    def exchange(own: torch.Tensor, members: list[int]) -> list[torch.Tensor]:
        """The tensors of all members, by direct messages: a process group for each row and column is not needed."""
        parts = [own if member == rank else torch.empty_like(own) for member in members]
        messages = []
        for member, part in zip(members, parts, strict=True):
            if member != rank:
                messages.append(dist.P2POp(dist.isend, own, member))
                messages.append(dist.P2POp(dist.irecv, part, member))
        for request in dist.batch_isend_irecv(messages) if messages else []:
            request.wait()
        return parts

    parts = exchange(torch.cat([W1_shard.reshape(-1), W2_shard.reshape(-1), W3_shard.reshape(-1)]), fsdp_group)
    count = W1_shard.numel()
    W1 = torch.cat([part[:count].view(d_part, f_part) for part in parts], dim=0)
    W2 = torch.cat([part[count : 2 * count].view(d_part, f_part) for part in parts], dim=0)
    W3 = torch.cat([part[2 * count :].view(f_part, d_part) for part in parts], dim=1)

    gate = torch.nn.functional.silu(torch.matmul(x_local, W1))
    y = torch.matmul(gate * torch.matmul(x_local, W2), W3)
    total, *others = exchange(y, tp_group)
    for other in others:
        total = total + other
    return total


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    n_tp, n_fsdp = mesh(world_size)
    rows, d, f_part = size["rows"] // n_fsdp, size["d"], size["f"] // n_tp
    weights, out = 3 * d * f_part * element_bytes, rows * d * element_bytes
    gathered = (n_fsdp - 1) / n_fsdp * weights
    summed = 2 * (n_tp - 1) / n_tp * out
    return Cost(
        flops=6 * rows * d * f_part,
        hbm_bytes=weights + 2 * out,
        link_sent_bytes=gathered + summed,
        link_received_bytes=gathered + summed,
        phases=int(n_fsdp > 1) + int(n_tp > 1),
        switch_sent_bytes=(weights / n_fsdp if n_fsdp > 1 else 0) + min(1, n_tp - 1) * out,
        switch_received_bytes=gathered + min(1, n_tp - 1) * out,
    )


def requires(size: Size, world_size: int) -> str | None:
    n_tp, n_fsdp = mesh(world_size)
    if size["d"] % n_fsdp or size["rows"] % n_fsdp or size["f"] % n_tp:
        return (
            f"{n_fsdp} FSDP ranks must divide D = {size['d']} and {size['rows']} rows, "
            f"and {n_tp} TP ranks F = {size['f']}"
        )
    return None


PROBLEM = Problem(
    id=48,
    name="fsdp_and_tp",
    source="Llama feed-forward layer under torchtitan's FSDP x TP mesh",
    taxonomy=Taxonomy(
        parallelism=("fsdp", "tp"),
        layer="mlp",
        stage=("training-forward",),
        pattern=("send-recv",),
        system="LLM training",
        fusable="three GEMMs, SiLU gating",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    fixed={"n_fsdp": "the layout's: pairs of ranks"},
    reference=solution,
    baseline_reason="peers exchange directly in one group of messages, as an all-gather would",
    cost=cost,
    compare=NormGate(tau={torch.bfloat16: 1.2e-2}),  # the reference errs by 5.3e-3 with 8 ranks
    version=2,  # tolerance
    requires=requires,
)
