"""Where the NCCL for ranks that share a GPU is looked for, and how it is brought. Real libraries and a real pip; no GPU."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.kit.cpp import find_cxx
from pkb.platforms import cuda, nccl
from pkb.platforms.nvml import Gpu
from pkb.platforms.virtual import VirtualPlatform
from pkb.types.errors import UserError
from program_files import program


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment and a cache of one's own, and a torch for CUDA 13 that brings no NCCL."""
    monkeypatch.delenv("PKB_NCCL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(nccl, "torch_cuda", lambda: "13.0")
    nccl.suitable_nccl.cache_clear()
    places = nccl.places
    monkeypatch.setattr(nccl, "places", lambda: [path for path in places() if path.is_relative_to(tmp_path)])


def library(path: Path, version: int) -> Path:
    """A library that answers as NCCL of that version does."""
    compiler = find_cxx()
    if compiler is None:
        pytest.skip("no C++ compiler here")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = f'extern "C" int ncclGetVersion(int *version) {{ *version = {version}; return 0; }}'
    command = [str(compiler), "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def test_the_users_own_then_beside_torch_then_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = library(tmp_path / "cache" / "pkb" / "nccl" / "libnccl.so.2", 23004)
    assert nccl.suitable_nccl() == by_hand
    beside, cached = (library(folder / nccl.LIBRARY, 23203) for folder in nccl.folders())
    assert beside.is_relative_to(tmp_path / "venv")
    assert nccl.places() == [beside, cached, by_hand]
    own = library(tmp_path / "own.so", 23100)
    monkeypatch.setenv("PKB_NCCL", str(own))
    nccl.suitable_nccl.cache_clear()
    assert nccl.suitable_nccl() == own
    assert nccl.version(own) == (2, 31, 0)


def test_what_cannot_serve_is_passed_over_and_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = library(tmp_path / "old.so", 22907)
    monkeypatch.setenv("PKB_NCCL", str(old))
    beside, cached = (folder / nccl.LIBRARY for folder in nccl.folders())
    beside.parent.mkdir(parents=True)
    beside.write_text("no library")
    library(cached, 23203)
    assert nccl.suitable_nccl() == cached
    assert nccl.why_unfit(old) == "is 2.29.7, 2.30 is needed"
    assert nccl.why_unfit(beside).startswith("cannot be loaded")
    blank = library(tmp_path / "a folder" / "libnccl.so.2", 23203)
    assert "blanks" in nccl.why_unfit(blank), "the loader would read two names"


def test_another_cuda_needs_another_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    thirteen = nccl.folders()
    monkeypatch.setattr(nccl, "torch_cuda", lambda: "12.8")
    assert nccl.wheel() == f"nvidia-nccl-cu12=={nccl.WHEEL_VERSION}"
    assert not set(nccl.folders()) & set(thirteen)


def wheel_with(library_file: Path, folder: Path) -> None:
    folder.mkdir()
    info = f"nvidia_nccl_cu13-{nccl.WHEEL_VERSION}.dist-info"
    with zipfile.ZipFile(folder / f"nvidia_nccl_cu13-{nccl.WHEEL_VERSION}-py3-none-any.whl", "w") as archive:
        archive.write(library_file, str(nccl.LIBRARY))
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: {nccl.WHEEL_VERSION}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("blank", [False, True])
def test_it_is_downloaded_beside_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blank: bool) -> None:
    if blank:
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "my venv"))
    wheel_with(library(tmp_path / "made.so", 23203), tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "pins").write_text("nvidia-nccl-cu13==2.29.7\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "pins"))
    assert nccl.suitable_nccl() is None
    found = nccl.download()
    assert found == nccl.suitable_nccl()
    assert found.is_relative_to(tmp_path / ("cache" if blank else "venv")), "where nothing can be preloaded, the cache"
    assert not list(found.parents[4].glob(".download-*"))


def test_a_download_that_fails_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(UserError, match="cannot be downloaded") as raised:
        nccl.download()
    assert "\n" not in str(raised.value)
    assert not any(path.is_file() for path in (tmp_path / "venv").rglob("*"))


def test_the_version_of_cuda_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.undo()
    nccl.torch_cuda.cache_clear()
    assert nccl.torch_cuda() == (torch.version.cuda or "")


# -- pkb doctor -------------------------------------------------------------------------------------------------------


def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Gpu("NVIDIA H200", 1 << 37, "580", "GPU-1")
    for module in ("cuda", "virtual", "node"):
        monkeypatch.setattr(f"pkb.platforms.{module}.gpus", lambda: (one,))
    monkeypatch.setattr(cuda, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr("shutil.which", lambda name, *rest, **more: f"/usr/bin/{name}")


def nccl_fact(*options: str) -> tuple[dict[str, object], str]:
    result = CliRunner().invoke(app, ["doctor", "--json", *options])
    facts = {fact["name"]: fact for fact in json.loads(result.stdout)["facts"]}
    return facts["NCCL"], result.stderr


def test_doctor_gets_what_virtual_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel_with(library(tmp_path / "made.so", 23203), tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    pretend_gpu(monkeypatch)
    assert "pkb doctor --fix" in VirtualPlatform().facts().why_not
    before, _ = nccl_fact()
    assert not before["ok"]
    after, said = nccl_fact("--fix")
    assert after["ok"]
    assert str(after["found"]).startswith("2.32.3 for virtual")
    assert "torch keeps its own" in said
    assert VirtualPlatform().facts().available
    _, said = nccl_fact("--fix")
    assert "nothing to get" in said


def test_doctor_without_a_gpu_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "gpus", lambda: ())
    fact, said = nccl_fact("--fix")
    assert not fact["ok"]
    assert "nothing to get for GPUs: no NVIDIA GPU" in said


def test_a_cpu_build_of_torch_cannot_use_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpu(monkeypatch)
    monkeypatch.setattr(cuda, "torch_cuda", lambda: "")
    assert "CPU build" in VirtualPlatform().facts().why_not


def test_headers_are_packed_as_they_lie_beside_the_library(tmp_path: Path) -> None:
    wheel = tmp_path / "nccl.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("include/nccl.h", "include/nccl_device/core.h", "lib/libnccl.so.2"):
            archive.writestr(f"nvidia/nccl/{name}", name)
    tool = program("tools/prepare_nccl.py")
    with zipfile.ZipFile(wheel) as archive:
        tool.pack_headers(archive, tmp_path / "headers.tar.xz")
    with tarfile.open(tmp_path / "headers.tar.xz") as packed:
        packed.extractall(tmp_path / "here", filter="data")
    files = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*.*")}
    assert files == {"include/nccl.h", "include/nccl_device/core.h"}
    assert (tmp_path / "here" / "include" / "nccl_device" / "core.h").read_text() == "include/nccl_device/core.h"
