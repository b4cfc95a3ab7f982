"""Problems 74-81 and 83-87 against their mathematics (models_74_87.py), and rules that refuse what they must.

The arguments of all ranks are drawn here, the models work out what every rank must return, and the problems' own rules
compare that with the references on real ranks. Each rule is also shown spoilt results, and the results of ranks that do
not hear each other.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models_74_87 import MODELS, Arguments, Outputs, filtered_rows, sinkhorn, suppression
from world import World

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context
from pkb.problems.draw import Draw, GroupRef
from pkb.problems.filtered_logits import draw_rows
from pkb.problems.layouts import groups
from pkb.rank.comparison.null_candidates import communication_removed

Worlds = Callable[[int], World]
SECRET = b"models of 74 to 87"
CALLS = (0, 1)
FLOAT32 = {80, 81, 83, 84}
"""Problems whose results are float32 whatever the arguments are."""
CASES = [(i, w, size, dtype) for i in MODELS for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def draw_arguments(problem: Problem, *, rank: int, world_size: int, size: str, dtype: str, call: int) -> Arguments:
    draw = Draw(
        secret=SECRET, call=call, rank=rank, world_size=world_size, size=problem.sizes[size],
        dtype=DTYPES[dtype], device=torch.device("cpu"), layout=problem.layout,
    )  # fmt: skip
    return problem.inputs(draw)


def all_arguments(problem: Problem, world_size: int, size: str, dtype: str, call: int) -> list[Arguments]:
    return [
        draw_arguments(problem, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call)
        for rank in range(world_size)
    ]


@cache
def own_groups(layout: str, rank: int, world_size: int) -> dict[str, dist.ProcessGroup]:
    """On a rank: its process group of every axis. All ranks make all groups, in the same order."""
    mine = {}
    for axis, lists in groups(layout, world_size).items():
        for members in lists:
            group = dist.new_group(members)
            if rank in members:
                mine[axis] = group
    return mine


def ready_arguments(problem: Problem, rank: int, world_size: int, size: str, dtype: str, call: int) -> Arguments:
    arguments = draw_arguments(problem, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call)
    for name, value in arguments.items():
        if isinstance(value, GroupRef):
            arguments[name] = own_groups(problem.layout, rank, world_size)[value.axis]
    return arguments


def run_reference(rank: int, world_size: int, problem_id: int, size: str, dtype: str, widen: bool) -> list[Any]:
    """On a rank: for each call the outputs, and those without communication (None if that raises)."""
    problem = get(problem_id)
    results = []
    for call in CALLS:
        arguments = ready_arguments(problem, rank, world_size, size, dtype, call)
        if widen:
            arguments = {
                name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                for name, value in arguments.items()
            }
        before = [tensor.clone() for tensor in tensors_in(arguments)]
        outputs = [t.clone() for t in tensors_in(problem.reference(**arguments))]
        after = tensors_in(arguments)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), "the reference changed an argument"
        mute = None
        with communication_removed():
            try:
                mute = [t.clone() for t in tensors_in(problem.reference(**arguments))]
            except Exception:
                mute = None
        results.append((outputs, mute))
    return results


def worst(problem: Problem, ranks: list[Arguments], truth: list[Outputs], outputs: Sequence[Outputs | None]) -> float:
    """The largest ratio over all outputs of all ranks; the candidate is wrong if it is above 1."""
    ratios = [0.0]
    for rank, arguments in enumerate(ranks):
        dtype = next(t for t in tensors_in(arguments) if t.is_floating_point()).dtype
        context = Context(arguments=arguments, rank=rank, world_size=len(ranks), dtype=dtype)
        own, want_all = outputs[rank], truth[rank]
        if own is None or [t.shape for t in own] != [t.shape for t in want_all]:
            return math.inf
        rules = problem.compare if isinstance(problem.compare, tuple) else (problem.compare,) * len(own)
        ratios += [rule(want, got, context) for rule, want, got in zip(rules, want_all, own, strict=True)]
    return max(ratios)


def corrupt(output: torch.Tensor) -> torch.Tensor:
    """One element wrong: the largest finite one by a quarter, or another number, or the other truth value."""
    spoilt = output.clone().flatten()
    if not spoilt.is_floating_point():
        spoilt[0] = not spoilt[0] if spoilt.dtype is torch.bool else spoilt[0] + 1
        return spoilt.view_as(output)
    finite = spoilt.isfinite().nonzero()[:, 0]
    index = finite[spoilt[finite].abs().argmax()]
    spoilt[index] = spoilt[index] * 1.25
    return spoilt.view_as(output)


@pytest.mark.parametrize(("problem_id", "world_size", "size", "dtype"), CASES)
def test_reference_is_the_mathematics(world: Worlds, problem_id: int, world_size: int, size: str, dtype: str) -> None:
    problem = get(problem_id)
    assert problem.why_not(size, world_size, dtype) is None
    by_rank = world(world_size).call(run_reference, problem_id, size, dtype, False)
    native = torch.float32 if problem_id in FLOAT32 else torch.bfloat16 if problem_id == 78 else DTYPES[dtype]
    for index, call in enumerate(CALLS):
        ranks = all_arguments(problem, world_size, size, dtype, call)
        truth = MODELS[problem_id](ranks)
        outputs = [results[index][0] for results in by_rank]
        assert {own[0].dtype for own in outputs} == {native}
        assert worst(problem, ranks, truth, outputs) <= 0.85  # an honest result keeps a distance from failing

        assert worst(problem, ranks, truth, [results[index][1] for results in by_rank]) > 3
        assert worst(problem, ranks, truth, [[torch.zeros_like(t) for t in own] for own in outputs]) > 3
        for position in range(len(outputs[0])):
            rank = max(range(world_size), key=lambda r, p=position: outputs[r][p].numel())  # type: ignore[misc]
            spoilt = [list(own) for own in outputs]
            spoilt[rank][position] = corrupt(spoilt[rank][position])
            assert worst(problem, ranks, truth, spoilt) > 1.2


WIDENED = [problem_id for problem_id in MODELS if get(problem_id).truth == "float64"]


@pytest.mark.parametrize("problem_id", WIDENED)
def test_widened_reference_is_exact(world: Worlds, problem_id: int) -> None:
    """What the judge takes for the truth: were anything inside still float32, the error would be 1e-7."""
    problem = get(problem_id)
    by_rank = world(4).call(run_reference, problem_id, "odd", "bf16", True)
    for index, call in enumerate(CALLS):
        truth = MODELS[problem_id](all_arguments(problem, 4, "odd", "bf16", call))
        for rank in range(4):
            got, want = by_rank[rank][index][0][0], truth[rank][0]
            assert got.dtype == torch.float64
            assert float((got - want).norm() / want.norm()) < 1e-11


def run_sinkhorn(rank: int, world_size: int, iterations: int) -> torch.Tensor:
    problem = get(80)
    arguments = ready_arguments(problem, rank, world_size, "tiny", "fp32", 0)
    return problem.reference(**(arguments | {"n_iterations": iterations}))


def test_sinkhorn_without_iterations(world: Worlds) -> None:
    """The constants cancel only if there is an iteration: exp(x / temperature) * samples / sum."""
    ranks = [arguments | {"n_iterations": 0} for arguments in all_arguments(get(80), 2, "tiny", "fp32", 0)]
    blocks = [own[0] for own in sinkhorn(ranks)]
    scale = sum(map(len, blocks)) / sum(float(block.sum()) for block in blocks)
    for got, block in zip(world(2).call(run_sinkhorn, 0), blocks, strict=True):
        torch.testing.assert_close(got.double(), block * scale, rtol=1e-5, atol=0)


def run_muon(rank: int, world_size: int, kind: str, steps: int) -> torch.Tensor:
    arguments = ready_arguments(get(86), rank, world_size, "tiny", "fp64", 0)
    return get(86).reference(**(arguments | {"coefficient_type": kind, "steps": steps}))


@pytest.mark.parametrize(("kind", "steps"), [("polar_express", 8), ("quintic", 10), ("aol", 4), ("simple", 3)])
def test_muon_pulls_singular_values_to_one(world: Worlds, kind: str, steps: int) -> None:
    dim = draw_arguments(get(86), rank=0, world_size=2, size="tiny", dtype="fp64", call=0)["partition_dim"]
    values = torch.linalg.svdvals(torch.cat(world(2).call(run_muon, kind, steps), dim=dim))
    assert float(values.max()) < 1.3
    assert float(values.median()) > (0.9 if kind == "polar_express" else 0.5)


def test_inputs_of_suppression_suppress() -> None:
    """Upstream's never do: then a plain all-gather would pass."""
    counts, directions, empty = [], set(), 0
    for call in range(30):
        ranks = all_arguments(get(81), 4, "odd", "bf16", call)
        counts.append(int(suppression(ranks)[0][2].sum()))
        directions.add(ranks[0]["reverse"])
        empty += ranks[0]["num_obj_per_gpu"].count(0)
    assert sum(count > 0 for count in counts) > 25
    assert max(counts) < 20
    assert directions == {True, False}
    assert empty > 0


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("top_k", "percent"), [(5, 90), (13, 85), (50, 95)])
def test_filtered_rows_leave_no_doubt(dtype: str, top_k: int, percent: int) -> None:
    """Sums rounded to the dtype at every step must keep the same logits, and what is kept must vary."""
    size = {"top_k": top_k}
    rows = []
    for rank in range(4):
        draw = Draw(
            secret=SECRET, call=3, rank=rank, world_size=4, size=size, dtype=DTYPES[dtype], device=torch.device("cpu")
        )
        rows.append(draw_rows(draw, tokens=256, width=100, top_k=top_k, top_p=percent / 100))
    assert all(torch.equal(r.target, rows[0].target) for r in rows)
    logits, dropped = torch.cat([r.logits for r in rows], dim=1), 1 - percent / 100
    arguments = [{"vocab_parallel_logits": r.logits[None], "target": rows[0].target, "top_k": top_k} for r in rows]
    arguments[0]["top_p"] = percent / 100
    _, targets, kept = filtered_rows(arguments)  # asserts that cuts are clear

    ascending, index = logits.sort(dim=1)
    stays = ascending >= ascending[:, -top_k, None]
    probabilities = ascending.masked_fill(~stays, float("-inf")).softmax(-1)
    total = torch.zeros(len(logits), dtype=logits.dtype)
    for token_total, column in zip(range(logits.shape[1]), probabilities.unbind(1), strict=True):
        total = total + column
        stays[:, token_total] &= total > torch.tensor(dropped, dtype=logits.dtype)
    stays[:, -1] = True
    for token in range(len(logits)):
        assert sorted(index[token, stays[token]].tolist()) == sorted(kept[token])
    hit = sum(target in own for target, own in zip(targets, kept, strict=True)) / len(kept)
    assert 0.3 < hit < 0.9
    assert len({len(own) for own in kept}) > 2


