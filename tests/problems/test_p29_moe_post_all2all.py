"""Problem 29, results sent back to their tokens: every row found by source, expert and token."""

import pytest
import torch
from harness import ModelTests, Spec
from model_moe import least_rows_cost
from on_ranks import Arguments, Outputs


def post_all2all(ranks: list[Arguments]) -> list[Outputs]:
    """Every result row is found by (source, expert, token); weights are looked up in the token's own list."""
    w, experts = len(ranks), ranks[0]["num_experts"]
    sent = sorted(
        (expert, source, token)
        for source, a in enumerate(ranks)
        for token, row in enumerate(a["selected_experts"].tolist())
        for expert in row
    )
    rows = dict(zip(sent, torch.cat([a["expert_outputs"] for a in ranks]).double(), strict=True))
    assert [len(a["expert_outputs"]) for a in ranks] == [
        sum(x * w // experts == rank for x, _, _ in sent) for rank in range(w)
    ]
    outputs = []
    for source, a in enumerate(ranks):
        out = torch.zeros(len(a["selected_experts"]), a["expert_outputs"].shape[1]).double()
        for token, row in enumerate(a["selected_experts"].tolist()):
            for k, expert in enumerate(row):
                out[token] += float(a["routing_weights"][token, k]) * rows[expert, source, token]
        outputs.append([out.view(a["org_hidden_states_shape"])])
    return outputs


class TestModel(ModelTests):
    spec = Spec(
        29,
        post_all2all,
        silent_raises=True,
        refused=[("do not fit 0 rows", lambda _: {"expert_outputs": torch.zeros(0, 16)})],
    )


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_cost_is_a_minimum_for_every_call(world_size: int) -> None:
    least_rows_cost(29, world_size, lambda a: a["selected_experts"], ways=1)
