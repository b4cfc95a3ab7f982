"""Every file of this folder through the judge: cheats, faults and mistakes get the verdict they name, honest candidates stay correct.

A file is a candidate. Its docstring says what it tries and what stops it; the comment block below says what must come
out: problem, ranks, size, dtype, plan, call_limit_s, memory_limit_gib, expect, stage, rule (race kind, or failure kind or name),
communication, sockets (that somebody listens on meanwhile), pattern (of the mismatch), unlike (a pattern that it must not be called), says (words of the verdict), checks (words of what was checked), timed, gain (`none`: rejected, or at least not called faster), platform,
also (`gpu`: the same must come out on a GPU), slow, beyond (where else it is judged by benchmarks/error_rates.py, and right), and
xfail (why the judge does not yet say so: strict, so that a repaired judge is noticed, unless it begins with `sometimes:`).
"""

import contextlib
import dataclasses
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pkb.judge.session import evaluate
from pkb.judge.stages import races
from pkb.judge.timing.statistics import Claim, check_clock
from pkb.types.errors import UserError
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import PLANS, Plan
from pkb.types.verdict import Evaluation, Verdict

HERE = Path(__file__).parent
FOLDERS = ("cheats", "faults", "mistakes", "honest", "labelled", "gpu")
FIELD = re.compile(r"^# (\w+): (.+)$", re.MULTILINE)
QUICK = PLANS["quick"]
PLANS_HERE: dict[str, Plan] = {
    "quick": QUICK,
    "standard": dataclasses.replace(PLANS["standard"], timing_rounds=0),
    "races": dataclasses.replace(QUICK, odd_trials=0, race_traces=3),
    "timing": dataclasses.replace(
        QUICK, odd_trials=0, race_calls=0, timing_rounds=5, calls_per_round=12, warmup_calls=4, verify_share=0.25
    ),
    "races_and_timing": dataclasses.replace(
        QUICK, odd_trials=0, timing_rounds=2, calls_per_round=6, warmup_calls=2, verify_share=0.25
    ),
}


def fields(path: Path) -> dict[str, str]:
    """The comment block behind the docstring."""
    _, _, rest = path.read_text(encoding="utf-8").partition('"""\n')
    block = rest.split("\n\n", 1)[0]
    return dict(FIELD.findall(block))


def parameters() -> Iterator[object]:
    for folder in FOLDERS:
        for path in sorted((HERE / folder).glob("*.py")):
            said = fields(path)
            marks = []
            if said["platform"] != "cpu":
                marks.append(pytest.mark.gpu)
            if "slow" in said or folder == "labelled":  # those count in docs/error-rates.md
                marks.append(pytest.mark.slow)
            if "xfail" in said:
                strict = not said["xfail"].startswith("sometimes:")
                marks.append(pytest.mark.xfail(strict=strict, reason=said["xfail"]))
            yield pytest.param(path, said["platform"], marks=marks, id=f"{folder}/{path.stem}")
            if "also" in said:
                yield pytest.param(path, said["also"], marks=pytest.mark.gpu, id=f"{folder}/{path.stem}/gpu")


def judge(path: Path, said: dict[str, str]) -> Evaluation:
    memory = float(said["memory_limit_gib"]) if "memory_limit_gib" in said else None
    return evaluate(
        Job(
            path,
            Case(
                problem=said["problem"],
                platform="cpu" if said["platform"] == "cpu" else os.environ.get("PKB_TEST_PLATFORM", "virtual"),
                ranks=int(said["ranks"]),
                size=said.get("size", "tiny"),
                dtype=said.get("dtype", "bf16"),
                plan=said["plan"],
            ),
            custom_plan=PLANS_HERE[said["plan"]],
            call_limit_s=float(said.get("call_limit_s", 20)),
            memory_limit_bytes=None if memory is None else int(memory * 2**30),
        )
    )


