"""With which torch header an extension is built: ours first, torch's own where ours fails, and theirs is the error."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import kit_compilers
import pytest
from kit_compilers import needs_cxx, needs_nvcc

from pkb.candidates import torch_adaptor
from pkb.candidates.walled_build import BuildStopped, build_behind_walls
from pkb.kit import extension, slim, toolkit, torch_facts
from pkb.kit.cache import Artifact, Recipe, build_dir
from pkb.kit.cpp import find_cxx
from pkb.kit.errors import CompileError
from pkb.kit.extension import extension_recipe

ours_for_builds = kit_compilers.build_dir
KERNELS = Path(__file__).parent / "torch_slim" / "kernels.cu"
# Says where it was, and fails with our header as a compiler does that lacks a name, with torch's own as one that has it.
FAKE = """#!/bin/sh
case "$*" in
  *torch_slim*) echo ours >> {log}; echo "x.cu(1): error: our header has no such name"; exit {ours};;
  *) echo real >> {log}; echo "x.cu(7): error: the candidate's own mistake"; exit {real};;
esac
"""


@pytest.fixture
def fake_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(extension, "find_nvcc", lambda: (tmp_path / "nvcc", "fake"))
    return tmp_path / "log"


def write_fake(log: Path, *, ours: int, real: int) -> None:
    script = log.parent / "nvcc"
    script.write_text(FAKE.format(log=log, ours=ours, real=real))
    script.chmod(0o755)


def build(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    extension_recipe("x", "source").build(folder, folder / "artifact")


@needs_cxx
def test_the_error_is_always_that_of_the_real_headers(fake_nvcc: Path, tmp_path: Path) -> None:
    write_fake(fake_nvcc, ours=1, real=1)
    with pytest.raises(CompileError) as info:
        build(tmp_path / "a")
    assert info.value.first_error == "x.cu(7): error: the candidate's own mistake"
    assert "our header" not in info.value.log
    assert fake_nvcc.read_text().split() == ["ours", "real"]


@needs_cxx
@pytest.mark.parametrize(
    ("switch", "ours", "expected"),
    [("", 0, ["ours"]), ("0", 1, ["ours", "real"]), ("1", 0, ["real"]), ("never", 0, ["ours"])],
)
def test_which_headers_are_tried(
    switch: str, ours: int, expected: list[str], fake_nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(slim.SWITCH, switch)
    write_fake(fake_nvcc, ours=ours, real=0)
    build(tmp_path / "a")
    assert fake_nvcc.read_text().split() == expected


@needs_cxx
def test_a_killed_compiler_with_our_header_is_no_verdict_either(fake_nvcc: Path, tmp_path: Path) -> None:
    write_fake(fake_nvcc, ours=0, real=0)
    script = fake_nvcc.parent / "nvcc"
    script.write_text(script.read_text().replace("exit 0;;", "kill -9 $$;;", 1))
    build(tmp_path / "a")
    assert fake_nvcc.read_text().split() == ["ours", "real"]


@needs_cxx
def test_a_killed_step_of_nvccs_is_no_compile_error(fake_nvcc: Path, tmp_path: Path) -> None:
    """It starts cicc by a shell: where memory runs out it ends with status 137 and says `Killed`."""
    write_fake(fake_nvcc, ours=1, real=137)
    with pytest.raises(RuntimeError, match="killed by signal 9") as info:
        build(tmp_path / "a")
    assert not isinstance(info.value, CompileError)
    write_fake(fake_nvcc, ours=1, real=255)  # an error of ptxas
    with pytest.raises(CompileError):
        build(tmp_path / "b")


@needs_cxx
def test_the_way_is_part_of_the_key(fake_nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fake(fake_nvcc, ours=0, real=0)
    keys = set()
    for switch in ("", "1", "never"):
        monkeypatch.setenv(slim.SWITCH, switch)
        keys.add(extension_recipe("x", "source").key)
    monkeypatch.setenv(slim.SWITCH, "")
    monkeypatch.setattr(slim, "fingerprint", lambda: "another header")
    assert len(keys | {extension_recipe("x", "source").key}) == 4


def test_facts_about_torch_are_those_it_states_itself() -> None:
    """Asked of a process of its own: setuptools, which torch imports for it, bears no other distutils beside it."""
    ask = """
import json, torch
from torch.utils import cpp_extension as built
print(json.dumps([torch.__version__, torch.version.cuda, torch._C._GLIBCXX_USE_CXX11_ABI, built.include_paths("cpp"),
                  built.COMMON_NVCC_FLAGS]))
