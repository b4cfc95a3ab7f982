"""The set-up: it says in one line what is missing, knows what it downloads, and goes on where it was."""

import ast
import io
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from program_files import program

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with a virtual environment of its own that has no packages."""
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    module: Any = program("tools/setup.py")
    venv = tmp_path / "environment"
    (venv / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    (venv / "bin").mkdir()
    monkeypatch.setattr(module, "VENV", str(venv))
    monkeypatch.setattr(module, "VENV_PYTHON", str(venv / "bin" / "python"))
    monkeypatch.setattr(module, "STATE", str(venv / "state.json"))
    monkeypatch.setattr(module, "has_gpu", lambda: False)
    return module


def install(setup: Any, name: str, *, whole: bool = True) -> Path:
    folder = Path(setup.VENV) / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: x\nRequires-Dist: numpy\n")
    if whole:
        (folder / "INSTALLER").write_text("pip\n")
    return folder


@pytest.mark.parametrize("name", ["setup.py", "setup_pip.py"])
def test_an_old_python_can_read_it(name: str) -> None:
    ast.parse((TOOLS / name).read_text(), feature_version=(3, 6))


# -- which Python -----------------------------------------------------------------------------------------------------


def test_a_python_that_is_too_old_is_told_so_in_one_line(
    setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.12: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert setup.with_newer_python() == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Python 3.11 or newer is needed" in said
    assert "PYTHON=python3.12" in said


def test_a_newer_python_on_the_path_takes_over(setup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python3.13").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["-c", "import sys; sys.exit(7)"])
    assert setup.with_newer_python() == 7


def test_a_folder_that_is_no_environment_is_left_alone(setup: Any) -> None:
    (Path(setup.VENV) / "precious").write_text("data")
    with pytest.raises(setup.Refused, match="move it away"):
        setup.make_venv()
    assert (Path(setup.VENV) / "precious").exists()


# -- where torch comes from -------------------------------------------------------------------------------------------


def test_torch_index_may_be_an_address_an_index_or_a_folder_of_wheels(setup: Any, tmp_path: Path) -> None:
    (tmp_path / "index" / "torch").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    address = "https://download.pytorch.org/whl/cpu"
    assert setup.index_arguments(address) == ["--index-url", address]
    assert setup.index_arguments(str(tmp_path / "index")) == ["--index-url", f"file://{tmp_path}/index"]
    assert setup.index_arguments(f"file://{tmp_path}/wheels") == ["--no-index", "--find-links", f"{tmp_path}/wheels"]


def test_builds_are_read_from_what_is_available_not_from_what_is_installed(setup: Any) -> None:
    text = "torch (2.14.1)\nAvailable versions: 2.14.1, 2.13.0+cu130, 2.13.0, 2.13.01\n  INSTALLED: 2.13.0+cpu\n"
    assert setup.builds_listed("2.13.0", text) == {"", "+cu130"}
    assert setup.builds_listed("2.13.0", "ERROR: No matching distribution found for torch") == set()


@pytest.mark.parametrize(
    ("gpu", "asked", "as_configured", "at_cpu_index", "own_index", "arguments", "cpu_build"),
    [
        (False, "", {"", "+cpu"}, set(), False, [], True),
        (False, "", {""}, {"+cpu"}, False, ["--index-url", "https://download.pytorch.org/whl/cpu"], True),
        (False, "", {""}, {"+cpu"}, True, [], False),
        (False, "", {""}, set(), False, [], False),
        (False, "pypi", {"", "+cpu"}, {"+cpu"}, False, ["===2.13.0"], False),
        (True, "", {"", "+cpu"}, {"+cpu"}, False, ["===2.13.0"], False),
        (True, "", {""}, {"+cpu"}, False, ["===2.13.0"], False),
        (False, "https://mirror/simple", {""}, {"+cpu"}, False, ["--index-url", "https://mirror/simple"], True),
    ],
)
def test_which_build_of_torch(
    setup: Any,
    monkeypatch: pytest.MonkeyPatch,
    gpu: bool,
    asked: str,
    as_configured: set[str],
    at_cpu_index: set[str],
    own_index: bool,
    arguments: list[str],
    cpu_build: bool,
) -> None:
    """Without a GPU the CPU build, from where pip looks or from torch's own index unless pip has been given another one."""
    monkeypatch.setenv("TORCH_INDEX", asked)
    monkeypatch.setattr(setup, "has_gpu", lambda: gpu)
    monkeypatch.setattr(setup, "own_index", lambda: own_index)
    monkeypatch.setattr(setup, "reachable", lambda url: bool(at_cpu_index))
    monkeypatch.setattr(setup, "builds_found", lambda version, where: at_cpu_index if where else as_configured)
    found, words, is_cpu = setup.choose_torch("2.13.0")
    assert (found, is_cpu) == (arguments, cpu_build)
    assert words


