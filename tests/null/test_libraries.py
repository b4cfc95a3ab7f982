"""Libraries beyond torch and Triton: a candidate that needs one is `unsupported` where it is missing, with what to do."""

from pathlib import Path

import pytest
from candidate_text import source

from pkb.candidates import libraries
from pkb.candidates.paths import kernel_paths
from pkb.candidates.prebuild import prebuild
from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read
from pkb.cli import machine_facts
from pkb.judge.stages.prepare import why_unsupported
from pkb.kit import kittens
from pkb.kit.errors import CompilerMissing
from pkb.platforms.base import EMULATED_CUDA, PlatformFacts

GPU = PlatformFacts("virtual", available=True, capabilities=("torch", "triton", "cuda", "cpp"))
CPU = PlatformFacts("cpu", available=True, capabilities=("torch", "triton", "cpp", EMULATED_CUDA))
CUTE = "import cutlass.cute as cute\ndef solution(x): return x\n"
KITTENS = 'S = """\n#include "kittens.cuh"\n__global__ void f() {}\n"""\ndef solution(x): return x\n'
SOLUTIONS = Path(__file__).parents[2] / "solutions"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a clone of ThunderKittens."""
    for name in ("include/kittens.cuh", "prototype/prototype.cuh", "secret/key.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#pragma once\n")
    monkeypatch.setenv(kittens.VARIABLE, str(tmp_path))
    return tmp_path


def without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [each._replace(found=lambda: "") if each.name == name else each for each in libraries.LIBRARIES]
    monkeypatch.setattr(libraries, "LIBRARIES", tuple(known))
    monkeypatch.setattr("pkb.judge.stages.prepare.LIBRARIES", tuple(known))


def test_doctor_lists_every_library_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    without("cute", monkeypatch)
    told = {fact.name: fact for fact in machine_facts.backends()}
    of_python = {"NCCL in Python (nccl4py)", "NVSHMEM in Python (nvshmem4py)"}
    assert set(told) == {"NCCL's device API", "NVSHMEM", "CuTe DSL", "ParallelKittens"} | of_python
    assert all(fact.ok or fact.to_do for fact in told.values())
    assert (told["CuTe DSL"].ok, told["CuTe DSL"].to_do) == (False, "pip install 'pkb[cute]'")


def test_cute_dsl_that_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    without("cute", monkeypatch)
    why = why_unsupported(inspect_source(source(CUTE)), GPU)
    assert "cannot run cute candidates" in why
    assert "pip install 'pkb[cute]'" in why


@pytest.mark.parametrize(
    ("text", "package"), [("import nvshmem.core as nv", "nvshmem4py-cu13"), ("from nccl import core", "'pkb[nccl]'")]
)
def test_a_library_is_not_its_python_package(text: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch brings NVSHMEM and NCCL; who imports their Python packages needs those as well."""
    monkeypatch.setattr(libraries, "_wheel", lambda *_: "/there")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(libraries, "torch_cuda_major", lambda: "13")
    why = why_unsupported(inspect_source(source(f"{text}\ndef solution(x): return x\n")), GPU)
    assert f"pip install {package}" in why


def test_installing_something_does_not_help_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without("cute", monkeypatch)
    why = why_unsupported(inspect_source(source(CUTE)), CPU)
    assert "the cpu platform cannot run cute, gpu candidates" in why
    assert "install" not in why


def test_a_machine_that_has_it_runs_it(monkeypatch: pytest.MonkeyPatch, copy: Path) -> None:
    assert why_unsupported(inspect_source(source(KITTENS)), GPU) == ""
    assert "gpu" in why_unsupported(inspect_source(source(KITTENS)), CPU)
    monkeypatch.delenv(kittens.VARIABLE)
    assert kittens.VARIABLE in why_unsupported(inspect_source(source(KITTENS)), GPU)


def test_the_build_knows_that_it_cannot_see_what_cute_dsl_compiles() -> None:
    found = prebuild((SOLUTIONS / "01_allreduce_cute.py").read_text())
    assert [item.why for item in found.skipped] == [
        "CuTe DSL compiles in each rank, at its first call: not to be seen before"
    ]
    assert (found.built, found.error, found.unavailable) == ([], None, None)


@pytest.mark.parametrize("name", ["01_allreduce_cute", "02_allgather_cute"])
def test_what_kernels_of_cute_dsl_do_is_read_off_their_inline_assembly(name: str) -> None:
    inspection = inspect_source(read(SOLUTIONS / f"{name}.py"))
    assert (inspection.findings, inspection.backend) == ((), "cute")
    assert {use.path for use in inspection.paths} == {"sm_load_store"}
    kernels = kernel_paths(read(SOLUTIONS / f"{name}.py"))
    assert list(kernels.values()) == [("sm_load_store",)]


def test_only_the_headers_of_a_copy_can_be_read(copy: Path) -> None:
    assert kittens.folders() == [copy / "include", copy / "prototype"]
    assert kittens.flags('#include "kittens.cuh"', ["-std=c++23"], arch="sm_100a") == [
        f"-I{copy / 'include'}", f"-I{copy / 'prototype'}", "--expt-relaxed-constexpr", "--expt-extended-lambda",
        "-DKITTENS_BLACKWELL",
    ]  # fmt: skip
    assert kittens.flags("int f();", [], arch="sm_90a") == []


def test_a_changed_header_is_another_copy(copy: Path) -> None:
    before = kittens.identity('#include "kittens.cuh"')
    (copy / "include" / "kittens.cuh").write_text("#pragma once\nint changed;\n")
    kittens._digest.cache_clear()
    assert kittens.identity('#include "kittens.cuh"') != before
    assert kittens.identity("int f();") == ()


def test_a_home_is_never_opened(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy / "home" / "me").mkdir(parents=True)
    (copy / "home" / "kittens.cuh").write_text("#pragma once\n")
    monkeypatch.setenv(kittens.VARIABLE, str(copy / "home"))
    assert kittens.folders() == [copy / "home"]
    monkeypatch.setenv("HOME", str(copy / "home" / "me"))
    assert kittens.folders() == []


@pytest.mark.parametrize("named", ["", "relative/folder", "/nonexistent"])
def test_a_name_that_leads_nowhere_is_no_copy(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kittens.VARIABLE, named)
    assert kittens.folders() == []
    with pytest.raises(CompilerMissing, match="PKB_KITTENS names no copy"):
        kittens.flags('#include "kittens.cuh"', [], arch="sm_90a")
