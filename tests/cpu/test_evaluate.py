"""The judge from end to end on CPU ranks: the examples, the references themselves, and everything a user can get wrong."""

import ast
import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pkb.judge.session import evaluate, evaluate_sizes
from pkb.problems.registry import get
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.plan import plan
from pkb.types.verdict import Communication, Evaluation, Stage, Verdict

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "src" / "pkb" / "cli" / "demo_candidates"
VALIDATOR = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "verdict.schema.json").read_text()))
TINY = Case("1", "cpu", 2, "tiny", "bf16", "quick")


def judge(
    candidate: Path, *, problem: str = "1", ranks: int = 4, plan_name: str = "quick", call_limit_s: float = 30.0
) -> Evaluation:
    job = Job(candidate, Case(problem, "cpu", ranks, "tiny", "bf16", plan_name), call_limit_s=call_limit_s)
    evaluation = evaluate(job)
    VALIDATOR.validate(json.loads(evaluation.to_json()))
    return evaluation


# -- the examples -----------------------------------------------------------------------------------------------------


def test_the_right_example_is_correct() -> None:
    result = judge(EXAMPLES / "1_allreduce_symmetric.py")
    assert (result.verdict, result.stage, result.communication) == (Verdict.CORRECT, Stage.DONE, Communication.CUSTOM)
    assert result.failing_ranks == ()
    assert result.timing is None
    assert result.isolation["files"].startswith("on"), "the candidate ran behind walls"
    assert any("odd" in check for check in result.checks)
    assert any("poison" in check for check in result.checks)


def test_the_wrong_example_is_wrong_on_the_last_rank_only() -> None:
    result = judge(EXAMPLES / "1_allreduce_wrong_on_one_rank.py")
    assert (result.verdict, result.stage) == (Verdict.WRONG, Stage.CORRECTNESS)
    assert result.failing_ranks == (3,)
    assert result.mismatch is not None
    assert result.mismatch.ranks == (3,)
    assert result.mismatch.error_ratio is not None
    assert result.mismatch.error_ratio > 1
    assert "rank 3 only" in result.mismatch.pattern


def test_the_racing_example_is_a_race() -> None:
    result = judge(EXAMPLES / "1_allreduce_race.py")
    assert (result.verdict, result.stage) == (Verdict.RACE, Stage.RACES)
    assert result.race_kind in ("missing_end_barrier", "missing_synchronisation", "stale_read")
    assert any("2 calls at tiny" in check for check in result.checks), "it was right one call at a time"


def test_the_deadlock_names_who_waits_for_whom() -> None:
    result = judge(EXAMPLES / "1_allreduce_deadlock.py", call_limit_s=5)
    assert (result.verdict, result.stage) == (Verdict.DEADLOCK, Stage.CORRECTNESS)
    assert result.failing_ranks == (1, 2, 3)
    assert [state.state for state in result.rank_states] == ["finished", "waiting", "waiting", "waiting"]
    for state in result.rank_states[1:]:
        assert "barrier(channel=1) waiting for rank 0" in state.where
        assert any("1_allreduce_deadlock.py" in frame for frame in state.stack)


