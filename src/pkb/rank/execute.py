"""Runs a batch of calls on one rank: the same code for correctness, races and timing, on both sides.

A candidate that would like to behave in one stage and cheat in another sees the same sequence in all of them: a batch of
calls on data it has not seen, then a request for outputs.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pkb.rank.devices import Device, RankBarrier
from pkb.rank.trees import BadTree, tensors_in
from pkb.rank.window.seals import Digest, Seals
from pkb.types.protocol.commands import Schedule
from pkb.types.protocol.status import OnStep

Argument: TypeAlias = (
    "torch.Tensor | torch.nn.Module | torch.distributed.ProcessGroup | float | str"
    " | Sequence[Argument] | Mapping[str, Argument] | None"
)
Arguments: TypeAlias = dict[str, Argument]
"""Of one call, by name."""


@dataclass
class CallRecord:
    start_ns: int
    end_ns: int
    """In the order of the current stream."""
    host_us: float
    """How long the call kept the host."""
    settled_ns: int
    """After all devices are idle: far behind `end_ns` if work was put where the end mark does not see it, on another stream or
    on a peer's GPU."""


class Batch:
    """The results of a batch, held until they are fetched or dropped."""

    def __init__(self) -> None:
        self.outputs: dict[int, Any] = {}
        self.records: list[CallRecord] = []
        self.digests: list[Digest] = []
        """By call, if they were asked for."""
        self.reused: tuple[bool, ...] = ()
        """By call, where results were copied: whether it shares memory with that of another call."""


def run_batch(
    function: Callable[..., Any],
    arguments: dict[int, Arguments],
    schedule: Schedule,
    *,
    device: Device,
    barrier: RankBarrier,
    seals: Seals,
    mutates: tuple[str, ...],
    returns_input: bool,
    on_step: OnStep,
    on_open: Callable[[int], None] | None = None,
) -> Batch:
    """Call the function once per slot. Outputs of all calls are held, so one that a later call overwrites is found out.

    Arguments are opened in stream order, behind everything that keeps the device busy before a call: work on a stream that
    does not wait for the current one finds them sealed. `on_open` is told of each slot once it is open.
    """
    batch, key = Batch(), bytes.fromhex(schedule.key)
    stamps: list[tuple[Any, Any, Any, float, float]] = []
    digests: list[Callable[[], list[Digest]]] = []
    copied: list[Any] = []

    def copy_results() -> None:
        """Those of the call before, as late as a caller may who uses them before the next call."""
        for output in itertools.islice(batch.outputs.values(), len(copied), None) if schedule.copies else ():
            copied.append(output["returned"])
            output["returned"] = copy_of(output["returned"])

    device.make_current()
    device.synchronize()
    device.forget_stamps()
    if schedule.together:
        on_step("waiting for the other ranks to begin the batch", waiting=True)
        barrier.wait(timeout_s=schedule.barrier_timeout_s)
    for position, slot in enumerate(schedule.slots):
        values = arguments[slot]
        device.make_current()
        if schedule.late_host_us and schedule.late_host_us[position]:
            time.sleep(schedule.late_host_us[position] * 1e-6)
        if schedule.late_device_us and schedule.late_device_us[position]:
            device.spin(schedule.late_device_us[position])
        copy_results()
        if schedule.aligned:
            device.unpin_cache()
            device.synchronize()
            on_step(f"waiting for the other ranks to begin call {position}", waiting=True)
            barrier.wait(timeout_s=schedule.barrier_timeout_s)
            if schedule.cover_us:
                device.spin(schedule.cover_us)
        seals.open(slot, key)
        if on_open is not None:
            on_open(slot)
        if schedule.aligned:
            device.flush_cache()  # opening has left the arguments in it
            if device.in_step:
                barrier.wait(timeout_s=schedule.barrier_timeout_s)
            device.align()
        on_step(f"in solution(), call {position}")
        start = device.stamp() if schedule.aligned else None
        host_start = time.perf_counter()
        returned = function(*values.values())
        device.make_current()
        output = {"returned": returned, "mutated": {name: values[name] for name in mutates}}
        if schedule.aligned:
            end = device.stamp()
            host_us = 1e6 * (time.perf_counter() - host_start)
            if schedule.digests:  # straight behind the end mark: what is not there by then is not in the digest
                digests.append(seals.commit([output], key))
            on_step(f"waiting for the device to finish call {position}", waiting=True)
            device.wait()
            settled = device.stamp()
            device.wait()
            stamps.append((start, end, settled, host_us, device.wait_elsewhere()))
        if schedule.overwrite:
            output["returned"] = _detach_from_arguments(returned, values, returns_input)
            _overwrite(values, keep=mutates)
        batch.outputs[slot] = output
    copy_results()
    if schedule.digests and not schedule.aligned:
        digests.append(_commitment(seals, [batch.outputs[slot] for slot in schedule.slots], key))
    on_step("waiting for the device to finish the batch", waiting=True)
    device.synchronize()
    batch.digests = [digest for read in digests for digest in read()]
    for *marks, host_us, elsewhere_us in stamps:
        start_ns, end_ns, settled_ns = (device.read_ns(mark) for mark in marks)
        batch.records.append(CallRecord(start_ns, end_ns, host_us, settled_ns + int(1e3 * elsewhere_us)))
    batch.reused = share_memory(copied)
    on_step("idle")
    return batch


