"""Sweeps on this machine: every task gets its verdict, whatever dies on the way."""

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from leftovers import until
from sweeping import CHEAP, LIKE, PROBLEMS, REAL, Silent, pkb, running_below_us, store_run, verdicts, write_candidates

from pkb.cluster.local import LocalExecutor, shares_of_cores
from pkb.cluster.orders import AskEvent, AskOrder, Order, WrittenAnswer
from pkb.cluster.planning import plan_candidates, plan_models
from pkb.cluster.settings import SweepSettings
from pkb.cluster.sweep import TRIES, Sweep, needs_build
from pkb.cluster.tally import tally
from pkb.judge.service.messages import JudgeEvent, JudgeOrder
from pkb.store import Run, Store
from pkb.types.document import VerdictDocument
from pkb.types.errors import UserError


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "store") as opened:
        yield opened


def sweep(store: Store, run: Run, executor: Any, **options: Any) -> Silent:
    watcher = Silent()
    settings = SweepSettings.of(store.run(run.id).config)
    Sweep(store, run, executor=executor, settings=settings, watcher=watcher, **options).work()
    return watcher


def local(**options: Any) -> LocalExecutor:
    return LocalExecutor(**({"seats": 1, "builders": 0, "concurrency": 4} | options))


@pytest.fixture
def before() -> set[int]:
    """Processes of other tests that this one runs beside."""
    return {int(line.split()[0]) for line in running_below_us()}


def test_command_judges_a_folder_and_files(tmp_path: Path) -> None:
    expected = write_candidates(tmp_path / "many", cheap=3, real_at=[0])
    (tmp_path / "many" / "nonsense.py").write_text("")
    (tmp_path / "2_allgather_torch.py").write_text(CHEAP["load_error"])
    process = pkb(
        "run", "--candidates", str(tmp_path / "many"), str(tmp_path / "2_allgather_torch.py"), "--plan", "quick",
        "--ranks", "2", "--platform", "cpu", "--store", str(tmp_path / "store"), "--json", "--name", "mine",
    )  # fmt: skip
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    document = json.loads(output)
    assert document["state"] == "complete"
    assert document["tasks"] == 5
    assert document["verdicts"] == {"load_error": 2, "correct": 1, "compile_error": 1, "rejected": 1}
    assert "nonsense.py: refused" in errors
    assert "5/5" in errors
    with Store(tmp_path / "store") as store:
        run = store.run("mine")
        assert {k: v for k, v in verdicts(store, run).items() if k != tmp_path.name} == {
            name: [verdict] for name, verdict in expected.items()
        }
        assert next(store.evaluations([run.id])).case.size == "tiny"


def test_limit_then_resume(tmp_path: Path, store: Store) -> None:
    write_candidates(tmp_path / "c", cheap=4)
    run = store_run(store, tmp_path / "c")
    sweep(store, run, local(), limit=3)
    left = tally(store, run)
    assert (sum(left.verdicts.values()), left.waiting, left.state) == (3, 1, "interrupted")
    assert left.exit_status_for(limited=True) == 0
    assert left.exit_status_for(limited=False) == 2
    sweep(store, run, local(seats=2))
    done = tally(store, run)
    assert (sum(done.verdicts.values()), done.state, done.exit_status_for(limited=False)) == (4, "complete", 0)


def test_a_judge_that_is_killed_costs_a_try(tmp_path: Path, store: Store, before: set[int]) -> None:
    """Its own process, then the server that forks it: both times the verdict comes all the same."""
    write_candidates(tmp_path / "c", cheap=0, real_at=[0])
    run = store_run(store, tmp_path / "c")
    victims: list[str] = []

    def kill() -> None:
        me = psutil.Process()

        def judges_below(process: psutil.Process) -> list[psutil.Process]:
            return [c for c in process.children() if "pkb.judge.service.server" in c.cmdline()]

        def evaluators() -> list[psutil.Process]:
            try:
                return [child for server in judges_below(me) for child in judges_below(server)]
            except psutil.NoSuchProcess:  # it ended while it was looked at
                return []

        found: list[psutil.Process] = []  # kept when it is seen: it may have ended by the next look

        def another() -> bool:
            found.extend(child for child in evaluators() if child not in found)
            return len(found) > len(victims)

        if until(another, within_s=30):
            found[0].kill()
            victims.append("child")
            if until(another, within_s=30):
                judges_below(me)[0].kill()
                victims.append("server")

    killer = threading.Thread(target=kill)
    killer.start()
    watcher = sweep(store, run, local())
    killer.join()
    assert victims == ["child", "server"]
    assert [again for _, again in watcher.losses] == [True, True]
    assert "SIGKILL" in watcher.losses[0][0]
    assert watcher.done == ["correct"]
    assert running_below_us(before) == []


