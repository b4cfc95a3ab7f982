"""Null candidates: outputs that took no communication, too little of it, or no work at all. None may pass any problem.

They run on the oracle's ranks, since they are ours: what matters here is whether inputs and comparison tell them from the
truth, and by how much. Beside them stand the honest computations, which must pass with room.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.distributed as dist

from pkb.problems.base import DTYPES, Problem, tensors_in
from pkb.problems.compare import Context
from pkb.problems.draw import Value
from pkb.rank.comparison.changed_wire import (
    Change,
    ChangedWire,
    through_int8,
    without_hop,
    without_previous,
    without_tail,
)
from pkb.rank.comparison.truth import outcome, rules_for
from pkb.rank.execute import Arguments
from pkb.rank.trees import describe
from pkb.types.protocol.commands import DrawSpec
from pkb.types.protocol.replies import NullScore

NULLS = (
    "zeros", "constant", "own_input", "own_shard", "no_communication", "previous_call", "uninitialised", "only_rank_0",
    "one_peer_missing", "last_tile_missing", "one_hop_missing", "stale_peer", "int8_communication",
)  # fmt: skip

FEW_ELEMENTS = 16
CALLS, MORE_CALLS = 2, 4
"""A guess of a few numbers may be near in two calls by chance, a rank's part may be empty in both, and what a message lacks may
be zeros anyway. A candidate is judged by many calls, so where that may have happened, these are judged by more."""


def lint_case(rank: Any, spec: DrawSpec) -> list[NullScore]:
    """One row per null candidate: its ratio of error to tolerance on this rank (infinite as None)."""
    rows = _scores(rank, spec, CALLS)
    missed = torch.tensor([rows[null].badness > 1 for null in NULLS if null != "int8_communication"], dtype=torch.int32)
    missed = missed.to(rank.device.torch_device)
    dist.all_reduce(missed, op=dist.ReduceOp.MAX)
    if not bool(missed.all()):
        rows = _scores(rank, spec, MORE_CALLS)
    return [replace(rows[name], null=name) for name in (*NULLS, "honest")]


def _scores(rank: Any, spec: DrawSpec, calls: int) -> dict[str, NullScore]:
    problem: Problem = rank.registry.get(spec.problem)

    def fresh(call: int) -> Arguments:
        return rank.with_groups(rank.draw_arguments(spec, call))

    def context_of(call: int) -> Context:
        return Context(
            arguments=rank.draw_arguments(spec, call), rank=rank.config.rank,
            world_size=rank.config.world_size, dtype=DTYPES[spec.dtype],
        )  # fmt: skip

    truths = [rank.truth_of(problem, partial(fresh, call), upstream=False) for call in range(calls)]
    # Asked of all ranks, since truths are made together: some hold an empty part where others hold much.
    few = torch.tensor([min((t.numel() for t in describe(truths[0].tree)[1]), default=0) <= FEW_ELEMENTS])
    few = few.to(torch.int32).to(rank.device.torch_device)
    dist.all_reduce(few)
    for call in range(calls, MORE_CALLS if int(few) else calls):
        truths.append(rank.truth_of(problem, partial(fresh, call), upstream=False))
    contexts = [context_of(call) for call in range(len(truths))]
    truth, context = truths[0], contexts[0]
    number, world_size = rank.config.rank, rank.config.world_size
    once: dict[str, Callable[[], Any]] = {
        "own_input": lambda: _own_input(truth, context.arguments, sharded=False, rank=0, world_size=1),
        "own_shard": lambda: _own_input(truth, context.arguments, sharded=True, rank=number, world_size=world_size),
        "no_communication": lambda: _without_communication(problem, fresh(0)),
        "uninitialised": lambda: _map(truth, _uninitialised),
        "honest": lambda: _honest(problem, fresh(0)),
    }
    rows = {name: _score(problem, truth, make, context) for name, make in once.items()}
    zeros = [partial(_map, t, torch.zeros_like) for t in truths]
    rows["zeros"] = _worst(map(_score, repeat(problem), truths, zeros, contexts))
    right = [partial(_native, t.tree, t.dtypes) for t in truths]
    rows["only_rank_0"] = _worst(map(_score, repeat(problem), truths, right if number == 0 else zeros, contexts))
    guesses = [partial(_constants, t, truths) for t in truths]
    rows["constant"] = _worst(map(_score, repeat(problem), truths, guesses, contexts))
    older = [partial(_native, t.tree, t.dtypes) for t in truths[1:]]
    rows["previous_call"] = _worst(map(_score, repeat(problem), truths[:-1], older, contexts[:-1]))
    rows |= _nearly_communicating(problem, fresh, truths, contexts)
    return rows


def _worst(scores: Iterable[NullScore]) -> NullScore:
    """Of several calls the one that it misses most: passing means passing all of them."""
    return max(scores, key=lambda score: score.badness)


def _nearly_communicating(
    problem: Problem, fresh: Callable[[int], Arguments], truths: list[Any], contexts: list[Context]
) -> dict[str, NullScore]:
    """Candidates that move nearly all data that must move. Each is judged by all calls, and by the call that it misses most."""
    calls = range(len(truths))

    device = _device_of(contexts[0].arguments)
    carried: Counter[int] = Counter()
    """Elements that arrived here from peers, by exchange."""

    def exchanges(*, integers_from: int | None) -> tuple[list[dict[int, torch.Tensor]], list[int]]:
        """What the rank before sent in the call after each call, and the most exchanges of a rank, with payload and all."""
        sent: list[dict[int, torch.Tensor]] = []
        most = torch.zeros(2, dtype=torch.int64, device=device)
        for call in calls:
            sent.append({})
            with ChangedWire(partial(_kept, sent[-1], carried), integers_from=integers_from) as wire:
                _honest(problem, fresh((call + 1) % len(calls)))
            most = torch.maximum(most, most.new_tensor([wire.exchanges, wire.all_exchanges]))
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return sent, most.tolist()

    integers_from = None
    sent, (with_payload, all_exchanges) = exchanges(integers_from=None)
    if not with_payload:
        integers_from = all_exchanges - 1
        sent, (with_payload, _) = exchanges(integers_from=integers_from)

    def judged(change_of: Callable[[int], Change]) -> NullScore:
        def make(call: int) -> Any:
            with ChangedWire(change_of(call), integers_from=integers_from):
                return _honest(problem, fresh(call))

        return _worst(_score(problem, truths[call], partial(make, call), contexts[call]) for call in calls)

    hops = sorted({0, (with_payload - 1) // 2, with_payload - 1})
    # A hop that brought nothing to any rank (parts may happen to need no balancing) or only hints is no loss.
    brought = torch.tensor([carried[hop] for hop in range(with_payload)], dtype=torch.int64, device=device)
    dist.all_reduce(brought)
    amounts = brought.tolist()
    hops = [hop for hop in hops if amounts[hop] and hop not in problem.hints] or [amounts.index(max(amounts))]

    def lost(hop: int) -> tuple[float, NullScore]:
        """How far the candidate is from passing, on its worst rank, and its score here. Chosen by its own score, each rank
        would take the hop that brings it nothing, and all together would pass as a candidate that does not exist."""
        score = judged(lambda call: partial(without_hop, hop))
        worst = torch.tensor([score.badness], dtype=torch.float64, device=device)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return float(worst), score

    return {
        "one_peer_missing": judged(lambda call: without_previous),
        "last_tile_missing": judged(lambda call: without_tail),
        "one_hop_missing": min(map(lost, hops), key=lambda found: found[0])[1],
        "stale_peer": judged(lambda call: partial(_stale, sent[call])),
        "int8_communication": judged(lambda call: through_int8),
    }


def _device_of(values: Mapping[str, Any]) -> torch.device:
    return next((tensor.device for tensor in describe(values)[1]), torch.device("cpu"))


def _kept(
    store: dict[int, torch.Tensor], carried: Counter[int], exchange: int, distance: int, piece: torch.Tensor
) -> torch.Tensor:
    carried[exchange] += piece.numel()
    if distance == 1:
        store[exchange] = piece.clone()
    return piece


def _stale(store: dict[int, torch.Tensor], exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    if distance != 1:
        return piece
    older = torch.zeros_like(piece)
    if exchange in store:
        _fill(older, store[exchange].to(piece.dtype))
    return older


def _score(problem: Problem, truth: Any, make: Callable[[], Any], context: Context) -> NullScore:
    """The smallest and largest ratio over the outputs: a null passes a rank only if its largest ratio is at most 1."""
    try:
        output = make()
    except Exception as error:  # a null candidate that raises has not passed; the row says why
        return NullScore("", None, f"raises {type(error).__name__}")
    got = describe(output)[1]
    want = describe(truth.tree)[1]
    if [t.shape for t in got] != [t.shape for t in want] or [t.dtype for t in got] != truth.dtypes:
        return NullScore("", None, "wrong shape or dtype")
    rules = rules_for(problem, truth.tree, upstream=False)
    ratio = max((rule(w, g, context) for rule, w, g in zip(rules, want, got, strict=True)), default=math.inf)
    return NullScore("", ratio if math.isfinite(ratio) else None, "")


def _honest(problem: Problem, values: Arguments) -> Any:
    """The reference itself in the native dtype: how near honest rounding comes to the limit."""
    return outcome(problem.reference, problem, values)


def _native(tree: Any, dtypes: list[torch.dtype]) -> list[torch.Tensor]:
    return [tensor.to(dtype) for tensor, dtype in zip(describe(tree)[1], dtypes, strict=True)]


def _map(truth: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    return [function(tensor) for tensor in _native(truth.tree, truth.dtypes)]


def _constants(truth: Any, truths: list[Any]) -> list[torch.Tensor]:
    """One number for all elements. For an output of one element that would be the answer: one number for all calls."""
    now = _native(truth.tree, truth.dtypes)
    calls = [_native(other.tree, other.dtypes) for other in truths]
    if any([t.shape for t in outputs] != [t.shape for t in now] for outputs in calls):  # shapes depend on the data
        return [_constant(tensor) for tensor in now]
    return [
        _constant(torch.stack([outputs[i] for outputs in calls]))[0] if tensor.numel() == 1 else _constant(tensor)
        for i, tensor in enumerate(now)
    ]


def _constant(tensor: torch.Tensor) -> torch.Tensor:
    """The best single number: the mean, which is what a lazy guess would converge to."""
    if tensor.numel() == 0:
        return tensor.clone()
    wide = tensor.double()
    finite = wide[torch.isfinite(wide)]
    middle = float(finite.mean()) if finite.numel() else 0.0
    return torch.full_like(tensor, round(middle) if not tensor.is_floating_point() else middle)


def _uninitialised(tensor: torch.Tensor) -> torch.Tensor:
    """Fresh memory as an allocator may hand it out: whatever bits are there."""
    noise = torch.randint(0, 256, (tensor.numel() * tensor.element_size(),), dtype=torch.uint8, device=tensor.device)
    if tensor.dtype is torch.bool:
        return noise.to(torch.bool).reshape(tensor.shape)
    return noise.view(tensor.dtype).reshape(tensor.shape)


def _own_input(
    truth: Any, arguments: Mapping[str, Value], *, sharded: bool, rank: int, world_size: int
) -> list[torch.Tensor]:
    """For each output the argument that fits best: its own size first, else repeated or cut to size."""
    tensors = [tensor for tensor in describe(dict(arguments))[1] if tensor.numel()]
    outputs = []
    for want in _native(truth.tree, truth.dtypes):
        same = [t for t in tensors if t.dtype == want.dtype] or tensors
        source = next((t for t in same if t.shape == want.shape), same[0] if same else want.new_zeros(1)).to(want.dtype)
        flat = source.reshape(-1)
        if sharded and want.numel():
            flat = flat[rank * flat.numel() // world_size :] if flat.numel() >= want.numel() * world_size else flat
        count = max(1, -(-want.numel() // max(1, flat.numel())))
        outputs.append(flat.repeat(count)[: want.numel()].reshape(want.shape).clone())
    return outputs


def _without_communication(problem: Problem, values: Arguments) -> Any:
    """On the host where integers are exchanged: an index out of range raises there, and would end a GPU's context."""
    device = _device_of(values)
    try:
        with communication_removed(integers=device.type == "cpu"):
            return _honest(problem, values)
    except IntegersOnGpu:
        with communication_removed():
            output = describe(_honest(problem, _on_host(values)))[1]
    return [tensor.to(device) for tensor in output]


