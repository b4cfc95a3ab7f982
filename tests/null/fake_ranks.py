"""Ranks that answer every command without doing anything, one of them with a reply that is mutated on the way.

They run in a process of their own, so that what a lie costs can be measured in the judge's. For each case the judge hands over
fresh ends of its channels and says which reply of which side is to be spoilt, and by what seed.
"""

import contextlib
import fcntl
import json
import os
import random
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pkb.types.channel import INLINE_BYTES, SEALS, Channel, ChannelClosed
from pkb.types.difference import DifferenceKind, Pattern
from pkb.types.failure import Cause
from pkb.types.protocol.codec import encode
from pkb.types.protocol.commands import (
    CANDIDATE_COMMANDS,
    COMMAND_BYTES,
    ORACLE_COMMANDS,
    BeginRecording,
    CheckBaseline,
    CheckExact,
    Command,
    Compare,
    DrawArguments,
    EndRecording,
    FetchOutput,
    FindTruth,
    GiveArguments,
    Lint,
    LookForCompany,
    MeasureMemory,
    Open,
    ProbeMatrix,
    ProbeOpen,
    RunBatch,
)
from pkb.types.protocol.replies import (
    Activity,
    ArgumentsReply,
    BadOutput,
    BatchReport,
    Company,
    Comparison,
    Difference,
    Done,
    ErrorReport,
    LintRows,
    MemoryPeak,
    NullScore,
    Observed,
    Opened,
    OutputReply,
    ProbeOpened,
    ProbeRow,
    ProbeRows,
    Ready,
    RecordingReply,
    Reply,
    TruthSizes,
)
from pkb.types.protocol.trees import DictNode, ListNode, TensorNode, ValueNode

RANKS = 2
TREE = DictNode(
    ("returned", "mutated"),
    (ListNode((TensorNode("bfloat16", (4, 8), 0, 64), ValueNode(2.5), ValueNode("text"))), DictNode((), ())),
)
READY = Ready({"namespaces": "on"}, {"device": 12.5, "ready": 13.0})
ERROR = ErrorReport("ValueError", "no such luck", "File candidate.py", 7, Cause.CANDIDATE, 5)
STEPS = ("spin_kernel", "open_arguments", "elementwise", "barrier_kernel", "push", "gemm")
RELAYED_UNCHECKED = "a command came with other files than one in memory"


@dataclass(frozen=True)
class Spoil:
    """The reply that is spoilt: by side, rank and number since the channel was opened."""

    side: str
    rank: int
    number: int
    seed: int


def honest(command: Command[Reply], *, good: bool = True) -> Reply:
    """Well formed; and of an output that is right, unless it shall not be `good`."""
    match command:
        case Open():
            return Opened({"gpu": "none"})
        case RunBatch():
            return _batch(command)
        case FetchOutput():
            return OutputReply(command.slot, TREE) if good else BadOutput(command.slot, "a set")
        case DrawArguments():
            return ArgumentsReply(command.slot, TREE)
        case FindTruth():
            return TruthSizes(64, 128)
        case Compare() | CheckBaseline() | CheckExact():
            difference = Difference(
                "the result",
                "values differ",
                DifferenceKind.VALUES,
                Pattern.CONSTANT_FACTOR,
                2.0,
                scalars="causal=True",
                first_index=(0, 1),
                first_got=0.0,
                first_expected="nan",
                differing_fraction=0.5,
                regions=(("rows 0-3", 0.5),),
            )
            return Comparison(0.25, None, ("d0",)) if good else Comparison(3.5, difference, ("d0",))
        case LookForCompany():
            return Company(1.0, 3.0)
        case MeasureMemory():
            return MemoryPeak(1 << 30)
        case Lint():
            return LintRows((NullScore("zeros", None, "raises"), NullScore("honest", 0.1, "")))
        case ProbeOpen():
            return ProbeOpened({"torch": "2.9", "l2_bytes": 1024, "multicast": False}, ("load",), {"fp8": "none here"})
        case ProbeMatrix():
            return ProbeRows((ProbeRow("fp32", 64, 1000, (1.0, 2.0)),))
        case BeginRecording() | EndRecording():
            return RecordingReply()
    return Done()


def _batch(run: RunBatch) -> BatchReport:
    calls, stamped = len(run.schedule.slots), run.schedule.stamped
    rows = [
        (number, "kernel", 1000 * (200 * call + 20 * number), 15_000, 7, None)
        for call in range(calls)
        for number in range(len(STEPS))
    ]
    return BatchReport(
        calls=tuple((1000 * n, 1000 * n + 500, 1000 * n + 600) for n in range(stamped)),
        digests=(("d0",),) * (calls * run.schedule.digests),
        host_us=(1.5,) * stamped,
        observed=Observed(0, 2, {}, 0, False),
        changed=(False,) * (calls * run.inspect),
        aliases=((),) * (calls * run.inspect),
        borrowed=(False,) * (calls * run.inspect),
        activity=Activity(STEPS, cast(Any, tuple(rows)), 0) if run.records else None,
    )


