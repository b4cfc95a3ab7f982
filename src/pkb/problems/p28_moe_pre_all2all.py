"""Sends every token to the ranks of its experts and sorts what arrives by expert.

The dispatch of VeOmni's and xorl's expert parallelism, after Megatron-LM. Rank r holds the hidden states of T tokens and
the one-hot mask (E, K, T) of the K different experts of each; expert x lives on rank x // L, with L = E / W. It emits
the rows hidden[t] in the order expert first, then token, and the all-to-all carries `input_splits[d]` of them to rank
d. What arrives (`output_splits[s]` rows from rank s, by expert, num_global_tokens_per_local_expert[s, l] for local
expert l) is put into the order local expert, then source rank, then token, so that every expert finds its rows in one
piece. Returned are these rows, the mask summed over K (E, T), the token of every emitted row (int64), and the size
(T, H). All counts are those of `moe_token_preprocess` and agree between the ranks. Nothing is computed, so the bits and
the order must be the same.

The final place of a row depends on the counts of all sources for the same expert: prefix sums over (expert, source),
while the transfer goes by (source, expert). A good kernel gathers a token's row and writes it straight to its final
place on the peer, and sends a token that has two experts on one rank over the link once.
"""

import torch
import torch.distributed as dist

from pkb.problems.base import Problem, Size
from pkb.problems.compare import Exact
from pkb.problems.draw import Arguments, Draw
from pkb.problems.moe_routing import chosen_experts, destinations_per_token
from pkb.problems.sharding import why_not_equal
from pkb.types.cost import Cost
from pkb.types.taxonomy import Taxonomy

SIZES = {  # with `batch`, hidden states are (batch, T / batch, H)
    "tiny": {"tokens": 24, "hidden": 16, "experts": 8, "top_k": 2, "batch": 2},
    "paper": {"tokens": 1024, "hidden": 1024, "experts": 8, "top_k": 2},
    "real": {"tokens": 4096, "hidden": 7168, "experts": 256, "top_k": 8},  # DeepSeek-V3, EP 8
    "odd": {"tokens": 53, "hidden": 37, "experts": 24, "top_k": 3},
    "decode": {"tokens": 128, "hidden": 7168, "experts": 256, "top_k": 8},  # 128 sequences a rank
}


def inputs(draw: Draw) -> Arguments:
    w, rank = draw.world_size, draw.rank
    tokens, hidden, experts, top_k = (draw.size[name] for name in ("tokens", "hidden", "experts", "top_k"))
    chosen = [chosen_experts(draw, source) for source in range(w)]
    counts = torch.stack([torch.bincount(own.flatten(), minlength=experts) for own in chosen]).view(w, w, experts // w)
    mask = torch.zeros((experts, top_k, tokens), dtype=torch.float32, device=draw.device)
    if draw.device.type != "meta":
        mask.scatter_(0, chosen[rank].t()[None].to(draw.device), 1.0)
    leading = (draw.size["batch"], tokens // draw.size["batch"]) if "batch" in draw.size else (tokens,)
    return {
        "hidden_states": draw.normal("hidden_states", (*leading, hidden)),
        "expert_mask": mask,
        "num_experts": experts,
        "input_splits": counts[rank].sum(dim=1).tolist(),
        "output_splits": counts[:, rank].sum(dim=1).tolist(),
        "num_global_tokens_per_local_expert": counts[:, rank].contiguous().to(draw.device),
        "group": draw.group("world"),
    }


def published(draw: Draw, drawn: Arguments) -> Arguments:
    """Different experts at random, and equal splits all the same: a row may go to a rank that does not have its expert."""
    tokens, experts, top_k = draw.size["tokens"], draw.size["experts"], draw.size["top_k"]
    mask = torch.zeros((experts, top_k, tokens), dtype=torch.float32, device=draw.device)
    if draw.device.type != "meta":
        scores = draw.uniform("experts, published", (experts, tokens), 0.0, 1.0, dtype=torch.float32)
        mask.scatter_(0, scores.topk(top_k, dim=0).indices[None], 1.0)
    return {"expert_mask": mask}


def solution(
    hidden_states: torch.Tensor,
    expert_mask: torch.Tensor,
    num_experts: int,
    input_splits: list[int] | torch.Tensor,
    output_splits: list[int] | torch.Tensor,
    num_global_tokens_per_local_expert: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]:
    world_size = dist.get_world_size(group)
    if num_experts % world_size:
        raise ValueError(f"{num_experts} experts cannot be shared equally by {world_size} ranks")
    local_experts = num_experts // world_size
    send, receive = [int(rows) for rows in input_splits], [int(rows) for rows in output_splits]
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])

    routing_map = expert_mask.sum(dim=1)  # (experts, tokens)
    token_of_row = routing_map.nonzero()[:, 1]  # row-major: by expert, then by token
    if sum(send) != token_of_row.numel():
        raise ValueError(f"input splits {send} do not add up to the {token_of_row.numel()} rows of the mask")
    chunks = num_global_tokens_per_local_expert.reshape(world_size, local_experts).tolist()
    if [sum(row) for row in chunks] != receive:
        raise ValueError(f"output splits {receive} are not the row sums of {chunks}")

    permuted = hidden.index_select(0, token_of_row)
    received = torch.empty((sum(receive), hidden.shape[1]), dtype=hidden.dtype, device=hidden.device)
    dist.all_to_all_single(received, permuted, receive, send, group=group)

    # From (source, local expert) to (local expert, source).
    pieces = received.split([rows for row in chunks for rows in row])
    order = [source * local_experts + expert for expert in range(local_experts) for source in range(world_size)]
    by_expert = torch.cat([pieces[index] for index in order])
    return by_expert, routing_map, token_of_row, hidden.shape


