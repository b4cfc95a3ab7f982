"""The machines of a Ray cluster: who is there, what each can do, and the seats on it.

A seat is room for one evaluation: an actor that stays while the sweep lasts, with its share of one machine. On `node` that is
all GPUs of a machine, on `virtual` one GPU, on `cpu` some of the cores. So nobody else who uses the cluster can be scheduled
into a measurement, and the judge is imported once a seat.
"""

import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pkb.cluster import ray_tasks
from pkb.cluster.fingerprint import difference, sources_hash
from pkb.platforms.registry import PLATFORMS, traits
from pkb.types.errors import UserError

GREET_S = 120.0
"""What a machine may take to say what it can do; importing torch on a cold disk takes a while."""
CONNECT_S = 60.0
ASK_AGAIN_S = 60.0
"""After which a machine that was refused is asked once more: it may be repaired, or those that it did not fit are gone."""


def import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise UserError("--cluster needs Ray", "pip install 'pkb[cluster]'") from None


@contextlib.contextmanager
def _within(limit_s: float) -> Iterator[None]:
    """Ray waits for ever for a cluster whose head is gone. Signals reach the main thread only; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"no answer within {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _knock(address: str) -> None:
    """Ray tries for minutes where nobody answers; this takes seconds."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():  # `auto`: Ray finds the cluster of this machine
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address}: {error.strerror or error}", "`ray start --head`, or give its address"
        ) from error


@dataclass
class Seat:
    actor: Any
    node_id: str
    hello: Any
    """The first answer of its actor, while that is waited for."""
    order_id: str | None = None
    """The evaluation that is done there."""

    @property
    def ready(self) -> bool:
        return self.hello is None


@dataclass
class Machine:
    node_id: str
    cpus: float
    gpus: float
    can: ray_tasks.Greeting = field(default_factory=ray_tasks.Greeting)
    seats: list[Seat] = field(default_factory=list)


