"""Seats of a sweep: a GPU each on this machine, an actor each on a cluster, and machines that do not fit the others."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_nvml import box, install

from pkb.cli.run_sweep import SweepWorkers, _executor, seat_devices
from pkb.cluster import fingerprint, local, ray_machines, ray_tasks
from pkb.cluster.local import LocalExecutor
from pkb.cluster.ray_machines import Machine, Machines
from pkb.judge.service.messages import JudgeEvent, JudgeOrder, decode_request
from pkb.platforms import device_lock, virtual
from pkb.platforms.device_lock import hold
from pkb.types.case import Case
from pkb.types.errors import UserError


@pytest.fixture
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(8))
    monkeypatch.setattr(virtual, "suitable_nccl", lambda: "somewhere")
    monkeypatch.setattr("shutil.which", lambda name, *rest, **more: f"/usr/bin/{name}")


@pytest.mark.usefixtures("eight_gpus")
def test_where_evaluations_sit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seat_devices(["cpu"]) is None
    assert seat_devices(["virtual"]) == [f"GPU-{n}{n}aa-{n}" for n in range(8)]
    assert seat_devices(["virtual", "cpu"]) == seat_devices(["virtual"])
    assert seat_devices(["node"]) == [""], "one, with all GPUs"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,2")
    assert seat_devices(["virtual"]) == ["GPU-66aa-6", "GPU-22aa-2"]


def task(platform: str) -> Any:
    return SimpleNamespace(case=Case("1", platform, 4), state="waiting")


@pytest.mark.usefixtures("eight_gpus")
@pytest.mark.parametrize(
    ("platform", "workers", "seats"),
    [
        ("virtual", None, 8), ("virtual", 3, 3), ("virtual", 9, 0), ("node", None, 1), ("node", 2, 0), ("cpu", None, 1),
        ("cpu", 5, 5),
    ],
)  # fmt: skip
def test_a_seat_for_each_gpu(platform: str, workers: int | None, seats: int) -> None:
    work = SweepWorkers(workers=workers)
    if not seats:
        with pytest.raises(UserError, match="GPU"):
            _executor([task(platform)], work=work, machines=None)
        if platform == "node":
            with pytest.raises(UserError, match="GPU"):
                _executor([task(platform)], work=work, machines=None, timed=False)
        return
    executor = _executor([task(platform)], work=work, machines=None)
    assert executor.seats == seats
    executor.close()


@pytest.mark.usefixtures("eight_gpus")
def test_what_is_not_timed_may_share_gpus_which_are_held_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PKB_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,2")
    sent: list[JudgeOrder] = []

    class FakeClient:
        def __init__(self, on_event: object) -> None:
            return

        def send(self, order: JudgeOrder) -> None:
            sent.append(order)

        def close(self) -> None:
            return

    monkeypatch.setattr(local, "JudgeClient", FakeClient)
    executor = _executor([task("virtual")], work=SweepWorkers(workers=5), machines=None, timed=False)
    for number in range(5):
        executor.start(order(str(number)))
    assert [given.devices for given in sent] == ["GPU-66aa-6", "GPU-22aa-2"] * 2 + ["GPU-66aa-6"]
    assert len({given.lock_folder for given in sent}) == 5, "none waits for another"
    assert {given.cores for given in sent} == {()}

    def others_wait() -> bool:
        """An open file has its locks for itself, so this process may ask."""
        monkeypatch.setattr(device_lock, "_held", {})
        try:
            with hold(["GPU-22aa-2"], wait_s=0):
                return False
        except UserError:
            return True

    assert others_wait()
    executor.close()
    assert not others_wait()


def order(name: str) -> JudgeOrder:
    return JudgeOrder(id=name, kind="evaluate", source=b"x", filename="x.py", case=Case("1", "virtual", 4))


def test_no_two_orders_have_the_same_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[JudgeOrder] = []
    heard: list[Callable[[JudgeEvent], None]] = []

    class FakeClient:
        def __init__(self, on_event: Callable[[JudgeEvent], None]) -> None:
            heard.append(on_event)

        def send(self, order: JudgeOrder) -> None:
            sent.append(order)

    monkeypatch.setattr(local, "JudgeClient", FakeClient)
    executor = LocalExecutor(seats=3, builders=0, concurrency=0, devices=["GPU-a", "GPU-b", "GPU-c"])
    for name in ("1", "2", "3"):
        executor.start(order(name))
    heard[0](JudgeEvent("2", "done"))
    assert [event.id for event in executor.events(0.01)] == ["2"]
    executor.start(order("4"))
    assert [given.devices for given in sent] == ["GPU-a", "GPU-b", "GPU-c", "GPU-b"]
    assert decode_request(sent[0].encode()) == sent[0]


# -- clusters ----------------------------------------------------------------------------------------------------------


class FakeRay:
    """Machines that answer at once, with what a test says."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, greetings: dict[str, ray_tasks.Greeting]) -> None:
        self.greetings = greetings
        self.killed: list[Any] = []

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": True, "Resources": {"CPU": 8, "GPU": 2}} for name in self.greetings]

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return references, []

    def get(self, reference: Any) -> Any:
        return reference

    def kill(self, actor: Any, no_restart: bool = True) -> None:
        self.killed.append((actor, no_restart))


