"""How long an evaluation waits, in all, for steps of the candidate's ranks that ask no work of them.

Importing the file and every batch of calls have limits of their own, and an honest kernel may be slow. Taking arguments and
handing outputs over is our own code in the candidate's process: a rank that idles there, each time well within that step's
limit, would hold a GPU for as long as it likes.
"""

from pkb.types.protocol.commands import Command, Load, RunBatch
from pkb.types.protocol.replies import Reply

SHARE_OF_THE_ORACLE = 3.0
"""What each second of the oracle's, which draws and compares the same bytes on the same cores, adds for the candidate's."""
SLOWEST_COPY = 50e6
"""Bytes a second. While a candidate takes the arguments of a call, the oracle draws the next: that second is in no account."""


class Patience:
    def __init__(self, seconds: float) -> None:
        self.granted_s = seconds
        self.spent_s = 0.0

    @property
    def left_s(self) -> float:
        return max(0.0, self.granted_s - self.spent_s)

    @staticmethod
    def covers(command: Command[Reply]) -> bool:
        return not isinstance(command, RunBatch | Load)

    def earn(self, *, oracle_s: float = 0.0, copied_bytes: int = 0) -> None:
        self.granted_s += SHARE_OF_THE_ORACLE * oracle_s + copied_bytes / SLOWEST_COPY

    def account(self, role: str, command: Command[Reply], seconds: float) -> None:
        """A side was waited for that long."""
        if role == "oracle":
            self.earn(oracle_s=seconds)
        elif self.covers(command):
            self.spent_s += seconds
