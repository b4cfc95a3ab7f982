"""Problems 21, 27, 54, 55 and 82 against their mathematics, written a second time in one process.

The arguments of all ranks are drawn here; what every rank must return, and what it must leave in arguments that it
changes, is worked out in float64 from the whole problem (one attention over the whole sequence, one sort of the whole
row) and compared, by the problem's own rules, with the references on real ranks. Each rule is then shown results that
it must refuse. And one property that 54 shares with 56: attention by heads.
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from world import World

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context, Rule
from pkb.problems.draw import Draw, GroupRef
from pkb.problems.layouts import groups
from pkb.problems.p82_vocab_parallel_log_prob_topk import CLEARANCE

Worlds = Callable[[int], World]
Arguments = dict[str, Any]
Outputs = list[torch.Tensor]
"""What a rank returns, followed by the tensors of the arguments that it changes."""

SECRET = b"structured models"
IDS = (21, 27, 54, 55, 82)
CALLS = (0, 1, 2, 5)
CASES = [(i, w, size, dtype) for i in IDS for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")]


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


def run_reference(rank: int, world_size: int, problem_id: int, size: str, dtype: str, widen: bool) -> list[Outputs]:
    """On a rank: the outputs of several calls."""
    problem = get(problem_id)
    results = []
    for call in CALLS:
        arguments = draw_arguments(problem, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call)
        for name, value in arguments.items():
            if isinstance(value, GroupRef):
                arguments[name] = own_groups(problem.layout, rank, world_size)[value.axis]
            elif widen and isinstance(value, torch.Tensor):
                arguments[name] = value.double()
        fixed = tensors_in([value for name, value in arguments.items() if name not in problem.mutates])
        before = [tensor.clone() for tensor in fixed]
        output = problem.reference(**arguments)
        assert all(torch.equal(a, b) for a, b in zip(before, fixed, strict=True)), "the reference changed an argument"
        results.append([output.clone(), *(t.clone() for t in changed(problem, arguments))])
    return results


def changed(problem: Problem, arguments: Arguments) -> list[torch.Tensor]:
    return tensors_in([arguments[name] for name in problem.mutates])


# The mathematics: from the arguments of all ranks to the outputs of all ranks.


def clip_grad_norm(ranks: list[Arguments]) -> list[Outputs]:
    gradients = [[g.double() for g in arguments["grad_tensors"]] for arguments in ranks]
    norm = torch.cat([g.flatten() for own in gradients for g in own]).square().sum().sqrt()
    factor = min(1.0, ranks[0]["max_norm"] / float(norm))
    return [[norm, *(g * factor for g in own)] for own in gradients]


def all_to_all(ranks: list[Arguments]) -> list[Outputs]:
    outputs = []
    for r, receiver in enumerate(ranks):
        rows = []
        for s, sender in enumerate(ranks):
            first = sum(sender["input_split_sizes"][:r])
            rows.append(sender["local_tensor"][first : first + sender["input_split_sizes"][r]])
            assert len(rows[-1]) == receiver["output_split_sizes"][s]
        outputs.append([torch.cat(rows)])
    return outputs


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """(B, positions, heads, head size), over one undivided sequence."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        position = torch.arange(q.shape[1])
        scores = scores.masked_fill(position[:, None] < position[None, :], float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def ring_attention(ranks: list[Arguments]) -> list[Outputs]:
    q, k, v = (torch.cat([arguments[name].double() for arguments in ranks], dim=1) for name in "qkv")
    return [[block] for block in attention(q, k, v, causal=ranks[0]["causal"]).chunk(len(ranks), dim=1)]


def ring_attention_tp(ranks: list[Arguments]) -> list[Outputs]:
    """One layer with all heads and all positions; ranks 2c and 2c + 1 hold block c."""
    tp = min(2, len(ranks))
    hidden = torch.cat([arguments["hidden_states"].double() for arguments in ranks[::tp]], dim=1)
    out = torch.zeros_like(hidden)
    for arguments in ranks[:tp]:
        heads = arguments["num_heads"] // tp
        q, k, v = ((hidden @ w.T).unflatten(-1, (heads, -1)) for w in arguments["w_qkv"].double().chunk(3))
        out += attention(q, k, v, causal=arguments["causal"]).flatten(2) @ arguments["w_o"].double().T
    return [[block] for block in out.chunk(len(ranks) // tp, dim=1) for _ in range(tp)]


def log_prob(row: list[float], target: int, top_k: int, top_p: float) -> float:
    """By hand: sort, keep k and their ties, drop from the small end while the sum is at most 1 - top_p."""
    kth = sorted(row, reverse=True)[top_k - 1]
    kept = sorted(i for i in range(len(row)) if row[i] >= kth)
    if top_p < 1:
        total = math.fsum(math.exp(row[i]) for i in kept)
        by_size = sorted(kept, key=lambda i: row[i])
        sums = [math.fsum(math.exp(row[i]) for i in by_size[: n + 1]) / total for n in range(len(by_size))]
        kept = [i for i, s in zip(by_size, sums, strict=True) if s > 1 - top_p or i == by_size[-1]]
        # The promise of the inputs: no cut is in doubt.
        assert min(abs(s - (1 - top_p)) for s in sums) > 0.99 * CLEARANCE * (1 - top_p)
        assert row[target] != row[kept[0]] or all(i in kept for i in by_size if row[i] == row[target])
    if target not in kept:
        return -math.inf
    return row[target] - math.log(math.fsum(math.exp(row[i]) for i in kept))


def log_prob_topk(ranks: list[Arguments]) -> list[Outputs]:
    first = ranks[0]
    logits = torch.cat([arguments["vocab_parallel_logits"].double() for arguments in ranks], dim=-1)
    rows, targets = logits.flatten(0, 1).tolist(), first["target"].flatten().tolist()
    values = [log_prob(row, t, first["top_k"], first["top_p"]) for row, t in zip(rows, targets, strict=True)]
    return [[torch.tensor(values, dtype=torch.float64).view_as(first["target"])] for _ in ranks]


MODELS = {21: clip_grad_norm, 27: all_to_all, 54: ring_attention, 55: ring_attention_tp, 82: log_prob_topk}


def own_data_only(problem_id: int, arguments: Arguments, like: Outputs) -> Outputs:
    """What a rank that never communicates could return, in the right shapes."""
    arguments = dict(arguments)
    if problem_id == 27:
        own = arguments["local_tensor"]
        wanted = torch.arange(len(like[0])) % max(1, len(own))
        return [own[wanted] if len(own) else torch.zeros_like(like[0])]
    if problem_id == 55:
        arguments["num_heads"] //= 2
    if problem_id == 82:  # its slice as if it were the vocabulary; a target elsewhere is one that was dropped
        slice_, width = arguments["vocab_parallel_logits"].double(), arguments["vocab_parallel_logits"].shape[-1]
        target = arguments["target"] % width
        return [slice_.log_softmax(-1).gather(-1, target[..., None])[..., 0].float()]
    outputs = MODELS[problem_id]([arguments])[0]
    return [output.to(reference.dtype) for output, reference in zip(outputs, like, strict=True)]


def worst(problem: Problem, ranks: list[Arguments], truth: list[Outputs], outputs: list[Outputs]) -> float:
    """The largest ratio over all outputs of all ranks; the candidate is wrong if it is above 1."""
    ratios = [0.0]
    for rank, arguments in enumerate(ranks):
        dtype = next(t for t in tensors_in(arguments) if t.is_floating_point()).dtype
        context = Context(arguments=arguments, rank=rank, world_size=len(ranks), dtype=dtype)
        assert not isinstance(problem.compare, tuple)
        rules: list[Rule] = [problem.compare]
        for name, rule in problem.mutates.items():
            rules += [rule] * len(tensors_in(arguments[name]))
        for rule, want, got in zip(rules, truth[rank], outputs[rank], strict=True):
            assert want.shape == got.shape
            ratios.append(rule(want, got, context))
    return max(ratios)


def corrupt(output: torch.Tensor) -> torch.Tensor:
    """One element, the largest finite one, off by a quarter."""
    spoilt = output.clone().flatten()
    finite = spoilt.isfinite().nonzero()[:, 0]
    if len(finite):
        index = finite[spoilt[finite].abs().argmax()]
        spoilt[index] = spoilt[index] * 1.25
    return spoilt.view_as(output)


@pytest.mark.parametrize(("problem_id", "world_size", "size", "dtype"), CASES)
def test_reference_is_the_mathematics(world: Worlds, problem_id: int, world_size: int, size: str, dtype: str) -> None:
    problem = get(problem_id)
    assert problem.why_not(size, world_size, dtype) is None
    by_rank = world(world_size).call(run_reference, problem_id, size, dtype, False)
    for index, call in enumerate(CALLS):
        ranks = all_arguments(problem, world_size, size, dtype, call)
        truth = MODELS[problem_id](ranks)
        outputs = [results[index] for results in by_rank]
        want_dtype = torch.float32 if problem_id in (21, 82) else DTYPES[dtype]
        assert {own[0].dtype for own in outputs} == {want_dtype}
        assert worst(problem, ranks, truth, outputs) <= 0.8  # an honest result keeps a distance from failing

        zeros = [[torch.zeros_like(t) for t in own] for own in outputs]
        assert worst(problem, ranks, truth, zeros) > 3
        own_only = [own_data_only(problem_id, ranks[r], outputs[r]) for r in range(world_size)]
        assert worst(problem, ranks, truth, own_only) > 3
        for position in range(len(outputs[0])):
            spoilt = [list(own) for own in outputs]
            rank = max(range(world_size), key=lambda r, p=position: outputs[r][p].numel())  # type: ignore[misc]
            spoilt[rank][position] = corrupt(spoilt[rank][position])
            assert worst(problem, ranks, truth, spoilt) > 1.5


@pytest.mark.parametrize("problem_id", [54, 55])
@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_widened_reference_is_exact(world: Worlds, problem_id: int, size: str) -> None:
    """What the judge takes for the truth: were anything inside still float32, the error would be 1e-7."""
    problem = get(problem_id)
    by_rank = world(4).call(run_reference, problem_id, size, "bf16", True)
    for index, call in enumerate(CALLS):
        truth = MODELS[problem_id](all_arguments(problem, 4, size, "bf16", call))
        for rank in range(4):
            assert by_rank[rank][index][0].dtype == torch.float64
            torch.testing.assert_close(by_rank[rank][index][0], truth[rank][0], rtol=1e-12, atol=1e-13)


def run_by_heads(rank: int, world_size: int, problem_id: int) -> list[tuple[torch.Tensor, torch.Tensor, set[int]]]:
    """On a rank: what the reference returns; what it returns when the scores of one head are all that it may hold; and of how
    many heads at a time it then made products."""
    problem = get(problem_id)
    assert problem.reference_source.count("2**32") == 1
    frugal = dict(vars(sys.modules[problem.reference.__module__]))
    exec(problem.reference_source.replace("2**32", "1"), frugal)
    results = []
    for call in CALLS:
        arguments = draw_arguments(problem, rank=rank, world_size=world_size, size="odd", dtype="fp32", call=call)
        own = own_groups(problem.layout, rank, world_size)
        arguments |= {name: own[ref.axis] for name, ref in arguments.items() if isinstance(ref, GroupRef)}
        whole = problem.reference(**arguments)
        with mock.patch.object(torch, "matmul", wraps=torch.matmul) as matmul:
            by_heads = frugal["solution"](**arguments)
        heads = {one.args[0].shape[1] for one in matmul.call_args_list if one.args[0].dim() == 4}
        results.append((whole, by_heads, heads))
    return results


@pytest.mark.parametrize("problem_id", [54, 56])
def test_attention_by_heads_is_the_same(world: Worlds, problem_id: int) -> None:
    for results in world(4).call(run_by_heads, problem_id):
        for whole, by_heads, heads in results:
            assert heads == {1}
            torch.testing.assert_close(by_heads, whole, rtol=1e-5, atol=1e-6)


def test_calls_differ_where_they_should() -> None:
    clips = []
    for call in range(40):
        ranks = all_arguments(get(21), 2, "tiny", "fp32", call)
        clips.append(bool(clip_grad_norm(ranks)[0][0] > ranks[0]["max_norm"]))
    assert 25 <= sum(clips) < 40
    for problem_id in (54, 55):
        causal = [all_arguments(get(problem_id), 4, "tiny", "fp32", call)[3]["causal"] for call in range(20)]
        assert 4 <= sum(causal) <= 16
    matrices = [[a["input_split_sizes"] for a in all_arguments(get(27), 4, "tiny", "fp32", c)] for c in range(20)]
    pieces = [rows for matrix in matrices for row in matrix for rows in row]
    assert pieces.count(0) > 20
    assert len({str(matrix) for matrix in matrices}) == 20
    for matrix in matrices:
        assert sum(matrix[i][i] for i in range(4)) == 32  # what the cost counts on
        assert sum(map(sum, matrix)) == 4 * 32


def test_norm_of_the_own_rank_is_no_guess() -> None:
    """sqrt(W) times the local norm, and gradients left alone, must both fail."""
    problem = get(21)
    ranks = all_arguments(problem, 4, "tiny", "bf16", 0)
    truth = clip_grad_norm(ranks)
    assert float(truth[0][0]) > ranks[0]["max_norm"]
    guess = [[(clip_grad_norm([a])[0][0] * 2).float(), *t[1:]] for a, t in zip(ranks, truth, strict=True)]
    assert worst(problem, ranks, truth, guess) > 100
    lazy = [[t[0].float(), *a["grad_tensors"]] for a, t in zip(ranks, truth, strict=True)]
    assert worst(problem, ranks, truth, lazy) > 10


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("top_k", "percent"), [(10, 90), (50, 95)])
def test_log_prob_inputs_leave_no_doubt(dtype: str, top_k: int, percent: int) -> None:
    """Sums rounded to the dtype at every step, or not at all, must keep the same logits; dropping ties must not."""
    size = {"batch": 2, "seq": 512, "vocab": 1000, "top_k": top_k, "top_p_percent": percent}
    draws = [
        Draw(secret=SECRET, call=0, rank=r, world_size=4, size=size, dtype=DTYPES[dtype], device=torch.device("cpu"))
        for r in range(4)
    ]
    ranks = [get(82).inputs(draw) for draw in draws]
    assert all(torch.equal(ranks[0]["target"], arguments["target"]) for arguments in ranks)
    logits = torch.cat([arguments["vocab_parallel_logits"] for arguments in ranks], dim=-1).flatten(0, 1)
    target = ranks[0]["target"].flatten()[:, None]
    ascending, index = logits.sort(-1)
    kth = ascending[:, -top_k, None]

    def answer(compute: torch.dtype, step: torch.dtype, *, ties: bool) -> torch.Tensor:
        stays = ascending >= kth
        if not ties:
            stays[:, :-top_k] = False
        kept_by_k = ascending.to(compute).masked_fill(~stays, float("-inf"))
        total = torch.zeros(len(logits), dtype=step)
        keep = torch.zeros_like(stays)
        for column, probability in enumerate(kept_by_k.softmax(-1).to(step).unbind(1)):
            total = total + probability
            keep[:, column] = total > torch.tensor(1 - percent / 100, dtype=step)
        keep[:, -1] = True
        keep &= stays
        kept = torch.full_like(logits, float("-inf"), dtype=torch.float64)
        kept.scatter_(1, index, ascending.double().masked_fill(~keep, float("-inf")))
        return kept.log_softmax(-1).gather(1, target)[:, 0]

    exact = answer(torch.float64, torch.float64, ties=True)
    own = DTYPES[dtype]
    torch.testing.assert_close(answer(own, own, ties=True), exact, rtol=0, atol=1e-9)
    without_ties = answer(torch.float64, torch.float64, ties=False)
    assert float(((without_ties - exact).abs() > 1e-3).float().mean()) > 0.1
    assert 0.2 < float(exact.isinf().float().mean()) < 0.6
    assert len(exact[exact.isfinite()].unique()) > 300
    slices = (index[:, -top_k:] // 250).double()
    alone = (slices.amax(-1) == slices.amin(-1)).float().mean()
    assert 0.05 < float(alone) < 0.9  # rows with all leaders on one rank, and others


@pytest.mark.parametrize("problem_id", IDS)
@pytest.mark.parametrize("size", ["paper", "real"])
def test_large_sizes_are_described_without_drawing_them(problem_id: int, size: str) -> None:
    problem = get(problem_id)
    assert problem.why_not(size, 8, "bf16") is None
    assert 0 < 8 * problem.argument_bytes(size, 8, "bf16") < 40e9
    cost = problem.cost(problem.sizes[size], 8, 2)
    assert cost.hbm_bytes > 0
    assert cost.link_received_bytes > 0


def test_what_cannot_run_says_why() -> None:
    assert "3 ranks" in (get(55).why_not("tiny", 3, "bf16") or "")
    assert "33 ranks" in (get(54).why_not("tiny", 33, "bf16") or "")
    assert "too few for 4 ranks" in (get(54).requires({"tokens": 3}, 4) or "")
    assert get(54).why_not("real", 2, "bf16") is None