class Machines:
    def __init__(self, address: str) -> None:
        self.ray = import_ray()
        self.ours = not self.ray.is_initialized()
        if self.ours:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            _knock(address)
            try:
                with _within(CONNECT_S):
                    self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (OSError, RuntimeError, ValueError) as error:
                raise UserError(
                    f"no Ray cluster answers at {address}: {error}", "`ray start --head`, or give its address"
                ) from error
        self.machines: dict[str, Machine] = {}
        self.refused: dict[str, str] = {}
        self._ask_again: dict[str, float] = {}
        self._greetings: dict[str, tuple[Any, float, Machine]] = {}

    def close(self) -> None:
        for machine in self.machines.values():
            self._remove(machine)
        self.machines.clear()
        if self.ours and self.ray.is_initialized():
            self.ray.shutdown()

    def meet(self, *, within_s: float = GREET_S) -> None:
        """Waits until every machine that is there now has said what it can do."""
        give_up = time.monotonic() + within_s
        self.look()
        while self._greetings and time.monotonic() < give_up:
            time.sleep(0.1)
            self.look()
        if not self.machines:
            why = "; ".join(sorted(set(self.refused.values()))) or "nobody answered"
            raise UserError(f"no machine of the cluster can be used: {why}", "`pkb doctor` there says what is missing")

    def look(self) -> None:
        """Who has come, who is gone."""
        nodes = {str(node["NodeID"]): node for node in self.ray.nodes() if node["Alive"]}
        for node_id in [known for known in self.machines if known not in nodes]:
            self._remove(self.machines.pop(node_id))
        for node_id in [node for node, when in self._ask_again.items() if time.monotonic() > when]:
            del self._ask_again[node_id]
        for node_id, node in nodes.items():
            if node_id not in self.machines and node_id not in self._greetings and node_id not in self._ask_again:
                resources = node["Resources"]
                machine = Machine(node_id, float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))
                self._greetings[node_id] = (self._greet(machine), time.monotonic() + GREET_S, machine)
        for node_id, (reference, give_up, machine) in list(self._greetings.items()):
            done, _ = self.ray.wait([reference], timeout=0)
            if done or time.monotonic() > give_up or node_id not in nodes:
                del self._greetings[node_id]
                if node_id in nodes:
                    self._admit(machine, reference if done else None)

    def _greet(self, machine: Machine) -> Any:
        task = self.ray.remote(ray_tasks.greet).options(num_cpus=0, max_retries=0, **on_machine(machine.node_id))
        return task.remote(int(machine.gpus))

    def _admit(self, machine: Machine, reference: Any) -> None:
        if reference is None:
            self._refuse(machine, f"a machine did not answer within {GREET_S:.0f} s")
            return
        try:
            machine.can = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:  # most often: pkb is not installed there
            self._refuse(machine, f"a machine cannot run pkb: {str(error).strip().splitlines()[-1]}")
            return
        if machine.can.sources != sources_hash():
            self._refuse(machine, "a machine has another pkb than this one: its source files differ")
            return
        self.refused.pop(machine.node_id, None)
        self.machines[machine.node_id] = machine

    def _refuse(self, machine: Machine, why: str) -> None:
        """For now; said once."""
        if self.refused.get(machine.node_id) != why:
            print(f"left out: {why} ({machine.node_id[:8]})", file=sys.stderr, flush=True)
        self.refused[machine.node_id] = why
        self._ask_again[machine.node_id] = time.monotonic() + ASK_AGAIN_S
        self._remove(machine)
        self.machines.pop(machine.node_id, None)

    def platform(self, asked: str, *, ranks: int) -> str:
        """The platform meant by a name or by `auto`: the largest that any machine has room for `ranks` on."""
        able = [machine.can.max_ranks for machine in self.machines.values()]
        for name in PLATFORMS if asked == "auto" else (asked,):
            if any(can.get(name, 0) >= ranks for can in able):
                return name
        raise UserError(f"no machine of the cluster has platform {asked} with {ranks} ranks", "fewer --ranks")

    def hardware(self, platform: str) -> str:
        return next((m.can.hardware[platform] for m in self.machines.values() if platform in m.can.hardware), "")

    # -- seats --------------------------------------------------------------------------------------------------------

    def reserve(self, platform: str, *, ranks: int, seats_each: int) -> None:
        """Seats on every machine that can do such evaluations and has none yet."""
        for machine in list(self.machines.values()):
            if machine.seats or machine.can.max_ranks.get(platform, 0) < ranks:
                continue
            seated = next((other for other in self.machines.values() if other.seats), machine)
            if odd := difference(machine.can.software, seated.can.software, gpu=traits(platform).device == "cuda"):
                self._refuse(machine, f"a machine is unlike the others, and their times would not compare: {odd}")
                continue
            count, bundle = seat_bundle(machine, platform, seats_each=seats_each)
            machine.seats = [self._seat(machine, bundle) for _ in range(count)]

    def _seat(self, machine: Machine, bundle: dict[str, float]) -> Seat:
        """Ray starts the actor again when its process dies. What it was doing is not done again by Ray: the sweep counts."""
        kind = self.ray.remote(ray_tasks.SeatWorker).options(
            num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), max_restarts=-1, max_task_retries=0,
            **on_machine(machine.node_id),
        )  # fmt: skip
        actor = kind.remote()
        return Seat(actor, machine.node_id, actor.hello.remote())

    def check_seats(self) -> None:
        """A seat can be used once its actor has answered: others may hold its resources until then."""
        for machine in list(self.machines.values()):
            for seat in machine.seats:
                if seat.hello is None or not self.ray.wait([seat.hello], timeout=0)[0]:
                    continue
                try:
                    self.ray.get(seat.hello)
                    seat.hello = None
                except self.ray.exceptions.RayError as error:
                    self._refuse(machine, f"a seat does not start: {str(error).strip().splitlines()[-1]}")
                    break

    def doubt(self, seat: Seat) -> None:
        """Its actor has died: no more orders until it answers again. On a machine that is gone, and that Ray still takes for
        alive, every order would fail at once, and use up its tries."""
        seat.hello = seat.actor.hello.remote()

    def restart(self, seat: Seat) -> None:
        """Ends what is done there; its judge and all ranks die with the process."""
        self.ray.kill(seat.actor, no_restart=False)

    def seats(self) -> list[Seat]:
        return [seat for machine in self.machines.values() for seat in machine.seats]

    def _remove(self, machine: Machine) -> None:
        seats, machine.seats = machine.seats, []
        for seat in seats:
            if self.ray.is_initialized():
                self.ray.kill(seat.actor)


def on_machine(node_id: str) -> dict[str, Any]:
    """Options of a task or an actor: there, or nowhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


def seat_bundle(machine: Machine, platform: str, *, seats_each: int) -> tuple[int, dict[str, float]]:
    """How many seats a machine has, and what each reserves of it."""
    where = traits(platform)
    if where.device == "cpu":
        count = seats_each if machine.cpus else 0
    else:
        count = int(machine.gpus) if where.shares_device else int(machine.gpus >= 2)
    if not count:
        return 0, {}
    # Ray wants whole numbers above one.
    cpus = machine.cpus // count if machine.cpus >= count else machine.cpus / count
    gpus = machine.gpus // count if where.device == "cuda" else 0.0
    return count, {name: amount for name, amount in (("GPU", gpus), ("CPU", cpus)) if amount}