class IntegersOnGpu(Exception):
    """A reference would exchange integers, which it may use as indices."""


def _on_host(values: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.cpu()
    if isinstance(values, dict):
        return {key: _on_host(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(_on_host(value) for value in values)
    return values


class _Done:
    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Put own data where peers' data would have arrived, repeated or cut to size."""
    flat = source.reshape(-1)
    if target.numel() and flat.numel():
        count = -(-target.numel() // flat.numel())
        target.copy_(flat.repeat(count)[: target.numel()].reshape(target.shape))
    else:
        target.zero_()


@contextlib.contextmanager
def communication_removed(*, integers: bool = True) -> Iterator[None]:
    """Replace every collective that a reference uses by one that moves nothing between ranks."""

    def checked(stand_in: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if any(not (t.is_floating_point() or t.is_complex()) for t in tensors_in([list(args), options])):
                raise IntegersOnGpu
            return stand_in(*args, **options)

        return call

    def in_place(tensor: torch.Tensor, *args: Any, **options: Any) -> _Done:
        return _Done()

    def into(output: torch.Tensor, source: torch.Tensor, *args: Any, **options: Any) -> _Done:
        _fill(output, source)
        return _Done()

    def into_list(outputs: list[torch.Tensor], source: Any, *args: Any, **options: Any) -> _Done:
        for position, output in enumerate(outputs or []):
            _fill(output, source if isinstance(source, torch.Tensor) else source[position])
        return _Done()

    def reduce_scatter(output: torch.Tensor, sources: list[torch.Tensor], *args: Any, **options: Any) -> _Done:
        output.copy_(sources[dist.get_rank()])
        return _Done()

    def reduce_scatter_tensor(output: torch.Tensor, source: torch.Tensor, *args: Any, **options: Any) -> _Done:
        start = dist.get_rank() * output.numel()
        _fill(output, source.reshape(-1)[start : start + output.numel()])
        return _Done()

    def gather(
        tensor: torch.Tensor, gather_list: list[torch.Tensor] | None = None, *args: Any, **options: Any
    ) -> _Done:
        return into_list(gather_list or [], tensor)

    def scatter(
        tensor: torch.Tensor, scatter_list: list[torch.Tensor] | None = None, *args: Any, **options: Any
    ) -> _Done:
        if scatter_list:
            tensor.copy_(scatter_list[dist.get_rank()])
        else:
            tensor.zero_()
        return _Done()

    def receive(tensor: torch.Tensor, *args: Any, **options: Any) -> _Done:
        tensor.zero_()  # fresh memory may still hold the right data of an earlier call
        return _Done()

    def send(tensor: torch.Tensor, *args: Any, **options: Any) -> _Done:
        return _Done()

    def batch(operations: list[Any]) -> list[_Done]:
        sends = [op.tensor for op in operations if op.op is send]
        for position, op in enumerate([op for op in operations if op.op is not send]):
            if sends:
                _fill(op.tensor, sends[position % len(sends)])
            else:
                op.tensor.zero_()
        return [_Done() for _ in operations]

    def gather_objects(outputs: list[Any], item: Any, *args: Any, **options: Any) -> None:
        outputs[:] = [item] * len(outputs)

    stand_ins: dict[str, Callable[..., Any]] = {
        "all_reduce": in_place, "broadcast": in_place, "reduce": in_place, "isend": send, "irecv": receive,
        "send": send, "recv": receive, "barrier": lambda *a, **k: _Done(),
        "all_gather_into_tensor": into, "all_to_all_single": into, "all_gather": into_list, "all_to_all": into_list,
        "reduce_scatter": reduce_scatter, "reduce_scatter_tensor": reduce_scatter_tensor, "gather": gather,
        "scatter": scatter, "batch_isend_irecv": batch, "all_gather_object": gather_objects,
    }  # fmt: skip
    if not integers:
        plain = ("isend", "irecv", "send", "recv", "batch_isend_irecv")  # P2POp knows them by identity
        stand_ins = {name: f if name in plain else checked(f) for name, f in stand_ins.items()}
    # In both modules: P2POp compares what it is given with the functions of the inner one.
    places = (dist, dist.distributed_c10d)
    saved = [(place, name, getattr(place, name)) for place in places for name in stand_ins if hasattr(place, name)]
    try:
        for place, name, _ in saved:
            setattr(place, name, stand_ins[name])
        yield
    finally:
        for place, name, original in saved:
            setattr(place, name, original)
