"""Mutants that race with nobody, each with its argument: most change nothing that matters."""

from itertools import product

ANNOUNCED = (
    "equivalent: the table is read in `consume` only (what is produced goes to the multicast address), and the block barrier "
    "of `announce` lies between."
)
OWN_DATA = "equivalent: thread p writes what goes to rank p, and the same thread releases to rank p."
IN_FINISH = (
    "equivalent: `finish_grid`, which alone announces here, has block barriers of its own between the writes and the "
    "release."
)
AT_END = (
    "equivalent: nothing is read behind the wait in this kernel; its end comes before what the next one of the stream "
    "reads."
)
OF_THREAD_0 = (
    "equivalent: behind it thread 0 alone writes `count`, which it alone has written before; the list is read behind the "
    "next block barrier."
)
TWICE = "equivalent here: all of a short row is in the list, so the block barrier before `ties` are counted follows at once."
COLLECTED = "equivalent here: `collect` has ended with a block barrier, and nothing is written between the two."
COLLECTED_LAST = "equivalent here: the block barrier behind the bisection follows at once."
NO_PARTS = "equivalent here: with so few parts the row is bisected, and nobody reads them."
OTHER_REGION = (
    "no race, but all numbers are wrong: by a count that stays 0, what is published goes to region 1 and what is read comes "
    "from region 0, which nobody writes."
)
EMPTY_GROUPS = (
    "equivalent: the wait of the last step leaves STAGES - 2 groups open, which were closed after the last load and are "
    "empty."
)
ONE_BLOCK = "equivalent: the kernel that ends with `finish_grid` is one block of one warp, and does nothing else."
ONE_IN_GRID = (
    "equivalent here: the grid is one block, whose writes `announce` releases behind a block barrier of its own."
)
MEETS_ONCE = (
    "equivalent: this kernel is one warp that meets once and does nothing else, so nobody reads the epoch again."
)

BEFORE_RELEASE = (
    "pkb.cuh:185 barrier before the release removed",
    "pkb.cuh:185 barrier after the release, not before",
)
AFTER_WAIT = ("pkb.cuh:193 barrier before the wait, not after", "pkb.cuh:199 barrier after the wait removed")
COUNT = tuple(
    f"pkb.cuh:332 finish_grid: {notch}"
    for notch in (
        "barrier before the count removed", "acq_rel -> relaxed", "acq_rel -> release", "acq_rel -> acquire", "gpu -> cta",
        "any block may be the last",
    )
)  # fmt: skip
MEETING = tuple(f"pkb.cuh:{line} __syncthreads removed" for line in (269, 272))
SHORT_ROWS, LONG_ROWS = ("82 few", "82 many"), ("82 collected", "82 bisected")
TWO_REGIONS = ("81", "81 shared out", "82 few", *LONG_ROWS)
FINISHING = ("16 pushed", "54 large", "72", "81", "81 shared out", *SHORT_ROWS, *LONG_ROWS)
"""Kernels whose ranks meet in `finish_grid` and nowhere else, which is the last thing that their kernels do."""

EQUIVALENT: dict[tuple[str, str], str] = {
    ("03 switch", "pkb_collective.cuh:60 __syncthreads removed"): ANNOUNCED,
    **{("21", mutant): OWN_DATA for mutant in BEFORE_RELEASE},
    **{pair: IN_FINISH for pair in product(FINISHING, BEFORE_RELEASE)},
    **{pair: AT_END for pair in product(FINISHING, AFTER_WAIT)},
    **{("54 large", mutant): ONE_BLOCK for mutant in COUNT},
    **{("82 bisected", mutant): ONE_IN_GRID for mutant in COUNT},
    **{pair: MEETS_ONCE for pair in product(("13 pushed", "13 pulled"), MEETING)},
    **{(kernel, "pkb.cuh:336 finish_grid: exchanges not counted"): OTHER_REGION for kernel in TWO_REGIONS},
    ("82 bisected", "log_prob_topk.cu:68 __syncthreads removed"): COLLECTED_LAST,
    ("82 bisected", "log_prob_topk.cu:117 __syncthreads removed"): NO_PARTS,
    **{(kernel, "pkb_mma.cuh:133 last wait removed"): EMPTY_GROUPS for kernel in ("13 fused", "16 fused")},
    **{(kernel, "log_prob_topk.cu:104 __syncthreads removed"): OF_THREAD_0 for kernel in SHORT_ROWS},
    **{(kernel, "log_prob_topk.cu:143 __syncthreads removed"): TWICE for kernel in SHORT_ROWS},
    **{(kernel, "log_prob_topk.cu:133 __syncthreads removed"): COLLECTED for kernel in LONG_ROWS},
}


def argument_for(kernel: str, mutant: str) -> str:
    return EQUIVALENT.get((kernel, mutant), "")
