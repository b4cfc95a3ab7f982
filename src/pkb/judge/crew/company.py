"""The reference is measured alone: the candidate's processes are stopped, and its device is seen to be at rest.

A kernel that a candidate left behind does not stop with its process. So before and after, the oracle's ranks fill the device
with work of known shape (`LookForCompany`), which shows anybody else's. What was there before the candidate was loaded is not
the candidate's; where the device was not ours alone then, this look can tell nothing.
"""

import contextlib
import time
from collections.abc import Iterator

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure
from pkb.judge.crew.stopping import Stopped, stopped
from pkb.types.protocol.commands import LookForCompany
from pkb.types.protocol.replies import Company

MOST_WAVES = 1.5
"""Alone all blocks run at once. One more block on an SM makes one of ours run after the others."""
MOST_GAP_US = 300.0
"""Contexts without MPS are time-sliced; a slice of another one took 2.5 ms on an H200."""
LOOKS = 3
"""Beforehand the first that shows nobody counts: a kernel at its end, or a daemon that samples the device, is gone by the
next."""
PAUSE_S = 0.05
LOOKS_AT_THE_END = 100
"""Of a device whose processes have been killed: what they have queued may take seconds to end."""


class Disturbed(Exception):
    """Something else was running while the reference was measured, so that measurement is void."""

    on_device = False
    """Seen by its effect alone: it need not be the candidate's."""


class DeviceAtWork(Disturbed):
    on_device = True


class Watch:
    def __init__(self, oracle: Crew, candidate: Crew) -> None:
        self._oracle, self._candidate = oracle, candidate
        self.shared_before = ""
        """Who else was on the device before the candidate was loaded: then nobody can be told from the candidate."""

    def get_used_to_company(self) -> None:
        """Before the candidate is loaded."""
        self.shared_before = self._company()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        warden = self._candidate.warden_pid
        assert warden is not None, "its processes have ended"
        with stopped(warden) as tree:
            self._require(tree, looks=LOOKS)
            yield
            self._require(tree, looks=1)  # who is gone by the next may have been there all the time

    def look(self) -> None:
        """The look that `alone` begins with. Its result is ignored, since the candidate's processes may be running."""
        if not self.shared_before:
            self._company(1)

    def _require(self, tree: Stopped, *, looks: int) -> None:
        if tree.restless:
            raise Disturbed(f"{len(tree.restless)} processes of the candidate's do not stop")
        if moved := tree.moved():
            raise Disturbed(f"{len(moved)} processes of the candidate's ran while the reference was measured")
        if not self.shared_before and (company := self._company(looks)):
            raise DeviceAtWork(f"all processes of the candidate's are stopped, and its device is at work: {company}")

    def ends_with_the_candidate(self) -> bool:
        """End the candidate's side, for good: is the device at rest then? If not, somebody else is at work there.

        A client that is ended in the middle of a kernel can take its MPS server with it, and the oracle's ranks with that: seen
        as an illegal access in theirs. Nobody else's kernels die with the candidate, so that settles it as well.
        """
        self._candidate.kill()
        try:
            return not self._company(LOOKS_AT_THE_END)
        except CrewFailure:
            return True

    def _company(self, most: int = LOOKS) -> str:
        """What the oracle's ranks see of others on their devices; empty if they are alone."""
        words = ""
        for attempt in range(most if self._oracle.platform.device == "cuda" else 0):
            time.sleep(PAUSE_S * min(attempt, 1))
            looks = self._oracle.ask(LookForCompany(), timeout_s=120)
            words = "; ".join(f"rank {rank} sees {said}" for rank, look in looks.items() if (said := words_of(look)))
            if not words:
                return ""
        return words


def words_of(look: Company) -> str:
    if look.waves > MOST_WAVES:
        return f"blocks that had to wait for {look.waves:.1f} times as long as one takes"
    return f"a gap of {look.gap_us:.0f} us" if look.gap_us > MOST_GAP_US else ""
