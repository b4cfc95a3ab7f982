"""Problem 64, neighbour sampling, hop by hop in plain lists."""

from functools import partial

import pytest
import torch
from harness import ModelTests, Spec
from on_ranks import Arguments, Outputs, all_arguments


def neighbor_sampling(ranks: list[Arguments], mistake: bool = False) -> list[Outputs]:
    """Mistake: new nodes are appended in the order of their ids."""
    owner = ranks[0]["node_to_rank"].tolist()
    pointers = [a["local_adj_row_ptr"].tolist() for a in ranks]
    columns = [a["local_adj_col"].tolist() for a in ranks]
    results = []
    for a in ranks:
        node = a["seed_nodes"].tolist()
        newest, edges = node, []
        for fanout in a["fanouts"]:
            answers = []
            for v in newest:
                ptr, col = pointers[owner[v]], columns[owner[v]]
                end = ptr[v + 1] if fanout < 0 else min(ptr[v + 1], ptr[v] + fanout)
                answers += [(col[e], v, e) for e in range(ptr[v], end)]
            edges += answers
            newest = [u for u in dict.fromkeys(u for u, _, _ in answers) if u not in node]
            newest = sorted(newest) if mistake else newest
            node = node + newest
        place = {v: i for i, v in enumerate(node)}
        row, col, edge = [place[u] for u, _, _ in edges], [place[v] for _, v, _ in edges], [e for _, _, e in edges]
        results.append([torch.tensor(x, dtype=torch.int64) for x in (node, row, col, edge)])
    return results


class TestModel(ModelTests):
    spec = Spec(
        64,
        neighbor_sampling,
        dtypes=("fp32",),
        honest=0.7,
        widened_sizes=("odd",),
        exactness=1e-10,
        large_bytes=12e9,
        more_cases=((1, "odd", "fp32"),),
        mistakes={"new nodes in the order of their ids": partial(neighbor_sampling, mistake=True)},
        mistake_cases=[(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32",)],
        silent_raises=True,
        widened=False,
        refused=[("distinct", lambda a: {"seed_nodes": a["seed_nodes"][:1].repeat(2)})],
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_all_neighbours_are_taken_in_every_call_at_odd(ranks: int) -> None:
    """There may be no more than one call at odd, and at the large sizes fanouts are positive."""
    for call in range(4):
        drawn = all_arguments(64, ranks, "odd", "fp32", call)
        truth = neighbor_sampling(drawn)
        last = [[*a["fanouts"][:-1], 1] for a in drawn]  # the fanout that a kernel would take for a negative one
        wrong = neighbor_sampling([a | {"fanouts": fanouts} for a, fanouts in zip(drawn, last, strict=True)])
        assert all(a["fanouts"][-1] == -1 for a in drawn)
        assert any(len(got[3]) < len(want[3]) for got, want in zip(wrong, truth, strict=True))


def test_a_graph_is_partitioned_and_uneven() -> None:
    """Were the whole graph on every rank, nobody would have to ask."""
    ranks = all_arguments(64, 4, "tiny", "fp32", 0)
    owner = ranks[0]["node_to_rank"]
    total = torch.zeros(len(owner), dtype=torch.int64)
    for r, a in enumerate(ranks):
        degree = a["local_adj_row_ptr"].diff()
        assert torch.equal(a["node_to_rank"], owner)
        assert bool((degree[owner != r] == 0).all())
        assert int(degree.min()) == 0 <= int(degree.max()) - 3
        assert int(a["local_adj_row_ptr"][-1]) == len(a["local_adj_col"])
        total += degree
    assert 0.05 < float((total == 0).double().mean()) < 0.4
    idle = [any(len(a["seed_nodes"]) == 1 for a in all_arguments(64, 4, "tiny", "fp32", call)) for call in range(20)]
    assert 1 < sum(idle) < 15
