"""The candidate's side of a rank: loads the file, runs it on arguments it is handed, gives the outputs away.

Neither the references nor the input generators can be read from here, and no seed ever enters this process.
"""

import contextlib
import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pkb.rank.emulate import aliases
from pkb.rank.emulate.cuda import wanted as emulated_gpu
from pkb.rank.execute import Arguments
from pkb.rank.execute import aliases as output_aliases
from pkb.rank.isolation import gate, reach
from pkb.rank.isolation.lockdown import lock_down
from pkb.rank.observe import Observer
from pkb.rank.raised import MissingSolution
from pkb.rank.recording import Recording
from pkb.rank.server import Rank
from pkb.rank.symmetric import memory as symmetric
from pkb.rank.symmetric import watch as symmetric_watch
from pkb.rank.trees import BadTree, describe, tensors_in, unpack
from pkb.rank.window.seals import Digest
from pkb.types.protocol.commands import (
    CANDIDATE_COMMANDS,
    BeginRecording,
    Command,
    Drop,
    EndRecording,
    FetchOutput,
    GiveArguments,
    Load,
    Open,
    Poison,
    RunBatch,
    Schedule,
    Wake,
)
from pkb.types.protocol.limits import LONG_LATE_S, clean
from pkb.types.protocol.replies import BadOutput, BatchReport, Done, Opened, RecordingReply, Reply, facts
from pkb.types.protocol.settings import CandidateOptions

RECORDED_LATE_S, RECORDED_STOPS = 0.08, 4
"""In a batch of recorded calls, whose log grows with every look."""


