"""Problems 22-26 and 28-33 against their mathematics, written a second time in one process.

The arguments of all ranks are drawn here; what every rank must return, and what it must leave in arguments that it
changes, is worked out in float64 without any splitting, sending or sorting into buffers (a row is looked up by its token
and expert, a norm is taken over everything at once), and compared, by the problem's own rules, with the references on
real ranks. Each rule is then shown results that it must refuse, those of ranks that never communicate among them.
"""

import copy
import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from world import RankError, World

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context, Rule
from pkb.problems.draw import Draw, GroupRef
from pkb.problems.layouts import groups
from pkb.rank.comparison.null_candidates import communication_removed

Worlds = Callable[[int], World]
Arguments = dict[str, Any]
Outputs = list[torch.Tensor]
"""The tensors that a rank returns, followed by those of the arguments that it changes."""

SECRET = b"models 22 to 33"
IDS = (22, 23, 24, 25, 26, 28, 29, 30, 31, 32, 33)
CALLS = (0, 1, 2)
CASES = list(product(IDS, (2, 4), ("tiny", "odd"), ("fp32", "bf16")))
FLOAT32_RESULT = (22, 24, 25, 26)
"""Problems whose first output keeps its dtype whatever the arguments' dtype is (int64 in 26)."""


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


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(value).double()
    return type(value)(map(widened, value)) if isinstance(value, list | tuple) else value


def prepared(problem: Problem, arguments: Arguments, rank: int, world_size: int) -> Arguments:
    mine = own_groups(problem.layout, rank, world_size)
    return {k: mine[v.axis] if isinstance(v, GroupRef) else v for k, v in arguments.items()}


