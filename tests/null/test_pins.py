"""Pins that only one machine can install must not pass. Without a network these tests skip and say so."""

from pathlib import Path
from typing import Any

import pytest

from program_files import program


@pytest.fixture(scope="module")
def pins() -> Any:
    return program("tools/pins.py")


@pytest.fixture
def online(pins: Any) -> None:
    why_not = pins.unreachable()
    if why_not:
        pytest.skip(f"no network: {why_not}")


def with_pin(pins: Any, tmp_path: Path, name: str, pin: str) -> Path:
    lines = [line for line in pins.PINS.read_text().splitlines() if not line.startswith(f"{name}==")]
    changed = tmp_path / "constraints.txt"
    changed.write_text("\n".join([*lines, pin]) + "\n")
    return changed


@pytest.mark.usefixtures("online")
def test_a_triton_that_torch_from_pypi_does_not_take(
    pins: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pins, "VERSIONS", ("3.12",))
    assert pins.check(with_pin(pins, tmp_path, "triton", "triton==3.9.0")) == 1
    said = capsys.readouterr().err
    assert "Python 3.12" in said
    assert "triton" in said


@pytest.mark.usefixtures("online")
def test_a_package_that_an_old_python_does_not_take(
    pins: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pins, "VERSIONS", ("3.11.2", "3.13"))
    assert pins.check(with_pin(pins, tmp_path, "soupsieve", "soupsieve==4.1")) == 1
    said = capsys.readouterr().err
    assert "Python 3.11.2" in said
    assert "Python 3.13" not in said


@pytest.mark.usefixtures("online")
def test_a_package_that_nobody_pins(
    pins: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pins, "VERSIONS", ("3.13",))
    assert pins.check(with_pin(pins, tmp_path, "rich", "")) == 1
    assert "not pinned: rich==" in capsys.readouterr().err


def test_without_a_network_it_says_that_nothing_was_checked(
    pins: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pins, "INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setattr("sys.argv", ["pins.py", "check"])
    assert pins.main() == 0
    assert "SKIPPED, no network" in capsys.readouterr().out


def test_other_systems_leave_no_pins(pins: Any) -> None:
    assert pins.for_linux("colorama==0.4.6 ; sys_platform == 'win32'") == ""
    assert pins.for_linux("truststore==0.10.5 ; sys_platform != 'emscripten'") == "truststore==0.10.5"
    kept = "soupsieve==2.10 ; python_full_version < '3.11.5'"
    assert pins.for_linux(kept) == kept
    assert pins.with_size(kept, {"soupsieve==2.10": 0.25}) == f"{kept}  # 0.2 MB"