def test_an_index_without_that_torch_is_refused(setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_INDEX", "https://mirror/simple")
    monkeypatch.setattr(setup, "builds_found", lambda version, where: set())
    with pytest.raises(setup.Refused, match=r"TORCH_INDEX=https://mirror/simple has no torch 2\.13\.0"):
        setup.choose_torch("2.13.0")


# -- how much ---------------------------------------------------------------------------------------------------------


def test_what_there_is_to_download(setup: Any) -> None:
    everything = setup.to_download("core", False)
    small = setup.to_download("core", True)
    assert everything > 2000, "megabytes, with CUDA"
    assert setup.CPU_TORCH_MB < small < 400
    assert setup.to_download("dev", True) > small + 200, "triton for its interpreter, and the tools"
    version, size, core = setup.pinned()["torch"]
    assert core
    install(setup, f"torch-{version}")
    assert setup.to_download("core", False) == pytest.approx(everything - size)


def test_the_large_packages_of_the_cuda_build_are_known_and_no_others(setup: Any) -> None:
    names = {name for name, (_, _, core) in setup.pinned().items() if core and setup.CUDA_ONLY.match(name)}
    assert {"triton", "nvidia-cublas", "nvidia-nccl-cu13", "cuda-toolkit"} <= names
    assert not names & {"torch", "numpy", "nvidia-ml-py", "typer"}


# -- going on ---------------------------------------------------------------------------------------------------------


def test_a_second_call_does_nothing_until_something_changes(setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(setup.VENV_PYTHON).touch()
    assert not setup.is_done("core")
    setup.write_state(core=setup.fingerprint())
    assert setup.is_done("core")
    assert not setup.is_done("dev")
    setup.write_state(core="", dev=setup.fingerprint())
    assert setup.is_done("core"), "a set-up for development has the core"
    monkeypatch.setenv("TORCH_INDEX", "/elsewhere")
    assert not setup.is_done("dev")
    monkeypatch.delenv("TORCH_INDEX")
    monkeypatch.setattr(setup, "has_gpu", lambda: True)
    assert not setup.is_done("dev"), "a GPU needs another torch and another NCCL"


def test_what_was_interrupted_is_installed_again(setup: Any) -> None:
    whole, half = install(setup, "numpy-2.4.6"), install(setup, "sympy-1.14.0", whole=False)
    setup.remove_half_installed()
    assert whole.exists()
    assert not half.exists()
    assert setup.installed() == {"numpy==2.4.6"}


def test_only_the_cuda_build_asks_for_cuda_packages(setup: Any) -> None:
    folder = install(setup, "torch-2.13.0")
    assert not setup.torch_asks_for_cuda()
    (folder / "METADATA").write_text("Name: torch\nRequires-Dist: cuda-toolkit[cublas]==13.0.3; x\n")
    assert setup.torch_asks_for_cuda()


# -- what pip says ----------------------------------------------------------------------------------------------------

REFUSED = (
    "WARNING: Retrying: NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')"
)
NOTHING_FOUND = "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)"


@pytest.mark.parametrize(
    ("lines", "words", "final"),
    [
        ([REFUSED, NOTHING_FOUND], "no network", True),
        (
            ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
            "disk is full",
            True,
        ),
        (["SSLError(SSLCertVerificationError(1, 'certificate verify failed'))", NOTHING_FOUND], "PIP_CERT", True),
        ([NOTHING_FOUND, "more"], "satisfies the requirement torch==2.13.0", False),
    ],
)
def test_a_failure_of_pip_is_one_line(lines: list[str], words: str, final: bool) -> None:
    error = program("tools/setup_pip.py").failure(lines, "the log")
    assert words in str(error)
    assert "\n" not in str(error)
    assert error.final is final


def test_pip_without_a_network_is_one_line(tmp_path: Path) -> None:
    """The real pip, pointed at a port where nobody listens."""
    pip: Any = program("tools/setup_pip.py")
    options = [
        "--index-url",
        "http://127.0.0.1:9/simple",
        "--retries",
        "1",
        "--timeout",
        "2",
        "--target",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "pip", "--isolated", "install", *options, "pkb-no-such-package"]
    with pytest.raises(pip.PipFailed, match="no network"):
        pip.run_pip(command, cwd=str(tmp_path), log=str(tmp_path / "log"), say=True)
    assert "pkb-no-such-package" in (tmp_path / "log").read_text()


def test_progress_says_what_and_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    pip: Any = program("tools/setup_pip.py")
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(pip, "EVERY_S", 0.0)
    monkeypatch.setattr(pip.Progress, "total_mb", 2800.0)
    progress = pip.Progress(say=True)
    assert not progress.saw("Collecting torch==2.13.0")
    progress.saw("Downloading torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl (526.6 MB)")
    assert progress.saw("Progress 100000000 of 526600000")
    assert progress.saw("Progress 526600000 of 526600000")
    progress.saw("Downloading https://host/triton-3.7.1-cp312-cp312-manylinux_2_27_x86_64.whl (197.7 MB)")
    assert progress.saw("Progress 73400000 of 197700000")
    progress.saw("Installing collected packages: triton, torch")
    said = out.getvalue().splitlines()
    assert said[0] == "  downloading torch-2.13.0 (526.6 MB)"
    assert said[1] == "    torch-2.13.0: 100 of 527 MB (100 MB of 2.8 GB in all)"
    assert "    triton-3.7.1: 73 of 198 MB (600 MB of 2.8 GB in all)" in said
    assert said[-1] == "  installing 2 packages"


def test_make_says_that_there_is_no_python() -> None:
    import subprocess

    if shutil.which("make") is None:
        pytest.skip("no make here")
    done = subprocess.run(
        ["make", "-C", str(ROOT), "core", "PYTHON=python3.no-such"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "there is no python3.no-such" in done.stderr