def test_limit_of_time_ends_an_evaluation(tmp_path: Path, store: Store, before: set[int]) -> None:
    write_candidates(tmp_path / "c", cheap=1, real_at=[0])
    never_ends = "import time\n\ntime.sleep(600)\n\n\ndef solution(tensor):\n    return tensor\n"
    (tmp_path / "c" / "00" / "1_allreduce_torch.py").write_text(never_ends)
    run = store_run(store, tmp_path / "c", evaluation_limit_s=5)
    watcher = sweep(store, run, local(seats=2))
    result = tally(store, run)
    assert watcher.done == ["compile_error"]
    assert [again for _, again in watcher.losses] == [True, False]
    assert "more than 5" in result.failed[0][1]
    assert result.exit_status_for(limited=False) == 2
    assert running_below_us(before) == []
    store.retry_failed(run.id)
    assert tally(store, run).waiting == 1


# -- a scripted hand: what a sweep does with what it is told ------------------------------------------------------------


@dataclass
class Scripted:
    """Answers every order with the next thing of its script."""

    script: list[tuple[str, str | VerdictDocument | WrittenAnswer]]
    seats: int = 1
    builders: int = 1
    concurrency: int = 2
    orders: list[Order] = field(default_factory=list)
    answers: list[JudgeEvent] = field(default_factory=list)
    closed: bool = False

    def start(self, order: Order) -> None:
        self.orders.append(order)
        what, said = self.script.pop(0)
        if isinstance(said, WrittenAnswer):
            event: JudgeEvent = AskEvent(order.id, what, answer=said)  # type: ignore[arg-type]
        elif isinstance(said, VerdictDocument):
            event = JudgeEvent(order.id, what, document=said)  # type: ignore[arg-type]
        else:
            event = JudgeEvent(order.id, what, said)  # type: ignore[arg-type]
        self.answers.append(event)

    def events(self, timeout_s: float) -> list[JudgeEvent]:
        answers, self.answers = self.answers, []
        return answers

    def close(self) -> None:
        self.closed = True


def said(verdict: str, **changes: Any) -> VerdictDocument:
    return VerdictDocument({
        "schema": 1, "verdict": verdict, "stage": "correctness", "detail": "so it is", "problem": {"id": 1},
        "candidate": {"file": "x.py"}, "platform": "cpu", "hardware": "none", "ranks": 2, "size": "tiny", "dtype": "bf16",
        "plan": "quick",
    } | changes)  # fmt: skip


@pytest.mark.parametrize("how", ["lost", "late", "broken", "harness"])
def test_tries_are_bounded(tmp_path: Path, store: Store, how: str) -> None:
    write_candidates(tmp_path / "c", cheap=1)
    said_so = said("harness_error") if how == "harness" else "it is gone"
    bad: tuple[str, str | VerdictDocument | WrittenAnswer] = ("done" if how == "harness" else how, said_so)
    one_short = store_run(store, tmp_path / "c")
    watcher = sweep(store, one_short, Scripted([bad] * (TRIES[how] - 1) + [("done", said("wrong"))]))
    assert watcher.done == ["wrong"]
    too_often = store_run(store, tmp_path / "c")
    executor = Scripted([bad] * TRIES[how])
    watcher = sweep(store, too_often, executor)
    assert watcher.done == []
    assert executor.closed
    result = tally(store, too_often)
    assert (result.verdicts, len(result.failed), result.state) == ({}, 1, "complete")
    assert result.failed[0][1].startswith(how)


def test_builds_come_before_evaluations_and_only_where_there_is_something_to_build(
    tmp_path: Path, store: Store
) -> None:
    (tmp_path / "c").mkdir()
    text = "from pkb.kit import build_cpp\nlibrary = build_cpp('int x;')\ndef solution(t):\n    return t\n"
    assert needs_build(text.encode())
    assert not needs_build(CHEAP["compile_error"].encode())
    assert not needs_build(CHEAP["rejected"].encode())
    (tmp_path / "c" / "1_allreduce_cpp.py").write_text(text)
    (tmp_path / "c" / "1_allreduce_torch.py").write_text(CHEAP["load_error"])
    run = store_run(store, tmp_path / "c")
    script: list[tuple[str, Any]] = [("lost", "no matter"), ("done", said("wrong")), ("done", said("wrong"))]
    executor = Scripted(script)
    sweep(store, run, executor)
    kinds = [order.kind for order in executor.orders if order.case.problem == "01_allreduce"]
    assert sorted(kinds) == ["build", "evaluate", "evaluate"]
    of_cpp = [order.kind for order in executor.orders if isinstance(order, JudgeOrder) and b"build_cpp" in order.source]
    assert of_cpp == ["build", "evaluate"]


def test_cores_are_shared_out() -> None:
    cores = os.sched_getaffinity(0)
    assert shares_of_cores(1) == [()]
    if len(cores) >= 2:
        first, second = shares_of_cores(2)
        assert first
        assert not set(first) & set(second)
    assert all(set(share) <= cores and share for share in shares_of_cores(2 * len(cores)))


# -- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    code: str | None
    problem: str = ""
    stop_reason: str = "stop"
    tokens_in: int | None = 10
    tokens_out: int | None = 20
    cost_usd: float | None = 0.25
    seconds: float = 0.1
    transcript: Any = b'{"messages": []}'


