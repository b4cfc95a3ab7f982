"""One side of an evaluation as the judge sees it: W rank processes behind a warden, each on its own channel.

Every wait here has a limit, and whatever goes wrong in a side comes out as a `CrewFailure` that says which ranks, how, and
what the others were doing.
"""

import contextlib
import math
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from pkb.judge.crew.answers import Answers, RankAnswer
from pkb.judge.crew.cgroup import MemoryGroup, bound_memory
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind, CrewSpec, exit_words, has_left
from pkb.judge.crew.family import descendants, has_helpers, parent
from pkb.judge.crew.leftovers import remove_tree
from pkb.judge.crew.limits import UNLIMITED, Limits, broken_limit
from pkb.judge.crew.patience import Patience
from pkb.judge.crew.printed import Printed
from pkb.judge.crew.stacks import Stacks
from pkb.judge.crew.warm import Start, Warden, import_environment, release, start_warden
from pkb.platforms.base import Platform
from pkb.platforms.short_folder import short_parent
from pkb.types.channel import Channel, ChannelClosed, pair
from pkb.types.processes import cores_to_spare, interrupt_later
from pkb.types.protocol.codec import encode
from pkb.types.protocol.commands import Command, RunBatch
from pkb.types.protocol.replies import Reply
from pkb.types.protocol.settings import SideSettings
from pkb.types.protocol.status import STATUS_BYTES, RankStatus, decode_status
from pkb.types.verdict import RankState, Standing

R = TypeVar("R", bound=Reply)
START_LIMIT_S = 180.0
TICK_S = 0.2
LONGEST_UNCHECKED_S = 1.0
"""Between two looks at what a side uses, though it answers all the time."""
AWAKE_S = 0.1
"""For the reports of a timed batch the judge waits so long without going to sleep: waking up may take milliseconds."""
GRACE_S = 1.5
"""After one rank has failed, how long the others may take to fail as well, so that the first cause is found."""


