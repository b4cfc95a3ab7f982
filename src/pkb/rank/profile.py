"""What ran on this rank's device: the records of torch's profiler, packed small enough to be sent.

One mechanism for both uses: the names of all events show a library called behind torch's back (observe.py), and the records
of kernels, copies and fills are what the judge's profile is made of (judge/profile/activity.py). In a candidate's rank all
of it is a claim.
"""

import contextlib
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch

from pkb.types.protocol.limits import MAX_KERNEL_NAMES, MAX_NAME, MAX_NS, MAX_RECORDS, clean
from pkb.types.protocol.replies import Activity, RecordRow

_is_available = torch.cuda.is_available  # the real one, whatever a candidate is told later
_BYTES = re.compile(r'"bytes":\s*"?(\d{1,15})')


class DeviceEvents(list[Any]):
    """Events in the profiler's order; their times count from `zero_ns`."""

    zero_ns = 0
    """By the host's clock, which all ranks of a machine share; 0 where this torch does not say."""


@contextlib.contextmanager
def device_events(*, wanted: bool) -> Iterator[DeviceEvents]:
    """The profiler's events of this block, available after the block; none if they are not wanted or there is no GPU."""
    events = DeviceEvents()
    if not wanted or not _is_available():
        yield events
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about cycles of the profiler, which nobody here uses
        # What torch.profiler.profile makes and starts, without the import of torch's compiler that it begins with: three
        # seconds in every rank of every evaluation.
        with torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiler:
            yield events
    events.extend(profiler.function_events or ())
    began = getattr(getattr(profiler, "kineto_results", None), "trace_start_ns", None)
    events.zero_ns = int(began()) if began is not None else 0


def pack_records(events: Iterable[Any]) -> Activity:
    """Kernels, copies and fills in the order of their starts, which count from the first; what the protocol has no room for,
    or a profiler has got wrong, is left out and counted."""
    found = []
    for event in events:
        kind = _kind(event)
        if kind is None:
            continue
        start_ns, end_ns = (round(1000 * at) for at in (event.time_range.start, event.time_range.end))
        if end_ns >= start_ns:  # CUPTI gives a record without an end where a kernel was cut off
            found.append((start_ns, end_ns - start_ns, clean(str(event.name), MAX_NAME), kind, event))
    found.sort(key=lambda row: row[:2])
    numbers: dict[str, int] = {}
    first_ns = found[0][0] if found else 0
    records: list[RecordRow] = []
    for start_ns, duration_ns, name, kind, event in found[:MAX_RECORDS]:
        stream = int(getattr(event, "device_resource_id", 0))
        if name not in numbers and len(numbers) == MAX_KERNEL_NAMES:
            continue
        if max(start_ns - first_ns, duration_ns, stream) <= MAX_NS and stream >= 0:
            number = numbers.setdefault(name, len(numbers))
            size = _bytes(event) if kind != "kernel" else None
            records.append((number, kind, start_ns - first_ns, duration_ns, stream, size))
    zero_ns = getattr(events, "zero_ns", 0)
    began_ns = zero_ns + first_ns if zero_ns and records else 0
    return Activity(tuple(numbers), tuple(records), len(found) - len(records), began_ns)


def _kind(event: Any) -> Literal["kernel", "memcpy", "memset"] | None:
    """None for what ran on the host, and for ranges that the profiler paints over the device's timeline."""
    if event.device_type.name != "CUDA" or getattr(event, "is_user_annotation", False):
        return None
    name = str(event.name)
    if name.startswith("Memcpy"):
        return "memcpy"
    if name.startswith("Memset"):
        return "memset"
    return None if name.endswith(" Sync") else "kernel"  # `Stream Sync`: a wait, no work


def _bytes(event: Any) -> int | None:
    """What a copy moved: newer versions of torch say it in a field, some older ones in text, others not at all."""
    known = getattr(getattr(event, "event_metadata", None), "bytes", None)
    if known is not None:
        return int(known) if 0 <= int(known) <= 1 << 50 else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match = _BYTES.search(str(getattr(event, "metadata_json", "") or ""))
    return int(match[1]) if match else None
