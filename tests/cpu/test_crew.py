"""A crew of ranks, well behaved and not: the failure says which ranks and how, and nothing is ever left behind.

Starting a crew takes seconds, so ranks of one crew misbehave in different ways at the same time where that can be told apart.
"""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from leftovers import descriptors, processes_of, shared_memory, until

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewSpec
from pkb.judge.crew.limits import Limits
from pkb.judge.crew.warm import import_ahead
from pkb.platforms.cpu import CpuPlatform
from pkb.types.protocol.commands import Drop, Load, Open
from pkb.types.protocol.replies import Done
from pkb.types.protocol.settings import CandidateOptions

GIB = 1 << 30
HEAD = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
START_S = 180.0


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test: no process, no folder, no shared memory, no descriptor more than before."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    import_ahead(CpuPlatform(), ["candidate"])  # stays, and so does what it is asked through
    shm, fds = shared_memory(), descriptors()
    yield
    assert until(lambda: not processes_of(os.getpid()), within_s=5), processes_of(os.getpid())
    assert list(folder.glob("pkb-*")) == []
    assert shared_memory() <= shm
    assert descriptors() == fds


def crew_of(size: int, tmp_path: Path, *, memory_bytes: int = 64 * GIB, processes: int = 1500) -> Crew:
    options = CandidateOptions(
        readable=(str(tmp_path / "candidate.py"),), writable=(), max_file_bytes=GIB, collective_timeout_s=60
    )
    limits = Limits(memory_bytes=memory_bytes, processes=processes)
    return Crew(CrewSpec(options, size), CpuPlatform(), limits)


def load(crew: Crew, tmp_path: Path, source: str, *, timeout_s: float = 120) -> dict[int, Done]:
    """Start the crew and import this text on every rank: what a candidate does there it could do anywhere."""
    path = tmp_path / "candidate.py"
    path.write_text(HEAD + textwrap.dedent(source) + "\ndef solution(): pass\n")
    crew.launch()
    crew.await_ready(timeout_s=START_S)
    crew.ask(Open.of("world", {}), timeout_s=START_S)
    return crew.ask(Load(str(path)), timeout_s=timeout_s)


def failure_of(tmp_path: Path, source: str, *, size: int = 2, timeout_s: float = 120, **limits: int) -> CrewFailure:
    with crew_of(size, tmp_path, **limits) as crew:
        with pytest.raises(CrewFailure) as caught:
            load(crew, tmp_path, source, timeout_s=timeout_s)
        assert len(crew.survivors()) <= size
    assert crew.survivors() == []
    assert caught.value.role == "candidate"
    return caught.value


def test_whoever_may_compile_is_waited_for_while_a_compiler_runs(tmp_path: Path) -> None:
    with crew_of(2, tmp_path) as crew:
        load(crew, tmp_path, "")
        path = tmp_path / "candidate.py"

        def answers(source: str) -> dict[int, Done]:
            path.write_text(f"{HEAD}import subprocess\n{source}\ndef solution(): pass\n")
            crew.tell_all(Load(str(path)))
            return crew.hear(
                Load(str(path)), timeout_s=86_400, quiet_s=2
            )  # a wait for that long is ended by the test's limit

        assert sorted(answers("if rank == 0: subprocess.run(['sleep', '5'], check=True)")) == [0, 1]
        with pytest.raises(CrewFailure, match=r"no answer within [3-9] s") as caught:  # of which two without a helper
            answers("if rank == 0: subprocess.run(['sleep', '1.5']); time.sleep(600)")
        assert (caught.value.kind, caught.value.ranks) == ("timeout", [0])


def test_ranks_answer_print_and_end(tmp_path: Path) -> None:
    crew = crew_of(2, tmp_path)
    answers = load(crew, tmp_path, "print(f'hello from {rank}\\n', end='', flush=True)")
    assert sorted(answers) == [0, 1]
    assert crew.ask(Drop(), timeout_s=60) == {0: Done(), 1: Done()}
    assert len(crew.survivors()) == 2, "both ranks live, known by the ids that the kernel gave"
    # Known by the kernel's id from outside the namespace, a rank can be found, and killed by somebody else.
    os.kill(crew._pids[0], signal.SIGKILL)
    with pytest.raises(CrewFailure) as caught:
        crew.ask(Drop(), timeout_s=60)
    assert (caught.value.kind, caught.value.ranks) == ("gone", [0])
    crew.kill()
    crew.kill()  # safe to call twice
    assert "hello from 0" in crew.output_tail()
    assert "hello from 1" in crew.output_tail()