class Crew:
    """Starts, drives and ends the ranks of one side."""

    def __init__(self, spec: CrewSpec, platform: Platform, limits: Limits) -> None:
        self.spec, self.platform, self.limits = spec, platform, limits
        self.isolation: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self.patience: Patience | None = None
        """Shared by both sides, from the moment the candidate is loaded."""
        self.memory_words = ""
        """Who bounds the side's memory, for the report."""
        self._memory: MemoryGroup | None = None
        self._pids: dict[int, int] = {}
        self._exits: dict[int, int] = {}
        self._printed = Printed()
        self._process: Warden | None = None
        # torch's symmetric memory meets at sockets there, whose names must be short.
        parent = short_parent() if platform.device == "cuda" else None
        self._folder = Path(tempfile.mkdtemp(prefix=f"pkb-{spec.role}-{os.getpid()}-", dir=parent))
        self.build_folder = self._folder / "build"  # what its ranks compile
        self._checked = 0.0
        """When its limits were last looked at."""
        self._launched = 0.0
        self.start_seconds: dict[str, float] = {}
        """How long after the launch rank 0 had each part of its start behind it."""

    def launch(self) -> None:
        """Start the warden; `await_ready` later waits for the ranks, so that two sides can start at the same time."""
        size = self.spec.world_size
        self._launched = time.monotonic()
        pairs = [pair() for _ in range(size)]
        self._channels = [Channel(ours) for ours, _ in pairs]
        self._stacks = Stacks(size)
        status = os.memfd_create("pkb-status")
        os.truncate(status, size * STATUS_BYTES)
        self._status = status
        read_end, write_end = os.pipe()
        exits_read, exits_write = os.pipe()
        self._pipe, self._exit_pipe = read_end, exits_read
        os.set_blocking(read_end, False)
        os.set_blocking(exits_read, False)
        theirs = [sock.fileno() for _, sock in pairs]
        self._settings = SideSettings(
            options=self.spec.options,
            world_size=size,
            shares_device=self.platform.shares_device,
            device=self.platform.device,
            device_indices=tuple(self.platform.device_indices(size)),
            cores=tuple(self.platform.cores(size)),
            backend=self.platform.backend,
            folder=str(self._folder),
            preload_triton=self.spec.preload_triton,
            timed=self.spec.timed,
            channels=tuple(theirs),
            stacks=self._stacks.files,
            status=status,
            exits=exits_write,
            shm_bytes=self.limits.shm_bytes if self.platform.private_shm else None,
            tmp_bytes=self.limits.tmp_bytes,
            max_processes=self.limits.threads,
        )
        # Not on the command line, which every process of the machine can read: the oracle's holds the secret.
        settings = os.memfd_create("pkb-settings")
        os.write(settings, encode(self._settings))
        self._selector = selectors.DefaultSelector()
        for rank, channel in enumerate(self._channels):
            self._selector.register(channel, selectors.EVENT_READ, rank)
        self._selector.register(self._pipe, selectors.EVENT_READ, "output")
        self._selector.register(self._exit_pipe, selectors.EVENT_READ, "exits")
        try:
            self._start_warden(settings, write_end)
        finally:
            for fd in (write_end, exits_write, settings):
                os.close(fd)
            for _, sock in pairs:
                sock.close()

    def _start_warden(self, settings: int, output: int) -> None:
        side = self._settings
        passed = (*side.channels, *side.stacks, side.status, side.exits)
        start = Start(self.spec.role, self.platform, self._environment(), self._folder, settings, output, passed)
        with interrupt_later():  # Ctrl-C in there would leave a process of which nobody knows
            self._process = start_warden(start)
        if self.limits.memory_bytes < UNLIMITED:
            self._memory, self.memory_words = bound_memory(self._process.pid, self.limits.memory_bytes)
        release(self._process)

    def _environment(self) -> dict[str, str]:
        """A clean environment: what importing takes, and folders of the side's own."""
        own = {
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "TRITON_CACHE_DIR": str(self._folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "inductor"),
            "TORCH_EXTENSIONS_DIR": str(self._folder / "extensions"),
            "XDG_CACHE_HOME": str(self._folder / "cache"),
            "CUDA_CACHE_PATH": str(self._folder / "cuda"),
            "CUTE_DSL_CACHE_DIR": str(self._folder / "cute"),
            "PKB_BUILD_DIR": str(self.build_folder),
        }
        if self.spec.role == "oracle":
            # A rank compiles a few small kernels, in itself: torch's pool of workers is up to 32 processes for each rank, which
            # would sit beside what is timed, and of which eight ranks come near the limit of a side.
            own["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        known = import_environment(self.platform) | own | self.platform.environment(self.spec.world_size)
        return known | self.spec.extra_environment

    def await_ready(self, *, timeout_s: float = START_LIMIT_S) -> None:
        first = self.collect(self._settings, timeout_s=timeout_s)[0].reply
        self.start_seconds = {name: round(at - self._launched, 2) for name, at in first.opened.items()}
        self.isolation = first.isolation

    def kill(self) -> None:
        """End every process of the side and take away what it used; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
            self._drain()
            self._close_ends()
        if self._memory is not None:
            self._memory.remove()
        remove_tree(self._folder)

    def _close_ends(self) -> None:
        self._selector.close()
        for channel in self._channels:
            channel.close()
        self._stacks.close()
        for fd in (self._pipe, self._exit_pipe, self._status):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _end(self, process: Warden) -> None:
        """Kill from the inside out, so that every parent is still there to reap its child and no zombie is left over.

        Whatever has been missed dies by its parent-death signal when the warden is killed last.
        """
        family = descendants(process.pid)
        inner = [child for child in family if parent(child) != process.pid]
        for child in inner:
            with contextlib.suppress(psutil.Error):
                child.kill()
        try:
            process.wait(timeout=3 if inner else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=30)
        _, alive = psutil.wait_procs(family, timeout=5)
        for child in alive:
            with contextlib.suppress(psutil.Error):
                child.kill()

    def survivors(self) -> list[int]:
        """Ranks seen alive earlier that still are: none, after `kill`."""
        return [pid for pid in self._pids.values() if psutil.pid_exists(pid)]

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def warden_pid(self) -> int | None:
        """The process above all others of the side, while there is one."""
        return self._process.pid if self._process is not None else None

    @property
    def ranks(self) -> range:
        return range(self.spec.world_size)

    def tell(self, rank: int, command: Command[Reply], fds: Sequence[int] = ()) -> None:
        try:
            self._channels[rank].send(command, fds, timeout_s=30)
        except ChannelClosed:
            return  # `collect` will find the rank gone, and why
        except TimeoutError as error:
            raise self._failure(
                CrewFailureKind.TIMEOUT, [rank], "does not take messages", states=self.states([rank])
            ) from error

    def tell_all(self, command: Command[Reply]) -> None:
        for rank in self.ranks:
            self.tell(rank, command)

    def ask(self, command: Command[R], *, timeout_s: float) -> dict[int, R]:
        """One command to all ranks, one plain reply from each."""
        self.tell_all(command)
        return self.hear(command, timeout_s=timeout_s)

    def hear(self, command: Command[R], *, timeout_s: float, quiet_s: float = math.inf) -> dict[int, R]:
        """The replies to a command that all ranks were told, where nothing comes with them."""
        answers = self.collect(command, timeout_s=timeout_s, quiet_s=quiet_s)
        return {rank: answer.reply for rank, answer in sorted(answers.items())}

    def collect(self, command: Command[R], *, timeout_s: float, quiet_s: float = math.inf) -> dict[int, RankAnswer[R]]:
        """One answer to this command from every rank, or the reason why not. `quiet_s`: how long to wait while ranks have no
        process of their own at work, where the limit allows for compilers."""
        began = time.monotonic()
        try:
            return self._collect(command, timeout_s=timeout_s, quiet_s=quiet_s)
        finally:
            if self.patience is not None:
                self.patience.account(self.spec.role, command, time.monotonic() - began)

    def _collect(self, command: Command[R], *, timeout_s: float, quiet_s: float) -> dict[int, RankAnswer[R]]:
        answers, began = Answers(command), time.monotonic()
        looked = quiet_since = began
        if isinstance(command, RunBatch):
            self._printed.allow(calls=len(command.schedule.slots) * self.spec.world_size)
        patience = self._patience_with(command)
        give_up = time.monotonic() + min(timeout_s, patience)
        awake_until = time.monotonic() + AWAKE_S * self._must_stay_awake(command)
        while answers.pending(self.ranks):
            now = time.monotonic()
            if quiet_s < timeout_s and self._process and now >= looked + TICK_S:
                looked = now
                if has_helpers(self._process.pid, self.spec.world_size):
                    quiet_since = now
            if now > min(give_up, quiet_since + quiet_s):
                break
            answered = False
            for key, _ in self._selector.select(0.0 if now < awake_until else min(TICK_S, give_up - now)):
                if key.data in ("output", "exits"):
                    self._drain()
                    continue
                answered, rank = True, int(key.data)
                if pid := answers.take(rank, self._channels[rank]):
                    self._pids[rank] = pid
                if rank in answers.gone:
                    self._forget(self._channels[rank])
                if rank in answers.failed:
                    give_up = min(give_up, time.monotonic() + GRACE_S)
            try:
                # It takes milliseconds, and as long holds up what changes its memory: not between two answers, if it can wait.
                self.check_limits(after_s=LONGEST_UNCHECKED_S if answered else TICK_S)
            except CrewFailure:
                answers.discard()
                raise
        if answers.failed or len(answers.good) < self.spec.world_size:
            answers.discard()
            raise self._why(answers, min(timeout_s, time.monotonic() - began), patience)
        return answers.good

    def _must_stay_awake(self, command: Command[R]) -> bool:
        timed = isinstance(command, RunBatch) and command.schedule.digests
        return timed and self.platform.device == "cuda" and cores_to_spare(self.spec.world_size)

    def _patience_with(self, command: Command[Reply]) -> float:
        if self.patience is None or self.spec.role == "oracle" or not self.patience.covers(command):
            return math.inf
        return self.patience.left_s

    def _failure(self, kind: CrewFailureKind, ranks: list[int], detail: str, **more: Any) -> CrewFailure:
        return CrewFailure(kind, ranks, detail, role=self.spec.role, **more)

    def _why(self, answers: Answers[R], timeout_s: float, patience_s: float) -> CrewFailure:
        """Blame the rank that failed first: a broken protocol before a lost process before an exception before silence."""
        pending = answers.pending(self.ranks)
        states = self.states(pending)
        if answers.gone and self._memory is not None and self._memory.exceeded():
            return self._failure(CrewFailureKind.LIMIT, [], "ended by the kernel: too much memory", limit="memory")
        if answers.garbage:
            ranks = list(answers.garbage)
            return self._failure(CrewFailureKind.GARBAGE, ranks, answers.garbage[ranks[0]], states=states)
        if gone := [
            rank for rank in answers.gone if rank not in answers.raised
        ]:  # who told why it ends has not simply gone
            time.sleep(0.2)
            self._drain()
            how = {rank: self._exits.get(rank) for rank in gone}
            return self._failure(CrewFailureKind.GONE, gone, exit_words(how), states=states, left=has_left(how))
        if raised := answers.raised:
            first = min(raised, key=lambda rank: (raised[rank].at_ns, rank))
            report = raised[first]
            return self._failure(
                CrewFailureKind.RAISED, sorted(raised), report.message, rank=first, error=report, states=states
            )
        if patience_s < timeout_s:
            assert self.patience is not None
            detail = f"over {self.patience.granted_s:.0f} s, all in all, to take arguments and to hand outputs over"
            return self._failure(
                CrewFailureKind.LIMIT, pending, detail, limit="time", states=self._with_the_finished(states)
            )
        detail = f"no answer within {timeout_s:.0f} s"
        return self._failure(CrewFailureKind.TIMEOUT, pending, detail, states=self._with_the_finished(states))

    def status(self, rank: int) -> RankStatus:
        # Read, not mapped: a rank that cuts the page short must not make the judge fault.
        return decode_status(os.pread(self._status, STATUS_BYTES, rank * STATUS_BYTES))

    def _with_the_finished(self, states: tuple[RankState, ...]) -> tuple[RankState, ...]:
        stuck = {state.rank: state for state in states}
        return tuple(stuck.get(r) or RankState(r, Standing.FINISHED, self.status(r).text) for r in self.ranks)

    def states(self, ranks: list[int]) -> tuple[RankState, ...]:
        """Where these ranks stand: their own last word, and the Python stack dumped on a signal."""
        self._stacks.ask({rank: self._pids[rank] for rank in ranks if rank in self._pids})
        found = []
        for rank in ranks:
            status = self.status(rank)
            alive = rank in self._pids and psutil.pid_exists(self._pids[rank])
            standing = Standing.GONE if not alive else Standing.WAITING if status.waiting else Standing.RUNNING
            found.append(RankState(rank, standing, status.text, self._stacks.frames(rank)))
        return tuple(found)

    def _drain(self) -> None:
        """Take what the side has printed, and how its ranks have ended."""
        if self._printed.read_from(self._pipe):
            self._forget(self._pipe)
        with contextlib.suppress(BlockingIOError, OSError, ValueError):
            text = os.read(self._exit_pipe, 4096)
            if not text:
                self._forget(self._exit_pipe)
            for line in text.decode().splitlines():
                rank, status = line.split()
                self._exits[int(rank)] = int(status)

    def _forget(self, source: int | Channel) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def output_tail(self, characters: int = 4000) -> str:
        if self._process is not None:
            self._drain()
        return self._printed.tail(characters)

    def check_limits(self, *, after_s: float = 0.0) -> None:
        """Stop a side that eats memory or multiplies, before the machine suffers. Nothing is done if that was looked at less
        than `after_s` ago."""
        if words := self._printed.too_much:
            raise self._failure(CrewFailureKind.LIMIT, [], words, limit="output")
        if self._process is None or time.monotonic() < self._checked + after_s:
            return
        mounts = [self._folder] if self.isolation.get("tmp") == "on" else []
        mounts += [Path("/dev/shm")] if self.isolation.get("shm") == "on" else []
        family, written = descendants(self._process.pid), (self._status, *self._stacks.files)
        if broken := broken_limit(family, self.limits, mounts=mounts, written=written):
            raise self._failure(CrewFailureKind.LIMIT, [], broken.words, limit=broken.name)
        self._checked = time.monotonic()
