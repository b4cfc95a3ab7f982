"""Problem 28, tokens sent to their experts: every row found by token and expert."""

import pytest
import torch
from harness import ModelTests, Spec
from model_moe import choices, least_rows_cost
from on_ranks import Arguments, Outputs


def pre_all2all(ranks: list[Arguments]) -> list[Outputs]:
    experts = ranks[0]["num_experts"]
    local = experts // len(ranks)
    pairs = [choices(a["expert_mask"]) for a in ranks]
    rows = [a["hidden_states"].flatten(0, -2) for a in ranks]
    outputs = []
    for rank, a in enumerate(ranks):
        wanted = [
            (expert, source, token)
            for source in range(len(ranks))
            for expert, token in pairs[source]
            if rank * local <= expert < (rank + 1) * local
        ]
        tokens = [rows[source][token] for _, source, token in sorted(wanted)]
        routing_map = torch.zeros(experts, len(rows[rank]))
        for expert, token in pairs[rank]:
            routing_map[expert, token] = 1
        emitted = torch.tensor([token for _, token in pairs[rank]])
        outputs.append([torch.stack(tokens) if tokens else a["hidden_states"].new_zeros(0), routing_map, emitted])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        28,
        pre_all2all,
        results=(None, torch.float32),
        silent_raises=True,
        refused=[
            ("do not add up", lambda _: {"input_splits": [1, 1]}),
            ("not the row sums", lambda _: {"output_splits": [0, 1]}),
        ],
    )


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_cost_is_a_minimum_for_every_call(world_size: int) -> None:
    least_rows_cost(28, world_size, lambda a: a["expert_mask"].argmax(dim=0).t(), ways=1)