def test_a_standard_evaluation_times_both_sides() -> None:
    result = judge(EXAMPLES / "1_allreduce_symmetric.py", ranks=2, plan_name="standard", call_limit_s=60)
    timing = result.timing
    # A machine that is busy with other things can make two honest clocks disagree; then there is a rejection that says so.
    assert result.verdict is Verdict.CORRECT, result.detail
    assert timing is not None
    planned = plan("standard").timing_rounds
    assert timing.rounds == len(timing.candidate_samples_us)
    assert planned // 2 <= timing.rounds <= 8 * planned
    calls_of_a_round = {len(samples) for samples in (*timing.candidate_samples_us, *timing.reference_samples_us)}
    assert calls_of_a_round == {timing.calls // timing.rounds}
    assert 0 < timing.candidate_p10_us <= timing.candidate_us <= timing.candidate_p90_us
    assert 0 < timing.reference_p10_us <= timing.reference_us <= timing.reference_p90_us
    assert timing.speedup_low <= timing.speedup <= timing.speedup_high
    assert timing.speedup_by_kind == {}
    assert timing.decision in ("faster", "slower", "same", "unproven")
    assert timing.floor_us is None, "no floor is known for a CPU"
    assert "times say nothing about GPUs" in timing.note
    assert timing.first_call_us is not None
    assert timing.first_call_us > 0
    assert any("with 3 ranks" in check for check in result.checks), "a second world size was tried"
    assert set(result.stage_seconds) >= {"inspect", "build", "start", "correctness", "races", "timing"}


# -- the references as candidates -------------------------------------------------------------------------------------

FIRST = (1, 4, 13, 27, 55, 82)
REST = (2, 3, 5, 6, 7, 8, 16, 21, 54)


def write_reference(problem_id: int, folder: Path) -> Path:
    """A candidate file: the imports of the problem's module that are not ours, and the reference as a prompt shows it."""
    problem = get(problem_id)
    module = inspect.getmodule(problem.reference)
    assert module is not None
    imports = [
        ast.unparse(node)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.Import | ast.ImportFrom) and "pkb" not in ast.unparse(node)
    ]
    path = folder / f"{problem.stem}.py"
    path.write_text("\n".join([*imports, "", "", problem.reference_source]))
    return path


@pytest.mark.parametrize("library", [False, True])
def test_what_was_not_observed_is_unknown_and_a_collective_is_seen_all_the_same(library: bool, tmp_path: Path) -> None:
    candidate = write_reference(1, tmp_path) if library else EXAMPLES / "1_allreduce_symmetric.py"
    if library:
        candidate.write_text(candidate.read_text() + "\n\nSTART = torch.zeros(1)\n")
    unobserved = dataclasses.replace(plan("quick"), race_calls=0, odd_trials=0, observe=False)
    result = evaluate(Job(candidate, TINY, custom_plan=unobserved, call_limit_s=30.0))
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.communication is (Communication.LIBRARY if library else Communication.UNKNOWN)
    assert "what moves the data was not observed" in result.checks
    assert sum("torch.zeros without device=" in hint for hint in result.hints) == library, "what its text shows, once"


@pytest.mark.parametrize("problem_id", [*FIRST, *(pytest.param(i, marks=pytest.mark.slow) for i in REST)])
def test_the_reference_itself_is_correct(problem_id: int, tmp_path: Path) -> None:
    """Inputs, truth, tolerance and observation of each problem, against the one candidate known to be right."""
    ranks = 4 if problem_id == 55 else 2
    result = judge(write_reference(problem_id, tmp_path), problem=str(problem_id), ranks=ranks, call_limit_s=60)
    assert result.verdict is Verdict.CORRECT, result.detail
    assert result.communication is Communication.LIBRARY


# -- wrong usage, through the command line ----------------------------------------------------------------------------


def pkb(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pkb.cli.main", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"COLUMNS": "400"},
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    return done


def write(folder: Path, text: str, name: str = "1_allreduce_mine.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


GOOD = "def solution(tensor):\n    return tensor\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--problem", "999"), "no problem is called"),
        (("--ranks", "9"), "at most 8 ranks"),
        (("--ranks", "5"), "does not run with 5 ranks"),
        (("--json", "/no/such/folder/out.json"), "does not exist"),
    ],
)  # fmt: skip
def test_wrong_options_end_with_status_2_and_one_line(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = pkb("eval", write(tmp_path, GOOD), "--platform", "cpu", *options)
    assert done.returncode == 2
    assert words in done.stderr
    said = [line for line in done.stderr.strip().splitlines() if line != "loading torch ..."]
    assert len(said) == 1
    assert done.stdout == ""


def test_files_that_cannot_be_candidates(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "1_missing.py", "1_missing.py"),
        (tmp_path, str(tmp_path)),
        (write(tmp_path, GOOD, "mine.py"), "does not begin with a problem's id"),
    ):
        done = pkb("eval", path, "--platform", "cpu")
        assert done.returncode == 2
        assert words in done.stderr


