"""This machine at work: evaluations one after another on each GPU, builds beside them at low priority, models in threads."""

import contextlib
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pkb.cluster.orders import AskOrder, Order
from pkb.cluster.writing import Ask, carry_out
from pkb.judge.service.client import JudgeClient
from pkb.judge.service.messages import JudgeEvent
from pkb.platforms.device_lock import hold


class LocalExecutor:
    def __init__(
        self, *, seats: int, builders: int, concurrency: int, devices: Sequence[str] = (), ask: Ask | None = None
    ) -> None:
        """`devices`: GPUs of the seats by their UUIDs; empty where a seat is a share of the cores, or all GPUs.

        Seats that outnumber the GPUs share them, and the cores: the GPUs are held for all of them until `close`, and nothing
        may be timed there.
        """
        self._events: queue.Queue[JudgeEvent] = queue.Queue()
        self._ask = ask
        self._shares, self._devices = shares_of_cores(seats), tuple(devices)
        self._held = contextlib.ExitStack()
        self._lock_folder: Path | None = None
        """Has a queue for each seat, where seats share GPUs that are held."""
        if devices and seats > len(devices):
            self._held.enter_context(hold(devices, say=lambda text: print(text, file=sys.stderr)))
            self._lock_folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="pkb-seats-")))
        self._judge = JudgeClient(self._events.put)  # once the GPUs are there: waiting for them may be given up
        self._sitting: dict[str, int] = {}
        """Seat by order."""
        self.seats, self.builders, self.concurrency = seats, builders, concurrency

    def start(self, order: Order) -> None:
        if isinstance(order, AskOrder):
            # A daemon: Ctrl-C does not wait for a model's answer.
            threading.Thread(target=self._write, args=(order,), daemon=True).start()
            return
        if order.kind == "evaluate":
            seat = next(n for n in range(self.seats) if n not in self._sitting.values())
            self._sitting[order.id] = seat
            device = self._devices[seat % len(self._devices)] if self._devices else None
            order = replace(order, cores=self._shares[seat], devices=device)
            if self._lock_folder is not None:
                order = replace(order, cores=(), lock_folder=str(self._lock_folder / str(seat)))
        self._judge.send(order)

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        found: list[JudgeEvent] = []
        try:
            found.append(self._events.get(timeout=timeout_s))
            while True:
                found.append(self._events.get_nowait())
        except queue.Empty:
            pass
        for event in found:
            if event.is_last:
                self._sitting.pop(event.id, None)
        return found

    def close(self) -> None:
        self._judge.close()
        self._held.close()

    def _write(self, order: AskOrder) -> None:
        self._events.put(carry_out(order, self._ask))


def shares_of_cores(seats: int) -> list[tuple[int, ...]]:
    """Each seat's cores: disjoint while there are enough, and all of them for one seat."""
    cores = sorted(os.sched_getaffinity(0))
    if seats == 1:
        return [()]
    each = max(1, len(cores) // seats)
    return [tuple(cores[(seat * each + n) % len(cores)] for n in range(each)) for seat in range(seats)]
