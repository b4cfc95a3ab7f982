"""NCCL's device API without a GPU: which headers are found, whether structures are NCCL's, our solutions on the stand-in."""

import ctypes
import subprocess
import textwrap
from pathlib import Path

import pytest

from pkb.judge.session import evaluate
from pkb.kit import nccl_device, nvcc
from pkb.kit.cpp import find_cxx
from pkb.kit.cuda import cubin_recipe
from pkb.kit.emulated.gxx import find_gxx
from pkb.kit.errors import CompilerMissing
from pkb.kit.nccl_device import headers, library
from pkb.problems import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Evaluation, Verdict

SOLUTIONS = sorted((Path(__file__).parents[2] / "solutions").glob("*_nccl.py"))
IN_CI = {"27_moe_all2all_primitive_nccl"}
"""Barriers and the low-latency all-to-all. The others take a minute together; adversaries of the same kind are in CI."""
emulates = pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
compiles = pytest.mark.skipif(
    nvcc.find() is None or nccl_device.found().include is None, reason="needs nvcc, and NCCL_HOME or NCCL's wheel"
)


def judge(candidate: Path, problem: str, *, ranks: int = 2) -> Evaluation:
    stem, dtype = get(problem).stem, get(problem).default_dtype
    return evaluate(Job(candidate, Case(stem, "cpu", ranks, "tiny", dtype, "quick"), call_limit_s=60.0))


@emulates
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in IN_CI else [pytest.mark.slow]) for path in SOLUTIONS],
    ids=lambda path: path.stem,
)
def test_a_solution_is_correct_on_the_stand_in(path: Path) -> None:
    found = judge(path, path.name.split("_", 1)[0])
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM
    assert any("no race in 2 traces" in check for check in found.checks)


KERNEL = """
import torch
from pkb import kit
from pkb.kit import nccl_device

SOURCE = r'''
#include <nccl_device.h>
extern "C" __global__ void use(const __grid_constant__ ncclDevComm comm, ncclWindow_t window) {{ {statement} }}
'''
KERNEL = kit.compile(SOURCE, name="use").kernel("use")

def solution(tensor):
    window = nccl_device.window(4096, tensor.device)
    KERNEL[1, 32](window.comm, window.handle)
    return tensor.clone()
"""