def test_models_are_asked_once_for_each_sample(store: Store) -> None:
    asked: list[tuple[str, str]] = []
    guard = threading.Lock()

    def ask(model: str, prompt: Any, **options: Any) -> Said:
        with guard:
            asked.append((model, prompt.problem))
            number = sum(problem == prompt.problem for _, problem in asked)
        if prompt.problem == "02_allgather":
            return Said(None, "there is no code in it")
        if prompt.problem == "03_broadcast" and number == 1:
            return Said(None, "no answer within 600 s", stop_reason="timeout")
        return Said(CHEAP["load_error"])

    stems = ["01_allreduce", "02_allgather", "03_broadcast"]
    plan = plan_models(["scripted/m"], problems=stems, samples=2, backend="triton", like=LIKE)
    assert [task.sample for task in plan.tasks] == [0, 0, 0, 1, 1, 1]
    run = store.create_run("sweep", tasks=plan.tasks)
    sweep(store, run, local(ask=ask), limit=3)
    sweep(store, run, local(ask=ask))
    result = tally(store, run)
    assert result.verdicts == {"load_error": 4}
    assert (result.no_answer, result.state, result.cost_usd) == (2, "complete", 1.5)
    assert sorted(problem for _, problem in asked) == sorted([*stems, *stems, "03_broadcast"])
    row = next(store.evaluations([run.id]))
    assert (row.tokens_out, row.collection) == (20, "scripted/m")
    assert store.source(str(row.candidate_sha)) == CHEAP["load_error"]


def test_an_answer_that_was_paid_for_is_not_asked_for_again(store: Store) -> None:
    plan = plan_models(["m"], problems=["01_allreduce"], samples=1, backend="triton", like=LIKE)
    run = store.create_run("sweep", tasks=plan.tasks)
    answer = WrittenAnswer(CHEAP["load_error"], "", "stop", 10, 20, 0.25, 0.1, [])
    first = Scripted([("done", answer), ("refused", "the platform is not there")])
    sweep(store, run, first)
    assert [order.kind for order in first.orders] == ["ask", "evaluate"]
    store.retry_failed(run.id)
    second = Scripted([("done", said("load_error"))])
    sweep(store, run, second)
    assert [order.kind for order in second.orders] == ["evaluate"]
    assert tally(store, run).verdicts == {"load_error": 1}


def test_command_asks_a_model(tmp_path: Path) -> None:
    """The whole way, with a model that reads its answers from a file."""
    pytest.importorskip("inspect_ai")
    script = {"01_allreduce": [f"Here it is:\n```python\n{REAL}```\n"], "*": ["I would rather not."]}
    (tmp_path / "m.json").write_text(json.dumps(script))
    process = pkb(
        "run", "--model", f"scripted/{tmp_path}/m.json", "--problems", "1-2", "--backend", "triton", "--plan", "quick",
        "--ranks", "2", "--platform", "cpu", "--store", str(tmp_path / "store"), "--json",
    )  # fmt: skip
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    document = json.loads(output)
    assert (document["verdicts"], document["no_answer"], document["state"]) == ({"correct": 1}, 1, "complete")
    with Store(tmp_path / "store") as store:
        steps = [step for task in store.tasks(document["run"]) for step in store.steps(document["run"], task.key)]
        assert [step.candidate_sha is None for step in steps] == [False, True]
        assert all(step.tokens_in for step in steps)


def test_a_wrong_key_stops_the_sweep_and_not_the_run(store: Store) -> None:
    plan = plan_models(["m"], problems=["01_allreduce", "02_allgather"], samples=1, backend="triton", like=LIKE)
    run = store.create_run("sweep", tasks=plan.tasks)
    with pytest.raises(UserError, match="refused the key"):
        sweep(store, run, Scripted([("refused", "m refused the key")] * 2))
    assert tally(store, run).waiting == 2
    assert all(task.attempts == 0 for task in store.tasks(run.id))


# -- planning -----------------------------------------------------------------------------------------------------------


def test_names_are_read_as_an_import_reads_them(tmp_path: Path) -> None:
    for name in (
        "a/1_allreduce_cuda.py",
        "a/9_allgather_cuda.py",
        "b/allreduce_cuda.py",
        "b/01_allreduce_cuda.py",
        "c.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    plan = plan_candidates([tmp_path], problems=PROBLEMS, like=LIKE)
    seen = {(task.collection, task.problem, task.sample) for task in plan.tasks}
    assert seen == {
        ("a", "01_allreduce", 0),
        ("a", "02_allgather", 0),
        ("b", "01_allreduce", 0),
        ("b", "01_allreduce", 1),
    }
    assert plan.candidates[plan.tasks[0].key].source == b"a/1_allreduce_cuda.py"
    with pytest.raises(UserError, match="does not exist"):
        plan_candidates([tmp_path / "nowhere"], problems=PROBLEMS, like=LIKE)
    with pytest.raises(UserError, match="no candidate to evaluate"):
        plan_candidates([tmp_path / "c.txt"], problems=PROBLEMS, like=LIKE)


def test_ask_orders_hold_no_key() -> None:
    assert not [
        name for name in AskOrder.__dataclass_fields__ if "key" in name or ("token" in name and name != "max_tokens")
    ]
