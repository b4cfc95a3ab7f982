"""What a step costs when next to nothing is done in it: a launch, a barrier of all ranks, a signal there and back."""

import time
from typing import Any

import torch

from pkb import kit
from pkb.rank.probe.local import idle
from pkb.rank.probe.sample import ProbeTimes, Sampler

WAIT_LIMIT_NS = 5_000_000_000
ROUNDS = 500
HOST_LAUNCHES = 300
CHANNEL = 1
"""Channel 0 of this handle is the one that made it."""


class Latency:
    """`handle` is of a symmetric buffer that the probe owns; `kernels` the module of probe.cu, None on a CPU."""

    def __init__(self, sampler: Sampler, *, rank: int, world_size: int, kernels: Any) -> None:
        self._sampler, self._rank, self._world_size, self._kernels = sampler, rank, world_size, kernels
        self._device = sampler.device.torch_device
        self._boxes = kit.staging(1024, self._device, name="probe signals")
        self._base = {"ping": 0, "barriers": 0}

    def launch(self, *, runs: bool) -> ProbeTimes:
        """Empty kernels one after another on the device, which the host has queued before; on a CPU the smallest operator."""
        if self._kernels is None:
            one = torch.zeros(1)
            return self._sampler.take(lambda number: one.add_(1), runs=runs)
        empty = self._kernels.kernel("empty")[1, 32]
        return self._sampler.take(lambda number: empty(), runs=runs)

    def launch_host(self, *, runs: bool) -> ProbeTimes:
        """What the host needs to queue one, from Python."""
        empty = self._kernels.kernel("empty")[1, 32]
        times = []
        for _ in range(self._sampler.effort.repeats + 1):
            self._sampler.device.synchronize()
            self._sampler.meet()
            began = time.perf_counter()
            for _ in range(HOST_LAUNCHES if runs else 0):
                empty()
            times.append(1e6 * (time.perf_counter() - began) / HOST_LAUNCHES)
        self._sampler.device.synchronize()
        self._sampler.meet()
        return ProbeTimes(times[1:] if runs else [], len(times) * HOST_LAUNCHES)  # the first batch loads the kernel

    def barrier(self) -> ProbeTimes:
        """A barrier of all ranks through torch's handle: on a GPU a separate kernel."""
        handle = self._boxes.handle
        timeout_ms = 0 if self._device.type == "cuda" else WAIT_LIMIT_NS // 1_000_000
        return self._sampler.take(lambda number: handle.barrier(CHANNEL, timeout_ms), runs=True)

    def barrier_in_kernel(self) -> ProbeTimes:
        """A barrier of all ranks inside one kernel: what a fused kernel pays for each of its phases."""
        return self._exchange("barriers", [kit.i32(self._world_size)], threads=32, runs=True)

    def round_trip(self) -> ProbeTimes:
        """Rank 0 signals rank 1, which answers: two dependent steps between ranks."""
        runs = self._rank < 2
        if self._kernels is not None:
            peer, starts = kit.i32(1 - self._rank if runs else 0), kit.i32(int(self._rank == 0))
            return self._exchange("ping", [peer, starts], threads=1, runs=runs)
        handle, timeout_ms = self._boxes.handle, WAIT_LIMIT_NS // 1_000_000

        def there_and_back(number: int) -> None:
            if self._rank == 0:
                handle.put_signal(1, CHANNEL, timeout_ms)
                handle.wait_signal(1, CHANNEL, timeout_ms)
            else:
                handle.wait_signal(0, CHANNEL, timeout_ms)
                handle.put_signal(0, CHANNEL, timeout_ms)

        return self._sampler.take(there_and_back if runs else idle, runs=runs)

    def _exchange(self, kernel: str, arguments: list[Any], *, threads: int, runs: bool) -> ProbeTimes:
        """Many exchanges in one kernel, timed by the kernel's own clock from the second on."""
        launch = self._kernels.kernel(kernel)[1, threads]
        out = torch.zeros(2, dtype=torch.int64, device=self._device)
        times = []
        for _ in range(self._sampler.effort.repeats + 1):
            self._sampler.device.synchronize()
            self._sampler.meet()
            if not runs:
                continue
            base = self._base[kernel]
            self._base[kernel] = base + ROUNDS + 1
            launch(
                kit.buffers(self._boxes.handle), kit.i32(self._rank), *arguments, kit.i32(ROUNDS), kit.u32(base),
                WAIT_LIMIT_NS, out,
            )  # fmt: skip
            taken_ns, ran_out = out.tolist()
            if ran_out:
                raise RuntimeError(
                    f"rank {self._rank}: {kernel}: a signal did not come within {WAIT_LIMIT_NS / 1e9:.0f} s"
                )
            times.append(taken_ns / ROUNDS / 1e3)
        self._sampler.meet()
        return ProbeTimes(times[1:], len(times) * ROUNDS)