"""
    said = json.loads(subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout)
    ours = (torch_facts.version(), torch_facts.cuda_version(), torch_facts.cxx11_abi(), torch_facts.include_folders())
    assert [*ours, list(torch_facts.nvcc_flags())] == said


@needs_nvcc
@needs_cxx
def test_kernels_compile_with_our_header_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(slim.SWITCH, "never")
    if torch_facts.cuda_version() is not None:
        slim.adaptor_path(build=True)
    output = tmp_path / "artifact"
    extension_recipe("kernels", KERNELS.read_text()).build(tmp_path, output)
    assert slim.used_in(output)


def compiles(text: str, tmp_path: Path) -> bool:
    source = tmp_path / "one.cpp"
    source.write_text(f"#include <torch/extension.h>\n{text}\n")
    command = [str(find_cxx()), "-fsyntax-only", "-std=c++17", "-DTORCH_EXTENSION_NAME=one", *slim.INCLUDE_FLAGS]
    return subprocess.run([*command, str(source)], capture_output=True, check=False).returncode == 0


@needs_cxx
def test_what_torchs_headers_would_refuse_or_leave_unresolved_is_not_accepted(tmp_path: Path) -> None:
    """A source that builds with ours only would be judged by another standard than everybody's."""
    assert compiles("void* f(torch::Tensor x) { return x.data_ptr<int64_t>(); }", tmp_path)
    for text in (
        "void* f(torch::Tensor x) { return x.data_ptr<long long>(); }",  # an unresolved symbol of torch's
        "void* f(torch::Tensor x) { return x.data_ptr<char>(); }",
        "const void* f(torch::Tensor x) { return x.data_ptr<const float>(); }",
        "auto a = at::kFloat32;",  # torch::kFloat32 only
        'int* f(int* x) { return x; }\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }',
        'void f(int, int) {}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f, py::arg("a")); }',
        "long f(torch::Tensor x) { long n = x.sizes(); return n; }",
        "void f(torch::Tensor x) { x = 3; }",
        "bool f(at::ScalarType t) { return t == 6; }",
        "at::Float8_e4m3fn f(float x) { return x; }",  # rounded differently by different versions of torch
        "auto f() { return at::cuda::getCurrentCUDAStream(); }",  # needs a header of its own
    ):
        assert not compiles(text, tmp_path), text


# -- the adaptor ------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_facts, "cuda_version", lambda: "13.0")


def fake_build(built: list[str], *, fails: Exception | None = None) -> object:
    def build(kind: str, given: object, recipe: Recipe) -> tuple[Artifact, dict[str, str]]:
        path = build_dir() / recipe.file_name
        shared = Path(os.environ["PKB_BUILD_CACHE"]) / recipe.file_name
        if not shared.is_file():
            built.append(kind)
            if fails:
                raise fails
        path.write_bytes(b"\x7fELF of the adaptor")
        return Artifact(path, cached=False, seconds=0), {}

    return build


@needs_cxx
def test_many_builds_that_start_together_compile_the_adaptor_once(
    with_cuda: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PKB_BUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch_adaptor, "build_behind_walls", fake_build(built))
    threads = [threading.Thread(target=torch_adaptor.provide) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == ["adaptor"]
    assert slim.adaptor_path() == tmp_path / "cache" / slim.adaptor_recipe().file_name


@needs_cxx
@pytest.mark.parametrize(
    ("error", "tries"), [(CompileError("no", name="adaptor"), 1), (BuildStopped("build", "killed"), 2)]
)
def test_an_adaptor_that_does_not_compile_is_missed_quietly_and_remembered_if_it_cannot(
    error: Exception, tries: int, with_cuda: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PKB_BUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch_adaptor, "build_behind_walls", fake_build(built, fails=error))
    torch_adaptor.provide()
    torch_adaptor.provide()
    assert built == ["adaptor"] * tries
    assert slim.adaptor_path() is None


@needs_cxx
@pytest.mark.slow
def test_the_adaptor_compiles_behind_the_walls() -> None:
    recipe = slim.adaptor_recipe()
    artifact, walls = build_behind_walls("adaptor", {}, recipe)
    assert artifact.path.read_bytes().startswith(b"\x7fELF")
    assert walls


# -- libraries of NVIDIA's wheels ----------------------------------------------------------------------------------------


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A site with the wheels that torch for CUDA 12 brings, one folder a library."""
    for name in ("cuda_runtime", "cublas", "cusparse", "cusolver", "curand"):
        for kind in ("include", "lib"):
            (tmp_path / "nvidia" / name / kind).mkdir(parents=True)
    (tmp_path / "nvidia" / "cublas" / "lib" / "libcublas.so.12").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(toolkit, "torch_cuda_major", lambda: "12")
    monkeypatch.setattr(extension, "cuda_home", lambda: tmp_path)
    caches = (toolkit.wheel_roots, toolkit.include_dirs)
    for cached in caches:
        cached.cache_clear()
    yield tmp_path / "nvidia"
    for cached in caches:
        cached.cache_clear()


def test_headers_of_each_library_of_cuda_12_are_found(wheels: Path) -> None:
    """ATen/cuda/CUDAContext.h includes cuSPARSE, cuBLAS and cuSOLVER, which a toolkit with nvcc alone lacks."""
    expected = {wheels / name / "include" for name in ("cuda_runtime", "cublas", "cusparse", "cusolver", "curand")}
    assert expected <= set(toolkit.include_dirs())


def test_a_library_that_only_a_wheel_has_is_linked_by_its_file(wheels: Path) -> None:
    flags = extension._link_flags(["-lcublas", "-lcuda", "-Wl,-z,now"])
    assert flags[-3:] == [str(wheels / "cublas" / "lib" / "libcublas.so.12"), "-lcuda", "-Wl,-z,now"]
    assert "-lcudart" not in flags  # neither has it: torch has loaded it
    (wheels.parent / "lib64").mkdir()
    (wheels.parent / "lib64" / "libcublas.so").touch()
    assert extension._link_flags(["-lcublas"])[-1] == "-lcublas"