@contextlib.contextmanager
def listening(paths: list[str]) -> Iterator[None]:
    """Another program of the user's, that answers on these sockets."""
    with contextlib.ExitStack() as stack:
        for path in map(Path, paths):
            path.parent.mkdir(exist_ok=True)
            if path.parent != Path("/tmp"):
                stack.callback(path.parent.rmdir)
            path.unlink(missing_ok=True)
            service = stack.enter_context(socket.socket(socket.AF_UNIX))
            service.bind(str(path))
            stack.callback(path.unlink)
            service.listen()
        yield


@contextlib.contextmanager
def nothing_left_behind(folder: Path) -> Iterator[None]:
    """No process, shared memory or folder of an evaluation outlives it, however it ends.

    The judge makes its folders in `folder`, of which the test before and after knows the contents, and by which its processes can
    be told from those of other evaluations on this machine.
    """
    before, shared = tempfile.tempdir, set(os.listdir("/dev/shm"))
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
    give_up = time.monotonic() + 5
    while (ours := _processes_of(folder)) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert not ours, f"processes left behind: {ours}"
    assert not list(folder.iterdir()), "folders left behind"
    ours_in_shm = {name for name in set(os.listdir("/dev/shm")) - shared if not name.startswith(("torch_", "sem."))}
    assert not ours_in_shm, f"shared memory left behind: {ours_in_shm}"


def _processes_of(folder: Path) -> list[str]:
    """Whatever a rank forks keeps the environment of its warden; children that nobody has reaped count as well."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            zombie = process.ppid() == os.getpid() and process.status() == psutil.STATUS_ZOMBIE
            if zombie or any(str(folder) in value for value in process.environ().values()):
                found.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:80]}")
    return found


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("path", "platform"), list(parameters()))
def test_verdict(path: Path, platform: str, tmp_path: Path) -> None:
    """A verdict that depends on times is asked for once more if it is not the expected one: other tests share the cores."""
    said = fields(path) | {"platform": platform}
    if "timing" in said["plan"]:
        try:
            check_verdict(path, said, tmp_path)
        except AssertionError:
            check_verdict(path, said, tmp_path)
    else:
        check_verdict(path, said, tmp_path)


def on_a_gpu_too() -> list[Path]:
    """Races of kernels that must come out on a GPU as well."""
    files = [path for folder in FOLDERS for path in sorted((HERE / folder).glob("*_cuda.py"))]
    return [path for path in files if {"also", "expect"} <= (said := fields(path)).keys() and "race" in said["expect"]]


@pytest.mark.slow
@pytest.mark.parametrize("path", on_a_gpu_too(), ids=lambda path: path.stem)
def test_a_race_that_a_gpu_must_show_is_provoked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There no call is recorded and no thread is held: what only a proof shows would be asked of it in vain."""
    monkeypatch.setattr(races, "SCENARIOS", tuple(scenario for scenario in races.SCENARIOS if not scenario.held))
    monkeypatch.setitem(PLANS_HERE, "quick", dataclasses.replace(QUICK, race_traces=0))
    said = fields(path)
    evaluation = judge(path, said)
    assert (evaluation.verdict, evaluation.stage) == (said["expect"], said["stage"]), evaluation.detail


