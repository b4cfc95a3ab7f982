"""The kit's Triton side, judged: a candidate that uses all of it, and one whose barriers are gone. And compiled for a GPU,
which the interpreter says nothing about."""

import re
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict
from program_files import program

CANDIDATE = Path(__file__).parent / "triton_kit" / "all_reduce.py"
MEETS = "    triton_kit.barrier(counts, program, rank, world)  # all have published\n"


@pytest.mark.parametrize(("size", "dtype"), [("tiny", "bf16"), ("odd", "fp32")])
def test_an_all_reduce_by_the_kit_is_correct(size: str, dtype: str) -> None:
    pytest.importorskip("triton")
    found = evaluate(Job(CANDIDATE, Case("1", "cpu", 3 if size == "odd" else 2, size, dtype, "quick"), timing=False))
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM


def test_without_its_barrier_it_is_not(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    text = CANDIDATE.read_text()
    assert text.count(MEETS) == 1
    broken = tmp_path / "unmet.py"
    broken.write_text(text.replace(MEETS, ""))
    found = evaluate(Job(broken, Case("1", "cpu", 2, "tiny", "bf16", "quick"), timing=False))
    assert found.verdict in (Verdict.WRONG, Verdict.RACE), found.detail


@pytest.mark.parametrize(("name", "switch"), [("fp32", True), ("bf16", False)])
def test_it_compiles_for_a_gpu_with_the_orders_that_peers_need(
    name: str, switch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    module = program(str(CANDIDATE))
    types = {"table": "*i64", "counts": "*i64", "multicast": "i64", "source": f"*{name}", "out": f"*{name}", "n": "i32"}
    dtype = {"fp32": triton.language.float32, "bf16": triton.language.bfloat16}[name]
    fixed = {"dtype": dtype, "rank": 1, "world": 3, "NVLS": switch, "BLOCK": 256}
    source = triton.compiler.ASTSource(
        fn=module.all_reduce, signature=types | dict.fromkeys(fixed, "constexpr"), constexprs=fixed
    )
    built = triton.compile(source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))
    found = re.findall(r"(?:ld|atom)\.global\.sys\.(acquire|release|relaxed)", built.asm["ptx"])
    # Two barriers of three ranks: two signals and two waits each, and the own count read and written.
    assert sorted(found) == ["acquire"] * 4 + ["relaxed"] * 4 + ["release"] * 4
    assert ("multimem.ld_reduce.relaxed.sys.global.add.f32" in built.asm["ptx"]) == switch
