"""A forked warden is what an executed one is, and the process that it was forked from knows nothing of anybody's evaluation."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from leftovers import processes_of, until

from pkb.judge.crew import warm
from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewSpec
from pkb.judge.crew.limits import Limits
from pkb.judge.session import evaluate
from pkb.platforms.cpu import CpuPlatform
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.protocol.commands import Drop, Load, Open
from pkb.types.protocol.settings import CandidateOptions
from pkb.types.verdict import Verdict

HONEST = Path(__file__).parents[2] / "src/pkb/cli/demo_candidates/1_allreduce_symmetric.py"
START_S = 180.0
WHAT_I_AM = """
    import gc, json, locale, os, random, resource, signal, sys, tempfile, warnings
    import numpy, torch
    def descriptor(number):
        try: return os.readlink(f"/proc/self/fd/{number}").split(":[")[0].replace(folder, "FOLDER")
        except OSError: return "that of the listing"
    def status(name): return open(f"/proc/self/{name}").read()
    folder = os.getcwd()
    lines = [line for line in status("status").splitlines()
             if line.startswith(("Umask", "Threads", "Sig", "Cap", "Seccomp", "NoNewPrivs", "Cpus_allowed", "Groups"))
             and not line.startswith(("SigQ", "SigPnd"))]
    shown = open("/proc/self/environ").read().rstrip("\\0").split("\\0")
    same = {
        "environment": dict(os.environ), "shown": sorted(shown), "folder": folder, "path": sys.path, "status": lines,
        "descriptors": sorted(descriptor(name) for name in os.listdir("/proc/self/fd")),
        "standard": [descriptor(number) for number in (0, 1, 2)],
        "limits": [resource.getrlimit(number) for number in range(16)], "cores": sorted(os.sched_getaffinity(0)),
        "handlers": [str(signal.getsignal(number)).split(" at ")[0] for number in range(1, 32)],
        "temporary": tempfile.gettempdir(), "arguments": sys.argv, "threads": torch.get_num_threads(), "nice": os.nice(0),
        "session": [os.getsid(0), os.getpgrp(), os.getppid()], "group": status("cgroup"), "score": status("oom_score_adj"),
        "warnings": [str(entry) for entry in warnings.filters], "flags": str(sys.flags), "locale": locale.getlocale(),
        "collector": [gc.isenabled(), gc.get_threshold()], "cuda": torch.cuda.is_initialized(),
        "streams": [sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.errors],
        "namespaces": sorted(os.listdir("/proc/self/ns")), "mounts": sorted(line.split()[1] for line in open("/proc/mounts")),
        "modules": sorted(name for name in sys.modules if name.startswith(("torch", "pkb", "triton"))),
    }
    own = {"drawn": [random.random(), float(numpy.random.rand()), float(torch.rand(1))]}
    if os.environ["RANK"] == "0":
        print("IT IS" + json.dumps([same, own]).replace(folder, "FOLDER") + "SO", flush=True)
"""


def crew_of(tmp_path: Path) -> Crew:
    options = CandidateOptions(
        readable=(str(tmp_path / "candidate.py"),), writable=(), max_file_bytes=1 << 30, collective_timeout_s=60
    )
    return Crew(CrewSpec(options, 2), CpuPlatform(), Limits(memory_bytes=64 << 30))


def load(crew: Crew, tmp_path: Path, source: str = "") -> None:
    path = tmp_path / "candidate.py"
    path.write_text(textwrap.dedent(source) + "\ndef solution(): pass\n")
    crew.launch()
    crew.await_ready(timeout_s=START_S)
    crew.ask(Open.of("world", {}), timeout_s=START_S)
    crew.ask(Load(str(path)), timeout_s=START_S)


@pytest.fixture(autouse=True)
def _count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests kill is not the machine's fault."""
    monkeypatch.setattr(warm, "_lost", Counter())


def template_of(role: str = "candidate") -> psutil.Process:
    kind = warm._kind(role, warm.import_environment(CpuPlatform()))
    return psutil.Process(warm._templates[kind].pid)


def what_it_is(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path, WHAT_I_AM)
        said = re.search("IT IS(.*)SO", crew.output_tail(60_000))
        assert said is not None, crew.output_tail()
        isolation = crew.isolation
    same, own = json.loads(said[1])
    return same | {"isolation": isolation}, own


