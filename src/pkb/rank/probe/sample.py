"""How `pkb probe` takes a time: batches of calls after a common start of all ranks, as many as fill a few milliseconds.

All ranks take part in every measurement, also those that have nothing to do in it: who is idle is part of what is measured.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from pkb.rank.devices import Device
from pkb.types.protocol.commands import Effort

WARM_CALLS = 3
HOST_US_PER_CALL = 15.0
"""What Python needs at most to queue a call. So long the device is kept busy, or small calls would measure the host."""
LONGEST_COVER_US = 8000.0


@dataclass(frozen=True)
class ProbeTimes:
    us: list[float]
    """Microseconds per call, one number a batch; empty on a rank that only stood by."""
    calls: int
    """All calls since the beginning, warm-up included; the same on all ranks."""


class Sampler:
    def __init__(self, device: Device, *, effort: Effort, meet: Callable[[], object]) -> None:
        self.device, self.effort, self.meet = device, effort, meet

    def take(self, call: Callable[[int], object], *, runs: bool) -> ProbeTimes:
        """Times `call(0)`, `call(1)`, ...: a number that never comes back, so that each call can use memory of its own.

        Collective. When it returns, the work of all ranks is done and visible.
        """
        self._batch(call, range(WARM_CALLS), runs=runs)
        first = self._batch(call, range(WARM_CALLS, 2 * WARM_CALLS), runs=runs)
        # The slowest rank decides for all: ranks that stop at different times would not disturb each other to the end.
        call_ms = max(agree(first / WARM_CALLS / 1e6), 1e-6)
        count = int(min(max(self.effort.batch_ms / call_ms, 1), self.effort.most_calls))
        done, times = 2 * WARM_CALLS, []
        for _ in range(self.effort.repeats):
            times.append(self._batch(call, range(done, done + count), runs=runs) / count / 1e3)
            done += count
        self.meet()
        return ProbeTimes(times if runs else [], done)

    def _batch(self, call: Callable[[int], object], numbers: range, *, runs: bool) -> int:
        """Nanoseconds of the batch on this rank, from the common start on."""
        device = self.device
        device.synchronize()
        self.meet()
        if runs and device.torch_device.type == "cuda":
            device.spin(min(LONGEST_COVER_US, 100 + HOST_US_PER_CALL * len(numbers)))
        device.forget_stamps()
        device.align()
        if not runs:
            device.synchronize()
            return 0
        start = device.stamp()
        for number in numbers:
            call(number)
        end = device.stamp()
        device.synchronize()
        return device.read_ns(end) - device.read_ns(start)


def agree(value: float) -> float:
    """The largest value of all ranks, on all of them."""
    shared = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared[0])
