"""Would test_kernels.py notice? Each kernel with one fault, mostly a missing wait, must come out wrong, hang or trap.

That is a matter of chance, since a fault shows only where ranks are far enough apart. So each mutant gets many calls, late
ranks, and a few seeds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from cases import Case, Edits
from ranks import Run
from test_kernels import ALWAYS, NEVER, SHAPES, heads, product, rows

# Faults in the headers, for all kernels that use the part.
AWAIT = {"pkb.cuh": [("    p.await_all(epoch + turn - p.ahead + 1);\n", "")]}
ANNOUNCE = {"pkb.cuh": [("      p.announce(epoch + turn + 1);\n", "")]}
TOO_EARLY = {"pkb.cuh": [("  __syncthreads();  // the writes of all threads come before\n", "")]}
UNMET = {"pkb.cuh": [("  __syncthreads();  // and the reads of all threads after\n", "")]}
ONE_SLOT = {"pkb.cuh": [("((epoch + turn) & (slots_each - 1))", "0")]}
FINISH = {"pkb.cuh": [("  await_all(signals, p.rank, p.world, exchange, count);\n", "")]}
NOT_LAST = {"pkb.cuh": [("  if (!last) return;\n", "  if (block_in_grid()) return;\n")]}
NOT_COUNTED = {"pkb.cuh": [("  p.advance(epoch + p.turns);\n", "")]}
SAME_REGION = {"pkb.cuh": [("(ld_relaxed_sys(own_count(0)) + more) % regions", "0")]}
COPIES = {"pkb_mma.cuh": [("      wait_async<STAGES - 2>();\n", "      wait_async<STAGES - 1>();\n")]}

SMALL = {"THREADS": 32, "LEAST_BYTES": 64}
TURN, CHUNK = {**SMALL, "TURN_BYTES": 512}, {**SMALL, "CHUNK_BYTES": 512}
SHOTS = {**TURN, "ONE_SHOT_BYTES": 2000}
WIDE_CHUNK, PIECE = {"THREADS": 64, "CHUNK_BYTES": 200}, {"THREADS": 64, "PIECE_BYTES": 128}
ALL_WORK, ALL_PAIRS = {"SMALL_WORK": 0}, {"MANY_PAIR_PIXELS": 0}
FUSED, PUSHED = {"FUSED_FLOPS": ALWAYS}, {"FUSED_FLOPS": NEVER, "PUSH_FLOPS": ALWAYS}
PULLED = {"FUSED_FLOPS": NEVER, "PUSH_FLOPS": NEVER}
NO_WAIT = {"pkb.cuh": [("p.announce(count), p.await_all(count), ", "p.announce(count), ")]}
NO_FIRST_WAIT = (("    pipe.await_all(epoch + turn + 1);\n", ""),)
NO_SECOND_WAIT = (("    pipe.await_all(epoch + turns + turn + 1);\n", ""),)
UNPUBLISHED = (("        self.meet(self.now.peers)  # all have published\n", ""),)
OVERWRITTEN = (("        self.meet(self.now.peers)  # all have read: the next call may publish\n", ""),)
SHOWN = r"rank \d: (call \d+, .*(values differ|different bits)|died with exit code -)"
HUNG = r"rank \d: no answer"
RAISED = (
    r"rank \d: (?!RuntimeError: \[.*gloo)\w+(Error|Instruction|Failed)\b"  # gloo's own follow from a rank that died
)
SQUARES = (product(64, 64, 32),)


@dataclass(frozen=True)
class Mutant:
    fault: str
    case: Case
    quick: bool = False
    """Run in every session: the others are marked slow, since each is a build of its own."""


def mutant(
    fault: str,
    problem: int,
    *,
    world: int = 3,
    sizes: tuple[str | Mapping[str, int], ...] = SHAPES,
    headers: Mapping[str, Edits] | None = None,
    edits: Edits = (),
    quick: bool = False,
    calls: int = 24,
    constants: Mapping[str, int] | None = None,
) -> Mutant:
    case = Case(
        problem, world, sizes, calls=calls, constants=constants or {}, edits=edits, header_edits=headers or {}, late=0.6
    )
    return Mutant(fault, case, quick)


MUTANTS = [
    mutant("no await", 1, headers=AWAIT, constants=SHOTS),
    mutant("one slot", 1, headers=ONE_SLOT, constants=SHOTS),
    mutant("no await", 2, headers=AWAIT, constants=CHUNK),
    mutant("announces too early", 2, headers=TOO_EARLY, constants=CHUNK),
    mutant("turns not counted", 2, headers=NOT_COUNTED, quick=True, constants=CHUNK),
    mutant("no await", 3, headers=AWAIT, constants=CHUNK),
    mutant("one slot", 3, headers=ONE_SLOT, constants=CHUNK),
    mutant("no await", 4, headers=AWAIT, constants=SHOTS),
    mutant("one thread waits", 4, headers=UNMET, constants=SHOTS),
    mutant("no await", 5, headers=AWAIT, quick=True, constants=CHUNK),
    mutant("no announce", 5, headers=ANNOUNCE, calls=2, constants=CHUNK),
    mutant("announces too early", 6, headers=TOO_EARLY, quick=True, constants=CHUNK),
    mutant("one slot", 6, headers=ONE_SLOT, constants=CHUNK),
    mutant("no await", 7, headers=AWAIT, constants=TURN),
    mutant("one slot", 7, headers=ONE_SLOT, constants=TURN),
    mutant("one slot", 8, headers=ONE_SLOT, quick=True, constants=TURN),
    mutant("no announce", 8, headers=ANNOUNCE, calls=2, quick=True, constants=TURN),
    mutant("no wait for products", 13, sizes=SQUARES, headers=NO_WAIT, constants=PULLED),
    mutant("no wait for parts", 13, sizes=SQUARES, edits=NO_FIRST_WAIT, constants=FUSED),
    mutant("no wait for sums", 13, sizes=SQUARES, edits=NO_SECOND_WAIT, constants=FUSED),
    mutant(
        "operands not waited for", 13, world=2, sizes=(product(64, 64, 128),), headers=COPIES, calls=2, constants=FUSED
    ),
    mutant("no await", 16, sizes=(product(66, 64, 72),), headers=AWAIT, constants=FUSED),
    mutant("no wait for products", 16, sizes=("tiny",), headers=FINISH, constants=PUSHED),
    mutant("no await", 17, sizes=("tiny",), headers=AWAIT, constants=WIDE_CHUNK),
    mutant("announces too early", 17, sizes=("tiny",), headers=TOO_EARLY, constants=WIDE_CHUNK),
    mutant("no await", 45, sizes=(rows(52, 64),), headers=AWAIT, constants=PIECE),
    mutant("one thread waits", 45, sizes=(rows(52, 64),), headers=UNMET, constants=PIECE),
    mutant("no await", 54, sizes=("tiny",), headers=AWAIT),
    mutant("no wait for what is published", 54, sizes=(heads(2, 21, 3, 8),), edits=UNPUBLISHED, constants=ALL_WORK),
    mutant("overwritten too early", 54, sizes=(heads(2, 21, 3, 8),), edits=OVERWRITTEN, constants=ALL_WORK),
    mutant("no wait for peers", 72, sizes=("tiny",), headers=FINISH),
    mutant("no wait for other blocks", 72, sizes=("odd",), headers=NOT_LAST),
    mutant("no wait for peers", 81, sizes=("odd",), headers=FINISH, quick=True, constants=ALL_PAIRS),
    mutant("no wait for other blocks", 81, sizes=("odd",), headers=NOT_LAST, constants=ALL_PAIRS),
    mutant("no wait for peers", 82, sizes=("odd",), headers=FINISH),
    mutant("one region", 82, sizes=("odd",), headers=SAME_REGION),
    mutant("no wait for other blocks", 82, sizes=("odd",), headers=NOT_LAST),
]


def noticed(found: str) -> bool:
    """Whether a kernel was wrong, trapped or hung. Ranks that wait for one that could not build do not count."""
    return not re.search(RAISED, found) and bool(re.search(SHOWN, found) or re.search(HUNG, found))


def test_only_faults_of_kernels_count_as_noticed() -> None:
    assert noticed("rank 0: call 3, {'m': 5}, torch.bfloat16: 3 values differ; rank 1: no answer in 300 s")
    assert noticed(
        "rank 0: died with exit code -6; rank 1: RuntimeError: [/x/gloo/pair.cc:5] Connection closed by peer"
    )
    assert noticed("rank 0: no answer in 300 s; rank 1: no answer in 300 s")
    for broken in (
        "rank 0: RuntimeError: g++ on kernel.cpp: 'u32' does not name a type; rank 1: no answer in 300 s",
        "rank 0: no answer in 300 s; rank 1: UnknownInstruction: give it a line in ptx.py: bar.arrive",
        "rank 0: ValueError: 0 times in the text, not once; rank 1: no answer in 300 s",
        "rank 0: call 0 changed its argument tensor",
    ):
        assert not noticed(broken), broken


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            m, id=f"{m.case.problem:02d}-{m.fault.replace(' ', '-')}", marks=[] if m.quick else pytest.mark.slow
        )
        for m in MUTANTS
    ],
)
def test_a_fault_is_noticed(mutant: Mutant, run: Run) -> None:
    sound = replace(mutant.case, edits=(), header_edits={})
    assert run(sound) == "", "the case must be right without the fault"
    for seed in range(1, 6):
        found = run(replace(mutant.case, seed=seed), wait_s=2.0)
        if found:
            assert noticed(found), f"not by the fault, but by: {found}"
            return
    pytest.fail(f"{mutant.case.problem}: {mutant.fault}: five times nothing was wrong")


def test_every_kernel_has_a_mutant() -> None:
    from test_kernels import CASES

    assert {mutant.case.problem for mutant in MUTANTS} == {case.problem for case in CASES}
