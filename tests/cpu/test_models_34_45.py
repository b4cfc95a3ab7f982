"""Problems 34 to 45 against their mathematics, written a second time in one process (long: twelve models, one harness).

The arguments of all ranks are drawn here; what every rank must return is worked out in float64 from the whole problem
(one concatenation, one attention over the whole sequence, torch's own Adam) and compared, by the problem's own rules,
with the references on real ranks. Each rule is then shown results that it must refuse: a spoilt element, and what comes
out if one step of the problem is left out or taken for another.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from world import World

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context, Rule
from pkb.problems.draw import Draw, GroupRef
from pkb.problems.p44_quantized_grad_allreduce import CLEARANCE

Worlds = Callable[[int], World]
Arguments = dict[str, Any]
Outputs = list[torch.Tensor]

SECRET = b"models of 34 to 45"
CALLS = (0, 1, 2)
CASES = [(i, w, size, d) for i in range(34, 46) for w in (2, 4) for size in ("tiny", "odd") for d in ("fp32", "bf16")]


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


def run_reference(rank: int, world_size: int, problem_id: int, size: str, dtype: str, widen: bool) -> list[Outputs]:
    """On a rank: the outputs of several calls."""
    problem = get(problem_id)
    results = []
    for call in CALLS:
        arguments = draw_arguments(problem, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call)
        for name, value in arguments.items():
            if isinstance(value, GroupRef):
                arguments[name] = dist.group.WORLD
            elif widen and isinstance(value, torch.Tensor):
                arguments[name] = value.double()
        before = [tensor.clone() for tensor in tensors_in(arguments)]
        outputs = tensors_in(problem.reference(*arguments.values()))
        after = tensors_in(arguments)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), "the reference changed an argument"
        own = {t.untyped_storage().data_ptr() for t in after if t.numel()}
        assert not any(t.untyped_storage().data_ptr() in own for t in outputs if t.numel()), "an argument is returned"
        results.append([output.clone() for output in outputs])
    return results


# The mathematics: from the arguments of all ranks to the outputs of all ranks.


def whole(ranks: list[Arguments], name: str, dim: int) -> torch.Tensor:
    return torch.cat([arguments[name].double() for arguments in ranks], dim=dim)


def gather_rows(ranks: list[Arguments]) -> list[Outputs]:
    return [[whole(ranks, "x", 0)]] * len(ranks)


def gather_variable(ranks: list[Arguments]) -> list[Outputs]:
    return [[whole(ranks, "x", ranks[0]["gather_dim"])]] * len(ranks)


def unpad(tensor: torch.Tensor, dim: int, length: int | None, ranks: int) -> torch.Tensor:
    if not length or length % ranks == 0:
        return tensor
    return tensor.index_select(dim, torch.arange(length))


def to_heads(ranks: list[Arguments], *, cut: bool = True) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    parts = whole(ranks, "x", first["seq_dim"]).chunk(w, dim=first["head_dim"])
    return [[unpad(p, first["seq_dim"], first["unpadded_dim_size"] if cut else 0, w)] for p in parts]


def to_positions(ranks: list[Arguments]) -> list[Outputs]:
    seq_dim, w = ranks[0]["seq_dim"], len(ranks)
    heads = whole(ranks, "x", ranks[0]["head_dim"]).movedim(seq_dim, 0)
    part = math.ceil(len(heads) / w)
    padded = torch.cat([heads, torch.zeros(part * w - len(heads), *heads.shape[1:], dtype=torch.float64)])
    return [[padded[r * part : (r + 1) * part].movedim(0, seq_dim)] for r in range(w)]


def qkv_to_heads(ranks: list[Arguments]) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    qkv = whole(ranks, "qkv_tensor", first["seq_dim"]).chunk(3, dim=-1)
    outputs = []
    for r in range(w):
        own = [unpad(t.chunk(w, dim=-1)[r], first["seq_dim"], first["unpadded_dim_size"], w) for t in qkv]
        outputs.append([torch.cat(own, dim=-1) if first["restore_shape"] else torch.stack(own, dim=-2)])
    return outputs


def attention_layer(ranks: list[Arguments], *, over: str = "positions", mask: bool = True) -> list[Outputs]:
    first = ranks[0]
    x = whole(ranks, "hidden_states", 1)
    q, k, v = ((x @ w.T).unflatten(-1, (first["num_heads"], -1)) for w in first["w_qkv"].double().chunk(3))
    if over == "heads":  # what upstream computes by mistake, with all heads in one group
        context = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v
    else:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        if first["causal"] and mask:
            position = torch.arange(x.shape[1])
            scores = scores.masked_fill(position[:, None] < position[None, :], float("-inf"))
        context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    out = context.flatten(2) @ first["w_o"].double().T
    return [[part] for part in out.chunk(len(ranks), dim=1)]


PARAMETERS = ("W1", "b1", "W2", "b2")


def gradients(arguments: Arguments, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [p.double().requires_grad_() for p in parameters]
    W1, b1, W2, b2 = leaves
    out = torch.relu(arguments["X_local"].double() @ W1.T + b1) @ W2.T + b2
    return list(torch.autograd.grad((out - arguments["y_local"].double()).square().mean(), leaves))


def adam(
    arguments: Arguments, p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, **changed: Any
) -> Outputs:
    """One step of torch's own optimizer; the new parameter, first and second moment."""
    given = arguments | changed
    leaf = p.double().clone().requires_grad_()
    leaf.grad = g.double()
    optimizer = torch.optim.Adam([leaf], lr=given["lr"], betas=(given["beta1"], given["beta2"]), eps=given["eps"])
    state = optimizer.state[leaf]
    state["step"] = torch.tensor(float(given["step"] - 1))
    state["exp_avg"], state["exp_avg_sq"] = m.double().clone(), v.double().clone()
    optimizer.step()
    return [leaf.detach(), state["exp_avg"], state["exp_avg_sq"]]