class CandidateRank(Rank):
    commands = CANDIDATE_COMMANDS

    def open(self) -> None:
        config = self.config
        # First of all, while the process has one thread: isolation does not hold threads that are already running.
        self.isolation = self._lock_down()
        super().open()
        if config.device == "cuda":
            if share := os.environ.get("PKB_GPU_MEMORY_SHARE"):
                torch.cuda.set_per_process_memory_fraction(float(share), self.device.torch_device)
            self.status.step("starting: meeting the other ranks in symmetric memory", waiting=True)
            self.device.open_barrier()  # type: ignore[attr-defined]
            symmetric_watch.watch()
            self.activity, self.poison = symmetric_watch.ACTIVITY, symmetric_watch.poison
            self.is_a_peers = symmetric_watch.is_a_peers
        else:
            shared = config.folder / "symmetric"
            shared.mkdir(exist_ok=True)
            symmetric.install(shared)
            self.activity, self.poison = symmetric.ACTIVITY, symmetric.poison
            self.is_a_peers = symmetric.is_a_peers
        self.activity.on_wait = self.status.wait
        builds = os.environ.get("PKB_BUILD_CACHE")
        self.observer = Observer(self.activity, [config.folder, *([Path(builds)] if builds else [])])
        self.recording = Recording(rank=config.rank, world=config.world_size)
        self.solution: Any = None

    def handle(self, command: Command[Reply], fds: list[int]) -> Reply | None:
        match command:
            case Open():
                self.make_groups(command.name, command.layout)
                self.mutates, self.returns_input = command.mutates, command.returns_input
                return Opened(facts(self.device.facts()))
            case Load():
                return self._load(Path(command.path), fds, command.seed)
            case GiveArguments():
                values = unpack(command.tree, fds[0], device=self.device.torch_device, group=self.group, kept=True)
                self.arguments[command.slot] = values
                self.seals.hold(command.slot, values)
            case RunBatch():
                return self._run(command)
            case FetchOutput():
                return self._output(command.slot)
            case Poison():
                self.poison()
                self.device.synchronize()
            case BeginRecording():
                return RecordingReply(self.recording.begin(fds, seed=command.seed, weak=command.weak))
            case EndRecording():
                return RecordingReply(self.recording.end(), self.recording.unknown_looks)
            case Wake():
                self.wake()
            case Drop():
                self.drop(keep_memory=command.keep_memory)
        return Done()

    def _lock_down(self) -> dict[str, str]:
        """No problem module, no other candidate and no file of the user's can be read, nothing outside the folder written."""
        options = self.config.side.options
        assert isinstance(options, CandidateOptions)
        readable = [*reach.default_readable(), *(Path(path) for path in options.readable)]
        return lock_down(
            readable=readable,
            writable=[
                self.config.folder,
                self.config.folder / gate.OWN_SHM,
                *(Path(path) for path in options.writable),
            ],
            forbidden=[reach.own_package(), *reach.SECRETS],
            max_file_bytes=options.max_file_bytes,
        )

    def _load(self, path: Path, fds: list[int], seed: int | None) -> Done:
        """Import the candidate: from here on nothing in this process is to be trusted."""
        sys.path.insert(0, str(reach.own_package() / "kit" / "upstream"))
        source = path.read_text(encoding="utf-8")
        aliases.install(
            self.config.device, shares_device=self.config.side.shares_device, rank=self.config.rank, source=source
        )
        if self.config.device == "cpu" and os.environ.get("PKB_EMULATE_CUDA") == "1" and emulated_gpu.wanted(source):
            self.device = emulated_gpu.install(self.device, source)
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        self.status.step("importing the candidate")
        if seed is not None:
            self.recording.begin(fds, seed=seed)
        with self.recording.imported():
            spec.loader.exec_module(module)
        self.solution = getattr(module, "solution", None)
        if not callable(self.solution):
            raise MissingSolution
        return Done()

    def _run(self, command: RunBatch) -> BatchReport:
        slots = command.schedule.slots if command.inspect else ()
        before: dict[int, Digest] = {}

        def look(slot: int) -> None:
            before[slot] = self.seals.digest(self._unchanged(slot))

        with self._late(command.schedule), self.observer.watching(profile=command.profile) as seen:
            report = self.run(self.recording.watched(self.solution), command, on_open=look if command.inspect else None)
        return replace(
            report,
            observed=replace(seen.summary(), instructions=emulated_gpu.executed()),
            changed=tuple(self.seals.digest(self._unchanged(slot)) != before[slot] for slot in slots),
            aliases=tuple(map(self._aliases, slots)),
            borrowed=tuple(map(self._borrowed, slots)),
        )

    def _late(self, schedule: Schedule) -> contextlib.AbstractContextManager[None]:
        """Who gives up waiting, after a time or a number of looks, must do so on an emulated GPU as well."""
        if self.recording.exact:
            return emulated_gpu.waiting(RECORDED_LATE_S, stops=RECORDED_STOPS)
        if schedule.held:
            return emulated_gpu.waiting(held=True)
        return contextlib.nullcontext() if schedule.together else emulated_gpu.waiting(LONG_LATE_S)

    def _unchanged(self, slot: int) -> Arguments:
        return {name: value for name, value in self.arguments[slot].items() if name not in self.mutates}

    def _aliases(self, slot: int) -> tuple[str, ...]:
        """Arguments whose memory the result shares; an odd result has none here and is refused when it is fetched."""
        if self.returns_input:
            return ()
        try:
            return tuple(output_aliases(self.batch.outputs[slot]["returned"], self.arguments[slot]))
        except BadTree:
            return ()

    def _borrowed(self, slot: int) -> bool:
        """Whether a result lies in a peer's memory: whoever uses it has it moved, and it changes when the peer's does."""
        try:
            return any(self.is_a_peers(tensor) for tensor in tensors_in(self.batch.outputs[slot]["returned"]))
        except BadTree:
            return False

    def _output(self, slot: int) -> BadOutput | None:
        try:
            describe(self.batch.outputs[slot])
            self.send_output(slot)
        except BadTree as error:
            return BadOutput(slot, clean(str(error), 300))
        return None
