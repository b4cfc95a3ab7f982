"""Our kernels on the CPU against the problems' own references: many turns, odd shapes, late ranks, every dtype, 2 to 8 ranks.

Each case would hang, trap or give wrong results with a wrong index, a missing barrier or a buffer that is used again too early;
test_mutants.py shows that for each kernel.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cases import SOLUTIONS, Case
from ranks import Run

ALL = ("bf16", "fp32", "fp16", "fp64")
NEVER, ALWAYS = 0, 2**60  # for limits in FLOP
SHAPES = ({"m": 16, "n": 64}, "odd", {"m": 1, "n": 7}, {"m": 40, "n": 32}, {"m": 5, "n": 3})
ALIGNED = ({"m": 16, "n": 64}, {"m": 40, "n": 32}, {"m": 5, "n": 3}, {"m": 8, "n": 24})


def collective(problem: int, *, switch: str = "", **ways: int) -> list[Case]:
    """Slots of some hundred bytes, so that a shape takes several turns and slots go round in one call. `switch` is how the
    kernels that use NVLS are called."""
    size = "TURN_BYTES" if problem in (1, 4, 7, 8) else "CHUNK_BYTES"
    small = {"THREADS": 32, "LEAST_BYTES": 64, **ways}
    same_bits = problem == 1
    cases = [
        Case(problem, 2, SHAPES, ALL, calls=8, constants={**small, size: 512}, resident=3, same_bits=same_bits),
        Case(problem, 3, SHAPES, ("bf16", "fp32"), constants={**small, size: 1024}, seed=2, same_bits=same_bits),
        Case(problem, 8, SHAPES[:3], constants={**small, size: 512}, resident=1, seed=3, same_bits=same_bits),
    ]
    constants = {**small, size: 512}
    cases += [
        Case(problem, 3, SHAPES, constants=constants, calls=16, replayed=True, seed=5, late=0.6),
        Case(problem, 3, SHAPES, constants=constants, calls=8, failing=True, seed=6),
        Case(problem, 2, SHAPES, constants=constants, calls=4, resident=3, fewer_resident=2, seed=7),
    ]
    if switch:
        cases += [
            Case(problem, 4, ALIGNED, ALL[:3], constants=constants, multicast=True, nvls="1", runs=switch, seed=4),
            Case(
                problem, 4, ALIGNED, constants=constants, calls=16, multicast=True, nvls="1", runs=switch, replayed=True
            ),
        ]
    return cases


def product(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


def heads(batch: int, tokens: int, heads: int, head_size: int, kv_heads: int = 0) -> dict[str, int]:
    size = {"batch": batch, "tokens": tokens, "heads": heads, "head_size": head_size}
    return {**size, "kv_heads": kv_heads} if kv_heads else size


def rows(tokens: int, hidden: int) -> dict[str, int]:
    return {"tokens": tokens, "hidden": hidden}


def hyena(local: int, filter: int, *, groups: int = 24, group_dim: int = 1) -> dict[str, int]:
    return {"batch": 1, "groups": groups, "group_dim": group_dim, "local": local, "filter": filter}


GEMM_ALLREDUCE = [  # fused, pushed and pulled
    Case(13, 2, (product(64, 64, 32), product(130, 136, 40)), calls=3, constants={"FUSED_FLOPS": ALWAYS}, same_bits=True),
    Case(13, 3, (product(129, 72, 24),), ("fp16",), calls=2, constants={"FUSED_FLOPS": ALWAYS}, same_bits=True),
    Case(
        13, 4, ("odd", product(64, 64, 16), product(1, 3, 5)), ("bf16", "fp64"), same_bits=True,
        constants={"FUSED_FLOPS": NEVER, "PUSH_FLOPS": ALWAYS, "CHUNK_BYTES": 1024},
    ),
    Case(
        13, 8, (product(9, 16, 37), product(64, 64, 16)), same_bits=True,
        constants={"FUSED_FLOPS": NEVER, "PUSH_FLOPS": NEVER, "CHUNK_BYTES": 1024},
    ),
]  # fmt: skip
GEMM_REDUCESCATTER = [
    Case(16, 2, (product(64, 64, 64), product(260, 136, 80)), calls=3, constants={"FUSED_FLOPS": ALWAYS}),
    Case(16, 3, (product(135, 72, 72),), ("fp16",), calls=2, constants={"FUSED_FLOPS": ALWAYS}),
    Case(
        16, 4, ("odd", "tiny", product(32, 200, 96)), ("bf16", "fp32"),
        constants={"FUSED_FLOPS": NEVER, "PUSH_FLOPS": ALWAYS},
    ),
    Case(16, 8, ("tiny", product(32, 200, 96)), constants={"FUSED_FLOPS": NEVER, "PUSH_FLOPS": NEVER}),
]  # fmt: skip
ROPE = [
    Case(17, 2, ("tiny", "odd"), ALL, calls=8, constants={"THREADS": 64, "CHUNK_BYTES": 200}, resident=3),
    Case(17, 4, ("tiny", heads(4, 16, 8, 64, 8)), constants={"THREADS": 64, "CHUNK_BYTES": 512}),
    Case(17, 8, ("tiny", "odd"), constants={"THREADS": 32, "CHUNK_BYTES": 128}, resident=1),
]
NORM = [
    Case(45, 3, ("tiny", "odd"), ALL, calls=8, constants={"THREADS": 64, "PIECE_BYTES": 200}, resident=3),
    Case(45, 4, (rows(52, 200), rows(20, 64)), constants={"THREADS": 64, "PIECE_BYTES": 64}),
    Case(45, 8, (rows(40, 520), rows(40, 96), "odd"), constants={"THREADS": 64, "PIECE_BYTES": 512}),
]
FEWER_SCORES = (("THREADS, SCORES = 256, 4096", "THREADS, SCORES = 64, 64"),)
ATTENTION = [  # by our kernel, and by copies around the library's
    Case(54, 2, ("tiny", "odd"), ALL, calls=8, edits=FEWER_SCORES, resident=3),
    Case(54, 8, (heads(2, 16, 4, 16), heads(1, 19, 3, 24)), edits=FEWER_SCORES),
    Case(54, 3, (heads(2, 21, 3, 8), heads(1, 15, 1, 24)), ("bf16", "fp32"), constants={"SMALL_WORK": 0}),
    Case(54, 4, (heads(2, 28, 4, 16), heads(1, 20, 3, 24)), ("fp16",), constants={"SMALL_WORK": 0}, seed=2),
]
HYENA = [
    Case(72, 2, ("tiny", "odd"), ALL, calls=4),
    Case(72, 3, (hyena(700, 2100, groups=3), hyena(22, 37, groups=6)), ("fp32", "bf16"), calls=3),
    Case(72, 8, ("tiny",), calls=2),
]
MASKS = [
    Case(81, 2, ("tiny", "odd"), ("bf16", "fp16", "fp32"), constants={"MANY_PAIR_PIXELS": 1 << 40}),
    Case(81, 3, ("odd", "tiny"), ("fp32",), constants={"MANY_PAIR_PIXELS": 0}, change="hard_masks", seed=2),
    Case(81, 8, ("tiny",), calls=3, constants={"MANY_PAIR_PIXELS": 0}),
]
LOGITS = [
    Case(82, 2, ("tiny", "odd", "paper"), ("bf16", "fp16", "fp32")),
    Case(82, 3, ("odd", "paper"), ("bf16", "fp32"), constants={"FEW_TOKENS": 0}, seed=2),
    Case(82, 4, ("paper", "odd"), ("fp32",), calls=4, change="ties", seed=3),
    Case(82, 4, ("paper", "odd"), ("fp32",), calls=3, change="no_top_k", seed=4),
]
SHOTS = {"THREADS": 32, "LEAST_BYTES": 64, "TURN_BYTES": 512, "ONE_SHOT_BYTES": 1000}
LARGE = ({"m": 40, "n": 32},)
POLICY = [  # by the policy where there is a switch: only all-reduce from 4 ranks on saves bytes by it
    Case(1, 4, LARGE, constants=SHOTS, calls=3, multicast=True, runs="switch_"),
    Case(1, 4, LARGE, constants=SHOTS, calls=3, multicast=True, nvls="0", runs="two_shot_"),
    Case(1, 3, LARGE, constants=SHOTS, calls=3, multicast=True, runs="two_shot_"),
    Case(4, 4, LARGE, constants=SHOTS, calls=3, multicast=True, runs="two_shot_"),
]
REPLAYED = [  # what launches by itself: torch's own work, and memory that a graph would keep (72), cannot be replayed here
    Case(13, 3, (product(64, 64, 32),), calls=6, constants={"FUSED_FLOPS": ALWAYS}, replayed=True),
    Case(16, 3, (product(66, 64, 72),), calls=6, constants={"FUSED_FLOPS": ALWAYS}, replayed=True),
    Case(17, 4, ("tiny",), calls=8, constants={"THREADS": 64, "CHUNK_BYTES": 512}, replayed=True),
    Case(45, 4, (rows(52, 200), rows(20, 64)), calls=10, constants={"THREADS": 64, "PIECE_BYTES": 64}, replayed=True),
    Case(54, 2, ("tiny",), calls=8, edits=FEWER_SCORES, replayed=True),
    Case(82, 3, ("odd",), calls=8, replayed=True),
]
CASES = [
    *collective(1, switch="switch_", ONE_SHOT_BYTES=1000),
    *collective(2),
    *collective(3, switch="by_switch"),
    *collective(4, switch="switch_", ONE_SHOT_BYTES=1000),
    *collective(5),
    *collective(6),
    *collective(7),
    *collective(8),
    *GEMM_ALLREDUCE,
    *GEMM_REDUCESCATTER,
    *ROPE,
    *NORM,
    *ATTENTION,
    *HYENA,
    *MASKS,
    *LOGITS,
    *POLICY,
    *REPLAYED,
]


ALONE = [Case(problem, 1, ("tiny", "odd"), calls=2) for problem in sorted({case.problem for case in CASES})]


@pytest.mark.parametrize("case", CASES + ALONE, ids=lambda case: case.name)
def test_ranks_find_all_calls_right(case: Case, run: Run) -> None:
    assert run(case) == ""


def test_the_kernel_that_the_manual_shows_is_right(run: Run, tmp_path: Path) -> None:
    manual = (SOLUTIONS.parent / "docs" / "kit.md").read_text()
    (shown,) = [text for text in re.findall(r"```python\n(.*?)```", manual, re.S) if "turns_of(pipe)" in text]
    assert len(shown.splitlines()) <= 40
    (tmp_path / "shown.py").write_text(shown)
    smaller = (("BLOCKS, THREADS, CHUNK_BYTES = 64, 256, 8192", "BLOCKS, THREADS, CHUNK_BYTES = 64, 32, 128"),)
    case = Case(2, 3, SHAPES, ("bf16", "fp32"), calls=10, edits=smaller, file=str(tmp_path / "shown.py"), late=0.6)
    assert run(case) == ""
    assert run(replace(case, replayed=True)) == ""


def test_the_one_shot_kernel_of_the_manual_is_right(run: Run, tmp_path: Path) -> None:
    manual = (SOLUTIONS.parent / "docs" / "kit.md").read_text()
    (shown,) = [text for text in re.findall(r"```python\n(.*?)```", manual, re.S) if "barrier_block" in text]
    (tmp_path / "shown.py").write_text(shown)
    smaller = (("BLOCKS, THREADS = 24, 512", "BLOCKS, THREADS = 24, 32"),)
    case = Case(1, 3, SHAPES, ALL, calls=10, edits=smaller, file=str(tmp_path / "shown.py"), late=0.6, same_bits=True)
    assert run(case) == ""


EXAMPLES = sorted((SOLUTIONS.parent / "src" / "pkb" / "generate" / "examples" / "cuda").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_that_prompts_show_without_the_kit_are_right(path: Path, run: Run) -> None:
    small = (("BLOCKS, THREADS = 24, 512", "BLOCKS, THREADS = 2, 64"),)
    case = Case(int(path.name[:2]), 3, SHAPES, ("bf16", "fp32"), calls=10, edits=small, file=str(path), late=0.6)
    assert run(case) == ""
    if path.stem.startswith("02"):  # and it is the barriers that make it so
        unmet = (*small, ("  meet(pads, rank, world);  // all have published\n", ""))
        assert "values differ" in run(replace(case, edits=unmet, calls=24))


def test_every_kernel_is_here() -> None:
    """Not 21: it changes its arguments in place, which a case takes for a fault."""
    here = {case.problem for case in CASES}
    written = {int(path.name.split("_")[0]) for path in SOLUTIONS.glob("*_cuda.py") if "__global__" in path.read_text()}
    assert written - here <= {21}