def check_verdict(path: Path, said: dict[str, str], folder: Path) -> None:
    with nothing_left_behind(folder), listening(said.get("sockets", "").split()):
        evaluation = judge(path, said)
    told = f"{evaluation.verdict} in {evaluation.stage}: {evaluation.detail}"
    assert evaluation.verdict.value in said["expect"].split("|"), told
    if "stage" in said:
        assert evaluation.stage.value == said["stage"], told
    if said.get("gain") == "none" and evaluation.verdict is Verdict.CORRECT:
        # A lie smaller than this machine's noise cannot be refuted; then it must not be paid for either.
        assert evaluation.timing is not None
        assert evaluation.timing.decision != "faster", (
            f"{evaluation.timing.speedup:.1f}: {evaluation.timing.clock_agreement}"
        )
        return
    if "rule" in said:
        failure = evaluation.failure
        kinds = {evaluation.race_kind} | ({failure.kind, failure.name} if failure else set())
        assert said["rule"] in kinds, f"{told} ({kinds})"
    if "communication" in said:
        assert evaluation.communication.value in said["communication"].split("|"), evaluation.communication
    if "pattern" in said:
        assert evaluation.mismatch is not None, told
        assert said["pattern"] in evaluation.mismatch.patterns, evaluation.mismatch.patterns
    if "unlike" in said:
        assert evaluation.mismatch is not None, told
        assert said["unlike"] not in evaluation.mismatch.patterns, evaluation.mismatch.patterns
    if "says" in said:
        case = evaluation.mismatch.case if evaluation.mismatch else ""
        words = "\n".join([evaluation.detail, case, *evaluation.hints])
        assert all(part in words for part in said["says"].split(" ... ")), told
    if "checks" in said:
        assert said["checks"] in "\n".join(evaluation.checks), evaluation.checks
    if "timed" in said:
        assert evaluation.timing is not None, told
    assert path.is_file(), "the judge's cleaning reached the candidate's folder"
    _check_evidence(evaluation)


def _check_evidence(evaluation: Evaluation) -> None:
    """Whatever the candidate did, the document can be written and says who failed and how."""
    assert len(evaluation.to_json()) < 4 << 20
    assert "forged" not in str(evaluation.isolation), (
        "what a rank says after the candidate was loaded is no report of walls"
    )
    if (
        evaluation.verdict in (Verdict.CRASH, Verdict.RUNTIME_ERROR, Verdict.LOAD_ERROR)
        and evaluation.stage != "inspect"
    ):
        assert evaluation.failure is not None
    if evaluation.verdict is Verdict.DEADLOCK:
        elsewhere = re.search(r"size \w+, (\d+) ranks", evaluation.detail)  # with another number of ranks than was asked for
        ranks = int(elsewhere[1]) if elsewhere else evaluation.ranks
        assert {state.rank for state in evaluation.rank_states} == set(range(ranks))
        assert any(state.state != "finished" for state in evaluation.rank_states)


@pytest.mark.parametrize(
    "data", [b"", b"\n \n", "def solution(t): return 'ä'".encode("latin-1")], ids=["empty", "blank", "latin1"]
)
def test_what_is_no_text_is_wrong_usage(tmp_path: Path, data: bytes) -> None:
    """These files cannot carry expectations of their own."""
    path = tmp_path / "candidate.py"
    path.write_bytes(data)
    with pytest.raises(UserError):
        evaluate(Job(path, Case("1", "cpu", 2, "tiny", "bf16", "quick"), custom_plan=QUICK))


def test_nul_bytes_do_not_compile(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_bytes(b"def solution(t):\n    return t\0\n")
    evaluation = evaluate(Job(path, Case("1", "cpu", 2, "tiny", "bf16", "quick"), custom_plan=QUICK))
    assert evaluation.verdict is Verdict.COMPILE_ERROR


@pytest.mark.parametrize("claimed_us", [40.0, 4.0])
def test_a_real_gain_does_not_hide_a_larger_claim(claimed_us: float) -> None:
    """T5: a kernel truly 2.5 times faster than the reference claims ten or a hundred times that."""
    reference = Claim(device_us=1000.0, host_us=1000.0, wall_us=[1000.0] * 8)
    candidate = Claim(device_us=claimed_us, host_us=claimed_us, wall_us=[400.0] * 8)
    assert check_clock(reference, candidate, [0.0] * 24).contradicts


def test_the_suite_is_large_enough_and_every_file_is_described() -> None:
    files = [path for folder in FOLDERS for path in (HERE / folder).glob("*.py")]
    honest = [path for path in files if path.parent.name == "honest"]
    assert len(files) - len(honest) >= 50
    assert len(honest) >= 12
    for path in files:
        said = fields(path)
        assert {"problem", "ranks", "plan", "expect", "platform"} <= set(said), path
        assert set(said["expect"].split("|")) <= {verdict.value for verdict in Verdict}, path
        assert "harness_error" not in said["expect"], f"{path}: a candidate must never be able to cause it"