# -- mutations ---------------------------------------------------------------------------------------------------------


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


ODD: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: -1, lambda: 3, lambda: 10**400, lambda: 2**63 + 1, lambda: -(2**62), lambda: 1.5,
    lambda: float("nan"), lambda: float("inf"), lambda: 1e308, lambda: "", lambda: "x" * 10_000, lambda: "\ud800",
    lambda: "é" * 50_000, list, dict, lambda: [[]], lambda: [{}] * 5_000, lambda: _deep(150),
    lambda: {"is": "Done"}, lambda: {"is": ["Done"]}, lambda: ["kernel"], lambda: list(range(7_000)),
)  # fmt: skip


def _place(value: Any, dice: random.Random) -> tuple[Any, Any]:
    """A container and a key of it, by a walk from the outside: every member of a message is as likely as its others."""
    while True:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.3:
            return value, key
        value = inner


def spoil_value(message: dict[str, Any], dice: random.Random) -> None:
    """One or two places of a message become something else, vanish, or multiply."""
    for _ in range(dice.choice((1, 1, 2))):
        if not message:
            return
        container, key = _place(message, dice)
        value = container[key]
        match dice.randrange(8):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[dice.choice(("more", "x" * 5000, "\ud800", "is"))] = dice.choice(ODD)()
            case 2 if isinstance(container, list):
                container[:] = container * dice.choice((2, 100, 5000 // len(container)))
            case 3 | 4 if isinstance(value, int | float):
                container[key] = dice.choice((10**400, -(10**400), 2**62, -1, 0, 1e300, float("nan"), not value))
            case 3 | 4 if isinstance(value, list):
                container[key] = dice.choice((value[1:], value + value, [value], [], value * 5000))
            case _:
                container[key] = dice.choice(ODD)()


def _memory_file(data: bytes = b"", size: int = 0, *, sealed: bool = True) -> int:
    fd = os.memfd_create("fake", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.truncate(fd, max(size, len(data)))
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def _lingering_socket() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        return client.detach()


def _pipe_end() -> int:
    read_end, write_end = os.pipe()
    os.close(write_end)
    return read_end


FILES: tuple[Callable[[], int], ...] = (
    lambda: _memory_file(b"x" * 64), lambda: _memory_file(size=1 << 44), _lingering_socket, _pipe_end,
    lambda: _memory_file(b"x" * 64, sealed=False),
    lambda: os.open("/", os.O_RDONLY), lambda: os.open("/dev/zero", os.O_RDONLY), lambda: os.eventfd(0),
    lambda: os.open(__file__, os.O_RDONLY), lambda: os.open("/dev/null", os.O_WRONLY),
)  # fmt: skip
GARBAGE: tuple[Callable[[], bytes], ...] = (
    lambda: b"", lambda: b"F", lambda: b"I", lambda: b"I{", lambda: b"I[]", lambda: b"I17", lambda: b"\xff\xfe" * 100,
    lambda: b"I" + b"[" * 30_000, lambda: b"I" + b'{"is":' * 5_000, lambda: b'I{"is": "Done", "n": ' + b"9" * 10_000 + b"}",
    lambda: b"I" + b" " * 40_000, lambda: b'I{"is": NaN}', lambda: b'I{"is": "' + b"\xed\xa0\x80" + b'"}',
    lambda: 'I{"is": "Done"}'.encode("utf-16"), lambda: b'I{"is": "Done", "is": "Ready"}',
)  # fmt: skip
BODIES: tuple[Callable[[], bytes], ...] = (
    lambda: b"", lambda: b"{}", lambda: b"[" + b"{}," * (8 << 20) + b"{}]", lambda: b"[" * 1_000_000, lambda: b"\0" * 70_000,
    lambda: b'{"is": "Done", "more": "' + b"x" * (3 << 20) + b'"}', lambda: b"[" + b"[]," * 600_000 + b"[]]",
    lambda: b'{"is": "BatchReport", "calls": [' + b"[1,2,3]," * 200_000 + b"[1,2,3]]}",
    lambda: b"[" + b'"ab",' * 80_000 + b"1]", lambda: b"[" + b'{"a":1},' * 49_000 + b"1]",
)  # fmt: skip


class Rank:
    """One end of a channel, and what has been said over it."""

    def __init__(self, side: str, rank: int, end: int, spoil: Spoil) -> None:
        self.side, self.rank = side, rank
        self.channel = Channel(socket.socket(fileno=end))
        self.channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._spoil = spoil if (spoil.side, spoil.rank) == (side, rank) else None
        self._dice = random.Random(spoil.seed)
        self.said: list[str] = []
        """The kinds of its replies so far."""
        self.commands = dict.fromkeys(ORACLE_COMMANDS if side == "oracle" else CANDIDATE_COMMANDS, COMMAND_BYTES)
        self.complaint = ""
        self.spoilt = ""
        """The kind of reply that was."""
        self.say(READY)

    def answer(self) -> bool:
        """One command; False when the judge has closed the channel."""
        try:
            command, fds, _ = self.channel.receive(self.commands, timeout_s=10)
        except ChannelClosed:
            return False
        if isinstance(command, Compare | GiveArguments):
            good = len(fds) == 1 and "/memfd:" in str(Path(f"/proc/self/fd/{fds[0]}").readlink())
            self.complaint = self.complaint or ("" if good else RELAYED_UNCHECKED)
        for fd in fds:
            os.close(fd)
        self.say(honest(command, good=self._spoil is None or self._dice.random() < 0.8))
        return True

    def say(self, reply: Reply) -> None:
        number = len(self.said)
        self.said.append(type(reply).__name__)
        fds = [_memory_file(b"x" * 64) for _ in range(reply.descriptors)]
        try:
            if self._spoil is not None and self._spoil.number == number:
                self.spoilt = type(reply).__name__
                self._lie(reply, fds)
            else:
                self._send(encode(reply), fds)
        except OSError:
            pass  # the judge has heard enough
        finally:
            for fd in fds:
                os.close(fd)

    def _send(self, body: bytes, fds: list[int]) -> None:
        if len(body) <= INLINE_BYTES:
            socket.send_fds(self.channel.sock, [b"I" + body], fds)
        else:
            self._spill(_memory_file(body), fds)

    def _spill(self, body: int, fds: list[int]) -> None:
        try:
            socket.send_fds(self.channel.sock, [b"F"], [body, *fds])
        finally:
            os.close(body)

    def _lie(self, reply: Reply, fds: list[int]) -> None:
        dice, body = self._dice, encode(reply)
        match dice.choices(range(9), weights=(60, 5, 5, 6, 5, 4, 4, 2, 6))[0]:
            case 0:
                message = json.loads(body)
                spoil_value(message, dice)
                self._send(json.dumps(message).encode(), fds)
            case 1:
                socket.send_fds(self.channel.sock, [dice.choice(GARBAGE)()], fds)
            case 2:
                self._spill(_memory_file(dice.choice(BODIES)()), fds)
            case 3:
                count = dice.choice((0, 0, 1, 2, 3, 12)) if reply.descriptors else dice.choice((1, 2, 12))
                self._with_files(body, count)
            case 4:
                self._spill(dice.choice(FILES)(), fds)
            case 5:
                self._send(body, fds)
                self._send(body, fds)
            case 6:
                self._send(encode(dice.choice((Done(), READY, ERROR, BatchReport((), (), ())))), [])
            case 7:
                self.channel.close()
            case 8:
                cut = bytearray(body)
                for _ in range(dice.randrange(1, 4)):
                    cut[dice.randrange(len(cut))] = dice.randrange(256)
                self._send(bytes(cut[: dice.choice((len(cut), len(cut) // 2))]), fds)

    def _with_files(self, body: bytes, count: int) -> None:
        files = [self._dice.choice(FILES)() for _ in range(count)]
        try:
            self._send(body, files)
        finally:
            for fd in files:
                os.close(fd)


def serve(control: socket.socket) -> None:
    """Case after case, until the judge hangs up: ends of its channels come in, what was seen goes out."""
    while True:
        text, ends, _, _ = socket.recv_fds(control, 4096, 4 * RANKS)
        if not text:
            return
        spoil = Spoil(**json.loads(text))
        sides = [(side, rank) for side in ("oracle", "candidate") for rank in range(RANKS)]
        ranks = [Rank(side, rank, end, spoil) for (side, rank), end in zip(sides, ends, strict=True)]
        said = _until_closed(ranks)
        control.send(json.dumps(said).encode())


def _until_closed(ranks: list[Rank]) -> dict[str, Any]:
    living = list(ranks)
    while living := [rank for rank in living if rank.channel.fileno() >= 0]:
        for ready in select.select(living_channels(living), [], [])[0]:
            rank = next(rank for rank in living if rank.channel is ready)
            if not rank.answer():
                rank.channel.close()
    return {
        "spoilt": next((rank.spoilt for rank in ranks if rank.spoilt), ""),
        "complaint": next((rank.complaint for rank in ranks if rank.complaint), ""),
        "said": {rank.side: rank.said for rank in ranks},
    }


def living_channels(ranks: list[Rank]) -> list[Channel]:
    return [rank.channel for rank in ranks]


def start() -> tuple[int, socket.socket]:
    """The process, and the judge's end of what controls it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            ours.close()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                serve(theirs)
            status = 0
        finally:
            os._exit(status)
    theirs.close()
    return pid, ours