def run_reference(
    rank: int, world_size: int, problem_id: int, size: str, dtype: str, widen: bool = False, alone: bool = False
) -> list[Outputs]:
    """On a rank: the outputs of several calls."""
    problem = get(problem_id)
    results = []
    for call in CALLS:
        drawn = draw_arguments(problem, rank=rank, world_size=world_size, size=size, dtype=dtype, call=call)
        arguments = prepared(problem, drawn, rank, world_size)
        if widen:
            arguments = {name: widened(value) for name, value in arguments.items()}
        fixed = tensors_in([value for name, value in arguments.items() if name not in problem.mutates])
        before = [tensor.clone() for tensor in fixed]
        if alone:
            with communication_removed():
                output = problem.reference(**arguments)
        else:
            output = problem.reference(**arguments)
        for was, now in zip(before, fixed, strict=True):
            assert torch.allclose(was, now, rtol=0, atol=0, equal_nan=True), "the reference changed an argument"
        if problem_id == 28:
            hidden = arguments["hidden_states"]
            assert output[3] == torch.Size((hidden.numel() // hidden.shape[-1], hidden.shape[-1]))
        if problem_id == 30:
            assert all(a is b for a, b in zip(output, arguments.values(), strict=False)), "not the arguments themselves"
        changed = tensors_in([arguments[name] for name in problem.mutates])
        results.append([tensor.clone() for tensor in [*tensors_in(output), *changed]])
    return results


# The mathematics: from the arguments of all ranks to the outputs of all ranks.


def clip_grad_norm_ep(ranks: list[Arguments]) -> list[Outputs]:
    shared = [[g.double() for g in a["non_ep_grad_tensors"]] for a in ranks]
    expert = [[g.double() / a["ep_size"] for g in a["ep_grad_tensors"]] for a in ranks]
    everything = torch.cat([g.flatten() for own in [*shared, *expert] for g in own])
    norm = everything.square().sum().sqrt()
    factor = min(1.0, ranks[0]["max_norm"] / float(norm))
    return [[norm, *(g * factor for g in [*a, *b])] for a, b in zip(shared, expert, strict=True)]


def grad_acc_loss(ranks: list[Arguments]) -> list[Outputs]:
    counts = [int(a["local_valid_tokens"]) for a in ranks]
    total = sum(counts)
    assert all(int(a["global_valid_tokens"]) == total for a in ranks)
    loss_sum = math.fsum(n * float(a["loss"]) for n, a in zip(counts, ranks, strict=True) if n)
    outputs = []
    for n, a in zip(counts, ranks, strict=True):
        slope = float(a["grad_normalized_loss"]) / total
        slope += 0.0 if a["grad_loss_sum"] is None else float(a["grad_loss_sum"])
        outputs.append([torch.tensor(v, dtype=torch.float64) for v in (loss_sum / total, loss_sum, slope * n)])
    return outputs


def load_balancing_loss(ranks: list[Arguments]) -> list[Outputs]:
    """By hand, token by token."""
    losses = []
    for a in ranks:
        layers = a["gate_logits"] if isinstance(a["gate_logits"], tuple) else (a["gate_logits"],)
        tokens = len(layers[0])
        keep = [1] * tokens if a["attention_mask"] is None else a["attention_mask"].flatten().tolist()
        chosen, mass = np.zeros(a["num_experts"]), np.zeros(a["num_experts"])
        for layer in layers:
            for row, counted in zip(layer.double().numpy(), keep, strict=True):
                if counted:
                    chosen[np.argsort(-row)[: a["top_k"]]] += 1
                    mass += np.exp(row) / np.exp(row).sum()
        valid = len(layers) * sum(keep)
        losses.append(a["num_experts"] * float(chosen @ mass) / valid**2)
    return [[torch.tensor(math.fsum(losses) / len(losses), dtype=torch.float64)] for _ in ranks]


def importance_sampling_loss(ranks: list[Arguments]) -> list[Outputs]:
    token_outputs, valid_tokens = [], []
    for a in ranks:
        logits = a["hidden_states"].double() @ a["weight"].double().T
        logprob, loss = torch.zeros(len(logits)).double(), torch.zeros(len(logits)).double()
        for t, label in enumerate(a["labels"].tolist()):
            if label == a["ignore_index"]:
                continue
            logprob[t] = logits[t, label] - logits[t].logsumexp(0)
            d = max(-20.0, min(20.0, float(logprob[t]) - float(a["old_logprobs"][t])))
            loss[t] = -math.exp(d) * float(a["advantages"][t])
            valid_tokens.append((math.exp(d), math.exp(d) - d - 1, -float(logprob[t]), float(loss[t])))
        token_outputs.append([logprob, loss])
    ratio, kl, nll, losses = np.array(valid_tokens).T
    metrics = torch.tensor([ratio.mean(), ratio.min(), ratio.max(), kl.mean(), nll.mean()])
    return [[torch.tensor(losses.mean()), *own, metrics] for own in token_outputs]


def choices(mask: torch.Tensor) -> list[tuple[int, int]]:
    """The (expert, token) pairs of a one-hot mask (E, K, T), with repetitions, in the order expert, token."""
    return sorted((int(x), t) for column in mask.argmax(dim=0) for t, x in enumerate(column))


def token_preprocess(ranks: list[Arguments]) -> list[Outputs]:
    w, experts = len(ranks), ranks[0]["num_experts"]
    table = np.zeros((w, experts), dtype=np.int64)
    for source, a in enumerate(ranks):
        for expert, _ in choices(a["expert_mask"]):
            table[source, expert] += 1
    by_owner = table.reshape(w, w, -1)
    outputs = []
    for rank in range(w):
        here = by_owner[:, rank]
        arrays = (by_owner[rank].sum(axis=1), here.sum(axis=1), here, here.sum(axis=0))
        outputs.append([torch.from_numpy(np.ascontiguousarray(array)) for array in arrays])
    return outputs


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


def lora_backward(ranks: list[Arguments]) -> list[Outputs]:
    sums = [sum(a[name].double() for a in ranks) for name in list(ranks[0])[:3]]
    return [[*sums, *sums] for _ in ranks]


def fused_moe(ranks: list[Arguments]) -> list[Outputs]:
    local = ranks[0]["num_experts"] // len(ranks)

    def layer(x: torch.Tensor, a: Arguments, name: str) -> torch.Tensor:
        linear = a[f"{name}_proj"]
        out = x @ linear.weight.double().T + linear.bias.double()
        if f"lora_{name}_A" in a:
            out = out + x @ (a[f"lora_{name}_B"].double() @ a[f"lora_{name}_A"].double()).T
        return out

    outputs = []
    for a in ranks:
        x = a["hidden_states"].double().flatten(0, -2)
        logits = x @ a["gate_weight"].double().T
        logits = logits if a["gate_bias"] is None else logits + a["gate_bias"].double()
        ordered = logits.sort(descending=True, dim=1).values
        clearance = ordered[:, a["top_k"] - 1] - ordered[:, a["top_k"]]
        assert not len(x) or float(clearance.min()) > 0.15, "the promise of the inputs: no route is in doubt"
        weights = (logits.exp() / logits.exp().sum(1, keepdim=True)) * (logits >= ordered[:, a["top_k"] - 1, None])
        out = torch.zeros_like(x)
        for owner, b in enumerate(ranks):
            gate, up = layer(x, b, "gate"), layer(x, b, "up")
            share = weights[:, owner * local : (owner + 1) * local].sum(1, keepdim=True)
            out += share * layer(gate / (1 + (-gate).exp()) * up, b, "down")
        outputs.append([out])
    return outputs


def ulysses_all_to_all(ranks: list[Arguments]) -> list[Outputs]:
    w, scatter, gather = len(ranks), ranks[0]["scatter_dim"], ranks[0]["gather_dim"]
    blocks = [np.split(a["x"].double().numpy(), w, axis=scatter) for a in ranks]
    return [[torch.from_numpy(np.concatenate([own[r] for own in blocks], axis=gather))] for r in range(w)]


MODELS: dict[int, Callable[[list[Arguments]], list[Outputs]]] = {
    22: clip_grad_norm_ep, 23: grad_acc_loss, 24: load_balancing_loss, 25: importance_sampling_loss,
    26: token_preprocess, 28: pre_all2all, 29: post_all2all, 30: lora_backward, 31: fused_moe, 32: fused_moe,
    33: ulysses_all_to_all,
}  # fmt: skip


def worst(problem: Problem, ranks: list[Arguments], truth: list[Outputs], outputs: list[Outputs], dtype: str) -> float:
    """The largest ratio over all outputs of all ranks; the candidate is wrong if it is above 1."""
    ratios = [0.0]
    for rank, arguments in enumerate(ranks):
        context = Context(arguments=arguments, rank=rank, world_size=len(ranks), dtype=DTYPES[dtype])
        changed = [rule for name, rule in problem.mutates.items() for _ in tensors_in(arguments[name])]
        returned = len(truth[rank]) - len(changed)
        rules: list[Rule] = (
            list(problem.compare) if isinstance(problem.compare, tuple) else [problem.compare] * returned
        )
        for rule, want, got in zip([*rules, *changed], truth[rank], outputs[rank], strict=True):
            if want.shape != got.shape:
                return math.inf
            ratios.append(rule(want, got, context))
    return max(ratios)


def corrupt(output: torch.Tensor) -> torch.Tensor:
    """One element, the largest, off by a quarter and a bit."""
    spoilt = output.clone().flatten()
    if not len(spoilt):
        return output
    index = spoilt.double().abs().argmax()
    value = spoilt[index].item()
    spoilt[index] = value + math.copysign(abs(value) / 4 + 0.25, value) if output.is_floating_point() else value + 1
    return spoilt.view_as(output)


@pytest.mark.parametrize(("problem_id", "world_size", "size", "dtype"), CASES)
def test_reference_is_the_mathematics(world: Worlds, problem_id: int, world_size: int, size: str, dtype: str) -> None:
    problem = get(problem_id)
    assert problem.why_not(size, world_size, dtype) is None
    by_rank = world(world_size).call(run_reference, problem_id, size, dtype)
    silent = world(world_size).call(run_reference, problem_id, size, dtype, False, True)
    truths = [MODELS[problem_id](all_arguments(problem, world_size, size, dtype, call)) for call in CALLS]
    for index, call in enumerate(CALLS):
        ranks, truth = all_arguments(problem, world_size, size, dtype, call), truths[index]
        outputs = [results[index] for results in by_rank]
        if problem_id not in FLOAT32_RESULT:
            assert {own[0].dtype for own in outputs} == {DTYPES[dtype]}
        assert worst(problem, ranks, truth, outputs, dtype) <= 0.8  # an honest result keeps a distance from failing

        wrong = {
            "zeros": [[torch.zeros_like(t) for t in own] for own in outputs],
            "the next call": [results[(index + 1) % len(CALLS)] for results in by_rank],
            "no communication": [results[index] for results in silent],
        }
        for name, other in wrong.items():
            assert worst(problem, ranks, truth, other, dtype) > 3, name
        for position in range(len(outputs[0])):
            spoilt = [list(own) for own in outputs]
            rank = max(range(world_size), key=lambda r, p=position: outputs[r][p].numel())  # type: ignore[misc]
            if spoilt[rank][position].numel():
                spoilt[rank][position] = corrupt(spoilt[rank][position])
                assert worst(problem, ranks, truth, spoilt, dtype) > 1.5


@pytest.mark.parametrize("problem_id", [i for i in IDS if get(i).truth == "float64"])
@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_widened_reference_is_exact(world: Worlds, problem_id: int, size: str) -> None:
    """What the judge takes for the truth: were anything inside still float32, the error would be 1e-7."""
    problem = get(problem_id)
    by_rank = world(4).call(run_reference, problem_id, size, "bf16", True)
    for index, call in enumerate(CALLS):
        truth = MODELS[problem_id](all_arguments(problem, 4, size, "bf16", call))
        for got, want in ((g, w) for rank in range(4) for g, w in zip(by_rank[rank][index], truth[rank], strict=True)):
            assert got.dtype == torch.float64
            torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


REFUSED: dict[str, tuple[int, Arguments]] = {
    "norm_type": (22, {"norm_type": math.inf}),
    "top 2 of 7": (24, {"num_experts": 7}),
    "mask of 5": (24, {"attention_mask": torch.ones(1, 5)}),
    "do not fit labels": (25, {"labels": torch.zeros(3, dtype=torch.int64)}),
    "7 experts": (26, {"num_experts": 7}),
    "do not add up": (28, {"input_splits": [1, 1]}),
    "not the row sums": (28, {"output_splits": [0, 1]}),
    "do not fit 0 rows": (29, {"expert_outputs": torch.zeros(0, 16)}),
    "must be contiguous": (30, {"grad_fc2_lora_B": torch.zeros(4, 48).t()}),
    "of 7 experts": (31, {"num_experts": 7}),
    "adapters": (32, {"lora_up_B": torch.zeros(24, 3)}),
    "equal chunks": (33, {"x": torch.zeros(3, 3), "scatter_dim": 0}),
}


def run_with(rank: int, world_size: int, problem_id: int, change: Arguments) -> None:
    problem = get(problem_id)
    drawn = draw_arguments(problem, rank=rank, world_size=world_size, size="tiny", dtype="fp32", call=0) | change
    problem.reference(**prepared(problem, drawn, rank, world_size))


@pytest.mark.parametrize("message", REFUSED)
def test_constraints_raise_on_every_rank(world: Worlds, message: str) -> None:
    with pytest.raises(RankError, match=f"ValueError.*{message}") as caught:
        world(2).call(run_with, *REFUSED[message])
    assert len(caught.value.failures) == 2


def test_reference_22_joins_the_sums_without_experts(world: Worlds) -> None:
    """Rank 1 holds no expert gradient: it must not wait elsewhere, and still get the norm of all."""
    norms = world(2).call(norm_with_one_empty_list)
    assert norms[0] == norms[1] == pytest.approx(math.sqrt(2 * 9 + 4 * 4 / 4))


def norm_with_one_empty_list(rank: int, world_size: int) -> float:
    mine = own_groups("ep_fsdp", rank, world_size)
    expert = [torch.full((4,), 2.0)] if rank == 0 else []
    norm = get(22).reference(
        [torch.full((1,), 3.0)], expert, 100.0, ep_size=2, fsdp_group=mine["world"], ep_group=mine["ep"]
    )
    assert rank or bool((expert[0] == 1.0).all())  # divided although nothing is clipped
    return float(norm)


def test_calls_differ_where_they_should() -> None:
    """Rare situations that a kernel must survive do occur, and not always."""
    ranks = [all_arguments(get(22), 4, "tiny", "fp32", call) for call in range(40)]
    clips = [bool(clip_grad_norm_ep(a)[0][0] > a[0]["max_norm"]) for a in ranks]
    assert 20 <= sum(clips) < 40
    ranks = [all_arguments(get(23), 4, "tiny", "fp32", call) for call in range(40)]
    empty = [a for call in ranks for a in call if int(a["local_valid_tokens"]) == 0]
    assert 10 <= len(empty) <= 30
    assert not any(bool(a["loss"].isfinite()) for a in empty)
    assert 3 <= sum(a[0]["grad_loss_sum"] is None for a in ranks) <= 20
    ranks = [all_arguments(get(24), 2, "tiny", "fp32", call) for call in range(20)]
    assert 4 <= sum(a[0]["attention_mask"] is None for a in ranks) <= 16
    ranks = [all_arguments(get(25), 4, "tiny", "fp32", call) for call in range(40)]
    idle = [a for call in ranks for a in call if bool((a["labels"] == -100).all())]
    assert 3 <= len(idle) <= 20
    lowest = [float(importance_sampling_loss(a)[0][3][1]) for a in ranks[:20]]
    assert 3 <= sum(ratio == math.exp(-20) for ratio in lowest) <= 17
    dims = {
        (a["scatter_dim"] % 3, a["gather_dim"] % 3)
        for c in range(80)
        for a in all_arguments(get(33), 2, "tiny", "fp32", c)
    }
    assert len(dims) == 9


@pytest.mark.parametrize("problem_id", [31, 32])
def test_moe_inputs_weigh_every_part(problem_id: int) -> None:
    """The second expert, biases and adapters must show in the result, or a kernel could leave them out."""
    problem = get(problem_id)
    ranks = all_arguments(problem, 2, "paper", "fp32", 1)
    ranks = [a | {"hidden_states": a["hidden_states"][:32]} for a in ranks]
    truth = fused_moe(ranks)
    for name in ("gate_proj", "up_proj", "down_proj", *(n for n in ranks[0] if n.endswith("_B"))):
        spoilt = [copy.deepcopy({k: v for k, v in a.items() if k != "group"}) for a in ranks]
        for a in spoilt:
            (a[name].bias.data if name.endswith("proj") else a[name]).zero_()
        outputs = [[t.to(torch.bfloat16) for t in own] for own in fused_moe(spoilt)]
        assert worst(problem, ranks, truth, outputs, "bf16") > 5, name


@pytest.mark.parametrize("problem_id", [28, 29, 31, 32])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_cost_is_a_minimum_for_every_call(problem_id: int, world_size: int) -> None:
    """Rows that must cross the link: a token once for each other rank that has one of its experts."""
    problem = get(problem_id)
    size = dict(problem.sizes["paper"]) | {"hidden": 16, "ffn": 8}
    for call in range(3):
        rows = []
        for rank in range(world_size):
            draw = Draw(
                secret=SECRET, call=call, rank=rank, world_size=world_size, size=size, dtype=torch.float32,
                device=torch.device("cpu"),
            )  # fmt: skip
            a = problem.inputs(draw)
            if problem_id == 28:
                experts = a["expert_mask"].argmax(dim=0).t()
            elif problem_id == 29:
                experts = a["selected_experts"]
            else:
                logits = a["hidden_states"] @ a["gate_weight"].T
                experts = (logits if a["gate_bias"] is None else logits + a["gate_bias"]).topk(2).indices
            owners = torch.zeros(len(experts), world_size).scatter(1, experts * world_size // size["experts"], 1.0)
            rows.append(float(owners.sum() - owners[:, rank].sum()))
        ways = 2 if problem_id in (31, 32) else 1
        cost = problem.cost(size, world_size, 4)
        average = sum(rows) / world_size  # the busiest rank has more
        assert 0.8 * average < cost.link_sent_bytes / (4 * 16 * ways) <= average


@pytest.mark.parametrize("problem_id", IDS)
@pytest.mark.parametrize("size", ["paper", "real"])
def test_large_sizes_are_described_without_drawing_them(problem_id: int, size: str) -> None:
    problem = get(problem_id)
    assert problem.why_not(size, 8, "bf16") is None
    assert 0 < 8 * problem.argument_bytes(size, 8, "bf16") < 40e9
    assert problem.cost(problem.sizes[size], 8, 2).link_received_bytes > 0


def test_what_cannot_run_says_why() -> None:
    for problem_id in (26, 28, 29, 31, 32):
        assert "8 experts" in (get(problem_id).why_not("paper", 3, "bf16") or "")
        assert get(problem_id).why_not("odd", 3, "bf16") is None
    assert "fp16" in (get(23).why_not("tiny", 2, "fp16") or "")
