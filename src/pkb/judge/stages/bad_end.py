"""Recorded calls that ended badly, of a candidate whose other calls were right: whether that is its own doing.

Recording is our code in its processes, and may be at fault. An exit is not: nothing of ours calls it. Everything else is tried
once more in another start of its ranks, with as many calls and none of them recorded. What ends badly there too is the
candidate's; what does not may have been caused by the recorder, or by a candidate that has noticed it, and is only told.
"""

import time
from collections.abc import Callable

from pkb.judge.crew.failure import CrewFailure
from pkb.judge.decision import from_failure
from pkb.judge.stages.race_proof import BadEnd
from pkb.judge.worlds import World
from pkb.types.protocol.commands import DrawSpec, Schedule
from pkb.types.verdict import Stage

CALLS_AT_ONCE = 8
ENOUGH_S = 60.0


def decide_bad_end(
    world: World, spec: DrawSpec, end: BadEnd, *, extra_s: float, progress: Callable[[str], None]
) -> str:
    """Raises `Decided` if the candidate is to blame; else returns what can be said of it. `extra_s`: what its first call may
    take longer."""
    calls = end.calls
    if end.failure.left:
        raise from_failure(end.failure, Stage.RACES, world.platform.facts())
    progress("races: recorded calls ended badly; the same without a recording")
    made, began = 0, time.monotonic()
    try:
        world.exchange.drop_drawn()
        with world.another_candidate(lambda side, load: side.tell_all(load)) as exchange:
            while made < calls and time.monotonic() - began < ENOUGH_S:
                slots = exchange.deliver(spec, min(CALLS_AT_ONCE, calls - made))
                with world.blame(Stage.RACES):
                    exchange.run_candidate(Schedule(slots), extra_s=extra_s if made == 0 else 0.0)
                exchange.drop()
                made += len(slots)
    except CrewFailure as other:
        if other.role == "oracle":
            raise
        return f"recorded calls ended badly, and another start of its ranks too: {other}"[:300]
    return f"recorded calls ended badly, and {made} calls of another start, not recorded, did not: nobody is blamed"