def test_an_exception_names_its_rank_and_line(tmp_path: Path) -> None:
    """The first one is the cause; SystemExit is an answer like any other; rank 0 has done nothing wrong."""
    source = """
        if rank == 0: time.sleep(60)
        if rank == 1: raise ValueError('no such luck')
        if rank == 2:
            time.sleep(0.5)
            sys.exit(0)
    """
    failure = failure_of(tmp_path, source, size=3)
    assert (failure.kind, failure.ranks, failure.rank) == ("error", [1, 2], 1)
    assert failure.error is not None
    assert failure.error.type == "ValueError"
    assert "no such luck" in failure.detail
    assert "candidate.py" in failure.trace
    assert [(state.rank, state.state) for state in failure.states] == [(0, "running")]


def test_a_rank_that_is_gone_is_told_with_its_end(tmp_path: Path) -> None:
    source = """
        if rank == 1: os._exit(77)
        if rank == 2: os.kill(os.getpid(), signal.SIGKILL)
        if rank == 3: import ctypes; ctypes.string_at(0)
        time.sleep(60)
    """
    failure = failure_of(tmp_path, source, size=4)
    assert failure.kind == "gone"
    assert sorted(failure.detail.split("; ")) == [
        "rank 1 left with status 77",
        "rank 2 was ended by SIGKILL",
        "rank 3 was ended by SIGSEGV",
    ]
    assert [state.rank for state in failure.states] == [0], "the state of the rank that still waits is there"


def test_a_real_time_signal_is_an_end_like_any_other(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "if rank == 0: os.kill(os.getpid(), 40)", size=1)
    assert (failure.kind, failure.ranks) == ("gone", [0])


def test_hanging_ranks_end_in_time_and_each_says_where(tmp_path: Path) -> None:
    """Rank 0 comes back; the others wait, spin, are deaf to every signal, are stopped, and print for ever."""
    source = """
        import torch, torch.distributed as dist, torch.distributed._symmetric_memory as symm_mem
        buffer = symm_mem.empty(8, dtype=torch.float32, device="cpu")
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        def spin():
            while True:
                time.sleep(0.001)
        if rank == 1: handle.barrier(channel=3)
        if rank == 2: spin()
        if rank == 3:
            for number in range(1, 65):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            time.sleep(600)
        if rank == 4: os.kill(os.getpid(), signal.SIGSTOP)
        while rank == 5: time.sleep(0.001 * os.write(2, b'x'))
    """
    start = time.monotonic()
    failure = failure_of(tmp_path, source, size=6, timeout_s=6)
    assert (failure.kind, failure.ranks) == ("timeout", [1, 2, 3, 4, 5])
    assert time.monotonic() - start < START_S
    finished, waiting, running = failure.states[:3]
    assert (finished.rank, finished.state) == (0, "finished")
    assert (waiting.rank, waiting.state) == (1, "waiting")
    assert "barrier(channel=3) waiting for rank" in waiting.where
    assert (running.rank, running.state) == (2, "running")
    assert "importing the candidate" in running.where
    assert any("in spin" in frame for frame in running.stack), running.stack
    assert not any("pkb/rank" in frame for frame in running.stack)


def test_a_flood_of_output_costs_no_memory(tmp_path: Path) -> None:
    source = """
        os.write(1, b'first words\\n')
        for _ in range(400): os.write(1, b'x' * 65536)
        os.write(1, b'\\nlast words\\n')
    """
    before = psutil.Process().memory_info().rss
    with crew_of(1, tmp_path) as crew:
        load(crew, tmp_path, source)
        assert crew.output_tail().rstrip().endswith("last words")
        assert len(crew.output_tail(10**9)) < 1 << 20
    assert psutil.Process().memory_info().rss - before < 20 << 20, "26 MB were printed"


def test_a_flood_without_end_is_ended(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, "while True: os.write(1, b'x' * 65536)", size=1)
    assert (failure.kind, failure.limit) == ("limit", "output")


