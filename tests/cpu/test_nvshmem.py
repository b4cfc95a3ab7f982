"""NVSHMEM without a GPU: found or not, linked where it is installed, and its device functions on the emulated GPU."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read
from pkb.judge.session import evaluate
from pkb.judge.worlds import World
from pkb.kit import nvcc, nvshmem
from pkb.kit.cuda import cubin_recipe
from pkb.kit.errors import CompilerMissing
from pkb.kit.nvshmem import heap, host, link, memory
from pkb.kit.nvshmem.found import found
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict

SOLUTIONS = sorted((Path(__file__).parents[2] / "solutions").glob("*_nvshmem*.py"))
IN_CUDA = [path for path in SOLUTIONS if path.stem.endswith("_nvshmem")]
VERSION = "".join(
    f"#define NVSHMEM_VENDOR_{part}_VERSION {n}\n" for part, n in (("MAJOR", 3), ("MINOR", 7), ("PATCH", 1))
)
installed = pytest.mark.skipif(
    isinstance(nvshmem.found(), str) or nvcc.find() is None, reason="NVSHMEM or nvcc is not installed"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installation with all that the kit looks for, empty but for its version."""
    for name in ("lib/libnvshmem_host.so.3", "lib/libnvshmem_device.a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "include" / "non_abi").mkdir(parents=True)
    (tmp_path / "include" / "non_abi" / "nvshmem_version.h").write_text(VERSION)
    monkeypatch.setenv("NVSHMEM_HOME", str(tmp_path))
    found.cache_clear()
    yield tmp_path
    found.cache_clear()


def test_an_installation_is_found_with_its_version(home: Path) -> None:
    there = found()
    assert not isinstance(there, str)
    assert there.version == "3.7.1"
    assert there.host_library.name == "libnvshmem_host.so.3"


def test_the_heap_is_sized_by_the_case_within_what_is_free() -> None:
    gib = 1 << 30
    assert heap.size_for(free=16 * gib, world=4, case_bytes=0) == 2 * gib, "outside the judge: what is free"
    assert heap.size_for(free=128 * gib, world=4, case_bytes=0) == 4 * gib
    assert heap.size_for(free=16 * gib, world=4, case_bytes=1 << 20) == gib // 2
    assert heap.size_for(free=64 * gib, world=4, case_bytes=gib // 8) == 5 * gib
    assert heap.size_for(free=64 * gib, world=4, case_bytes=4 * gib) == 8 * gib


def test_the_judge_tells_ranks_on_a_gpu_of_the_largest_size_to_come() -> None:
    job, problem = Job(SOLUTIONS[0], Case("1", "virtual", 4, "tiny", "bf16", "quick")), get(1)
    for device, most in (("cuda", problem.argument_bytes("paper", 4, "bf16")), ("cpu", 0)):
        platform: Any = SimpleNamespace(device=device)
        world = World(job, platform, problem, ranks=4, build=Path(), backend="cuda", sizes=["tiny", "paper", "odd"])
        assert world._case_bytes() == most


def test_one_without_its_device_library_is_none_and_a_build_says_what_to_install(home: Path) -> None:
    (home / "lib" / "libnvshmem_device.a").unlink()
    if isinstance(found(), str):  # no wheel beside it
        assert "pip install nvidia-nvshmem" in str(found())
        with pytest.raises(CompilerMissing, match="NVSHMEM is not installed"):
            cubin_recipe("#include <nvshmem.h>\n", name="k", options=(), arch="sm_90a")


def test_only_a_source_that_includes_its_headers_is_linked() -> None:
    assert link.is_used('#include "pkb.cuh"\n # include <nvshmemx.h>\n')
    assert not link.is_used("// #include <nvshmem.h>\n")


def test_structures_have_the_sizes_that_the_library_checks() -> None:
    sizes = [
        ctypes.sizeof(kind) for kind in (host._UniqueId, host._UniqueIdArguments, host._Arguments, host._Attributes)
    ]
    assert sizes == [128, 24, 128, 144]
    assert host._versioned(host._Attributes) == 0x10090


def test_sizes_are_powers_of_two() -> None:
    import torch

    assert memory.bytes_for(1, torch.int64) == 512
    assert memory.bytes_for(513, torch.uint8) == 1024
    assert memory.bytes_for(1 << 20, torch.bfloat16) == 2 << 20


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_the_rules_find_nothing_in_a_solution(path: Path) -> None:
    inspection = inspect_source(read(path))
    assert [finding.message for finding in inspection.findings] == []
    assert inspection.backend == ("triton" if path.stem.endswith("_triton") else "cuda")
    assert {use.path for use in inspection.paths} == {"sm_load_store"}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.name.startswith(("01", "27")) else [pytest.mark.slow]) for path in IN_CUDA],
    ids=lambda path: path.stem,
)
def test_a_solution_is_right_on_the_emulated_gpu(path: Path) -> None:
    problem = get(path.name.split("_", 1)[0])
    found = evaluate(Job(path, Case(problem.stem, "cpu", 3, "tiny", problem.default_dtype, "quick"), timing=False))
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM
    assert any(check.startswith("no race in") for check in found.checks), found.checks


@installed
@pytest.mark.slow
@pytest.mark.parametrize("path", IN_CUDA, ids=lambda path: path.stem)
def test_a_solution_is_linked_for_hopper(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pkb.candidates.prebuild import prebuild

    monkeypatch.setenv("PKB_BUILD_DIR", str(tmp_path))
    monkeypatch.setenv("PKB_CUDA_ARCH", "sm_90a")
    report = prebuild(path.read_text())
    assert report.error is None, report.error
    assert [built.kind for built in report.built] == ["cubin"]


COMPILE_TRITON = """
import importlib.util, sys
import torch.utils._triton
torch.utils._triton.has_triton = lambda: True  # it asks for a GPU, which compiling does not need
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
kernel = getattr(module, sys.argv[2])
constants = {"world": 4, "itemsize": 2, "wide": tl.float32, "BLOCK": module.BLOCK}
pointers = {"signals": "*i64", **dict.fromkeys(("slots", "shard", "rows", "sums", "tensor", "out"), "*bf16")}
names = kernel.jit_func.arg_names
signature = {name: pointers.get(name, "constexpr" if name in constants else "i32") for name in names}
source = ASTSource(
    fn=kernel.jit_func, signature=signature, constexprs={name: value for name, value in constants.items() if name in names}
)
built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"extern_libs": kernel.extern_libs, "num_warps": 8})
assert built.asm["cubin"][:4] == b"\\x7fELF"
"""


@installed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["01_allreduce", "02_allgather"])
def test_a_triton_solution_is_compiled_for_hopper(name: str, tmp_path: Path) -> None:
    there = nvshmem.found()
    assert not isinstance(there, str)
    kernel = {"01_allreduce": "all_reduce", "02_allgather": "all_gather"}[name]
    path = next(path for path in SOLUTIONS if path.stem == f"{name}_nvshmem_triton")
    environment = os.environ | {"NVSHMEM_LIB_DIR": str(there.libraries), "TRITON_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", COMPILE_TRITON, str(path), kernel], env=environment, check=True, timeout=300)