def baseline(
    hidden_states: torch.Tensor,
    expert_mask: torch.Tensor,
    num_experts: int,
    input_splits: list[int] | torch.Tensor,
    output_splits: list[int] | torch.Tensor,
    num_global_tokens_per_local_expert: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]:
    """One wait for the device: how many rows the mask has is known from the splits, which the reference checks."""
    world_size, local_experts = dist.get_world_size(group), num_experts // dist.get_world_size(group)
    send, receive = ([int(rows) for rows in splits] for splits in (input_splits, output_splits))
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    routing_map = expert_mask.sum(dim=1)
    token_of_row = torch.nonzero_static(routing_map, size=sum(send))[:, 1]
    received = hidden.new_empty((sum(receive), hidden.shape[1]))
    dist.all_to_all_single(received, hidden.index_select(0, token_of_row), receive, send, group=group)
    # Asked for after everything before it has been launched.
    chunks = num_global_tokens_per_local_expert.reshape(-1).tolist()
    pieces = received.split(chunks)
    order = [source * local_experts + expert for expert in range(local_experts) for source in range(world_size)]
    return torch.cat([pieces[index] for index in order]), routing_map, token_of_row, hidden.shape


def cost(size: Size, world_size: int, element_bytes: int) -> Cost:
    w, tokens, experts, top_k = world_size, size["tokens"], size["experts"], size["top_k"]
    row = size["hidden"] * element_bytes
    destinations = destinations_per_token(experts, top_k, w)
    return Cost.all_to_all(
        destinations * tokens * row,
        w,
        hbm_bytes=(1 + top_k) * tokens * row + 4 * experts * top_k * tokens + 4 * experts * tokens + 8 * top_k * tokens,
        note="an average rank; a token travels to each rank once, however many of its experts are there",
    )


def requires(size: Size, world_size: int) -> str | None:
    return why_not_equal(size["experts"], "experts", world_size)


PROBLEM = Problem(
    id=28,
    name="moe_pre_all2all",
    source="VeOmni and xorl, token_pre_all2all",
    taxonomy=Taxonomy(
        parallelism=("ep",),
        layer="moe",
        stage=("training-forward",),
        pattern=("all-to-all-v",),
        system="RL post-training",
        fusable="token gather before, chunk reordering after",
    ),
    sizes=SIZES,
    inputs=inputs,
    published=published,
    reference=solution,
    baseline=baseline,
    cost=cost,
    compare=Exact(),
    truth="native",
    requires=requires,
)