def test_a_forked_side_is_what_an_executed_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment (also as the kernel shows it), descriptors, limits, signals, rights, walls, folders, loaded modules."""
    for _ in range(3):  # the places of other programs' sockets are covered, and these come and go
        with monkeypatch.context() as patch:
            patch.setattr(warm, "_fork_warden", lambda start: None)
            expected, _ = what_it_is(tmp_path)
        forked, first = what_it_is(tmp_path)
        if forked["mounts"] == expected["mounts"]:
            break
    _, second = what_it_is(tmp_path)
    assert "pkb.rank.template" in template_of().cmdline()
    expected["modules"] = sorted([*expected["modules"], "pkb.rank.warden"])  # there it is __main__
    for name, value in expected.items():
        assert forked[name] == value, name
    for one, other in zip(first["drawn"], second["drawn"], strict=True):
        assert one != other, "what is drawn does not repeat from side to side"


def holds(process: psutil.Process, words: list[bytes]) -> list[bytes]:
    """Those of these words that are somewhere in what this process may write to."""
    found = set()
    with open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            ends, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(number, 16) for number in ends.split("-"))
                memory.seek(start)
                data = memory.read(end - start)
                found |= {word for word in words if word in data}
    return sorted(found)


def test_a_template_holds_nothing_of_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    token_hex = secrets.token_hex

    def noted(size: int | None = None) -> str:
        drawn.append(token_hex(size))
        return drawn[-1]

    monkeypatch.setattr(secrets, "token_hex", noted)
    candidate = tmp_path / "1_allreduce_marked.py"
    candidate.write_text(HONEST.read_text() + "\nMARK = 'text of this candidate alone'\n")
    evaluation = evaluate(Job(candidate, Case("1", "cpu", 2, "tiny", "bf16", "quick")))
    assert evaluation.verdict is Verdict.CORRECT, evaluation.detail
    assert drawn
    told = [
        "text of this candidate alone",
        candidate.name,
        f"pkb-oracle-{os.getpid()}-",
        f"pkb-candidate-{os.getpid()}-",
    ]
    words = [word.encode() for word in (*drawn, *told)]
    known = b"which a fork of it would lack"
    for role in ("oracle", "candidate"):
        assert holds(template_of(role), [*words, known]) == [known], role


def test_a_template_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path)
        template = template_of()
        template.kill()
        assert until(lambda: not processes_of(os.getpid()), within_s=10), (
            "they die with it, as they would with their judge"
        )
        with pytest.raises(CrewFailure) as caught:
            crew.ask(Drop(), timeout_s=60)
        assert caught.value.kind == "gone"
    assert crew.survivors() == []
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path)
        assert template_of() != template
        assert crew.ask(Drop(), timeout_s=60)
    assert until(lambda: not template.is_running(), within_s=5)


def test_one_that_dies_while_it_is_asked_costs_nothing(tmp_path: Path) -> None:
    """Stopped, so that the request is on its way to it, and then killed."""
    warm.import_ahead(CpuPlatform(), ["candidate"])
    template = template_of()
    template.suspend()
    killer = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.5); os.kill({template.pid}, 9)"])
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path)
        assert killer.wait() == 0
    assert template_of() != template


def test_where_templates_do_not_live_wardens_are_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_templates", {})
    monkeypatch.setattr(warm, "LAST", {"PKB_ROOM": "", "PYTHONHOME": "/nonexistent"})  # no Python starts there
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path)
        assert psutil.Process(crew.warden_pid).ppid() == os.getpid()
    assert [*warm._lost.values()] == [2], "tried once more"
    warm.import_ahead(CpuPlatform(), ["candidate"])
    (third,) = warm._templates.values()
    assert until(third.has_ended, within_s=10)
    warm.import_ahead(CpuPlatform(), ["candidate"])
    assert [*warm._lost.values()] == [3]
    assert not warm._templates, "and given up"


def test_a_warden_dies_with_a_judge_whose_child_it_is_not(tmp_path: Path) -> None:
    """As the judges of a service, which fork theirs from the server's template."""
    warm.import_ahead(CpuPlatform(), ["candidate"])
    ready, told = os.pipe()
    judge = os.fork()
    if judge == 0:
        with contextlib.suppress(BaseException):
            load(crew_of(tmp_path), tmp_path)
            os.write(told, b".")
            signal.pause()
        os._exit(1)
    os.close(told)
    try:
        assert os.read(ready, 1) == b"."
        assert len(processes_of(judge)) == 5, "warden, middle, init and two ranks"
    finally:
        os.kill(judge, signal.SIGKILL)
        os.waitpid(judge, 0)
        os.close(ready)
    assert until(lambda: not processes_of(judge), within_s=10), processes_of(judge)
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path)
        assert psutil.Process(crew.warden_pid).ppid() == template_of().pid


def test_what_may_differ_from_side_to_side_is_not_read_while_torch_is_imported() -> None:
    code = """
        import os, sys
        read = set()
        environ = type(os.environ)
        plain = environ.__getitem__
        def noted(self, name):
            asks = sys._getframe(1)
            while asks and "sysconfig" not in asks.f_code.co_filename:
                asks = asks.f_back
            if not asks:  # sysconfig notes where a user's own libraries would be; nothing of ours asks it for them
                read.add(name)
            return plain(self, name)
        environ.__getitem__ = noted
        from pkb.rank import warden
        warden.preload("candidate")
        warden.preload("oracle")
        print(*read)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    read = set(done.stdout.split())
    assert "TORCH_LOGS" in read
    assert not read & warm.AT_WILL


@pytest.mark.parametrize(("name", "value"), [("LD_PRELOAD", "/lib/other.so"), ("OMP_NUM_THREADS", "2")])
def test_a_side_with_another_import_environment_is_executed(tmp_path: Path, name: str, value: str) -> None:
    with crew_of(tmp_path) as crew:
        environment = crew._environment() | {name: value}
        assert warm._fork_warden(warm.Start("candidate", CpuPlatform(), environment, tmp_path, 0, 1, ())) is None


def test_of_many_kinds_those_in_use_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with crew_of(tmp_path) as crew:
        load(crew, tmp_path)
        used = template_of()
        idle = []
        for number in range(3):
            monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/nowhere/{number}")
            warm.import_ahead(CpuPlatform(), ["candidate"])
            idle.append(template_of())
        assert crew.ask(Drop(), timeout_s=60)
    assert used.is_running()
    assert [template.is_running() for template in idle] == [False, True, True]
    for kind in [kind for kind in warm._templates if "/nowhere/" in dict(kind.environment)["PATH"]]:
        warm._templates.pop(kind).close()
