"""What the ranks of one side have answered to one command: typed replies, or the reason why there is none.

Everything that a rank sends becomes one of the two here. Nothing that it can put into its channel raises an exception.
"""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar, cast

from pkb.types.channel import BadMessage, Channel, ChannelClosed, discard, is_sealed
from pkb.types.protocol.commands import Command
from pkb.types.protocol.replies import ErrorReport, Reply

R = TypeVar("R", bound=Reply)
RECEIVE_LIMIT_S = 5.0


class RankAnswer(NamedTuple, Generic[R]):
    reply: R
    fds: list[int]
    """As many as the reply is sent with, sealed files in memory all of them; whoever asked closes them."""


@dataclass
class Answers(Generic[R]):
    command: Command[R]
    good: dict[int, RankAnswer[R]] = field(default_factory=dict)
    raised: dict[int, ErrorReport] = field(default_factory=dict)
    garbage: dict[int, str] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._limits = self.command.reply_limits()

    @property
    def failed(self) -> set[int]:
        return {*self.raised, *self.garbage, *self.gone}

    def pending(self, ranks: range) -> list[int]:
        return [rank for rank in ranks if rank not in self.good and rank not in self.failed]

    def take(self, rank: int, channel: Channel) -> int | None:
        """Read what this rank has sent; its process id as the kernel knows it."""
        try:
            reply, fds, pid = channel.receive(self._limits, timeout_s=RECEIVE_LIMIT_S)
        except (ChannelClosed, TimeoutError):
            self.gone.append(rank)
            return None
        except BadMessage as error:
            self.garbage[rank] = str(error)
            return None
        if why := self._why_not(rank, reply, fds):
            discard(fds)
            self.garbage[rank] = why
        elif isinstance(reply, ErrorReport):
            self.raised[rank] = reply
        else:
            self.good[rank] = RankAnswer(cast(R, reply), fds)
        return pid

    def _why_not(self, rank: int, reply: Reply, fds: list[int]) -> str:
        kind = type(reply)
        if rank in self.good:
            return f"a second answer, {kind.__name__}"
        if len(fds) != kind.descriptors:
            return f"{len(fds)} files with {kind.__name__}, {kind.descriptors} expected"
        if not all(is_sealed(fd, kept=kind.kept_files) for fd in fds):
            return f"{kind.__name__} with something that is no sealed file in memory"
        return "" if isinstance(reply, ErrorReport) else self.command.why_not(reply)

    def discard(self) -> None:
        """Closes the descriptors that came with good replies, since they will not be used."""
        for answer in self.good.values():
            discard(answer.fds)
