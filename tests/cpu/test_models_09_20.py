"""Problems 9-12, 14, 15 and 17-20 against their mathematics, written a second time in one process.

The arguments of all ranks are drawn here; what every rank must return is worked out in numpy float64 from the whole
problem (one table, one product, one row) and compared, by the problem's own rules, with the references on real ranks.
Each rule is then shown results that it must refuse, among them the mistakes that the problem invites. The file is
long because ten models and their mistakes share one way of drawing, running and comparing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from world import RankError, World

from pkb.problems import get
from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context, Rule
from pkb.problems.draw import Draw
from pkb.problems.p10_embedding_lookup import lookup_counts
from pkb.problems.p19_blocked_fp8_quantize import Codes

Worlds = Callable[[int], World]
Array = NDArray[Any]
Arguments = dict[str, Any]
Outputs = list[torch.Tensor]

SECRET = b"models of 9 to 20"
IDS = (9, 10, 11, 12, 14, 15, 17, 18, 19, 20)
WIDENED = (9, 11, 12, 14, 15, 17, 18)
CALLS = (0, 3)
CASES = [(w, size, dtype) for w in (2, 4) for size in ("tiny", "odd") for dtype in ("fp32", "bf16")]
CASES += [(1, "tiny", "fp32"), (3, "odd", "bf16")]


def draw_for(problem: Problem, *, rank: int, world_size: int, size: str, dtype: str, call: int) -> Draw:
    return Draw(
        secret=SECRET, call=call, rank=rank, world_size=world_size, size=problem.sizes[size],
        dtype=DTYPES[dtype], device=torch.device("cpu"), layout=problem.layout,
    )  # fmt: skip


def draw_ranks(problem_id: int, world_size: int, *, size: str, dtype: str, call: int) -> list[Arguments]:
    problem = get(problem_id)
    draw = partial(draw_for, problem, world_size=world_size, size=size, dtype=dtype, call=call)
    return [problem.inputs(draw(rank=rank)) for rank in range(world_size)]


def run_reference(rank: int, world_size: int, problem_id: int, size: str, dtype: str, widen: bool) -> list[Outputs]:
    """On a rank: the outputs of several calls."""
    problem, results = get(problem_id), []
    for call in CALLS:
        arguments = draw_ranks(problem_id, world_size, size=size, dtype=dtype, call=call)[rank]
        if widen:
            arguments = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
        before = [tensor.clone() for tensor in tensors_in(arguments)]
        outputs = tensors_in(problem.reference(**arguments))
        after = tensors_in(arguments)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), "the reference changed an argument"
        addresses = [{t.untyped_storage().data_ptr() for t in ts if t.numel()} for ts in (after, outputs)]
        assert not addresses[0] & addresses[1], "the result is an argument"
        results.append([to_plain(output.clone()) for output in outputs])
    return results


def to_plain(output: torch.Tensor) -> torch.Tensor:
    """pickle, by which outputs come back, does not know float8."""
    return output.view(torch.uint8) if output.dtype is torch.float8_e4m3fn else output


def from_plain(output: torch.Tensor) -> torch.Tensor:
    return output.view(torch.float8_e4m3fn) if output.dtype is torch.uint8 else output


# The mathematics: from the arguments of all ranks to the outputs of all ranks.


def wide(ranks: list[Arguments], name: str) -> list[Array]:
    return [arguments[name].double().numpy() for arguments in ranks]


def layernorm_backward(ranks: list[Arguments]) -> list[list[Array]]:
    x, dy = np.concatenate(wide(ranks, "X_hat")), np.concatenate(wide(ranks, "dY"))
    return [[np.einsum("ij,ij->j", x, dy), dy.sum(axis=0)]] * len(ranks)


def embedding_lookup(ranks: list[Arguments]) -> list[list[Array]]:
    table = np.concatenate(wide(ranks, "local_shard"))
    return [[table[arguments["indices"].numpy()]] for arguments in ranks]


def allgather_gemm(ranks: list[Arguments]) -> list[list[Array]]:
    a = np.concatenate(wide(ranks, "A_local"), axis=1)
    return [[a @ b] for b in wide(ranks, "B")]


def gemm_allgather(ranks: list[Arguments]) -> list[list[Array]]:
    return [[wide(ranks, "A")[0] @ np.concatenate(wide(ranks, "B"), axis=1)]] * len(ranks)


def combined_sharded_gemms(ranks: list[Arguments]) -> list[list[Array]]:
    hidden = np.concatenate(wide(ranks, "x_local"), axis=1) @ wide(ranks, "W1")[0]
    whole = (hidden / (1 + np.exp(-hidden))) @ wide(ranks, "W2")[0]
    return [[rows] for rows in np.split(whole, len(ranks))]


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    """Element i and i + D/2 are the two coordinates of a point that is turned."""
    out, half = np.empty_like(x), x.shape[-1] // 2
    for i in range(half):
        here, there = x[..., i], x[..., i + half]
        out[..., i] = here * cos[:, :, None, i] - there * sin[:, :, None, i]
        out[..., i + half] = there * cos[:, :, None, i + half] + here * sin[:, :, None, i + half]
    return out


def rope_allgather(ranks: list[Arguments]) -> list[list[Array]]:
    q, k, cos, sin = (
        np.concatenate(wide(ranks, f"{name}_local"), axis=1) for name in ("q", "k", "cos", "sin")
    )  # fmt: skip
    return [[rotated(q, cos, sin), rotated(k, cos, sin)]] * len(ranks)


def tp_rms_norm(ranks: list[Arguments], *, epsilon: float = 1e-5) -> list[list[Array]]:
    x, weight = np.concatenate(wide(ranks, "local_hidden_states"), axis=1), np.concatenate(wide(ranks, "local_weight"))
    whole = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon) * weight
    return [[columns] for columns in np.split(whole, len(ranks), axis=1)]


def float8_values() -> Array:
    """All values of float8_e4m3fn that are not negative, by code: 4 exponent bits of bias 7, 3 of mantissa, no infinity."""
    values = [(c & 7) * 2.0**-9 if c < 8 else (8 + (c & 7)) * 2.0 ** ((c >> 3) - 10) for c in range(127)]
    assert values[-1] == 448
    return np.array(values)


def blocked_fp8_quantize(ranks: list[Arguments]) -> list[list[Array]]:
    block, values = ranks[0]["block_size"], float8_values()
    x = np.concatenate(wide(ranks, "local_tensor"))
    blocks = x.reshape(len(x), -1, block)
    scales = np.abs(blocks).max(axis=-1) / 448
    quotient = np.abs(blocks) / np.where(scales == 0, 1, scales)[..., None]
    above = np.searchsorted(values, quotient).clip(1, 126)
    low, high = quotient - values[above - 1], values[above] - quotient
    nearest = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)  # ties to the even code
    signed = np.copysign(values[nearest], blocks).reshape(x.shape)
    return [[signed, scales]] * len(ranks)


def blocked_fp8_dequantize(ranks: list[Arguments]) -> list[list[Array]]:
    outputs = []
    for r, _ in enumerate(ranks):
        slices = []
        for source in ranks:
            y, s = source["local_y"].float().numpy(), source["local_s"].numpy()
            number = np.arange(y[r].size) // source["block_size"]
            slices.append(y[r] * s[r][number].reshape(y[r].shape))
        outputs.append([np.stack(slices)])
    return outputs


MODELS: dict[int, Callable[[list[Arguments]], list[list[Array]]]] = {
    9: layernorm_backward, 10: embedding_lookup, 11: allgather_gemm, 12: allgather_gemm, 14: gemm_allgather,
    15: combined_sharded_gemms, 17: rope_allgather, 18: tp_rms_norm, 19: blocked_fp8_quantize,
    20: blocked_fp8_dequantize,
}  # fmt: skip


def truth_of(problem_id: int, ranks: list[Arguments]) -> list[Outputs]:
    outputs = [[torch.from_numpy(np.ascontiguousarray(o)) for o in own] for own in MODELS[problem_id](ranks)]
    if problem_id == 19:  # its rule compares codes, not values
        outputs = [[codes.to(torch.float8_e4m3fn), scales] for codes, scales in outputs]
    return outputs


def dtypes_of(problem_id: int, dtype: str) -> list[torch.dtype]:
    special = {19: [torch.float8_e4m3fn, torch.float32], 20: [torch.float32]}
    return special.get(problem_id) or [DTYPES[dtype]] * (2 if problem_id in (9, 17) else 1)


def ratios(
    problem_id: int, arguments: list[Arguments], truth: list[Outputs], outputs: list[Outputs], dtype: str
) -> list[float]:
    """For each rank its largest ratio; a candidate is wrong if one of them is above 1."""
    worst = []
    for rank, (want, got) in enumerate(zip(truth, outputs, strict=True)):
        context = Context(arguments=arguments[rank], rank=rank, world_size=len(arguments), dtype=DTYPES[dtype])
        compare = get(problem_id).compare
        rules: tuple[Rule, ...] = compare if isinstance(compare, tuple) else (compare,) * len(want)
        assert [w.shape for w in want] == [g.shape for g in got]
        worst.append(max(rule(w, g, context) for rule, w, g in zip(rules, want, got, strict=True)))
    return worst


def as_outputs(problem_id: int, wanted: list[Outputs], dtype: str) -> list[Outputs]:
    kinds = dtypes_of(problem_id, dtype)
    return [[t.to(kind) for t, kind in zip(own, kinds, strict=True)] for own in wanted]


def with_last_element_wrong(output: torch.Tensor) -> torch.Tensor:
    wrong = output.float().flatten().clone()
    wrong[-1] -= torch.copysign(2 * wrong.square().mean().sqrt() + 1e-3, wrong[-1])  # towards 0: codes end at 448
    return wrong.to(output.dtype).view_as(output)


@pytest.mark.parametrize(("world_size", "size", "dtype"), CASES)
@pytest.mark.parametrize("problem_id", IDS)
def test_reference_is_the_mathematics(world: Worlds, problem_id: int, world_size: int, size: str, dtype: str) -> None:
    problem = get(problem_id)
    assert problem.why_not(size, world_size, dtype) is None
    by_rank = world(world_size).call(run_reference, problem_id, size, dtype, False)
    by_call = [draw_ranks(problem_id, world_size, size=size, dtype=dtype, call=call) for call in CALLS]
    truths = [truth_of(problem_id, ranks) for ranks in by_call]
    for index, (ranks, truth) in enumerate(zip(by_call, truths, strict=True)):
        compare = partial(ratios, problem_id, ranks, truth, dtype=dtype)
        outputs = [[from_plain(t) for t in own[index]] for own in by_rank]
        for own in outputs:
            assert [t.dtype for t in own] == dtypes_of(problem_id, dtype)
            assert problem_id == 11 or all(t.is_contiguous() for t in own)
        assert max(compare(outputs)) <= 0.7  # an honest result keeps a distance from failing

        # What the comparison must refuse: nothing, one wrong element, another order, another call, own data only.
        assert max(compare([[torch.zeros_like(t) for t in own] for own in outputs])) > 3
        for position in range(len(outputs[0])):
            spoilt = [list(own) for own in outputs]
            spoilt[-1][position] = with_last_element_wrong(spoilt[-1][position])
            if spoilt[-1][position].numel():
                assert compare(spoilt)[-1] > 1
        backwards = [[from_plain(to_plain(t).flatten().flip(0)).view_as(t) for t in own] for own in outputs]
        assert max(compare(backwards)) > 3
        other = truths[1 - index]
        if all(a.shape == b.shape for x, y in zip(truth, other, strict=True) for a, b in zip(x, y, strict=True)):
            assert max(compare(as_outputs(problem_id, other, dtype))) > 3
        if world_size > 1:
            alone = [truth_of(problem_id, silencing_all_but(rank, ranks))[rank] for rank in range(world_size)]
            assert max(compare(as_outputs(problem_id, alone, dtype))) > 3


def silencing_all_but(keep: int, ranks: list[Arguments]) -> list[Arguments]:
    """What rank `keep` can know by itself: others' tensors are zero, unless all ranks have the same."""

    def known(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        own = ranks[keep][name]
        return value if value is own or torch.equal(value, own) else torch.zeros_like(value)

    return [{name: known(name, value) for name, value in arguments.items()} for arguments in ranks]


@pytest.mark.parametrize("problem_id", WIDENED)
@pytest.mark.parametrize("size", ["tiny", "odd"])
def test_widened_reference_is_exact(world: Worlds, problem_id: int, size: str) -> None:
    """What the judge takes for the truth: were anything inside still float32, the error would be 1e-7."""
    assert get(problem_id).truth == "float64"
    by_rank = world(4).call(run_reference, problem_id, size, "bf16", True)
    for index, call in enumerate(CALLS):
        truth = truth_of(problem_id, draw_ranks(problem_id, 4, size=size, dtype="bf16", call=call))
        for rank in range(4):
            for got, want in zip(by_rank[rank][index], truth[rank], strict=True):
                torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def call_badly(rank: int, world_size: int, problem_id: int, which: int) -> None:
    """On a rank: arguments that break a constraint, on all ranks alike, so that nobody is left waiting."""
    given = draw_ranks(problem_id, world_size, size="tiny", dtype="fp32", call=0)[rank]
    name, value = bad_arguments(problem_id, given, world_size)[which]
    get(problem_id).reference(**(given | {name: value}))


def bad_arguments(problem_id: int, given: Arguments, world_size: int) -> list[tuple[str, Any]]:
    match problem_id:
        case 9:
            return [("dY", given["dY"][:, :-1])]
        case 10:
            table = world_size * len(given["local_shard"])
            return [("indices", torch.tensor([0, table])), ("indices", torch.tensor([-1])),
                    ("indices", given["indices"].int()), ("indices", given["indices"][None])]  # fmt: skip
        case 11 | 12 | 14:
            return [("B", given["B"][:-1])]
        case 15:
            return [("x_local", given["x_local"][:-1]), ("W1", given["W1"][:-1]), ("W2", given["W2"][:-1])]
        case 17:
            return [("q_local", given["q_local"][..., :-1]), ("k_local", given["k_local"][..., :-1])]
        case 18:
            return [("local_weight", given["local_weight"][:-1])]
        case 19:
            return [("block_size", 33)]
        case _:
            return [("local_y", given["local_y"][:1]), ("block_size", 33), ("local_s", given["local_s"][:, :-1])]


@pytest.mark.parametrize("problem_id", IDS)
def test_bad_arguments_are_refused_by_name(world: Worlds, problem_id: int) -> None:
    given = draw_ranks(problem_id, 2, size="tiny", dtype="fp32", call=0)[0]
    for which in range(len(bad_arguments(problem_id, given, 2))):
        with pytest.raises(RankError) as caught:
            world(2).call(call_badly, problem_id, which)
        assert all(text.startswith("ValueError") for text in caught.value.failures.values()), caught.value


def test_ranks_share_what_the_layer_replicates() -> None:
    for problem_id, names in ((14, ["A"]), (15, ["W1", "W2"])):
        first, *others = draw_ranks(problem_id, 4, size="tiny", dtype="bf16", call=0)
        assert all(torch.equal(first[name], rank[name]) for rank in others for name in names)
    first, *others = draw_ranks(11, 4, size="tiny", dtype="bf16", call=0)
    assert not any(torch.equal(first["B"], rank["B"]) for rank in others)


def test_lookups_are_uneven_repeated_and_sometimes_idle() -> None:
    problem, idle_calls, repeats, uneven = get(10), 0, 0, 0
    for call in range(40):
        for world_size in (2, 4):
            draw = partial(draw_for, problem, world_size=world_size, size="odd", dtype="fp32", call=call)
            ranks = [problem.inputs(draw(rank=rank)) for rank in range(world_size)]
            counts, idle = lookup_counts(draw(rank=0))
            assert counts == [len(arguments["indices"]) for arguments in ranks]
            assert sum(counts) == world_size * 53
            uneven += len(set(counts)) > 1
            asked = torch.cat([arguments["indices"] for arguments in ranks])
            repeats += len(asked) - len(asked.unique())
            owners = set((asked // 37).tolist())
            if idle is not None:
                idle_calls += 1
                assert world_size == 4
                assert counts[idle] == 0
            assert owners == set(range(world_size)) - {idle}
    assert 3 <= idle_calls <= 20
    assert repeats > 100
    assert uneven > 70


def grouped_by_owner(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    owners = [torch.argsort(a["indices"] // len(a["local_shard"]), stable=True) for a in ranks]
    return [[own[0][order]] for own, order in zip(truth, owners, strict=True)]


def rms_of_own_columns(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [[torch.from_numpy(tp_rms_norm([a])[0][0])] for a in ranks]


def without_epsilon(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [[torch.from_numpy(own[0])] for own in tp_rms_norm(ranks, epsilon=0.0)]


def shards_not_interleaved(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    """The gathered buffer of W shards taken for the result: right for a batch of one only."""
    return [[torch.cat(t.chunk(len(ranks), dim=1)).reshape(t.shape) for t in own] for own in truth]


def unturned(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [[torch.cat([a[f"{n}_local"] for a in ranks], dim=1) for n in ("q", "k")] for _ in ranks]


def scales_of_the_next_slice(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    turned = [a | {"local_s": a["local_s"].roll(1, dims=0)} for a in ranks]
    return truth_of(20, turned)


def slots_by_destination(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [[own[0].flip(0)] for own in truth]


def one_scale_a_row(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    rows = truth_of(19, [a | {"block_size": a["local_tensor"].shape[1]} for a in ranks])
    return [[r[0], t[1]] for r, t in zip(rows, truth, strict=True)]


def scale_one_for_zeros(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [[own[0], torch.where(own[1] == 0, 1.0, own[1])] for own in truth]


def best_constant_codes(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [[torch.full_like(own[0], float(own[0].float().mean())), own[1]] for own in truth]


def swapped(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [own[::-1] for own in truth]


def rows_of_the_next_rank(ranks: list[Arguments], truth: list[Outputs]) -> list[Outputs]:
    return [*truth[1:], truth[0]]


MISTAKES = [
    (9, swapped), (10, grouped_by_owner), (11, rows_of_the_next_rank), (15, rows_of_the_next_rank),
    (17, shards_not_interleaved), (17, unturned), (18, rms_of_own_columns), (18, without_epsilon),
    (19, one_scale_a_row), (19, scale_one_for_zeros), (19, best_constant_codes), (20, scales_of_the_next_slice),
    (20, slots_by_destination),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(("problem_id", "mistake"), MISTAKES)
def test_likely_mistakes_are_refused(problem_id: int, mistake: Callable[..., list[Outputs]], dtype: str) -> None:
    ranks = draw_ranks(problem_id, 4, size="tiny", dtype=dtype, call=1)
    truth = truth_of(problem_id, ranks)
    assert max(ratios(problem_id, ranks, truth, as_outputs(problem_id, truth, dtype), dtype)) <= 0.7
    wrong = as_outputs(problem_id, mistake(ranks, truth), dtype)
    assert max(ratios(problem_id, ranks, truth, wrong, dtype)) > 3


def test_codes_may_move_by_one_step_in_a_few_places() -> None:
    rule = Codes(moved_share={torch.bfloat16: 5e-3})
    context = Context(arguments={}, rank=0, world_size=1, dtype=torch.bfloat16)
    bits = torch.arange(10_000) % 120
    truth = bits.to(torch.uint8).view(torch.float8_e4m3fn)

    def moved(count: int, by: int) -> float:
        other = bits.clone()
        other[:count] += by
        return rule(truth, other.to(torch.uint8).view(torch.float8_e4m3fn), context)

    assert moved(0, 0) == 0
    assert moved(50, 1) <= 1
    assert moved(51, 1) > 1
    assert moved(1, 2) > 1
    negative = (truth.view(torch.uint8) | 0x80).view(torch.float8_e4m3fn)
    assert rule(negative, negative, context) == 0
    assert rule(truth, negative, context) > 1
    assert rule(truth[:1], negative[:1], context) == 0  # the two zeros
    top, nan = (torch.tensor([c], dtype=torch.uint8).view(torch.float8_e4m3fn) for c in (126, 127))
    assert rule(top, nan, context) > 1


@pytest.mark.parametrize("problem_id", IDS)
@pytest.mark.parametrize("size", ["paper", "real"])
def test_large_sizes_are_described_without_drawing_them(problem_id: int, size: str) -> None:
    problem = get(problem_id)
    for world_size in (2, 4, 8):
        assert problem.why_not(size, world_size, "bf16") is None
        assert 0 < world_size * problem.argument_bytes(size, world_size, "bf16") < 40e9
