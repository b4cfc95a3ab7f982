"""How many builds a sweep has under way."""

from dataclasses import dataclass, field
from pathlib import Path

import test_sweep
from sweeping import store_run
from test_sweep import Scripted, said, sweep

from pkb.cluster.orders import Order
from pkb.judge.service.messages import JudgeEvent
from pkb.store import Store

store = test_sweep.store


@dataclass
class SlowSeat(Scripted):
    """Builds end one by one while the only seat is taken by an evaluation that ends when all is built."""

    widths: list[int] = field(default_factory=list)

    def start(self, order: Order) -> None:
        self.orders.append(order)

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        builds = [order for order in self.orders if order.kind == "build"]
        self.widths.append(len(builds))
        ending = builds[0] if builds else self.orders[0]
        self.orders.remove(ending)
        document = said("wrong") if ending.kind == "evaluate" else None
        return [JudgeEvent(ending.id, "done", document=document)]


def test_builders_work_at_full_width_while_a_seat_is_taken(tmp_path: Path, store: Store) -> None:
    """What is built and waits for a GPU is no reason to build less: one hang used to leave most builders idle."""
    folder = tmp_path / "c"
    for n in range(30):
        (folder / f"{n:02d}").mkdir(parents=True)
        text = f"from pkb.kit import build_cpp\nx = build_cpp('int x{n};')\ndef solution(t):\n    return t\n"
        (folder / f"{n:02d}" / "1_allreduce_cpp.py").write_text(text)
    executor = SlowSeat([], builders=5)
    watcher = sweep(store, store_run(store, folder), executor)
    assert watcher.done == ["wrong"] * 30
    assert max(executor.widths) == 5
    assert executor.widths[:26] == [5] * 26  # 30 builds, five at a time, whoever has the seat
