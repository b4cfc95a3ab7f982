"""The machines of a Ray cluster: who is there, what each can do, and the seats on it.

A seat is room for one evaluation: a placement group of one bundle (STRICT_PACK, so all of it is on one machine). On `node` it
is all GPUs of a machine, on `virtual` one GPU, on `cpu` a share of the cores. It is reserved while the sweep lasts, so nobody
else who uses the cluster can be scheduled into a measurement.
"""

import contextlib
import importlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pkb.cluster import ray_tasks
from pkb.platforms.registry import PLATFORMS, traits
from pkb.types.errors import UserError

GREET_S = 120.0
"""What a machine may take to say what it can do; importing torch on a cold disk takes a while."""
CONNECT_S = 60.0


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
    group: Any
    bundle: dict[str, float]
    ready: bool = False
    order_id: str | None = None
    """The evaluation that is done there."""
    unready_since: float | None = None


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
        for node_id, node in nodes.items():
            if node_id not in self.machines and node_id not in self._greetings and node_id not in self.refused:
                resources = node["Resources"]
                machine = Machine(node_id, float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))
                self._greetings[node_id] = (self._greet(node_id), time.monotonic() + GREET_S, machine)
        for node_id, (reference, give_up, machine) in list(self._greetings.items()):
            done, _ = self.ray.wait([reference], timeout=0)
            if done or time.monotonic() > give_up or node_id not in nodes:
                del self._greetings[node_id]
                if node_id in nodes:
                    self._admit(machine, reference if done else None)

    def _greet(self, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = self.ray.remote(ray_tasks.greet).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        return task.remote()

    def _admit(self, machine: Machine, reference: Any) -> None:
        import pkb

        if reference is None:
            self.refused[machine.node_id] = f"a machine did not answer within {GREET_S:.0f} s"
            return
        try:
            machine.can = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:  # most often: pkb is not installed there
            self.refused[machine.node_id] = f"a machine cannot run pkb: {str(error).strip().splitlines()[-1]}"
            return
        if machine.can.version != pkb.__version__:
            self.refused[machine.node_id] = f"a machine has pkb {machine.can.version}, here is {pkb.__version__}"
            return
        self.machines[machine.node_id] = machine

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
        for machine in self.machines.values():
            if machine.seats or machine.can.max_ranks.get(platform, 0) < ranks:
                continue
            count, bundle = seat_bundle(machine, platform, seats_each=seats_each)
            machine.seats = [Seat(self._group(bundle), bundle) for _ in range(count)]

    def _group(self, bundle: dict[str, float]) -> Any:
        from ray.util.placement_group import placement_group

        return placement_group([bundle], strategy="STRICT_PACK")

    def check_seats(self) -> None:
        """A group is usable while Ray says it is created; when its machine dies, Ray looks for another place for it."""
        from ray.util.placement_group import placement_group_table

        for seat in self.seats():
            state = placement_group_table(seat.group).get("state")
            seat.ready = state == "CREATED"
            seat.unready_since = None if seat.ready else seat.unready_since or time.monotonic()

    def seats(self) -> list[Seat]:
        return [seat for machine in self.machines.values() for seat in machine.seats]

    def _remove(self, machine: Machine) -> None:
        from ray.util.placement_group import remove_placement_group

        for seat in machine.seats:
            if self.ray.is_initialized():
                remove_placement_group(seat.group)
            seat.ready = False


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
