"""What is published is the wheel, not the checkout: it must hold every file of the package and judge by itself."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READS_ITS_DATA = """
import json, pathlib
import pkb.roofline.hardware as hardware
from pkb.generate.prompt import compose
from pkb.generate.prompt_parts import BACKENDS
from pkb.generate.tools import kit_page
from pkb.problems import get
from pkb.report import pages
machines = pathlib.Path(hardware.__file__).parent / "machines"
found = {"machines": all(hardware.load(path.stem) for path in machines.glob("*.toml")) and any(machines.glob("*.toml"))}
found["backends"] = all(
    get(13).name in compose(get(13), backend=name, shots=0).user for name in BACKENDS
)
found["header"] = "barrier_block" in kit_page("pkb.cuh", backend="cuda")
found["templates"] = (pathlib.Path(pages.__file__).parent / "templates" / "index.html").is_file()
print(json.dumps(sorted(name for name, there in found.items() if there)))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("dist")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    """Headers, templates, parts of prompts, machines, demo candidates: whatever git has under src/pkb."""
    listed = subprocess.run(["git", "ls-files", "src/pkb"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout here")
    tracked = {name.removeprefix("src/") for name in listed.stdout.split("\n") if name and (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("pkb/")}
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
    assert len(tracked) > 300
    assert tracked - packed == set()
    assert b"Provides-Extra: generate" in metadata


def test_it_judges_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the wheel, and everything else from this one: no path leads back to the checkout."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # A path in a .pth file is searched, but the .pth files there (our editable install) are not read.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    python = [str(environment / "bin" / "python"), "-P"]
    where = subprocess.run(
        [*python, "-c", "import pkb.cli.demo as demo; print(demo.CANDIDATES)"],
        cwd=tmp_path, env=clean, capture_output=True, text=True, check=True,
    )  # fmt: skip
    candidates = Path(where.stdout.strip())
    assert candidates.is_relative_to(packages)
    data = subprocess.run(
        [*python, "-c", READS_ITS_DATA],
        cwd=tmp_path,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert data.returncode == 0, data.stderr
    assert json.loads(data.stdout) == ["backends", "header", "machines", "templates"]
    command = ["-m", "pkb.cli.main", "eval", "--platform", "cpu", "--ranks", "2", "--plan", "quick", "--json", "-"]
    done = subprocess.run(
        [*python, *command, str(candidates / next(iter(demo_candidates())))],
        cwd=tmp_path, env=clean, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "correct"


def demo_candidates() -> dict[str, str]:
    from pkb.cli.demo import expected
    from pkb.platforms.cpu import CpuPlatform

    return expected(CpuPlatform().facts())


def test_the_demo_has_a_verdict_for_each_of_its_candidates() -> None:
    from pkb.cli.demo import CANDIDATES, EXPECTED, EXPECTED_CUDA

    found = {str(path.relative_to(CANDIDATES)) for path in CANDIDATES.rglob("*.py")}
    assert found == {*EXPECTED, *EXPECTED_CUDA}
    assert list(EXPECTED.values()) == list(EXPECTED_CUDA.values())
    assert demo_candidates() in (EXPECTED, EXPECTED_CUDA)