@pytest.mark.parametrize("problem_id", [74, 75])
def test_a_halo_of_a_few_positions_is_not_enough(problem_id: int) -> None:
    """States must remember more than the neighbour's last positions, or an exchange of those would pass."""
    problem = get(problem_id)
    ranks = all_arguments(problem, 2, "odd", "bf16", 0)
    truth = MODELS[problem_id](ranks)
    forgetful = dict(ranks[0])
    rate = "beta"
    forgetful[rate] = forgetful[rate].clone()
    tail = forgetful[rate].shape[1] // 2
    forgetful[rate][:, :tail] = 0.0 if problem_id == 75 else -100.0  # the first half of the positions writes nothing
    shortened = MODELS[problem_id]([forgetful, ranks[1]])
    outputs = [truth[0], shortened[1]]
    assert worst(problem, ranks, truth, [[t.to(torch.bfloat16) for t in own] for own in outputs]) > 2


@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_a_convolution_without_halo_fails(size: str) -> None:
    ranks = all_arguments(get(87), 4, size, "bf16", 0)
    alone = [MODELS[87]([arguments])[0] for arguments in ranks]
    outputs = [[t.to(torch.bfloat16) for t in own] for own in alone]
    assert worst(get(87), ranks, MODELS[87](ranks), outputs) > 10


@pytest.mark.parametrize("problem_id", MODELS)
def test_real_size_is_described_without_drawing_it(problem_id: int) -> None:
    problem = get(problem_id)
    assert problem.why_not("real", 8, "bf16") is None
    assert 0 < 8 * problem.argument_bytes("real", 8, "bf16") < 40e9
    assert problem.cost(problem.sizes["real"], 8, 2).link_received_bytes > 0
