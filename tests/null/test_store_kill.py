"""The store under kill -9 and under several writers: real processes, real signals."""

import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from pkb.store import CandidateFile, Reader, Store, TaskSpec, Worker
from pkb.store.check import check
from pkb.types.document import VerdictDocument

KILLS = 25
NOISE = 30_000
STARTS = 10


def spec(number: int, collection: str = "mine") -> TaskSpec:
    return TaskSpec(collection=collection, problem="13_gemm_allreduce", backend="cuda", sample=number)


def document(number: int, *, bytes_of_noise: int = 0) -> VerdictDocument:
    """A verdict whose content follows from its number, so that a reader can tell whether it is the right one, whole."""
    noise = random.Random(number).randbytes(bytes_of_noise).hex()
    fields = {
        "schema": 1, "verdict": "wrong", "stage": "correctness", "detail": f"number {number}", "problem": {"id": 13},
        "candidate": {"file": "x.py"}, "platform": "cpu", "hardware": "none", "ranks": 4, "size": "tiny", "dtype": "bf16",
        "plan": "quick", "output_tail": noise,
    }  # fmt: skip
    return VerdictDocument(fields)


def source(number: int) -> CandidateFile:
    text = f"# {number}\n{random.Random(number).randbytes(20_000).hex()}\n".encode()
    return CandidateFile(source=text, filename=f"{number}.py", origin=f"test {number}")


