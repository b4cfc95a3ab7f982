"""What a reference does on one rank, counted while it runs: operations, bytes in memory, bytes on the link, and steps.

    with counted() as count:
        problem.reference(*arguments)
    count.flops, count.link_sent_bytes, ...

Matrix products and convolutions are torch's own figures (`FlopCounterMode`). That counter sees nothing else, so a second
mode counts the rest: an elementwise operation or a reduction as one for each element of its largest tensor, times a weight
where one call of torch is several operations; a transform of N numbers as 5 N log2 N; a sort as N log2 N; copies, casts
and indexing as none. Memory is what torch moves without fusion: every operation reads its arguments and writes its result.

Links follow the convention of `Cost`: the fewest unicast bytes in each direction by which ranks can do what is asked, a copy
to itself being free. The log of messages is put together for all ranks by `steps_of`.
"""

import contextlib
import functools
import inspect
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry


@dataclass(frozen=True)
class Event:
    """A step that waits for others: a collective of some ranks, or messages to and from single ones."""

    members: tuple[int, ...] = ()
    steps: int = 0
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()


@dataclass
class Count:
    products: float = 0.0
    """Operations of matrix products and convolutions."""
    other: float = 0.0
    hbm_bytes: float = 0.0
    link_sent_bytes: float = 0.0
    link_received_bytes: float = 0.0
    events: list[Event] = field(default_factory=list)

    @property
    def flops(self) -> float:
        return self.products + self.other


# Operations that only bring values to another place or type. What is not listed is counted: a gap here weakens the bound.
MOVES = {
    "_to_copy", "arange", "cat", "clone", "constant_pad_nd", "copy_", "detach", "diagonal_copy", "empty", "empty_like",
    "empty_strided", "expand_copy", "eye", "fill_", "flip", "full", "full_like", "lift_fresh", "lift_fresh_copy",
    "masked_select", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "nonzero", "ones", "ones_like",
    "repeat", "roll", "scalar_tensor", "select_backward", "slice_backward", "split_with_sizes_copy", "stack", "tril",
    "triu", "tril_indices", "unfold_copy", "zero_", "zeros", "zeros_like", "_local_scalar_dense", "resize_", "item",
    "set_", "_efficientzerotensor", "is_pinned", "_unsafe_view", "_reshape_copy", "_reshape_alias", "linspace",
}  # fmt: skip
PICKS = {"index", "gather", "index_select", "embedding", "take", "masked_select"}
"""Moves that read no more than they write."""
WEIGHTS = {  # operations for each element, where one call is several
    "_softmax": 4, "_log_softmax": 4, "logsumexp": 4, "native_layer_norm": 8, "silu": 4, "silu_": 4, "sigmoid": 3,
    "log_sigmoid_forward": 4, "gelu": 8, "softplus": 3, "tanh": 4, "var": 4, "std": 4, "linalg_vector_norm": 2, "norm": 2,
    "mse_loss": 3, "addcmul": 3, "addcmul_": 3, "addcdiv": 3, "addcdiv_": 3, "lerp": 3, "lerp_": 3, "dot": 2, "mv": 2,
    "addmv": 2, "addmv_": 2, "vdot": 2, "cross": 3, "linalg_cross": 3, "silu_backward": 6, "sigmoid_backward": 3,
    "_softmax_backward_data": 4, "upsample_trilinear3d": 14, "mse_loss_backward": 3, "erfinv": 4,
    "native_layer_norm_backward": 12,
}  # fmt: skip
SORTS = {"sort", "argsort", "topk", "kthvalue", "_unique2", "unique_dim", "unique_consecutive", "searchsorted"}


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _bytes(tree: Any) -> int:
    tensors = [p for t in _tensors(tree) for p in ((t._indices(), t._values()) if t.is_sparse else (t,))]
    return sum(t.numel() * t.element_size() for t in tensors)


class _Arithmetic(TorchDispatchMode):
    """All that `FlopCounterMode` leaves out. It stands inside that one, which sees every operation next."""

    def __init__(self, count: Count) -> None:
        super().__init__()
        self.count = count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returned)
        if func.namespace == "c10d" or is_view:  # messages are counted where they are asked for, views are free
            return result
        name = func._schema.name.split("::")[1]
        given, made = _tensors((args, kwargs)), _tensors(result)
        each = name.startswith("_foreach_")  # one call for a list of tensors, which are all worked on
        if each and not made:  # in place, which returns nothing
            made = _tensors(args[0])
        self.count.hbm_bytes += 3 * _bytes(made) if name in PICKS else _bytes(given) + _bytes(made)
        if name not in MOVES | PICKS and func._overloadpacket not in flop_registry:
            largest = max((t for t in given + made), key=torch.Tensor.numel, default=None)
            if largest is not None:
                elements = sum(t.numel() for t in made) if each else largest.numel()
                self.count.other += _operations(name, elements, args) * _reals(name, made)
        return result


