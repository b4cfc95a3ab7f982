"""A sweep on a Ray cluster of three machines (three nodes here, on this one), one of which dies in the middle."""

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from leftovers import until
from sweeping import pkb, verdicts, write_candidates

from pkb.cluster.ray_machines import Machine, seat_bundle
from pkb.store import Store

ray = pytest.importorskip("ray")


def ray_processes(folder: str) -> list[str]:
    """Everything of this cluster: its folder stands in the command line or in the environment of each process."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            told = " ".join(process.cmdline()) + " ".join(process.environ().values())
            if folder in told and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
    return found


def removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="pkb-ray-", dir="/tmp")  # short: sockets lie in it, whose paths have a limit
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RAY_TMPDIR", folder)  # for the notes that Ray keeps beside a cluster's own folder
    Path(folder, "ray").mkdir()
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # or Ray takes 127.0.0.1 for the outer address
    node: dict[str, Any] = {
        "num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1",
    }  # fmt: skip
    quick = {
        "health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_timeout_ms": 2000,
        "health_check_failure_threshold": 3,
    }  # fmt: skip
    started = Cluster()
    try:
        started.add_node(**node, _system_config=quick, temp_dir=folder)
        for _ in range(2):
            started.add_node(wait=False, **node)
        started.wait_for_nodes(timeout=60)
        yield started
    finally:
        started.shutdown()
        left = ray_processes(folder)
        gone = until(lambda: not ray_processes(folder), within_s=20)
        until(lambda: removed(Path(folder)), within_s=5)
        assert gone, left


def test_a_machine_that_dies_costs_no_result(tmp_path: Path, cluster: Any) -> None:
    expected = write_candidates(tmp_path / "c", cheap=8, real_at=[1, 2, 3, 4])
    root = tmp_path / "store"
    process = pkb(
        "run", "--candidates", str(tmp_path / "c"), "--plan", "quick", "--ranks", "2", "--platform", "cpu",
        "--cluster", cluster.address, "--store", str(root), "--json",
    )  # fmt: skip
    assert process.stderr is not None
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    lines = []
    for line in process.stderr:
        lines.append(line)
        if " s] " in line:
            break
    time.sleep(1.5)  # now each machine is in the middle of a real one, which takes seconds
    victim = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    cluster.remove_node(victim, allow_graceful=False)
    output, errors = process.communicate(timeout=150)
    watchdog.cancel()
    assert process.returncode == 0, "".join(lines) + errors
    assert json.loads(output)["state"] == "complete"
    assert "trying again" in errors
    with Store(root) as store:
        run = store.run("latest")
        assert verdicts(store, run) == {name: [verdict] for name, verdict in expected.items()}


def test_what_a_seat_reserves() -> None:
    machine = Machine("x", cpus=64, gpus=8)
    assert seat_bundle(machine, "node", seats_each=1) == (1, {"GPU": 8, "CPU": 64})
    assert seat_bundle(machine, "virtual", seats_each=1) == (8, {"GPU": 1, "CPU": 8})
    assert seat_bundle(machine, "cpu", seats_each=3) == (3, {"CPU": 21})
    assert seat_bundle(Machine("x", cpus=1, gpus=0), "cpu", seats_each=2) == (2, {"CPU": 0.5})
    assert seat_bundle(Machine("x", cpus=2, gpus=4), "virtual", seats_each=1) == (4, {"GPU": 1, "CPU": 0.5})
    assert seat_bundle(Machine("x", cpus=0, gpus=2), "node", seats_each=1) == (1, {"GPU": 2})
    assert seat_bundle(Machine("head", cpus=0, gpus=0), "cpu", seats_each=1)[0] == 0
    assert seat_bundle(Machine("x", cpus=8, gpus=1), "node", seats_each=1)[0] == 0


def test_an_address_where_nobody_is(tmp_path: Path) -> None:
    (tmp_path / "1_allreduce_torch.py").write_text("x = 1\n")
    process = pkb("run", "--candidates", str(tmp_path), "--cluster", "127.0.0.1:9", "--store", str(tmp_path / "s"))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ray start --head" in errors
    said = [line for line in errors.strip().splitlines() if not line.startswith("loading torch")]
    assert len(said) == 1, errors
    assert not (tmp_path / "s").exists()