def _commitment(seals: Seals, outputs: Sequence[Any], key: bytes) -> Callable[[], list[Digest]]:
    """Of what cannot be hashed, to nothing: it is refused when it is fetched, and nothing else will do in its place."""
    try:
        return seals.commit(outputs, key)
    except BadTree:
        return lambda: [()] * len(outputs)


def copy_of(returned: Any) -> Any:
    """A copy in stream order; what is no plain tensor or collection stays as it is, and is refused when it is fetched."""
    if type(returned) in (torch.Tensor, torch.nn.Parameter):
        return torch.Tensor.clone(returned.detach())
    if type(returned) is list:
        return [copy_of(item) for item in returned]
    if isinstance(returned, tuple):
        return tuple([copy_of(item) for item in returned])
    if type(returned) is dict:
        return {key: copy_of(value) for key, value in returned.items()}
    return returned


def share_memory(results: Sequence[Any]) -> tuple[bool, ...]:
    """By result, all of them still held: whether it shares memory with another."""
    owned = [_storages(result) for result in results]
    owners = Counter(itertools.chain.from_iterable(owned))
    return tuple(any(owners[storage] > 1 for storage in mine) for mine in owned)


def _storages(returned: Any) -> set[int]:
    try:
        return {tensor.untyped_storage().data_ptr() for tensor in tensors_in(returned) if tensor.numel()}
    except BadTree:
        return set()


def _detach_from_arguments(returned: Any, values: Arguments, returns_input: bool) -> Any:
    """Where a problem may return an argument itself, copy it before the arguments are overwritten."""
    if not returns_input or type(returned) is not torch.Tensor:
        return returned
    owners = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(values)}
    return returned.clone() if returned.untyped_storage().data_ptr() in owners else returned


def _overwrite(values: Arguments, *, keep: tuple[str, ...]) -> None:
    """NaN in every floating argument; integers become 0, which is a valid index, so that a late reader is wrong, not lost."""
    for name, value in values.items():
        if name in keep:
            continue
        for tensor in tensors_in(value):
            tensor.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else 0)


def aliases(returned: Any, values: Arguments) -> list[str]:
    """Names of arguments whose memory an output shares."""
    outputs = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(returned) if tensor.numel()}
    return [
        name
        for name, value in values.items()
        if any(tensor.untyped_storage().data_ptr() in outputs for tensor in tensors_in(value) if tensor.numel())
    ]
