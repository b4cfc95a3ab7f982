"""What a sweep says while it works, and what it builds ahead."""

import re
import threading
from collections import Counter
from pathlib import Path

import pytest

import pkb.platforms.cpu
from pkb.cli import run_progress
from pkb.cli.run_progress import PlainLines, duration_words, watch
from pkb.cluster.sweep import PHASE_WORDS, _lacking, needs_build
from pkb.store import Store, Task, TaskSpec
from pkb.types.case import Case

CUDA = b"from pkb import kit\nm = kit.compile('__global__ void f() {}', name='f')\ndef solution(x):\n    return x\n"
CPP = b"from pkb import kit\nm = kit.build_cpp('int f() { return 1; }', name='f')\ndef solution(x):\n    return x\n"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    spec = TaskSpec(collection="mine", case=Case("13_gemm_allreduce", platform="cpu"), backend="cuda")
    with Store(tmp_path) as store:
        run = store.create_run("sweep", tasks=[spec])
        return store.task(run.id, spec.key)


def test_the_words_of_a_sweep_are_those_that_are_shown() -> None:
    assert set(PHASE_WORDS.values()) == run_progress.PHASES


def test_phases_verdicts_and_the_time_left(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(total=3, done=1)
    lines.stage(task, "building")
    lines.stage(task, "judging")
    lines.stage(task, "correctness")  # the judge's own stages are not worth a line
    lines.judged(task, "no_answer", "the answer holds no code")
    lines.failed(task, "the provider is gone", again=True)
    lines.failed(task, "the provider is gone", again=False)
    said = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said[:2] == ["13_gemm_allreduce cuda: building", "13_gemm_allreduce cuda: judging"]
    assert re.fullmatch(r"2/3, about \d+ s left: 13_gemm_allreduce cuda: no answer: the answer holds no code", said[2])
    assert said[3] == "13_gemm_allreduce cuda: no verdict, trying again: the provider is gone"
    assert len(said) == 5
    assert lines.done == 3


def test_silence_is_broken(task: Task, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress, "BEAT_S", 0.0)
    lines = PlainLines(total=2, done=0)
    lines.stage(task, "building")
    lines.stage(task, "nvcc")
    lines.beat()
    assert capsys.readouterr().err.splitlines()[-1].endswith("0/2  13_gemm_allreduce cuda: nvcc")
    monkeypatch.setattr(run_progress, "BEAT_S", 3600.0)
    lines.beat()
    assert capsys.readouterr().err == ""


def test_nothing_goes_on_after_the_sweep() -> None:
    before = threading.active_count()
    with watch(total=1, done=0, counts=Counter()):
        assert threading.active_count() == before + 1
    for thread in threading.enumerate():
        if thread.name.endswith("(beat)"):
            thread.join(5)
    assert threading.active_count() == before


@pytest.mark.parametrize(("seconds", "words"), [(3, "3 s"), (100, "100 s"), (600, "10 min"), (8000, "2 h")])
def test_durations(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


@pytest.mark.parametrize("compiler", [Path("/usr/bin/g++"), "install one"])
def test_what_a_platform_cannot_run_is_not_built_ahead(compiler: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    _lacking.cache_clear()
    monkeypatch.setattr(pkb.platforms.cpu, "find_gxx", lambda: compiler)
    assert needs_build(CUDA, platform="virtual")
    assert needs_build(CUDA, platform="node")
    assert needs_build(CUDA, platform="cpu") == isinstance(compiler, Path), "by g++, where there is one"
    assert not needs_build(b"import cupy\ncupy.RawKernel('', 'k')\n" + CUDA, platform="cpu")
    assert needs_build(CPP, platform="cpu")
    assert not needs_build(b"def solution(x):\n    return x\n", platform="virtual")
    assert not needs_build(b"not Python (", platform="cpu")
    _lacking.cache_clear()
