"""Many machines at work, through Ray. A machine that dies costs another try of what it did, never a result.

Results come back to the one process that writes the store. Ray's own retries are off: a try is counted by the sweep, which sees
why the last one ended.
"""

import time
from dataclasses import dataclass
from typing import Any

from pkb.cluster import ray_tasks
from pkb.cluster.orders import AskOrder, Order
from pkb.cluster.ray_machines import Machines, Seat, on_machine
from pkb.cluster.writing import carry_out
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.platforms.device_lock import LOCK_WAIT_S

LOOK_S = 2.0
MARGIN_S = 300.0


@dataclass
class _Running:
    order: Order
    seat: Seat | None
    """Where it is done, or on whose machine."""
    deadline: float

    @property
    def in_seat(self) -> bool:
        return self.order.kind == "evaluate"


class RayExecutor:
    def __init__(
        self, machines: Machines, *, platform: str, ranks: int, seats_each: int, builders_each: int, concurrency: int
    ) -> None:
        self.ray, self.machines, self.concurrency = machines.ray, machines, concurrency
        self._wanted = {"ranks": ranks, "seats_each": seats_each}
        self._platform, self._builders_each = platform, builders_each
        self._running: dict[Any, _Running] = {}
        self._built_at: dict[bytes, Seat] = {}
        self._looked = 0.0
        remote = self.ray.remote
        # Nothing is reserved for a build: it is niced, and the seats hold all cores already. We bound how many there are.
        self._build, self._write = remote(ray_tasks.build), remote(carry_out).options(num_cpus=0, max_retries=0)
        self._look()

    @property
    def seats(self) -> int:
        return sum(seat.ready for seat in self.machines.seats())

    @property
    def builders(self) -> int:
        return self._builders_each * len({id(machine) for machine in self.machines.machines.values() if machine.seats})

    def start(self, order: Order) -> None:
        now = time.monotonic()
        if isinstance(order, AskOrder):
            self._running[self._write.remote(order)] = _Running(order, None, now + order.limit_s + MARGIN_S)
            return
        seat = self._seat_for(order)
        wait = LOCK_WAIT_S if order.kind == "evaluate" else 0
        if order.kind == "evaluate":
            reference = seat.actor.evaluate.remote(order)
        else:
            reference = self._build.options(num_cpus=0, max_retries=0, **on_machine(seat.node_id)).remote(order)
        self._running[reference] = _Running(order, seat, now + order.limit_s + wait + MARGIN_S)

    def _seat_for(self, order: JudgeOrder) -> Seat:
        """An evaluation sits where its candidate was built, if it can: builds are cached on the machine's own disk."""
        ready = [seat for seat in self.machines.seats() if seat.ready]
        if order.kind == "build":
            load = [
                (sum(running.seat is seat for running in self._running.values()), n) for n, seat in enumerate(ready)
            ]
            seat = ready[min(load)[1]] if ready else self.machines.seats()[0]
            self._built_at[order.source] = seat
            return seat
        free = [seat for seat in ready if seat.order_id is None]
        built = self._built_at.pop(order.source, None)
        seat = built if built in free and built is not None else free[0]
        seat.order_id = order.id
        return seat

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        events: list[JudgeEvent] = []
        if self._running:
            done, _ = self.ray.wait(list(self._running), timeout=timeout_s)
            events += [self._finish(reference) for reference in done]
        else:
            time.sleep(min(timeout_s, 0.2))
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
            events += self._give_up()
        return events

    def _finish(self, reference: Any) -> JudgeEvent:
        running = self._running[reference]
        order = self._end(reference)
        try:
            event: JudgeEvent = self.ray.get(reference, timeout=60)
            return event
        except self.ray.exceptions.RayTaskError as error:
            return JudgeEvent(order.id, "broken", str(error)[-2000:])
        except self.ray.exceptions.RayError as error:  # a worker, a machine or the result on it is gone
            if running.in_seat and running.seat is not None:
                self.machines.doubt(running.seat)
            return JudgeEvent(order.id, "lost", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")

    def _end(self, reference: Any) -> Order:
        running = self._running.pop(reference)
        if running.seat is not None and running.seat.order_id == running.order.id:
            running.seat.order_id = None
        return running.order

    def _look(self) -> None:
        self._looked = time.monotonic()
        self.machines.look()
        self.machines.reserve(self._platform, **self._wanted)
        self.machines.check_seats()

    def _give_up(self) -> list[JudgeEvent]:
        """What can no longer end by itself: over its time, or in line for a seat that is gone."""
        now = time.monotonic()
        events = []
        seats = self.machines.seats()
        for reference, running in list(self._running.items()):
            seat = running.seat
            gone = seat is not None and seat not in seats
            if gone or now > running.deadline:
                self._stop(reference, running)
                order = self._end(reference)
                events.append(
                    JudgeEvent(order.id, "lost" if gone else "late", "its machine is gone" if gone else "no answer")
                )
        return events

    def close(self) -> None:
        """Ends what is under way: a worker that is killed takes its judge and all ranks along."""
        for reference, running in list(self._running.items()):
            if not running.in_seat:
                self.ray.cancel(reference, force=True)
            self._end(reference)
        self.machines.close()  # and with it all seats

    def _stop(self, reference: Any, running: _Running) -> None:
        if not running.in_seat:
            self.ray.cancel(reference, force=True)
        elif running.seat is not None and running.seat in self.machines.seats():
            self.machines.restart(running.seat)