def ddp(ranks: list[Arguments], *, own: str = "", mean: bool = True, **changed: Any) -> list[Outputs]:
    """`own`: which of parameters, gradients, m and v a rank wrongly takes from itself."""
    outputs = []
    of_all = [gradients(a, [ranks[0][name] for name in PARAMETERS]) for a in ranks]
    for r, arguments in enumerate(ranks):
        p, m, v = (ranks[r if what in own.split() else 0] for what in ("p", "m", "v"))
        rows = []
        for i, name in enumerate(PARAMETERS):
            g = sum(g[i] for g in of_all) / (len(ranks) if mean else 1) if own != "g" else of_all[r][i]
            rows.append(adam(arguments, p[name], g, m[f"exp_avg_{name}"], v[f"exp_avg_sq_{name}"], **changed))  # type: ignore[arg-type]
        outputs.append([row[k] for k in range(3) for row in rows])
    return outputs


def zero(ranks: list[Arguments], *, own: str = "", mean: bool = True, **changed: Any) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    shapes = [first[name].shape for name in PARAMETERS]
    flat = torch.cat([first[name].double().flatten() for name in PARAMETERS])
    of_all = [torch.cat([g.flatten() for g in gradients(a, [first[n] for n in PARAMETERS])]) for a in ranks]
    total = sum(of_all) / (w if mean else 1)
    part = len(flat) // w
    assert len(flat) == part * w
    updated = []
    for r, arguments in enumerate(ranks):
        mine = slice(r * part, (r + 1) * part)
        g = of_all[r] if own == "g" else total
        p = torch.cat([arguments[n].double().flatten() for n in PARAMETERS]) if own == "p" else flat
        updated.append(
            adam(arguments, p[mine], g[mine], arguments["exp_avg_part"], arguments["exp_avg_sq_part"], **changed)  # type: ignore[index]
        )
    pieces = torch.cat([own_part[0] for own_part in updated]).split([s.numel() for s in shapes])
    parameters = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    return [[*parameters, *own_part[1:]] for own_part in updated]


def adam_gather(ranks: list[Arguments], *, without: str = "", **changed: Any) -> list[Outputs]:
    parts = []
    for a in ranks:
        given = a | {name: torch.zeros_like(a[name]) for name in without.split()}
        parts.append(adam(a, a["master_shard"], given["grad_shard"], given["exp_avg"], given["exp_avg_sq"], **changed))
    return [[torch.cat([part[0] for part in parts])]] * len(ranks)