def _reals(name: str, made: list[torch.Tensor]) -> int:
    """Operations of reals in one of complex numbers."""
    if name.startswith("_fft") or not any(t.is_complex() for t in made):
        return 1
    return 6 if name.startswith(("mul", "div")) else 2


def _operations(name: str, elements: int, args: Any) -> float:
    if name.startswith("_fft"):
        # The arguments are the numbers, the axes, and, last of a transform to reals, how many of them are to come out.
        lengths = [args[0].shape[axis] for axis in args[1]]
        if name == "_fft_c2r":
            elements, lengths[-1] = args[0].numel() // lengths[-1] * args[3], args[3]
        elif name == "_fft_r2c":
            elements = args[0].numel()
        return (5 if name == "_fft_c2c" else 2.5) * elements * math.log2(max(2, math.prod(lengths)))
    if name in SORTS:
        return elements * math.log2(max(2, elements))
    return WEIGHTS.get(name, 1) * elements


def _members(group: Any) -> list[int]:
    return dist.get_process_group_ranks(dist.group.WORLD if group is None else group)


@dataclass(frozen=True)
class _Call:
    """One call of a collective: its arguments by name and the ranks it joins."""

    of: dict[str, Any]
    members: list[int]

    @property
    def n(self) -> int:
        return len(self.members)

    @property
    def me(self) -> int:
        return self.members.index(dist.get_rank())

    def at_root(self, name: str) -> bool:
        root = self.of.get(name)
        if root is None:
            within = self.of.get(f"group_{name}")
            root = self.members[within] if within is not None else 0
        return bool(dist.get_rank() == root)

    def pieces(self, tensor: str, splits: str) -> list[int]:
        """Bytes of the piece of each rank."""
        whole, sizes = self.of[tensor], self.of.get(splits)
        if not sizes:
            return [_bytes(whole) // self.n] * self.n
        row = _bytes(whole) // max(1, whole.shape[0])
        return [row * size for size in sizes]


Moved = tuple[float, float, float, int]
"""Bytes sent, bytes received, additions, dependent steps."""


def _all_reduce(call: _Call) -> Moved:
    share, tensor = (call.n - 1) / call.n, call.of["tensor"]
    return 2 * share * _bytes(tensor), 2 * share * _bytes(tensor), share * tensor.numel(), 2


def _broadcast(call: _Call) -> Moved:
    """Along a chain: the source sends once, and all but one of the others pass it on."""
    payload = _bytes(call.of["tensor"])
    return (payload, 0, 0, 1) if call.at_root("src") else ((call.n - 2) / (call.n - 1) * payload, payload, 0, 1)


def _reduce(call: _Call) -> Moved:
    tensor, n = call.of["tensor"], call.n
    payload, sums = _bytes(tensor), (n - 1) / n * tensor.numel()
    return (0, payload, sums, 1) if call.at_root("dst") else (payload, (n - 2) / (n - 1) * payload, sums, 1)


def _gather(call: _Call) -> Moved:
    own = _bytes(call.of["tensor"])
    return (0, _bytes(call.of["gather_list"]) - own, 0, 1) if call.at_root("dst") else (own, 0, 0, 1)


def _scatter(call: _Call) -> Moved:
    own = _bytes(call.of["tensor"])
    return (_bytes(call.of["scatter_list"]) - own, 0, 0, 1) if call.at_root("src") else (0, own, 0, 1)


def _all_gather(call: _Call) -> Moved:
    own = _bytes(call.of["tensor"])
    return (call.n - 1) * own, _bytes(call.of["tensor_list"]) - own, 0, 1


def _all_gather_into(call: _Call) -> Moved:
    own = _bytes(call.of["input_tensor"])
    return (call.n - 1) * own, (call.n - 1) * own, 0, 1


def _reduce_scatter(call: _Call) -> Moved:
    out = call.of["output"]
    whole = call.of["input_list"] if "input_list" in call.of else call.of["input"]
    return _bytes(whole) - _bytes(out), (call.n - 1) * _bytes(out), (call.n - 1) * out.numel(), 1


def _all_to_all_single(call: _Call) -> Moved:
    sent, received = call.pieces("input", "input_split_sizes"), call.pieces("output", "output_split_sizes")
    return sum(sent) - sent[call.me], sum(received) - received[call.me], 0, 1


def _all_to_all(call: _Call) -> Moved:
    given, made = call.of["input_tensor_list"], call.of["output_tensor_list"]
    return _bytes(given) - _bytes(given[call.me]), _bytes(made) - _bytes(made[call.me]), 0, 1


COLLECTIVES: dict[str, Callable[[_Call], Moved]] = {
    "all_reduce": _all_reduce, "broadcast": _broadcast, "reduce": _reduce, "gather": _gather, "scatter": _scatter,
    "all_gather": _all_gather, "all_gather_into_tensor": _all_gather_into, "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter, "all_to_all_single": _all_to_all_single, "all_to_all": _all_to_all,
}  # fmt: skip
MESSAGES = ("send", "isend", "recv", "irecv")
# Calls such as all_gather_object are made of these, which are counted then; so is a barrier, which carries no data.


class _Links:
    """Stands in front of torch.distributed and writes down what passes."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.inside = False

    def wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def counted(*args: Any, **options: Any) -> Any:
            if self.inside:  # one collective may be made of others
                return original(*args, **options)
            bound = signature.bind(*args, **options)
            bound.apply_defaults()
            self._note(name, bound.arguments)
            self.inside = True
            try:
                return original(*args, **options)
            finally:
                self.inside = False

        return counted

    def _note(self, name: str, arguments: dict[str, Any]) -> None:
        if name == "batch_isend_irecv":
            operations = [(op.op.__name__, op.tensor, op.peer) for op in arguments["p2p_op_list"]]
            self._exchange(operations)
        elif name in MESSAGES:
            peer = arguments.get("dst", arguments.get("src"))
            if peer is None:
                within = arguments.get("group_dst", arguments.get("group_src"))
                assert within is not None, "a message from anyone cannot be counted"
                peer = _members(arguments["group"])[within]
            self._exchange([(name, arguments["tensor"], peer)])
        else:
            members = _members(arguments.get("group"))
            if len(members) > 1:
                sent, received, additions, steps = COLLECTIVES[name](_Call(arguments, members))
                self.count.link_sent_bytes += sent
                self.count.link_received_bytes += received
                self.count.other += additions
                self.count.hbm_bytes += _bytes(list(arguments.values())) * (2 if name == "all_reduce" else 1)
                self.count.events.append(Event(members=tuple(members), steps=steps))

    def _exchange(self, operations: list[tuple[str, torch.Tensor, int]]) -> None:
        operations = [op for op in operations if op[2] != dist.get_rank()]
        sends = [(tensor, peer) for name, tensor, peer in operations if name in ("send", "isend")]
        receives = [(tensor, peer) for name, tensor, peer in operations if name in ("recv", "irecv")]
        self.count.link_sent_bytes += sum(_bytes(tensor) for tensor, _ in sends)
        self.count.link_received_bytes += sum(_bytes(tensor) for tensor, _ in receives)
        self.count.hbm_bytes += sum(_bytes(tensor) for _, tensor, _ in operations)
        self.count.events.append(Event(sends=tuple(p for _, p in sends), receives=tuple(p for _, p in receives)))


@contextlib.contextmanager
def counted() -> Iterator[Count]:
    """Counts what this rank does inside. The figures are complete when the block ends."""
    count = Count()
    links = _Links(count)
    # In both modules: P2POp compares what it is given with the functions of the inner one.
    places = (dist, dist.distributed_c10d)
    names = (*COLLECTIVES, *MESSAGES, "batch_isend_irecv")
    saved = {name: getattr(dist, name) for name in names}
    stand_ins = {name: links.wrap(name, original) for name, original in saved.items()}
    try:
        for place in places:
            for name in names:
                setattr(place, name, stand_ins[name])
        # A fused attention kernel would hide its products from the counter.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as products, _Arithmetic(count):
            yield count
        count.products += products.get_total_flops()
    finally:
        for place in places:
            for name in names:
                setattr(place, name, saved[name])


def steps_of(logs: list[list[Event]]) -> int:
    """The longest chain of dependent messages, from the logs of all ranks.

    Every rank has a clock. A collective sets those of its members to the latest of them and its own steps; a message
    arrives one step after the clock of its sender when it left.
    """
    clocks = [0] * len(logs)
    left: list[deque[Event]] = [deque(log) for log in logs]
    under_way: dict[tuple[int, int], deque[int]] = defaultdict(deque)
    departed = [False] * len(logs)  # whether the sends of a rank's next event have been made

    def advance(rank: int) -> bool:
        event = left[rank][0]
        if event.members:
            if any(not left[m] or left[m][0].members != event.members for m in event.members):
                return False
            time = max(clocks[m] for m in event.members) + event.steps
            for member in event.members:
                left[member].popleft()
                clocks[member] = time
            return True
        if not departed[rank]:
            for peer in event.sends:
                under_way[rank, peer].append(clocks[rank])
            departed[rank] = True
        if any(len(under_way[peer, rank]) < event.receives.count(peer) for peer in event.receives):
            return False
        for peer in event.receives:
            clocks[rank] = max(clocks[rank], under_way[peer, rank].popleft() + 1)
        left[rank].popleft()
        departed[rank] = False
        return True

    while any(left):
        if not any([advance(rank) for rank in range(len(logs)) if left[rank]]):
            raise ValueError(f"these messages never meet: {[list(log)[:1] for log in left]}")
    return max(clocks, default=0)
