"""The gate: what only the start of a rank needs is out of its reach afterwards, for whatever it forks as well.

Two ranks behind the real walls, an init that covers a service's folder and the machine's /dev/shm between them and a
candidate. Skips with the kernel's own reason where the machine lacks mount namespaces.
"""

import os
import pickle
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import error_of, in_child

from pkb.rank.isolation import reach
from pkb.rank.isolation.gate import OWN_SHM, Gate, take_away
from pkb.rank.isolation.lockdown import lock_down
from pkb.rank.isolation.namespaces import enter_namespaces, finish_namespaces
from pkb.rank.isolation.report import missing_walls, probe_isolation

RANKS = 2


@pytest.fixture
def service() -> Iterator[Path]:
    """A folder with a socket that listens, as an MPS daemon's."""
    with tempfile.TemporaryDirectory(prefix="pkb-gate-") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/control")
        listener.listen(16)
        yield Path(folder)


@pytest.fixture
def neighbour() -> Iterator[Path]:
    """Somebody's file in the machine's /dev/shm."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="pkb-gate-") as file:
        yield Path(file.name)


def connect(service: Path) -> int:
    with socket.socket(socket.AF_UNIX) as caller:
        return error_of(lambda: caller.connect(str(service / "control")))


def look(service: Path, neighbour: Path) -> dict[str, Any]:
    return {
        "connect": connect(service),
        "connect in a child": in_child(lambda: connect(service)),
        "neighbour": neighbour.exists(),
        "write": error_of(lambda: Path("/dev/shm/left behind").write_text("x")),
        "shm": sorted(path.name for path in Path("/dev/shm").iterdir()),
    }


def rank(gate: Gate, folder: Path, service: Path, neighbour: Path) -> dict[str, Any]:
    lock_down(readable=reach.default_readable(), writable=[folder, folder / OWN_SHM, service])
    before = {"connect": connect(service), "neighbour": neighbour.exists()}
    report = gate.wait()
    return {"before": before, "report": report, "after": look(service, neighbour)}


def side(folder: Path, service: Path, neighbour: Path, *, one_ends: bool = False) -> list[Any]:
    """What each rank found, from the innermost process out; None for one that ended."""
    layers: Any = None

    def init() -> list[Any]:
        report = finish_namespaces(layers, tmp_dir=folder)
        (folder / OWN_SHM).mkdir()
        gate = Gate()
        pipes = []
        for number in range(RANKS):
            read_end, write_end = os.pipe()
            if os.fork() == 0:
                try:
                    if not (one_ends and number == 0):
                        os.write(write_end, pickle.dumps(rank(gate, folder, service, neighbour)))
                except RuntimeError as error:
                    os.write(write_end, pickle.dumps(str(error)))
                finally:
                    os._exit(0)
            os.close(write_end)
            pipes.append(read_end)
        private = report["private mounts"] == "on"
        gate.release(RANKS, lambda: take_away([service], folder / OWN_SHM, private_mounts=private))
        found = []
        for read_end in pipes:
            with os.fdopen(read_end, "rb") as pipe:
                data = pipe.read()
            found.append(pickle.loads(data) if data else None)
        return found

    def carrier() -> list[Any]:
        nonlocal layers
        layers = enter_namespaces(private_shm_bytes=None, private_tmp_bytes=64 << 20)
        return in_child(init)

    return in_child(carrier)


@pytest.fixture(scope="module")
def walls() -> dict[str, str]:
    machine = probe_isolation()
    for layer in ("pid", "private mounts", "files"):
        if not machine.get(layer, "").startswith("on"):
            pytest.skip(f"{layer}: {machine.get(layer)}")
    return machine


def test_what_only_the_start_needs_is_out_of_reach_afterwards(
    walls: dict[str, str], tmp_path: Path, service: Path, neighbour: Path
) -> None:
    for found in side(tmp_path, service, neighbour):
        assert found["before"] == {"connect": 0, "neighbour": True}, "the control: it was in reach"
        assert found["after"]["connect"] != 0
        assert found["after"]["connect in a child"] != 0
        assert not found["after"]["neighbour"]
        assert found["after"]["write"] == 0, "its own /dev/shm can be used"
        assert found["after"]["shm"] == ["left behind"]
        assert found["report"]["services"] == "on"
        assert found["report"]["shm"].startswith("on")
    assert connect(service) == 0, "nobody else's view has changed"
    assert neighbour.exists()
    assert not Path("/dev/shm/left behind").exists()


def test_the_others_learn_that_a_rank_has_ended(
    walls: dict[str, str], tmp_path: Path, service: Path, neighbour: Path
) -> None:
    assert side(tmp_path, service, neighbour, one_ends=True) == [
        None,
        "another rank has ended while this one started",
    ]


def test_nothing_is_mounted_where_others_would_see_it(tmp_path: Path, service: Path) -> None:
    report = take_away([service], tmp_path, private_mounts=False)
    assert set(missing_walls(report)) == {"services", "shm"}
    assert connect(service) == 0
