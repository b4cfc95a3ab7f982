"""How long an evaluation waits for the candidate's ranks: in one batch of calls, and in all for steps that ask no work of them.

A hang costs what the reference needed and a margin. The first call may load code, compile and meet its peers, so it has the
whole limit; from then on a batch has what `warm_limit_s` says.

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


LATE_COMPILER_S = 120.0
"""What the first call may take longer where a candidate compiles its kernels then, as Triton does."""
WARM_FLOOR_S = 5.0
"""No batch of warm calls has less: a kernel that takes milliseconds on a busy host, or lays out its buffers anew."""
TIMES_THE_REFERENCE = 50.0
"""An honest kernel may be slow."""


TIMES_ITSELF = 3.0
"""Calls that were slow alone may be slower in a row, with a rank that comes late."""


def warm_limit_s(
    limit_s: float, *, reference_s: float, first_call_s: float, call_s: float, calls: int, device: str
) -> float:
    """What a batch may take once a call has been correct. `reference_s`: how long the ground truth of one call took, which
    includes the reference; `call_s`: the fastest call so far. On a CPU ranks share cores with other programs, and the limit
    is not lowered."""
    if device == "cpu":
        return limit_s
    slow_itself = 2 * first_call_s + TIMES_ITSELF * calls * call_s
    return min(limit_s, WARM_FLOOR_S + TIMES_THE_REFERENCE * reference_s + slow_itself)


def first_call_extra_s(build_limit_s: float, *, lazily_built: bool, triton: bool) -> float:
    """How much longer than other batches the first call may take, for what is compiled in it: by a compiler that the judge
    could not run before, or by Triton."""
    if lazily_built:
        return build_limit_s
    return min(build_limit_s, LATE_COMPILER_S) if triton else 0.0


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
        """Records that the judge waited `seconds` for a side."""
        if role == "oracle":
            self.earn(oracle_s=seconds)
        elif self.covers(command):
            self.spent_s += seconds
