"""The loop of one rank process: receive a command, do it, answer. Oracle and candidate differ in the commands they know."""

import contextlib
import datetime
import faulthandler
import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pkb.rank.devices import CpuDevice, CudaDevice, Device, RankBarrier
from pkb.rank.execute import Arguments, Batch, run_batch
from pkb.rank.profile import device_events, pack_records
from pkb.rank.raised import cause_of
from pkb.rank.trees import BadTree, pack
from pkb.rank.window.seals import Seals
from pkb.types.channel import Channel
from pkb.types.processes import cores_to_spare
from pkb.types.protocol.codec import encode
from pkb.types.protocol.commands import COMMAND_BYTES, Command, RunBatch
from pkb.types.protocol.limits import MAX_NAME, MAX_TEXT, MAX_TRACE, clean
from pkb.types.protocol.replies import BatchReport, ErrorReport, OutputReply, Reply
from pkb.types.protocol.settings import SideSettings
from pkb.types.protocol.status import STATUS_BYTES, encode_status


@dataclass(frozen=True)
class RankConfig:
    """What the warden knows about a rank."""

    side: SideSettings
    rank: int

    @property
    def world_size(self) -> int:
        return self.side.world_size

    @property
    def device(self) -> str:
        return self.side.device

    @property
    def folder(self) -> Path:
        """Private to this side: rendezvous file, symmetric memory, temporary files."""
        return Path(self.side.folder)


Groups = dict[str, dist.ProcessGroup | None]
WAKE_S = 0.01
"""A host that has slept, whose caches are another process's, and a device whose clocks have gone down."""
AWAKE_S = 0.05
"""After that, how long a rank waits for its order without going to sleep."""


class StatusPage:
    """One line of text per rank that the judge can read at any moment, even when the rank is stuck in a kernel."""

    def __init__(self, page: mmap.mmap, rank: int) -> None:
        self._page, self._start = page, rank * STATUS_BYTES
        self._stage = "starting"

    def step(self, text: str, *, waiting: bool = False) -> None:
        self._stage = text
        self._write(text, waiting=waiting)

    def wait(self, text: str | None) -> None:
        """A wait inside the current step, such as a symmetric-memory barrier; None when it is over."""
        self._write(f"{self._stage}: {text}" if text else self._stage, waiting=text is not None)

    def _write(self, text: str, *, waiting: bool) -> None:
        self._page[self._start : self._start + STATUS_BYTES] = encode_status(text, waiting=waiting)