FORKS = """
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
"""


def test_forked_and_daemonised_children_die_with_the_crew(tmp_path: Path) -> None:
    with crew_of(1, tmp_path) as crew:
        load(crew, tmp_path, FORKS)
        assert until(lambda: len(processes_of(os.getpid())) >= 1 + 5, within_s=5), "the grandchildren are there"
        family = processes_of(os.getpid())
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


def test_too_many_processes_are_stopped(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, FORKS + "time.sleep(60)", size=1, processes=6)
    assert (failure.kind, failure.limit) == ("limit", "process")


def test_too_much_memory_is_stopped(tmp_path: Path) -> None:
    hoard = "hoard = [bytearray(b'x' * (8 << 20)) for _ in range(100) if not time.sleep(0.02)]\ntime.sleep(60)"
    failure = failure_of(tmp_path, hoard, size=1, memory_bytes=700 << 20)
    assert (failure.kind, failure.limit) == ("limit", "memory")


def test_too_much_memory_is_stopped_in_a_side_that_prints_all_the_time(tmp_path: Path) -> None:
    source = """
        import threading
        def chatter():
            while True:
                print(".", flush=True)
                time.sleep(0.01)
        threading.Thread(target=chatter, daemon=True).start()
        hoard = [bytearray(b"x" * (8 << 20)) for _ in range(100) if not time.sleep(0.02)]
        time.sleep(60)
    """
    failure = failure_of(tmp_path, source, size=1, memory_bytes=700 << 20)
    assert (failure.kind, failure.limit) == ("limit", "memory")


CHANNEL = "import gc, pkb.types.channel as c\nchannel = next(o for o in gc.get_objects() if type(o) is c.Channel)\n"


def test_garbage_on_the_channel_is_the_ranks_own(tmp_path: Path) -> None:
    packets = """[None, b'Ihello', b'I[]', b'I' + b'[' * 30000, b'F', b'I{"is": "Ready"}', b'I{}']"""
    source = f"packet = {packets}[rank]\nif packet: channel.sock.send(packet)\ntime.sleep(60)"
    failure = failure_of(tmp_path, CHANNEL + source, size=7)
    assert failure.kind == "garbage"
    assert sorted(failure.ranks) == [1, 2, 3, 4, 5, 6]


def test_descriptors_sent_with_an_error_are_closed(tmp_path: Path) -> None:
    gift = "[os.memfd_create('gift') for _ in range(4)]"
    before = descriptors()
    imports = "from pkb.types.failure import Cause\nfrom pkb.types.protocol.replies import ErrorReport\n"
    report = "ErrorReport('Error', '', '', None, Cause.CANDIDATE, 0)"
    source = f"{imports}channel.send({report}, {gift})"
    failure = failure_of(tmp_path, CHANNEL + source, size=1)
    gifts = descriptors().keys() - before.keys()
    for name in gifts:
        os.close(int(name))
    assert failure.kind == "garbage", "an error comes without files"
    assert not gifts


SHRINK = """
for name in os.listdir('/proc/self/fd'):
    try:
        if 'pkb-status' in os.readlink('/proc/self/fd/' + name): os.ftruncate(int(name), 0)
    except OSError:
        pass
time.sleep(60)
"""


def test_a_rank_cannot_take_the_status_page_away(tmp_path: Path) -> None:
    """In a process of its own, since what dies of it is the judge."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nimport test_crew\n"
        "print(test_crew.failure_of(Path(sys.argv[2]), test_crew.SHRINK, size=1, timeout_s=2).kind)\n"
    )
    judge = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)],
        env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (judge.returncode, judge.stdout.strip()) == (0, "timeout"), judge.stderr[-2000:]


def test_ten_crews_leave_descriptors_threads_and_children_flat(tmp_path: Path) -> None:
    """Killed before the launch, in the middle of the start, and when all is ready."""
    me = psutil.Process()
    seen = []
    for number in range(10):
        with crew_of(1, tmp_path) as crew:
            if number:
                crew.launch()
            if number in (4, 9):
                crew.await_ready(timeout_s=START_S)
            else:
                time.sleep(0.2 * number)
        seen.append((len(descriptors()), me.num_threads(), len(me.children(recursive=True))))
    assert len(set(seen)) == 1, seen