class Child:
    """A forked process that does `work(*arguments)` with its standard output in our pipe. Forked, because starting Python
    anew would take most of the time of these tests; it opens the store itself."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        reading, writing = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(reading)
                sys.stdout = os.fdopen(writing, "w")
                work(*arguments)
                sys.stdout.flush()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(writing)
        self.output = os.fdopen(reading)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def collect(self) -> tuple[list[str], int]:
        """Whole lines that it wrote and were not read yet, and its exit status. Every child ends by itself or is killed."""
        text = self.output.read()
        self.output.close()
        _, status = os.waitpid(self.pid, 0)
        return text[: text.rfind("\n") + 1].split(), os.waitstatus_to_exitcode(status)


def lines_of(child: Child) -> list[str]:
    lines, status = child.collect()
    assert status == 0
    return lines


def assert_unharmed(root: Path) -> None:
    with Reader(root) as reader:
        findings = check(reader)
        assert findings.clean, findings
        for sha in reader.objects.names():
            reader.objects.get(sha)  # also what no row refers to must be whole: a half object would be met later
        for run in reader.runs():
            done = {task.key for task in reader.tasks(run.id, state="done")}
            rows = [row.task_key for row in reader.evaluations([run.id])]
            assert sorted(done) == sorted(rows)


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    dice = random.Random(7)
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec(number) for number in range(2000)])
    acknowledged: set[str] = set()
    for _ in range(KILLS):
        writer = Child(write, tmp_path, run.id)
        acknowledged.add(writer.output.readline().strip())  # it is at work now
        time.sleep(dice.uniform(0, 0.06))
        writer.kill()
        acknowledged.update(writer.collect()[0])
        assert_unharmed(tmp_path)
        with Store(tmp_path) as store:
            # The kill cost at most the task in hand, and a process that is gone holds nothing.
            assert len(store.reclaim_dead(run.id, max_attempts=KILLS + 1)) <= 1
            assert store.tasks(run.id, state="claimed") == []
    with Reader(tmp_path) as reader:
        rows = {row.task_key: row for row in reader.evaluations([run.id])}
        assert len(acknowledged) > KILLS
        for key in acknowledged:
            number = reader.task(run.id, key).sample
            assert reader.document(rows[key].document_sha) == document(number, bytes_of_noise=NOISE).fields
            sha = rows[key].candidate_sha
            assert sha is not None
            assert reader.objects.get(sha) == source(number).source
        # Work went on where it stopped: no task was skipped and none was done twice.
        assert sorted(row.sample for row in rows.values()) == list(range(len(rows)))
        assert len(rows) - len(acknowledged) <= KILLS


def test_killed_halfway_through_an_object(tmp_path: Path) -> None:
    """The kernel kills the writer in the middle of the file: at the byte where its file size limit is."""

    def put_too_much() -> None:
        store = Store(tmp_path)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and would see an error instead
        store.objects.put(source(3).source)

    _, status = Child(put_too_much).collect()
    assert status == -signal.SIGXFSZ
    with Store(tmp_path) as store:
        (half,) = store.objects.stale(older_than_s=0)
        assert half.stat().st_size == 10_000
        assert list(store.objects.names()) == []  # nobody can take the half for the whole
        sha = store.objects.put(source(3).source)
        assert store.objects.get(sha) == source(3).source
        os.utime(half, (0, 0))
        store.collect_garbage()
        assert not half.exists()


def test_kill_9_while_a_store_is_made(tmp_path: Path) -> None:
    dice = random.Random(11)
    for number in range(STARTS):
        root = tmp_path / str(number)
        writer = Child(create, root, 1000)
        deadline = time.monotonic() + 20
        while not root.exists() and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(dice.uniform(0, 0.02))
        writer.kill()
        acknowledged, _ = writer.collect()
        with Store(root) as store:
            known = {run.id for run in store.runs()}
            assert set(acknowledged) <= known
            store.create_run("sweep", tasks=[spec(0)])
        assert_unharmed(root)


def test_many_processes_open_a_new_store_at_once(tmp_path: Path) -> None:
    for number in range(6):
        root = tmp_path / str(number)
        writers = [Child(create, root, 1) for _ in range(8)]
        ids = [line for writer in writers for line in lines_of(writer)]
        with Reader(root) as reader:
            assert sorted(run.id for run in reader.runs()) == sorted(ids)
        assert len(ids) == 8


def test_two_writers_and_a_collector(tmp_path: Path) -> None:
    """Each verdict counts once though both offer it, and collecting garbage meanwhile takes nothing that is needed."""
    count = 60
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec(number) for number in range(count)])
    collector = Child(collect, tmp_path)
    writers = [Child(offer, tmp_path, run.id, count) for _ in range(2)]
    taken = [lines_of(writer) for writer in writers]
    os.kill(collector.pid, signal.SIGTERM)
    removed = sum(map(int, lines_of(collector)))
    assert sorted(taken[0] + taken[1]) == sorted(map(str, range(count)))
    assert all(taken)  # both got some: they did run at the same time
    # Each offers 10 objects that nothing refers to, so that there is something to collect all along.
    assert removed > 0
    assert_unharmed(tmp_path)


def test_processes_never_share_a_task(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec(number) for number in range(120)])
    claimed = [lines_of(worker) for worker in [Child(claim_all, tmp_path, run.id) for _ in range(3)]]
    counts = Counter(key for keys in claimed for key in keys)
    assert set(counts.values()) == {1}
    assert set(counts) == {spec(number).key for number in range(120)}


def test_threads_never_share_a_task(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec(number) for number in range(80)])
        claimed: list[str] = []

        def work() -> None:
            while task := store.claim(run.id, Worker.here()):
                claimed.append(task.key)

        threads = [Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert sorted(claimed) == sorted(spec(number).key for number in range(80))


def test_a_forked_child_writes_through_its_own_connection(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec(0), spec(1)])
        ours = store.connection
        child = os.fork()
        if child == 0:
            own = store.connection is not ours
            os._exit(0 if own and store.record_evaluation(run.id, spec(0).key, document(0)) else 1)
        assert store.record_evaluation(run.id, spec(1).key, document(1))
        assert os.waitpid(child, 0)[1] == 0
        assert {row.sample for row in store.evaluations([run.id])} == {0, 1}
    assert_unharmed(tmp_path)


def test_a_dead_workers_task_goes_to_another(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec(0), spec(1)])
        other = Child(hold, tmp_path, run.id)
        held = other.output.readline().strip()
        try:
            assert store.reclaim_dead(run.id) == []  # it lives: nobody may take its work
            assert store.summary(run).shown_state == "open"
        finally:
            other.kill()
        # Not collected yet: a zombie does no work any more.
        deadline = time.monotonic() + 10
        while not (reclaimed := store.reclaim_dead(run.id)) and time.monotonic() < deadline:
            time.sleep(0.01)
        other.collect()
        assert [task.key for task in reclaimed] == [held] == [spec(0).key]
        mine = store.claim(run.id, Worker.here())
        assert mine is not None
        assert (mine.key, mine.attempts) == (held, 2)


def write(root: Path, run_id: str) -> None:
    store, worker = Store(root), Worker.here()
    while task := store.claim(run_id, worker):
        verdict = document(task.sample, bytes_of_noise=NOISE)
        assert store.record_evaluation(run_id, task.key, verdict, candidate=source(task.sample))
        print(task.key, flush=True)


def create(root: Path, count: int) -> None:
    store = Store(root)
    for _ in range(count):
        print(store.create_run("sweep").id, flush=True)


def offer(root: Path, run_id: str, count: int) -> None:
    store = Store(root)
    (root / f"ready-{os.getpid()}").touch()
    deadline = time.monotonic() + 20
    while (
        len(list(root.glob("ready-*"))) < 2 and time.monotonic() < deadline
    ):  # else one may be done before the other starts
        time.sleep(0.001)
    order = list(range(count))
    random.Random(os.getpid()).shuffle(order)
    for number in order:
        if number % 6 == 0:
            store.objects.put(os.urandom(100))
        if store.record_evaluation(run_id, spec(number).key, document(number), candidate=source(number)):
            print(number, flush=True)


def collect(root: Path) -> None:
    store = Store(root)
    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(1))
    deadline = time.monotonic() + 60
    while not over and time.monotonic() < deadline:
        print(store.collect_garbage(), flush=True)
        time.sleep(0.003)


def claim_all(root: Path, run_id: str) -> None:
    store = Store(root)
    while task := store.claim(run_id, Worker.here()):
        print(task.key, flush=True)


def hold(root: Path, run_id: str) -> None:
    task = Store(root).claim(run_id, Worker.here())
    assert task is not None
    print(task.key, flush=True)
    time.sleep(60)