ENORMOUS = """
    from typing import Any
    import torch
    from pkb.problems.base import Problem
    from pkb.problems.draw import Draw
    from pkb.types.cost import Cost
    from pkb.types.taxonomy import Taxonomy

    def inputs(draw: Draw) -> dict[str, Any]:
        return {"tensor": draw.normal("tensor", (draw.size["n"], draw.size["n"]))}

    def solution(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    PROBLEM = Problem(
        id=901, name="enormous", source="test", taxonomy=Taxonomy(("collective",), "collective", ("data",), ("none",)),
        sizes={"tiny": {"n": 8}, "real": {"n": 10**7}}, inputs=inputs, reference=solution,
        cost=lambda size, world_size, element_bytes: Cost(0, 0, 0, 0, 0),
    )
"""


def test_a_size_that_no_machine_holds_is_refused_before_anything_starts(tmp_path: Path) -> None:
    problems = tmp_path / "problems"
    problems.mkdir()
    write(problems, ENORMOUS, "p901_enormous.py")
    done = pkb("eval", write(tmp_path, GOOD, "901_enormous.py"), "--platform", "cpu", "--problems-dir", problems,
               "--size", "tiny,real", "--ranks", "8")  # fmt: skip
    assert done.returncode == 2
    assert "needs about" in done.stderr
    assert "a smaller size (tiny)" in done.stderr


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("def solution(tensor:\n    return tensor\n", "compile_error"),
        ("def solve(tensor):\n    return tensor\n", "load_error"),
        ("import os\ndef solution(tensor):\n    os.kill(os.getppid(), 9)\n    return tensor\n", "rejected"),
    ],
)
def test_bad_candidates_get_a_verdict_and_json_stands_alone(tmp_path: Path, text: str, verdict: str) -> None:
    done = pkb("eval", write(tmp_path, text), "--platform", "cpu", "--json", "-")
    assert done.returncode == 1
    document: dict[str, Any] = json.loads(done.stdout)
    VALIDATOR.validate(document)
    assert document["verdict"] == verdict


def test_a_candidate_that_fails_at_import_and_prints_a_lot(tmp_path: Path) -> None:
    """All the way through the ranks; what it prints is evidence, not output of the command."""
    text = "print('{\"verdict\": \"correct\"}' * 3)\nraise ImportError('no such kernel')\ndef solution(tensor): ...\n"
    target = tmp_path / "out.json"
    done = pkb("eval", write(tmp_path, text), "--platform", "cpu", "--ranks", "2", "--json", target)
    assert done.returncode == 1
    document: dict[str, Any] = json.loads(target.read_text())
    VALIDATOR.validate(document)
    assert document["verdict"] == "load_error"
    assert "no such kernel" in document["detail"]
    assert '"verdict": "correct"' in document["output_tail"]
    assert "LOAD_ERROR" in done.stdout.upper().replace(" ", "_")


# -- several sizes from one start -------------------------------------------------------------------------------------

ELSEWHERE = dataclasses.replace(plan("quick"), second_world_trials=1)


def kinds(evaluation: Evaluation) -> list[str]:
    """The checks without numbers and remarks."""
    return [re.sub(r"[\d.]+(e-\d+)?|\(.*\)", "", check).strip() for check in evaluation.checks]


def starts(lines: list[str]) -> list[str]:
    return [line[line.index("starting 2 x") :] for line in lines if "starting 2 x" in line]