class Rank:
    """State common to both roles."""

    commands: tuple[type[Command[Reply]], ...] = ()
    """Those that this role knows."""
    mutates: tuple[str, ...] = ()
    returns_input: bool = False

    def __init__(self, config: RankConfig, channel: Channel, status: StatusPage, barrier: RankBarrier) -> None:
        self.config, self.channel, self.status, self.barrier = config, channel, status, barrier
        self.device: Device = CpuDevice()
        self.seals = Seals(self.device.window, config.rank)
        self.groups: Groups = {}
        """Of the layout in use, by axis."""
        self.layouts: dict[str, Groups] = {}
        self.arguments: dict[int, Arguments] = {}
        self.batch = Batch()
        self.isolation: dict[str, str] = {}
        """The isolation layers that this process has put around itself."""
        self.opened: dict[str, float] = {}
        """When each part of the start was over, on the clock that all processes share."""
        self._awake_s = 0.0

    def open(self) -> None:
        """Device and process group. Both sides use the same backend: a candidate may call the library, and is told apart."""
        config = self.config
        self.status.step("starting: opening its device")
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        # torch lets cuDNN round float32 to 10 bits by default, but not cuBLAS: float32 means float32 for both sides.
        torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(random.SystemRandom().getrandbits(63))
        if config.device == "cuda":
            sharers = config.world_size if config.side.shares_device else 1
            self.device = CudaDevice(config.side.device_indices[config.rank], sharers=sharers, timed=config.side.timed)
            self.seals = Seals(self.device.window, config.rank)
        self.opened["device"] = time.monotonic()
        self.status.step("starting: making the process group", waiting=True)
        store = dist.FileStore(  # type: ignore[attr-defined]
            str(config.folder / "rendezvous"), config.world_size
        )
        dist.init_process_group(
            config.side.backend,
            store=store,
            rank=config.rank,
            world_size=config.world_size,
            timeout=datetime.timedelta(seconds=config.side.options.collective_timeout_s),
        )
        self.opened["process group"] = time.monotonic()

    def make_groups(self, name: str, layout: Mapping[str, Iterable[Iterable[int]]]) -> None:
        """The groups of a layout, made in the same order on every rank, once. Two layouts may mean different groups by `tp`."""
        if name not in self.layouts:
            self.layouts[name] = {"world": dist.group.WORLD}
            for axis, partition in layout.items():
                for members in partition if axis != "world" else ():
                    ranks = list(members)
                    group = dist.new_group(ranks)
                    if self.config.rank in ranks:
                        self.layouts[name][axis] = group
        self.groups = self.layouts[name]

    def group(self, axis: str) -> Any:
        return self.groups[axis]

    def run(self, function: Any, command: RunBatch, *, on_open: Callable[[int], None] | None = None) -> BatchReport:
        """Run one batch of calls and answer with its times."""
        schedule = command.schedule
        with device_events(wanted=command.records) as events:
            self.batch = run_batch(
                function,
                self.arguments,
                schedule,
                device=self.device,
                barrier=self.barrier,
                seals=self.seals,
                mutates=self.mutates,
                returns_input=self.returns_input,
                on_step=self.status.step,
                on_open=on_open,
            )
        records = self.batch.records
        return BatchReport(
            calls=tuple((record.start_ns, record.end_ns, record.settled_ns) for record in records),
            digests=tuple(self.batch.digests),
            host_us=tuple(record.host_us for record in records),
            reused=self.batch.reused,
            activity=pack_records(events) if command.records else None,
        )

    def send_output(self, slot: int) -> None:
        description, fd = pack(self.batch.outputs[slot])
        try:
            reply = OutputReply(slot, description)
            if len(encode(reply)) > OutputReply.most_bytes:
                raise BadTree("a structure whose description takes megabytes")
            self.channel.send(reply, [fd])
        finally:
            os.close(fd)

    def wake(self) -> None:
        """Kernels of our own until host and device are as quick as in the middle of work: after half a second without any, the
        first launch of a process that shares a GPU takes tens of milliseconds, which are nobody's."""
        give_up = time.monotonic() + (0.0 if self.device.in_step else WAKE_S)
        self.device.unpin_cache()
        while True:
            self.device.flush_cache()
            self.device.synchronize()
            if time.monotonic() >= give_up:
                break
        if not self.device.in_step and cores_to_spare(self.config.world_size):
            self._awake_s = AWAKE_S

    def drop(self, *, keep_memory: bool) -> None:
        """Let go of arguments and outputs. The allocator keeps its memory where calls are timed: asking the driver for more
        takes longer than most kernels."""
        self.arguments.clear()
        self.seals.drop()
        self.batch = Batch()
        if self.config.device == "cuda" and not keep_memory:
            torch.cuda.empty_cache()

    def handle(self, command: Command[Reply], fds: list[int]) -> Reply | None:
        """Do one command; the reply, or None if it has been sent already."""
        raise NotImplementedError

    def serve(self) -> None:
        """Answer commands until the judge closes the channel."""
        limits = dict.fromkeys(self.commands, COMMAND_BYTES)
        while True:
            self.status.step("idle")
            awake_s, self._awake_s = self._awake_s, 0.0
            command, fds, _ = self.channel.receive(limits, awake_s=awake_s)
            reply: Reply | None
            try:
                self.status.step(f"doing {type(command).__name__}")
                reply = self.handle(command, fds)
            except BaseException as error:
                # The process boundary: whatever a candidate raises, SystemExit included, becomes an answer.
                reply = failure(error)
            finally:
                for fd in fds:
                    os.close(fd)
            if reply is not None:
                self.channel.send(reply)


def failure(error: BaseException) -> ErrorReport:
    """An exception as data: its type, its text, and the trace from the first frame that is not ours."""
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if "/pkb/rank/" not in frame.filename] or list(frames)
    trace = "".join(traceback.format_list(shown[-12:]))
    return ErrorReport(
        type=clean(type(error).__name__, MAX_NAME),
        message=clean(str(error), MAX_TEXT),
        trace=clean(trace[-MAX_TRACE:], MAX_TRACE),
        line=shown[-1].lineno if shown else None,
        cause=cause_of(error),
        at_ns=time.monotonic_ns(),
    )


def prepare_process(config: RankConfig, stack_fd: int) -> None:
    """What every rank process does first: a stack dump on request, and its own directory."""
    faulthandler.enable(file=stack_fd, all_threads=True)
    faulthandler.register(signal.SIGUSR1, file=stack_fd, all_threads=True, chain=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    with contextlib.suppress(OSError):
        os.chdir(config.folder)
    sys.argv = ["candidate"]
