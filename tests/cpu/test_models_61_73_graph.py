"""Problems 64 to 70 against their definitions, written a second time in one process.

Like `test_models_61_73.py`, whose machinery it uses: what every rank must return is worked out from the arguments of
all ranks with plain Python lists, and each model can make the mistake that its problem invites.
"""

import random
from typing import Any

import pytest
import torch
from test_models_61_73 import Arguments, Model, Outputs, Worlds, all_arguments, check_case, run_reference
from world import RankError

from pkb.problems import get
from pkb.problems.p65_gnn_feature_exchange_all2all import chunk_matrix


def neighbor_sampling(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
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


def pieces(rows: torch.Tensor, counts: list[int]) -> list[torch.Tensor]:
    return [rows[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(len(counts))]


def feature_exchange(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
    """Mistake: chunk i is taken to be for peer i."""
    w = len(ranks)
    chunks = [pieces(a["local_features"][a["seed_inverse_ids"]], a["counts_received"]) for a in ranks]
    results = []
    for r in range(w):
        sources = [(i if mistake else (r + i) % w) for i in range(w)]
        results.append([torch.cat([chunks[s][r if mistake else (r - s) % w] for s in sources]).double()])
    return results


def feature_exchange_backward(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
    """Mistake: of several gradients of one row the last one wins."""
    w = len(ranks)
    chunks = [pieces(a["grad_output"].double(), a["counts_sent"]) for a in ranks]
    results = []
    for r, a in enumerate(ranks):
        arrived = torch.cat([chunks[(r + i) % w][(-i) % w] for i in range(w)])
        assert [len(chunks[(r + i) % w][(-i) % w]) for i in range(w)] == a["counts_received"]
        out = torch.zeros(a["seed_size"], arrived.shape[1], dtype=torch.float64)
        for row, seed in zip(arrived, a["seed_inverse_ids"].tolist(), strict=True):
            out[seed] = row if mistake else out[seed] + row
        results.append([out])
    return results


def sparse_push(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
    """Mistake: pairs arrive in the order of their index, as an unstable bucket sort might leave them."""
    results = []
    for r in range(len(ranks)):
        pairs = [
            (a["idx"], a["value"], j) for a in ranks for j in range(len(a["idx"])) if a["idx"][j] % len(ranks) == r
        ]
        if mistake:
            pairs.sort(key=lambda pair: int(pair[0][pair[2]]))
        idx = torch.tensor([int(i[j]) for i, _, j in pairs], dtype=torch.int64)
        width = ranks[0]["value"].shape[1]
        results.append([idx, torch.cat([torch.empty(0, width), *(v[j : j + 1] for _, v, j in pairs)]).double()])
    return results


def feature_fetch(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
    """Mistake: rows stay in the order in which their owners sent them."""
    table = torch.cat([a["local_embedding_shard"].double() for a in ranks])
    assert len(table) == ranks[0]["num_total_nodes"]
    results = []
    for a in ranks:
        ids = a["input_node_ids"]
        shard = -(-len(table) // len(ranks))
        ids = torch.tensor(sorted(ids.tolist(), key=lambda i: i // shard)) if mistake else ids
        results.append([table[ids] @ a["proj_matrix"].double()])
    return results


def negative_scoring(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
    """Mistake: scores are compared instead of their rounded sigmoids."""
    positions = []
    for a in ranks:
        positive, negative = a["local_pos_scores"].double(), a["local_neg_scores"].double()
        if not mistake:
            dtype = a["local_pos_scores"].dtype
            positive, negative = (1 / (1 + (-s).exp()) for s in (positive, negative))
            positive, negative = positive.to(dtype), negative.to(dtype)
        positions += [1 + sum(n > p for n in row) for p, row in zip(positive.tolist(), negative.tolist(), strict=True)]
    return [[torch.tensor(positions)] for _ in ranks]


def jagged_exchange(ranks: list[Arguments], mistake: bool) -> list[Outputs]:
    """Mistake: sources come in plain rank order, or (without stagger) source by source instead of feature by feature."""
    w, first = len(ranks), ranks[0]
    stagger, splits = first["stagger"], first["key_splits"]
    table = [list(range(row * (w // stagger), (row + 1) * (w // stagger))) for row in range(stagger)]
    order = [table[row][column] for column in range(w // stagger) for row in range(stagger)]
    plain = list(range(w))
    jagged = []  # by rank, then feature: the lengths and the position of the first value
    for a in ranks:
        strides = a["stride_per_key"] or [a["batch_size"]] * sum(splits)
        features, at, value = [], 0, 0
        for stride in strides:
            own = a["lengths"][at : at + stride].tolist()
            features.append((own, value))
            at, value = at + stride, value + sum(own)
        assert value == len(a["values"])
        jagged.append(features)
    results = []
    for r in range(w):
        owned = range(sum(splits[:r]), sum(splits[: r + 1]))
        segments = [(s, f) for f in owned for s in (plain if mistake else order)]
        if mistake and stagger == 1:
            segments = [(s, f) for s in plain for f in owned]
        lengths: list[int] = []
        values: list[int] = []
        weights: list[float] = []
        for s, f in segments:
            own, start = jagged[s][f]
            lengths += own
            values += ranks[s]["values"][start : start + sum(own)].tolist()
            if first["weights"] is not None:
                weights += ranks[s]["weights"][start : start + sum(own)].tolist()
        out: list[Any] = [torch.tensor(lengths, dtype=torch.int64), torch.tensor(values, dtype=torch.int64)]
        if first["stride_per_key"] is None:
            batches = torch.tensor([a["batch_size"] for a in ranks])
            out += [batches.sum(), batches]
        else:
            strides_by_source = [[len(jagged[s][f][0]) for s in order] for f in owned]
            out.append(torch.tensor(strides_by_source, dtype=torch.int64).view(len(owned), w))
        if first["weights"] is not None:
            out.append(torch.tensor(weights, dtype=torch.float64))
        results.append(out)
    return results


MODELS: dict[int, Model] = {
    64: neighbor_sampling,
    65: feature_exchange,
    66: feature_exchange_backward,
    67: sparse_push,
    68: feature_fetch,
    69: negative_scoring,
    70: jagged_exchange,
}
CASES = [
    (i, w, size, dtype)
    for i in MODELS
    for w in (2, 4)
    for size in ("tiny", "odd")
    for dtype in (("fp32",) if i == 64 else ("fp32", "bf16"))
]


@pytest.mark.parametrize(("problem_id", "world_size", "size", "dtype"), CASES)
def test_reference_is_the_definition(world: Worlds, problem_id: int, world_size: int, size: str, dtype: str) -> None:
    check_case(world, MODELS[problem_id], problem_id, world_size, size, dtype)


@pytest.mark.parametrize("problem_id", MODELS)
def test_one_rank_alone(world: Worlds, problem_id: int) -> None:
    check_case(world, MODELS[problem_id], problem_id, 1, "odd", "fp32")


@pytest.mark.parametrize("problem_id", [66, 68])
def test_widened_reference_is_exact(world: Worlds, problem_id: int) -> None:
    by_rank = world(4).call(run_reference, problem_id, "odd", "bf16", True)
    truth = MODELS[problem_id](all_arguments(get(problem_id), 4, "odd", "bf16", 0), False)
    for rank in range(4):
        torch.testing.assert_close(by_rank[rank][0], truth[rank], rtol=1e-12, atol=1e-13)


def test_a_graph_is_partitioned_and_uneven() -> None:
    """Were the whole graph on every rank, nobody would have to ask."""
    ranks = all_arguments(get(64), 4, "tiny", "fp32", 0)
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
    idle = [
        any(len(a["seed_nodes"]) == 1 for a in all_arguments(get(64), 4, "tiny", "fp32", call)) for call in range(20)
    ]
    assert 1 < sum(idle) < 15


def repeated_seeds(rank: int, world_size: int) -> None:
    arguments = dict(all_arguments(get(64), world_size, "tiny", "fp32", 0)[rank], group=None)
    arguments["seed_nodes"] = arguments["seed_nodes"][:1].repeat(2)
    get(64).reference(**arguments)


def test_repeated_seeds_are_refused(world: Worlds) -> None:
    with pytest.raises(RankError, match="distinct"):
        world(2).call(repeated_seeds)


def test_chunks_are_uneven_and_every_rank_hears_from_another() -> None:
    zeros = 0
    for seed in range(50):
        matrix = chunk_matrix(4, 12, random.Random(seed))
        assert sum(map(sum, matrix)) == 4 * 4 * 12
        assert sum(matrix[i][i] for i in range(4)) == 4 * 12
        zeros += sum(row.count(0) for row in matrix)
        assert all(sum(matrix[s][d] for s in range(4) if s != d) for d in range(4))
    assert zeros > 50


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_no_sigmoid_is_in_doubt(dtype: str) -> None:
    """Sigmoids wrong by a thousandth of a unit in the last place (float32: by four units) give the same ranks."""
    ranks = all_arguments(get(69), 2, "paper", dtype, 0)
    for a in ranks:
        scores = torch.cat([a["local_pos_scores"][:, None], a["local_neg_scores"]], dim=1)
        exact = torch.sigmoid(scores.double())
        answers = []
        for off in (-1e-7, 0.0, 1e-7):
            rough = (exact * (1 + off)).clamp(max=1.0)
            rough = rough if dtype == "fp32" else rough.to(scores.dtype)
            greater = rough[:, 1:] > rough[:, :1] * (1 + 4 * 6e-8 if dtype == "fp32" else 1)
            answers.append(greater.sum(1))
        assert all(torch.equal(answers[1], other) for other in answers)
        rounded = torch.sigmoid(scores)
        assert torch.equal(answers[1], (rounded[:, 1:] > rounded[:, :1]).sum(1))
        saturated = float((rounded == 1).double().mean())
        assert 0.02 < saturated < 0.2


def test_jagged_calls_cover_all_modes() -> None:
    calls = [all_arguments(get(70), 4, "tiny", "fp32", call)[0] for call in range(100)]
    modes = {(a["weights"] is not None, a["stride_per_key"] is not None, a["stagger"]) for a in calls}
    assert len(modes) == 8
    assert len({tuple(a["key_splits"]) for a in calls}) > 3