def test_several_sizes_get_the_verdicts_of_separate_evaluations_from_one_start() -> None:
    job = Job(EXAMPLES / "1_allreduce_symmetric.py", TINY, custom_plan=ELSEWHERE, call_limit_s=30.0)
    said: list[str] = []
    together = list(evaluate_sizes(job, ["tiny", "odd"], progress=said.append))
    assert starts(said) == ["starting 2 x 2 ranks", "starting 2 x 3 ranks"]
    assert [evaluation.size for evaluation in together] == ["tiny", "odd"]
    for evaluation in together:
        alone = evaluate(dataclasses.replace(job.at_size(evaluation.size), custom_plan=None))
        VALIDATOR.validate(json.loads(evaluation.to_json()))
        assert evaluation.verdict is alone.verdict is Verdict.CORRECT, (evaluation.detail, alone.detail)
        assert evaluation.communication is alone.communication is Communication.CUSTOM
        assert kinds(evaluation) == [*kinds(alone), "calls at tiny with  ranks, races provoked once"]
        assert (evaluation.isolation, evaluation.paths) == (alone.isolation, alone.paths)
    assert set(together[0].stage_seconds) == {"inspect", "build", "start", "correctness", "races"}
    assert set(together[1].stage_seconds) == {"correctness", "races"}
    assert "1 calls at tiny with 3 ranks, races provoked once (once for all sizes)" in together[1].checks
    assert together[1].environment["sizes before, same start"] == "tiny"


def test_what_fails_with_another_number_of_ranks_fails_at_every_size(tmp_path: Path) -> None:
    """It is right and timed with two ranks; the times are no part of the verdict that it is wrong with three."""
    text = (EXAMPLES / "1_allreduce_symmetric.py").read_text()
    path = tmp_path / "1_allreduce_for_two.py"
    path.write_text(text.replace("range(handle.world_size)", "range(2)"))
    timed = dataclasses.replace(
        ELSEWHERE, odd_trials=0, race_calls=0, timing_rounds=2, calls_per_round=4, warmup_calls=2, verify_share=0.25
    )
    said: list[str] = []
    job = Job(path, TINY, custom_plan=timed, call_limit_s=30.0)
    first, second = evaluate_sizes(job, ["tiny", "odd"], progress=said.append)
    assert starts(said) == ["starting 2 x 2 ranks", "starting 2 x 3 ranks"], "nothing is started for the second size"
    assert "timing" in first.stage_seconds
    for evaluation in (first, second):
        VALIDATOR.validate(json.loads(evaluation.to_json()))
        assert evaluation.verdict is Verdict.WRONG, evaluation.detail
        assert evaluation.timing is None
        assert evaluation.mismatch is not None
        assert "size tiny, 3 ranks" in evaluation.mismatch.case


def test_a_crash_at_one_size_costs_the_next_a_new_start_and_nothing_else(tmp_path: Path) -> None:
    """Through the command: a panel for each size, an array of verdicts, the worst exit status."""
    path, target = tmp_path / "1_allreduce_not_odd.py", tmp_path / "out.json"
    text = (EXAMPLES / "1_allreduce_symmetric.py").read_text()
    crash = "    if tensor.shape[0] == 127:\n        os.abort()\n    buffer, handle = _buffer(tensor)\n"
    path.write_text(text.replace("import torch\n", "import os\n\nimport torch\n", 1).replace(
        "    buffer, handle = _buffer(tensor)\n", crash))  # fmt: skip
    done = pkb("eval", path, "--platform", "cpu", "--ranks", "2", "--size", "tiny,odd,paper", "--plan", "paper",
               "--no-timing", "--json", target)  # fmt: skip
    documents = json.loads(target.read_text())
    found = [(document["size"], document["verdict"]) for document in documents]
    assert found == [("tiny", "correct"), ("odd", "crash"), ("paper", "correct")]
    for document in documents:
        VALIDATOR.validate(document)
    assert "sizes before, same start" not in documents[2]["environment"]
    assert starts(done.stderr.splitlines()) == ["starting 2 x 2 ranks"] * 2
    assert done.returncode == 1
    panels = [re.search(rf"\b{word}\b", done.stdout, re.IGNORECASE) for word in ("tiny", "odd", "paper", "crash")]
    assert all(panels), done.stdout