HERE = {"torch": "2.11", "NCCL": "2.32.3", "driver": "580", "GPU": "NVIDIA H200"}


def greeting(*, sources: str = "", **software: str) -> ray_tasks.Greeting:
    return ray_tasks.Greeting(
        sources=sources or fingerprint.sources_hash(), software=HERE | software, max_ranks={"virtual": 8, "cpu": 8},
        hardware={"virtual": "NVIDIA H200"},
    )  # fmt: skip


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, ray_tasks.Greeting]], Machines]:
    def made(greetings: dict[str, ray_tasks.Greeting]) -> Machines:
        fake = FakeRay(greetings)
        monkeypatch.setattr(ray_machines, "import_ray", lambda: fake)
        monkeypatch.setattr(Machines, "_greet", lambda self, machine: greetings[machine.node_id])

        def seat(self: Machines, machine: Machine, bundle: dict[str, float]) -> ray_machines.Seat:
            return ray_machines.Seat(f"actor on {machine.node_id}", machine.node_id, "hello")

        monkeypatch.setattr(Machines, "_seat", seat)
        machines = Machines("auto")
        machines.look()
        return machines

    return made


def test_a_machine_with_other_sources_is_asked_again(
    meet: Callable[..., Machines], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    greetings = {"good": greeting(), "bad": greeting(sources="of last week")}
    machines = meet(greetings)
    assert set(machines.machines) == {"good"}
    assert "source files differ" in machines.refused["bad"]
    greetings["bad"] = greeting()
    machines.look()
    assert set(machines.machines) == {"good"}, "not at every look"
    later = time.monotonic() + ray_machines.ASK_AGAIN_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    machines.look()
    assert set(machines.machines) == {"good", "bad"}
    assert not machines.refused
    assert capsys.readouterr().err.count("left out") == 1


@pytest.mark.parametrize(
    ("odd", "platform", "seated"),
    [
        ({"driver": "570"}, "virtual", 2),
        ({"driver": "570"}, "cpu", 3),
        ({"GPU": "NVIDIA H100"}, "virtual", 2),
        ({"torch": "2.9"}, "cpu", 2),
        ({}, "virtual", 3),
    ],
)
def test_machines_whose_times_do_not_compare_do_not_share_a_sweep(
    odd: dict[str, str], platform: str, seated: int, meet: Callable[..., Machines]
) -> None:
    machines = meet({"a": greeting(), "b": greeting(), "c": greeting(**odd)})
    machines.reserve(platform, ranks=4, seats_each=1)
    machines.check_seats()
    assert len({seat.node_id for seat in machines.seats()}) == seated
    assert all(seat.ready for seat in machines.seats())
    assert all(word in machines.refused.get("c", word) for word in odd.values())
    machines.restart(machines.seats()[0])
    assert machines.ray.killed[-1] == ("actor on a", False), "Ray starts it again"


def test_a_build_sees_the_gpus_that_ray_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, box(4), visible="")
    monkeypatch.setattr(fingerprint, "software", dict)
    found = ray_tasks.greet(2)
    assert found.max_ranks["node"] == 2, "as many as Ray has there, not as there are"
    assert found.sources == fingerprint.sources_hash()
    install(monkeypatch, box(4), visible="")
    assert "node" not in ray_tasks.greet(0).max_ranks