@emulates
@pytest.mark.parametrize(
    ("statement", "verdict", "said"),
    [
        ("*(int*)ncclGetLsaMultimemPointer(window, 0, comm) = 1;", Verdict.UNSUPPORTED, "ncclGetLsaMultimemPointer"),
        pytest.param("ncclGin gin{comm, 0};", Verdict.UNSUPPORTED, "ncclGin", marks=pytest.mark.slow),
        pytest.param(
            "ncclLsaBarrierSession<ncclCoopCta> b{ncclCoopCta(), comm, ncclTeamTagLsa(), 512};",
            Verdict.CRASH,
            "an LSA barrier beyond those that were made",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_the_stand_in_has_not_is_said_by_name(statement: str, verdict: Verdict, said: str, tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(KERNEL.format(statement=statement))
    found = judge(candidate, "1")
    assert found.verdict is verdict, found.detail
    assert said in found.detail + found.output_tail


def an_nccl(folder: Path, *, loaded: int, header: int | None) -> Path:
    """A library that answers as NCCL of that version does, in a wheel's layout, with headers of another."""
    compiler = find_cxx()
    if compiler is None:
        pytest.skip("no C++ compiler here")
    made = folder / "lib" / "libnccl.so.2"
    made.parent.mkdir(parents=True)
    source = f'extern "C" int ncclGetVersion(int *version) {{ *version = {loaded}; return 0; }}'
    subprocess.run(
        [str(compiler), "-shared", "-fPIC", "-x", "c++", "-", "-o", str(made)], input=source, text=True, check=True
    )
    if header is not None:
        (folder / "include").mkdir()
        (folder / "include" / "nccl_device.h").touch()
        parts = {"MAJOR": header // 10000, "MINOR": header // 100 % 100, "PATCH": header % 100}
        text = "".join(f"#define NCCL_{part} {number}\n" for part, number in parts.items())
        (folder / "include" / "nccl.h").write_text(text)
    return made


@pytest.mark.parametrize(
    ("loaded", "header", "why_not"),
    [
        (23203, 23203, ""),
        (23203, 22809, "NCCL 2.32.3 is loaded, and {include} is of 2.28.9: they must be the same"),
        (22809, 22809, "NCCL 2.28.9 is loaded, 2.32 is needed"),
        (23203, None, "no `include` beside it"),
    ],
)
def test_headers_must_be_those_of_the_library(loaded: int, header: int | None, why_not: str, tmp_path: Path) -> None:
    found = nccl_device.found(an_nccl(tmp_path, loaded=loaded, header=header))
    assert why_not.format(include=tmp_path / "include") in found.why_not
    assert bool(found.why_not) == bool(why_not)


def test_a_library_without_headers_is_not_built_with_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = an_nccl(tmp_path / "bare", loaded=23203, header=None)
    other = an_nccl(tmp_path / "other", loaded=22809, header=22809)
    monkeypatch.setenv("NCCL_HOME", str(other.parent.parent))
    source = '#include <nccl_device.h>\nextern "C" __global__ void f() {}'
    monkeypatch.setattr(headers, "loaded_library", lambda: bare)
    with pytest.raises(CompilerMissing, match="no `include` beside it"):
        cubin_recipe(source, name="f", options=(), arch="sm_90a")
    monkeypatch.setattr(headers, "loaded_library", lambda: None)
    assert headers.wanted(source) == other.parent.parent / "include"
    assert headers.wanted('extern "C" __global__ void f() {}') is None


STRUCTURES: dict[str, tuple[type[ctypes.Structure], dict[str, str]]] = {
    "ncclDevCommRequirements": (library.Requirements, {
        "lsaBarrierCount": "lsa_barrier_count", "ginContextCount": "gin_context_count",
        "ginTrafficClass": "gin_traffic_class", "ginStrongSignalsRequired": "gin_strong_signals_required",
        "ginCustomStride": "gin_custom_stride", "useRuntimeVersion": "use_runtime_version",
        "cftBarrierCount": "cft_barrier_count", "resourceRequirementsList": "resources",
    }),
    "ncclCommProperties": (library.Properties, {
        "deviceApiSupport": "device_api", "nLsaTeams": "lsa_teams", "devCommRuntimeVersionSize": "dev_comm_bytes",
        "cftCountedSupport": "cft_counted",
    }),
    "ncclDevResourceRequirements": (library.ResourceRequirements, {"outGinCounterStart": "out_gin_counter_start"}),
}  # fmt: skip
BEYOND = {
    "multimem": "*(float*)ncclGetLsaMultimemPointer(window, 0, comm) = 0;",
    "GIN": "ncclGin gin{comm, 0}; gin.put(ncclTeamWorld(comm), 0, window, 0, window, 0, 64);",
    "reduce and copy": "ncclLsaReduceSum(ncclCoopCta(), window, 0, (float*)0, 64, comm);",
}
"""What cannot run where ranks share a GPU, or has not been tried there, compiles at least."""


@compiles
def test_our_structures_are_nccls_and_the_rest_of_the_api_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []
    for name, (mirror, fields) in STRUCTURES.items():
        checks.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(mirror)});")
        places = {theirs: getattr(mirror, ours).offset for theirs, ours in fields.items()}
        checks += [f"static_assert(offsetof({name}, {theirs}) == {at});" for theirs, at in places.items()]
    parameters = "const __grid_constant__ ncclDevComm comm, ncclWindow_t window"
    kernels = [f"__global__ void k{n}({parameters}) {{ {statement} }}" for n, statement in enumerate(BEYOND.values())]
    source = "\n".join(["#include <nccl_device.h>", "#include <stddef.h>", *checks, *kernels])
    monkeypatch.setenv("PKB_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(headers, "loaded_library", lambda: None)  # the libraries of the tests above are
    recipe = cubin_recipe(textwrap.dedent(source), name="structures", options=(), arch="sm_90a")
    assert recipe.obtain().path.read_bytes()[:4] == b"\x7fELF"