def quantise(values: np.ndarray, block: int) -> np.ndarray:
    out = np.empty_like(values)
    for start in range(0, len(values), block):
        piece = values[start : start + block]
        scale = max(np.abs(piece).max(), 1e-8) / 127
        code = piece / scale
        assert np.abs(np.abs(code - np.floor(code)) - 0.5).min() > 0.9 * CLEARANCE  # the promise of the inputs
        out[start : start + block] = np.clip(np.rint(code), -127, 127) * scale
    return out


def quantised_mean(ranks: list[Arguments], *, how: str = "") -> list[Outputs]:
    block = ranks[0]["block_size"]
    own = [a["flat_grad"].double().numpy() for a in ranks]
    terms = own if how == "plain" else [quantise(values, block) for values in own]
    mean = np.stack(terms).mean(axis=0)
    if how == "again":  # as ZeRO++ does before the second exchange
        padded = np.resize(mean, (len(mean) // block, block))
        scale = np.abs(padded).max(axis=1, keepdims=True).clip(1e-8) / 127
        mean[: padded.size] = (np.rint(padded / scale) * scale).flatten()
    return [[torch.from_numpy(mean)]] * len(ranks)


def mean_rmsnorm(ranks: list[Arguments], *, divide: bool = True, eps: bool = True) -> list[Outputs]:
    first, w = ranks[0], len(ranks)
    gamma = first["gamma"].double().numpy()
    mean = np.stack([a["rs_input_1d"].double().numpy() for a in ranks]).sum(0) / (w if divide else 1)
    rows = mean.reshape(w, -1, len(gamma))
    y = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + (first["eps"] if eps else 0.0)) * gamma
    return [[torch.from_numpy(y[r])] for r in range(w)]


MODELS: dict[int, Callable[..., list[Outputs]]] = {
    34: gather_rows, 35: gather_variable, 36: to_heads, 37: to_positions, 38: qkv_to_heads, 39: attention_layer,
    40: ddp, 41: zero, 42: zero, 43: adam_gather, 44: quantised_mean, 45: mean_rmsnorm,
}  # fmt: skip


def worst(problem: Problem, ranks: list[Arguments], truth: list[Outputs], outputs: list[Outputs]) -> float:
    """The largest ratio over all outputs of all ranks; the candidate is wrong if it is above 1."""
    ratios = [0.0]
    for rank, arguments in enumerate(ranks):
        dtype = next(t for t in tensors_in(arguments) if t.is_floating_point()).dtype
        context = Context(arguments=arguments, rank=rank, world_size=len(ranks), dtype=dtype)
        rules: tuple[Rule, ...] = problem.compare if isinstance(problem.compare, tuple) else (problem.compare,)
        for rule, want, got in zip(rules, truth[rank], outputs[rank], strict=True):
            assert want.shape == got.shape
            ratios.append(rule(want, got, context))
    return max(ratios)


def narrow(outputs: list[Outputs], dtype: torch.dtype) -> list[Outputs]:
    return [[tensor.to(dtype) for tensor in own] for own in outputs]


def corrupt(output: torch.Tensor) -> torch.Tensor:
    """One element, the largest, off by a quarter."""
    spoilt = output.clone().flatten()
    index = spoilt.abs().argmax()
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
        assert {t.dtype for own in outputs for t in own} == {DTYPES[dtype]}
        assert worst(problem, ranks, truth, outputs) <= 0.75  # an honest result keeps a distance from failing

        zeros = [[torch.zeros_like(t) for t in own] for own in outputs]
        assert worst(problem, ranks, truth, zeros) > 10
        for position in range(len(outputs[0])):
            spoilt = [list(own) for own in outputs]
            rank = max(range(world_size), key=lambda r, p=position: outputs[r][p].abs().sum())  # type: ignore[misc]
            spoilt[rank][position] = corrupt(spoilt[rank][position])
            assert worst(problem, ranks, truth, spoilt) > 1.5


@pytest.mark.parametrize("problem_id", range(39, 46))
def test_widened_reference_is_exact(world: Worlds, problem_id: int) -> None:
    """What the judge takes for the truth: were anything inside still float32, the error would be 1e-7."""
    problem = get(problem_id)
    by_rank = world(4).call(run_reference, problem_id, "odd", "bf16", True)
    for index, call in enumerate(CALLS):
        truth = MODELS[problem_id](all_arguments(problem, 4, "odd", "bf16", call))
        for rank in range(4):
            for want, got in zip(truth[rank], by_rank[rank][index], strict=True):
                assert got.dtype == torch.float64
                assert float((got - want).norm() / want.norm()) < 1e-12


# Every step matters: the problem without it must be told from the whole. Values are float64, so what is measured is the
# mistake alone. Of several calls one must be refused, since no step is felt in every call (a mask, a cut).

MISTAKES: dict[str, tuple[int, Callable[..., list[Outputs]]]] = {
    "attention over heads": (39, partial(attention_layer, over="heads")),
    "attention without the mask": (39, partial(attention_layer, mask=False)),
    "attention to own positions": (39, lambda ranks: [attention_layer([a])[0] for a in ranks]),
    "ddp, own parameters": (40, partial(ddp, own="p")),
    "ddp, own gradients": (40, partial(ddp, own="g")),
    "ddp, own first moments": (40, partial(ddp, own="m")),
    "ddp, own second moments": (40, partial(ddp, own="v")),
    "ddp, summed gradients": (40, partial(ddp, mean=False)),
    "ddp, no bias correction": (40, partial(ddp, step=10**6)),
    "ddp, no eps": (40, partial(ddp, eps=0.0)),
    "zero1, own gradients": (41, partial(zero, own="g")),
    "zero1, own parameters": (41, partial(zero, own="p")),
    "zero1, summed gradients": (41, partial(zero, mean=False)),
    "zero1, no update": (41, partial(zero, lr=0.0)),
    "zero2, own gradients": (42, partial(zero, own="g")),
    "zero2, no eps": (42, partial(zero, eps=0.0)),
    "zero2, no bias correction": (42, partial(zero, step=10**6)),
    "adam, no update": (43, partial(adam_gather, lr=0.0)),
    "adam, no gradient": (43, partial(adam_gather, without="grad_shard")),
    "adam, no first moment": (43, partial(adam_gather, without="exp_avg")),
    "adam, no second moment": (43, partial(adam_gather, without="exp_avg_sq")),
    "adam, no bias correction": (43, partial(adam_gather, step=10**6)),
    "adam, no eps": (43, partial(adam_gather, eps=0.0)),
    "gradients not quantised": (44, partial(quantised_mean, how="plain")),
    "gradients quantised again": (44, partial(quantised_mean, how="again")),
    "norm of the sum": (45, partial(mean_rmsnorm, divide=False)),
    "norm without eps": (45, partial(mean_rmsnorm, eps=False)),
}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_step_matters(mistake: str, dtype: str) -> None:
    problem_id, wrong = MISTAKES[mistake]
    problem = get(problem_id)
    margins = []
    for call in range(6):
        ranks = all_arguments(problem, 4, "tiny", dtype, call)
        margins.append(worst(problem, ranks, MODELS[problem_id](ranks), narrow(wrong(ranks), DTYPES[dtype])))
    assert max(margins) > 5, margins
    if "mask" not in mistake:
        assert min(margins) > 2, margins


@pytest.mark.parametrize("problem_id", [40, 41, 43])
def test_honest_rounding_keeps_a_distance(problem_id: int) -> None:
    """Other sound ways through the dtype: everything in float64, rounded once; every argument's rounding kept."""
    problem = get(problem_id)
    for call in range(20):
        ranks = all_arguments(problem, 2, "odd", "bf16", call)
        truth = MODELS[problem_id](ranks)
        assert worst(problem, ranks, truth, narrow(truth, torch.bfloat16)) < 0.5


def test_calls_differ_where_they_should() -> None:
    def calls(problem_id: int) -> list[Arguments]:
        return [all_arguments(get(problem_id), 4, "tiny", "fp32", call)[1] for call in range(40)]

    shards = [
        [len(a["x"]) for a in all_arguments(get(35), 4, "tiny", "fp32", c) if not a["gather_dim"]] for c in range(40)
    ]
    filled = [sizes for sizes in shards if sizes]
    assert 10 < len(filled) < 30
    assert all(sum(sizes) == 4 * 32 for sizes in filled)  # what the cost counts on
    assert any(0 in sizes for sizes in filled)
    assert sum(len(set(sizes)) > 1 for sizes in filled) > len(filled) // 2

    for problem_id in (36, 38):
        lengths = [a["unpadded_dim_size"] for a in calls(problem_id)]
        assert sum(bool(n) and n % 4 != 0 for n in lengths) > 8  # a cut
        assert sum(bool(n) and n % 4 == 0 and n < 32 for n in lengths) >= 1  # a smaller multiple of W: no cut
        assert sum(not n for n in lengths) > 8
    for problem_id in (36, 37):
        assert {(a["seq_dim"], a["head_dim"]) for a in calls(problem_id)} == {(1, 2), (2, 1), (0, 2)}
    assert {a["x"].shape[a["seq_dim"]] for a in calls(37)} == {21, 22, 23, 24}
    assert {a["restore_shape"] for a in calls(38)} == {True, False}
    assert 8 < sum(a["causal"] for a in calls(39)) < 32
    assert {a["step"] for a in calls(40)} == set(range(1, 8))


def wrong_arguments(rank: int, world_size: int) -> list[str]:
    """On a rank: which reference accepts arguments that it must refuse."""
    x, flat = torch.ones(2, 4, 6), torch.ones(10)
    weights = (torch.ones(3, 2), torch.ones(3), torch.ones(2, 3), torch.ones(2))
    adam_options = (0.1, 0.9, 0.99, 1e-8)
    cases: list[tuple[int, tuple[Any, ...]]] = [
        (34, (torch.tensor(1.0),)),
        (35, (torch.ones(2 + rank, 3 + rank), 0)),  # another axis differs
        (35, (x, 3)),
        (36, (x, 1, 1)),
        (36, (torch.ones(2, 4, 5), 1, 2)),
        (36, (x, 1, 2, None, 9)),
        (37, (x, 2, -1)),
        (38, (x, 2)),
        (38, (torch.ones(2, 4, 9), 1)),
        (39, (x, torch.ones(18, 6), torch.ones(6, 6), None, 3)),
        (40, (torch.ones(1, 2), torch.ones(1, 2), *weights * 3, *adam_options, 0)),
        (41, (torch.ones(1, 2), torch.ones(1, 2), *weights, torch.ones(3), torch.ones(3), *adam_options, 1)),
        (42, (torch.ones(1, 2), torch.ones(1, 2), *weights, torch.ones(3), torch.ones(3), *adam_options, 1)),
        (43, (flat, flat, flat, torch.ones(9), *adam_options, 1)),
        (43, (flat, flat, flat, flat, *adam_options, 0)),
        (44, (flat, 0)),
        (45, (flat, torch.ones(4), 1e-5)),
    ]
    accepted = []
    for problem_id, arguments in cases:
        try:
            get(problem_id).reference(*arguments)
        except ValueError:
            continue
        accepted.append(f"{problem_id} {arguments}")
    return accepted


def test_references_refuse_what_they_cannot_do(world: Worlds) -> None:
    assert world(2).call(wrong_arguments) == [[], []]


def test_negative_axes_count_from_the_end(world: Worlds) -> None:
    by_rank = world(2).call(exchange_with_negative_axes)
    for forward, named, back in by_rank:
        assert torch.equal(forward, named)
        assert torch.equal(back, torch.ones(2, 3, 4, 5) * torch.arange(3)[:, None, None])


def exchange_with_negative_axes(rank: int, world_size: int) -> Outputs:
    """On a rank: heads out and back again, with the axes named both ways."""
    x = torch.ones(2, 3, 4, 5) * torch.arange(3)[:, None, None]
    forward = get(36).reference(x, -3, -2)
    return [forward, get(36).reference(x, 1, 2), get(37).reference(forward, -3, -2)]
