"""Communication that is nearly right: every exchange takes place, and what arrives from a peer is changed before it is used.

A kernel that forgets one peer, a tile or a hop, that reads what a peer sent in the call before, or that sends fewer bits than
it was given, moves nearly all data that must move. `ChangedWire` gives the reference such a wire. Only payload is changed:
floating-point numbers, and bytes that hold them. Counts and indices arrive as they are, or ranks would wait for each other;
where nothing but integers travels, those of the last exchange are what the call is for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

Change = Callable[[int, int, torch.Tensor], torch.Tensor]
"""From the number of the exchange in this call, the distance to the sender in its group (1: the rank before) and what it
sent, to what arrives."""
TILE = 1 / 32
"""The share of every message that `last_tile_missing` does not send, one element at least."""
INT8_BLOCK = 32
"""Elements with one scale in `int8_communication`, as in the quantised all-reduces of inference engines."""


def is_payload(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.uint8


class _Later:
    """A pending receive: what arrived is changed when somebody waits for it."""

    def __init__(self, works: list[Any], change: Callable[[], None]) -> None:
        self.works, self.change = works, change

    def wait(self, timeout: Any = None) -> bool:
        for work in self.works:
            work.wait()
        self.works = []
        self.change()
        self.change = lambda: None
        return True

    def is_completed(self) -> bool:
        return self.wait()


class ChangedWire:
    """While it is entered, torch.distributed hands out what `change` makes of it. Sums are formed from all ranks' changed
    parts in wide arithmetic, so that nothing but the change is wrong with them."""

    def __init__(self, change: Change, *, integers_from: int | None = None) -> None:
        self.change = change
        self.integers_from = integers_from
        """The first exchange whose integers are payload too."""
        self.exchanges = 0
        """With payload, so far."""
        self.all_exchanges = 0
        names = (
            "all_reduce", "broadcast", "reduce", "isend", "irecv", "send", "recv", "all_gather_into_tensor", "all_gather",
            "all_to_all_single", "reduce_scatter_tensor", "gather", "scatter", "batch_isend_irecv",
        )  # fmt: skip
        self.ours: dict[str, Any] = {name: getattr(self, f"_{name}") for name in names}
        # In both modules: P2POp compares what it is given with the functions of the inner one.
        self.places = (dist, dist.distributed_c10d)
        self.originals = {name: getattr(dist, name) for name in names}

    def __enter__(self) -> "ChangedWire":
        self._install(self.ours)
        return self

    def __exit__(self, *exception: object) -> None:
        self._install(self.originals)

    def _install(self, functions: dict[str, Any]) -> None:
        for place in self.places:
            for name, function in functions.items():
                setattr(place, name, function)

    @contextmanager
    def _real(self) -> Iterator[Any]:
        self._install(self.originals)
        try:
            yield dist
        finally:
            self._install(self.ours)

    def _arrive(self, pieces: dict[int, torch.Tensor], group: Any) -> None:
        """Pieces by the sender's index in the group; a rank's own part does not travel."""
        me, members = dist.get_rank(group), dist.get_world_size(group)
        if members == 1:
            return
        self.all_exchanges += 1
        integers = self.integers_from is not None and self.all_exchanges > self.integers_from
        if not any(integers or is_payload(piece) for piece in pieces.values()):
            return
        self.exchanges += 1
        for sender, piece in pieces.items():
            if sender != me and piece.numel():
                piece.copy_(self.change(self.exchanges - 1, (me - sender) % members, piece))

    def _parts_of_all(self, tensor: torch.Tensor, group: Any) -> list[torch.Tensor]:
        parts = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(_members(group))]
        with self._real() as real:
            real.all_gather(parts, tensor.contiguous(), group=group)
        self._arrive(dict(enumerate(parts)), group)
        return parts

    def _all_reduce(
        self, tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        tensor.copy_(_reduced(self._parts_of_all(tensor, group), op))
        return _Later([], lambda: None)

    def _reduce(
        self, tensor: torch.Tensor, dst: Any = None, op: Any = dist.ReduceOp.SUM, group: Any = None,
        async_op: bool = False, group_dst: Any = None,
    ) -> Any:  # fmt: skip
        parts = self._parts_of_all(tensor, group)
        if dist.get_rank(group) == _index(dst, group_dst, group):
            tensor.copy_(_reduced(parts, op))
        return _Later([], lambda: None)

    def _reduce_scatter_tensor(
        self, output: torch.Tensor, source: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,
        async_op: bool = False,
    ) -> Any:  # fmt: skip
        flat = torch.empty(source.numel(), dtype=source.dtype, device=source.device)
        with self._real() as real:
            real.all_to_all_single(flat, source.reshape(-1), group=group)
        parts = list(flat.chunk(_members(group)))
        self._arrive(dict(enumerate(parts)), group)
        output.copy_(_reduced(parts, op).view_as(output))
        return _Later([], lambda: None)

    def _all_gather_into_tensor(
        self, output: torch.Tensor, source: torch.Tensor, group: Any = None, async_op: bool = False
    ) -> Any:
        with self._real() as real:
            real.all_gather_into_tensor(output, source, group=group)
        self._arrive(dict(enumerate(output.view(-1).chunk(_members(group)))), group)
        return _Later([], lambda: None)

    def _all_gather(
        self, outputs: list[torch.Tensor], source: torch.Tensor, group: Any = None, async_op: bool = False
    ) -> Any:
        with self._real() as real:
            real.all_gather(outputs, source, group=group)
        self._arrive(dict(enumerate(outputs)), group)
        return _Later([], lambda: None)

    def _all_to_all_single(
        self, output: torch.Tensor, source: torch.Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
        group: Any = None, async_op: bool = False,
    ) -> Any:  # fmt: skip
        with self._real() as real:
            real.all_to_all_single(output, source, output_split_sizes, input_split_sizes, group=group)
        members = _members(group)
        splits = list(output_split_sizes or [output.shape[0] // members] * members)
        self._arrive(dict(enumerate(output.split(splits))), group)
        return _Later([], lambda: None)

    def _broadcast(
        self, tensor: torch.Tensor, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = None
    ) -> Any:
        root = _index(src, group_src, group)
        with self._real() as real:
            real.broadcast(tensor, group=group, group_src=root)
        self._arrive({root: tensor}, group)
        return _Later([], lambda: None)

    def _gather(
        self, tensor: torch.Tensor, gather_list: Any = None, dst: Any = None, group: Any = None, async_op: bool = False,
        group_dst: Any = None,
    ) -> Any:  # fmt: skip
        root = _index(dst, group_dst, group)
        with self._real() as real:
            real.gather(tensor, gather_list, group=group, group_dst=root)
        self._arrive(dict(enumerate(gather_list or [])), group)
        return _Later([], lambda: None)

    def _scatter(
        self, tensor: torch.Tensor, scatter_list: Any = None, src: Any = None, group: Any = None, async_op: bool = False,
        group_src: Any = None,
    ) -> Any:  # fmt: skip
        root = _index(src, group_src, group)
        with self._real() as real:
            real.scatter(tensor, scatter_list, group=group, group_src=root)
        self._arrive({root: tensor}, group)
        return _Later([], lambda: None)

    def _send(self, *args: Any, **options: Any) -> None:
        with self._real() as real:
            real.send(*args, **options)

    def _isend(self, *args: Any, **options: Any) -> Any:
        with self._real() as real:
            return real.isend(*args, **options)

    def _recv(
        self, tensor: torch.Tensor, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None
    ) -> int:
        self._irecv(tensor, src, group, tag, group_src).wait()
        return int(src if src is not None else dist.get_global_rank(group, group_src))

    def _irecv(
        self, tensor: torch.Tensor, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None
    ) -> Any:
        sender = _index(src, group_src, group)
        with self._real() as real:
            work = real.irecv(tensor, group=group, tag=tag, group_src=sender)
        return _Later([work], lambda: self._arrive({sender: tensor}, group))

    def _batch_isend_irecv(self, operations: list[Any]) -> list[Any]:
        received = [(op.group_peer, op.tensor, op.group) for op in operations if op.op == self.ours["irecv"]]
        for op in operations:
            op.op = self.originals["irecv" if op.op == self.ours["irecv"] else "isend"]
        with self._real() as real:
            works = real.batch_isend_irecv(operations)

        def change() -> None:
            before = self.exchanges, self.all_exchanges
            for sender, tensor, group in received:  # one hop, however many messages
                self.exchanges, self.all_exchanges = before
                self._arrive({sender: tensor}, group)

        later = _Later(works, change)
        return [later for _ in operations]


def _members(group: Any) -> int:
    return dist.get_world_size(group)


def _index(rank: Any, group_rank: Any, group: Any) -> int:
    """The index in the group of a rank that is given as one of the world or as one of the group."""
    if group_rank is not None:
        return int(group_rank)
    return int(rank or 0) if group is None else dist.get_group_rank(group, int(rank or 0))


def _reduced(parts: list[torch.Tensor], op: Any) -> torch.Tensor:
    stacked = torch.stack(parts)
    if op == dist.ReduceOp.MAX:
        return stacked.amax(dim=0)
    if op == dist.ReduceOp.MIN:
        return stacked.amin(dim=0)
    if not (stacked.is_floating_point() or stacked.is_complex()):
        return stacked.sum(dim=0, dtype=stacked.dtype)
    total = stacked.to(torch.complex128 if stacked.is_complex() else torch.float64).sum(dim=0)
    return (total / len(parts) if op == dist.ReduceOp.AVG else total).to(stacked.dtype)


def without_previous(exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(piece) if distance == 1 else piece


def without_hop(hop: int, exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(piece) if exchange == hop else piece


def without_tail(exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    flat = piece.flatten().clone()
    flat[-max(1, round(TILE * flat.numel())) :] = 0
    return flat.view(piece.shape)


def through_int8(exchange: int, distance: int, piece: torch.Tensor) -> torch.Tensor:
    """Rounded to one of 255 values for every block of elements, scaled by the block's largest."""
    if piece.is_complex():
        return torch.view_as_complex(through_int8(exchange, distance, torch.view_as_real(piece)))
    if not piece.is_floating_point() or piece.numel() < 2:
        return piece  # bytes are narrow enough; nobody quantises a scalar
    wide = piece.flatten().double()
    padded = torch.nn.functional.pad(wide, (0, -wide.numel() % INT8_BLOCK)).view(-1, INT8_BLOCK)
    scale = padded.abs().amax(dim=1, keepdim=True).nan_to_num(posinf=0.0).clamp(min=1e-300) / 127
    rounded = torch.where(padded.isfinite(), (padded / scale).round() * scale, padded)
    return rounded.flatten()[: wide.numel()].view(piece.shape).to(piece.dtype)
