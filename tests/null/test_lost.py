"""What a candidate loses between the published protocol and ours: by hand-made verdicts, and in `pkb score`."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pkb.analysis.lost import AS_PUBLISHED, Loss, compare_plans, loss_of
from pkb.analysis.modes import FailureMode, mode_of_exception
from pkb.analysis.results import read_results
from pkb.cli.main import app
from pkb.judge.decision import Decided
from pkb.judge.hints import hints_for
from pkb.judge.lacking import without_multicast
from pkb.platforms.base import PlatformFacts
from pkb.platforms.registry import create
from pkb.types.failure import Failure, FailureKind
from pkb.types.verdict import Evidence, Stage, Verdict

PASSED = "5 calls at paper with 4 ranks, worst error 0.2 of the tolerance"


def verdict(word: str, stage: str = "correctness", *, plan: str = "standard", **more: Any) -> dict[str, Any]:
    given = {
        "verdict": word, "stage": stage, "detail": "", "problem": {"id": 13, "name": "gemm_allreduce"}, "plan": plan,
        "candidate": {"file": "13_gemm_allreduce_cuda.py", "sha256": "a" * 64, "backend": "cuda"}, "ranks": 4,
        "size": "paper", "platform": "virtual", "hardware": "x", "dtype": "bf16", "checks": [],
    }  # fmt: skip
    return given | more


def wrong(
    case: str = "size paper, 4 ranks, trial 0, call 0", *, ratio: float | None = 400.0, **more: Any
) -> dict[str, Any]:
    mismatch = {"case": case, "output": "the result", "difference": "values", "error_ratio": ratio}
    return verdict("wrong", mismatch=mismatch | more)


TYPE_ERROR = (
    "launch(): incompatible function arguments. The following argument types are supported:\n    1. (arg0: torch.Tensor, "
    "arg1: torch.Tensor, arg2: typing.SupportsInt) -> None\n\nInvoked with: tensor([[1., 2.],\n [3., 4.]], "
    "device='cuda:0', dtype=torch.bfloat16), 139872231424, 4"
)


@pytest.mark.parametrize(
    ("evaluation", "loss"),
    [
        (wrong(), Loss.UNEVEN),
        (wrong(difference="shape", ratio=None), Loss.UNEVEN),
        (wrong("size paper, 4 ranks, trial 2, call 0, causal=True"), Loss.LATER_CALL),
        (wrong("size odd, 4 ranks, trial 0, call 0"), Loss.ODD),
        (wrong("size tiny, 3 ranks, trial 0, call 0"), Loss.RANKS),
        (wrong("size odd, 3 ranks, trial 0, call 0"), Loss.RANKS),
        (wrong(ratio=1.4), Loss.TOLERANCE),
        (wrong(difference="dtype"), Loss.FORM),
        (wrong(difference="structure"), Loss.FORM),
        (wrong(difference="bits"), Loss.BITS),
        (wrong(output="argument changed in place (x)"), Loss.ARGUMENTS),
        (verdict("rejected", failure={"kind": "changed_arguments"}), Loss.ARGUMENTS),
        (verdict("rejected", failure={"kind": "aliased_output"}), Loss.ARGUMENTS),
        (verdict("rejected", "inspect", failure={"kind": "static_rule"}), Loss.RULE),
        (verdict("race", "races"), Loss.RACE),
        (verdict("race", "timing"), Loss.RACE),
        (verdict("deadlock", "races"), Loss.RACE),
        (verdict("reused_output", "races"), Loss.REUSED_OUTPUT),
        (verdict("runtime_error"), Loss.UNEVEN),
        (verdict("deadlock", checks=[PASSED]), Loss.ODD),
        (verdict("crash", checks=[PASSED, "2 calls at odd", "races: queued (3 x 6 calls each)"]), Loss.RANKS),
        (verdict("unsupported"), Loss.NOT_JUDGED),
        (verdict("harness_error", "start"), Loss.NOT_JUDGED),
        (verdict("compile_error", "build"), Loss.OTHER),
    ],
)
def test_the_evidence_says_what_was_lost(evaluation: dict[str, Any], loss: Loss) -> None:
    assert loss_of(evaluation) is loss


def test_every_loss_has_words() -> None:
    assert all(loss.words for loss in Loss)


def entries(folder: Path, *documents: dict[str, Any]) -> Path:
    file = folder / "tree.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return file


def of_problem(document: dict[str, Any], number: int) -> dict[str, Any]:
    candidate = document["candidate"] | {"sha256": f"{number:064x}"}
    return document | {"problem": {"id": number, "name": "p"}, "candidate": candidate}


def timed(document: dict[str, Any], speedup: float) -> dict[str, Any]:
    ends = {"speedup_low": speedup * 0.99, "speedup_high": speedup * 1.01}
    times = {"speedup": speedup, "reference_us": 10.0, "candidate_us": 10.0 / speedup}
    return document | {"timing": times | ends | {"decision": "faster" if speedup > 1 else "slower"}}


def both_plans(folder: Path) -> Path:
    right, right_published = verdict("correct", "done"), verdict("correct", "done", plan="published")
    return entries(
        folder,
        of_problem(timed(right, 1.5), 1),
        of_problem(timed(right_published, 1.4), 1),
        of_problem(verdict("race", "races"), 2),
        of_problem(timed(right_published, 1.2), 2),
        of_problem(wrong(), 3),
        of_problem(verdict("wrong", plan="published"), 3),
        of_problem(timed(right, 0.9), 4),
        of_problem(verdict("wrong", plan="published"), 4),
        of_problem(right, 5),
    )


def test_plans_do_not_mix(tmp_path: Path) -> None:
    collections = read_results([both_plans(tmp_path)]).collections()
    assert {name: len(samples) for name, samples in collections.items()} == {"tree": 5, f"tree{AS_PUBLISHED}": 4}
    compared = compare_plans(collections["tree"], collections[f"tree{AS_PUBLISHED}"])
    assert compared is not None
    assert (compared.candidates, compared.right_as_published, compared.right) == (4, 2, 2)
    assert (compared.faster_as_published, compared.faster, compared.only_by_ours) == (2, 1, 1)
    assert (compared.untimed_as_published, compared.untimed) == (0, 0)
    assert compared.counts == {Loss.RACE: 1}
    assert compare_plans(collections["tree"], ()) is None


def test_verdicts_by_other_rules_are_not_compared(tmp_path: Path) -> None:
    older, newer = {"suite": {"version": 5, "judge": 5}}, {"suite": {"version": 6, "judge": 6}}
    right = verdict("correct", "done", plan="published")
    pairs = [
        of_problem(verdict("race", "races") | newer, 1), of_problem(right | older, 1),
        of_problem(verdict("race", "races") | newer, 2), of_problem(right | newer, 2),
    ]  # fmt: skip
    file = entries(tmp_path, *pairs)
    collections = read_results([file]).collections()
    compared = compare_plans(collections["tree"], collections[f"tree{AS_PUBLISHED}"])
    assert compared is not None
    assert (compared.candidates, compared.other_rules, compared.right_as_published) == (1, 1, 1)
    assert [one.problem for one in compared.lost] == [2]
    shown = " ".join(CliRunner().invoke(app, ["score", str(file)]).output.split())
    assert "1 were judged by both, but of two versions of the problem or the judge: not compared" in shown


def test_a_gain_that_the_wall_clock_denies_is_none_as_published_either(tmp_path: Path) -> None:
    right = timed(verdict("correct", "done", plan="published"), 1.4)
    right["timing"]["decision"] = "unproven"
    file = entries(tmp_path, of_problem(timed(verdict("correct", "done"), 0.9), 1), of_problem(right, 1))
    collections = read_results([file]).collections()
    compared = compare_plans(collections["tree"], collections[f"tree{AS_PUBLISHED}"])
    assert compared is not None
    assert (compared.right_as_published, compared.faster_as_published) == (1, 0)


def test_what_nobody_timed_is_not_called_slow(tmp_path: Path) -> None:
    right, published = verdict("correct", "done"), verdict("correct", "done", plan="published")
    file = entries(tmp_path, of_problem(right, 1), of_problem(published, 1), of_problem(right, 2),
                   of_problem(timed(published, 1.4), 2))  # fmt: skip
    shown = " ".join(CliRunner().invoke(app, ["score", str(file)]).output.split())
    assert "faster 1, 1 not timed not timed" in shown


def test_the_same_try_by_two_plans_is_two_entries(tmp_path: Path) -> None:
    entry = {"collection": "m", "problem": 13, "sample": 0}
    file = entries(
        tmp_path, entry | {"evaluation": wrong()}, entry | {"evaluation": verdict("correct", "done", plan="published")}
    )
    found = read_results([file])
    assert not found.unreadable
    assert [sample.collection for sample in found.samples] == ["m", f"m{AS_PUBLISHED}"]
    assert [sample.index for sample in found.samples] == [0, 0]


def test_score_shows_both(tmp_path: Path) -> None:
    file = both_plans(tmp_path)
    shown = CliRunner().invoke(app, ["score", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "of 4 candidates judged by both plans" in shown.output
    assert Loss.RACE.words in " ".join(shown.output.split())
    document = json.loads(CliRunner().invoke(app, ["score", str(file), "--json"]).stdout)
    ours, published = document["collections"]
    assert (ours["against"], published["against"]) == ("baseline", "reference")
    assert (ours["plans"]["right_as_published"], ours["plans"]["lost"]) == (2, {"race": 1})
    assert published["plans"] is None


# -- differences of torch, and what one GPU cannot run -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message", "mode"),
    [
        ("TypeError", TYPE_ERROR, FailureMode.TORCH_VERSION),
        ("AttributeError", "'int' object has no attribute 'data_ptr'", FailureMode.TORCH_VERSION),
        ("AttributeError", "'Tensor' object has no attribute 'data_pointer'", FailureMode.NAME),
        ("TypeError", TYPE_ERROR.replace("139872231424", "4096"), FailureMode.NAME),
        ("TypeError", TYPE_ERROR.replace("arg1: torch.Tensor", "arg1: typing.SupportsInt"), FailureMode.NAME),
        ("TypeError", TYPE_ERROR[: TYPE_ERROR.index("Invoked")], FailureMode.NAME),
        ("RuntimeError", TYPE_ERROR, FailureMode.RUNTIME),
    ],
)
def test_another_torch_is_a_mode_of_its_own(kind: str, message: str, mode: FailureMode) -> None:
    assert mode_of_exception(kind, message) is mode
    evidence = Evidence(failure=Failure(FailureKind.EXCEPTION, message, name=kind))
    hints = hints_for(Verdict.RUNTIME_ERROR, evidence, platform="cpu", backend="cuda")
    assert any("another version of torch" in hint for hint in hints) is (mode is FailureMode.TORCH_VERSION)


def facts() -> PlatformFacts:
    return create("cpu").facts()


@pytest.mark.parametrize(
    ("kind", "message", "paths", "unsupported"),
    [
        (FailureKind.DEVICE_FAULT, "an illegal memory access", ("nvls",), True),
        (FailureKind.EXCEPTION, "no multicast support", ("sm", "nvls"), True),
        (FailureKind.EXCEPTION, "shapes differ", ("nvls",), False),
        (FailureKind.DEVICE_FAULT, "an illegal memory access", ("sm",), False),
    ],
)
def test_multicast_on_one_gpu(kind: FailureKind, message: str, paths: tuple[str, ...], unsupported: bool) -> None:
    failed = Decided(Verdict.CRASH, Stage.CORRECTNESS, message, Evidence(failure=Failure(kind, message)))
    reached = without_multicast(failed, paths, facts())
    assert (reached.verdict is Verdict.UNSUPPORTED) is unsupported
    if not unsupported:
        assert reached is failed


def test_without_a_parser_the_text_tells() -> None:
    failure = Failure(FailureKind.DEVICE_FAULT, "an illegal memory access")
    failed = Decided(Verdict.CRASH, Stage.CORRECTNESS, "", Evidence(failure=failure))
    assert without_multicast(failed, ("unknown",), facts(), text="multimem.st.f32").verdict is Verdict.UNSUPPORTED
    assert without_multicast(failed, ("unknown",), facts(), text="st.f32") is failed
    assert without_multicast(failed, ("sm_load_store",), facts(), text="// no multimem.st") is failed


def test_a_wrong_result_stays_wrong() -> None:
    failed = Decided(Verdict.WRONG, Stage.CORRECTNESS, "values differ", Evidence())
    assert without_multicast(failed, ("nvls",), facts()) is failed


def test_by_the_published_plan_it_is_the_reference_that_counts(tmp_path: Path) -> None:
    """Problems with a baseline of their own had no speed there, and so were never faster as published."""
    times = {"reference_us": 150.0, "candidate_us": 100.0, "against": "reference"}
    times |= {"speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "decision": "faster"}
    with_baseline = {"id": 13, "name": "gemm_allreduce", "baseline_version": 1}
    path = tmp_path / "x.jsonl"
    path.write_text("".join(
        json.dumps({"collection": "x", "problem": 13, "sample": 0,
                    "evaluation": verdict("correct", "done", plan=plan, timing=times, problem=with_baseline)}) + "\n"
        for plan in ("standard", "published")
    ))  # fmt: skip
    found = read_results([path]).collections()
    compared = compare_plans(found["x"], found[f"x{AS_PUBLISHED}"])
    assert compared is not None
    assert (compared.faster_as_published, compared.faster) == (1, 0)
