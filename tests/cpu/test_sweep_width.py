"""How many builds a sweep has under way, and what they decide."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_sweep
from sweeping import store_run, write_candidates
from test_sweep import Scripted, said, sweep

from pkb.cluster.orders import Order
from pkb.cluster.sweep import LAST_S
from pkb.judge.service.child import job_for
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.judge.session import build_ahead, evaluate
from pkb.store import Store
from pkb.types.case import Case

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


def test_a_budget_begins_nothing_at_its_end_and_gives_back_what_is_under_way(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("pkb.cluster.sweep.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Hanging(Scripted):
        """Every look takes 5 s; the first evaluation has its verdict at the first, the second at none."""

        def start(self, order: Order) -> None:
            self.orders.append(order)

        def events(self, timeout_s: float) -> list[JudgeEvent]:
            now[0] += 5
            return [JudgeEvent(self.orders[0].id, "done", document=said("wrong"))]

    write_candidates(tmp_path / "c", cheap=3)
    run = store_run(store, tmp_path / "c")
    executor = Hanging([], builders=0)
    assert sweep(store, run, executor, budget_s=30).done == ["wrong"]
    assert (len(executor.orders), executor.closed, now[0]) == (2, True, 35)
    assert store.summary(run).tasks == {"done": 1, "waiting": 2}
    assert store.run(run.id).state == "interrupted"
    late = Hanging([], builders=0)
    assert sweep(store, run, late, budget_s=LAST_S - 1).done == []
    assert late.orders == [], "too little is left to begin anything"


CPP = "from pkb.kit import build_cpp\nx = build_cpp({!r})\ndef solution(t):\n    return t\n"
ORDER = JudgeOrder(
    id="1", kind="evaluate", source=b"", filename="1_allreduce_cpp.py", case=Case("1", "cpu", 2, "tiny", "bf16", "quick")
)  # fmt: skip


def test_what_a_build_decides_is_a_verdict_and_needs_no_seat(tmp_path: Path, store: Store) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "1_allreduce_cpp.py").write_text(CPP.format("int x"))
    run = store_run(store, tmp_path / "c")
    executor = Scripted([("done", said("compile_error", stage="build"))])
    assert sweep(store, run, executor).done == ["compile_error"]
    assert [order.kind for order in executor.orders] == ["build"]


@pytest.fixture
def candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PKB_CACHE", str(tmp_path / "cache"))
    return tmp_path / ORDER.filename


def test_a_build_ahead_says_what_the_evaluation_would(candidate: Path) -> None:
    for text, verdict in (
        (CPP.format("int x"), "compile_error"),
        ("import pkb.judge\n" + CPP.format("int x;"), "rejected"),
        ("import triton\nimport pkb.kit.nvshmem\ndef solution(:", "compile_error"),
    ):
        candidate.write_text(text)
        job = job_for(ORDER, candidate)
        ahead, judged = build_ahead(job), evaluate(job)
        assert ahead is not None
        assert judged.verdict == verdict
        assert replace(ahead, stage_seconds={}, started_at="") == replace(judged, stage_seconds={}, started_at="")
    candidate.write_text(CPP.format("int x;"))
    assert build_ahead(job_for(ORDER, candidate)) is None, "it compiles, so it is to be judged"


def test_a_build_that_was_ended_decides_nothing(candidate: Path) -> None:
    """Beside fourteen others it may be slow or without memory; alone it may not."""
    candidate.write_text(CPP.format("int x;"))
    assert build_ahead(job_for(replace(ORDER, build_limit_s=0.01), candidate)) is None
    for words in ("fatal error: Killed signal terminated program cc1plus", "'cicc' died due to signal 9 (Kill signal)"):
        candidate.write_text(CPP.format(f"#error {words}"))
        assert build_ahead(job_for(ORDER, candidate)) is None, words
