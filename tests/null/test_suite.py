"""The suite's version rises when a question, a baseline or the judge changes, and not when only their writing does."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pkb.problems.base import Problem
from pkb.problems.compare import NormGate
from pkb.problems.draw import Arguments, Draw
from pkb.problems.registry import get
from pkb.problems.suite import Suite, suite
from pkb.types.bare_code import bare_cuda, bare_python
from program_files import program

ROOT = Path(__file__).resolve().parents[2]


TOOL = program("tools/suite.py")


def test_what_is_there_is_what_the_suite_says() -> None:
    now = TOOL.present(suite().version, suite().date, suite().judge_version)
    assert TOOL.differences(suite(), now) == {}, "see docs/suite.md; then: python tools/suite.py --write"
    assert not TOOL.refusals(suite(), now, set())


def test_the_page_has_a_row_for_this_version() -> None:
    rows = [
        line.split("|")[1:3] for line in (ROOT / "docs" / "suite.md").read_text().splitlines() if line.startswith("|")
    ]
    assert [str(suite().version), suite().date] in [[cell.strip() for cell in row] for row in rows]


def with_problem(problem: Problem) -> Suite:
    said: Suite = suite()
    return replace(said, problems={**said.problems, problem.stem: TOOL.entry_of(problem)})


def other_inputs(draw: Draw) -> Arguments:
    return {"tensor": 2 * draw.normal("tensor", (draw.size["rows"], draw.size["columns"]))}


def other_function(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of this file stand for a problem's."""
    monkeypatch.setattr(TOOL, "OURS", ("pkb.problems", __name__))


CHANGES = {
    "tolerance": {"compare": NormGate(tau={torch.bfloat16: 0.5})},
    "inputs": {"inputs": other_inputs},
    "reference": {"reference": other_function},
    "sizes": {"sizes": {**get(1).sizes, "tiny": {"rows": 3, "columns": 5}}},
    "a size that goes": {"sizes": {"tiny": get(1).sizes["tiny"]}},
    "kinds": {"kinds": {"a": 1.0}},
    "in place": {"mutates": {"tensor": NormGate()}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_question_needs_a_higher_version(change: str) -> None:
    problem = replace(get(1), **CHANGES[change])  # type: ignore[arg-type]
    changed = with_problem(problem)
    assert set(TOOL.differences(suite(), changed)) == {problem.stem}
    assert any("raise `version`" in words for words in TOOL.refusals(suite(), changed, set()))
    assert not TOOL.refusals(suite(), changed, {"1"}), "rewritten, and said so"
    raised = with_problem(replace(problem, version=problem.version + 1))
    assert not TOOL.refusals(suite(), raised, set())
    assert problem.stem in TOOL.differences(suite(), raised)


def test_one_more_size_is_no_other_question() -> None:
    changed = with_problem(replace(get(1), sizes={**get(1).sizes, "another": {"rows": 3, "columns": 5}}))
    assert set(TOOL.differences(suite(), changed)) == {"01_allreduce"}, "the suite's version rises"
    assert not TOOL.refusals(suite(), changed, set())


def test_another_baseline_needs_a_higher_version() -> None:
    problem = replace(get(1), baseline=other_function, baseline_version=7)
    before, faster = with_problem(problem), replace(problem, baseline=other_inputs)
    assert any("raise `baseline_version`" in words for words in TOOL.refusals(before, with_problem(faster), set()))
    raised = with_problem(replace(faster, baseline_version=8))
    assert any("no case was timed with both" in words for words in TOOL.refusals(before, raised, set()))
    assert not TOOL.refusals(before, raised, set(), [timed(7, 100.0), timed(8, 80.0)])
    assert not TOOL.refusals(before, raised, {"1"}), "rewritten, and said so"
    gone = with_problem(replace(problem, baseline=None))
    assert TOOL.refusals(before, gone, set()), "a baseline changes only to become faster"


def timed(version: int, us: float, size: str = "real", function: str = "baseline") -> dict[str, object]:
    return {"id": 1, "size": size, "ranks": 8, "function": function, "version": version, "time_us": us}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([timed(1, 100.0), timed(2, 104.0)], "it is not faster"),
        ([timed(1, 100.0), timed(2, 50.0), timed(1, 10.0, "paper"), timed(2, 12.0, "paper")], "slower at paper with 8"),
        ([timed(1, 100.0), timed(2, 50.0, "paper")], "no case was timed with both"),
        ([timed(1, 100.0), timed(2, 50.0), timed(1, 10.0, "paper"), timed(2, 10.5, "paper")], None),
    ],
)
def test_a_baseline_changes_only_to_become_faster(rows: list[dict[str, object]], why: str | None) -> None:
    found = TOOL.why_not_faster("01_allreduce", 1, 2, rows)
    assert found is None if why is None else why in found


def test_a_first_baseline_is_faster_than_the_reference() -> None:
    rows = [timed(0, 100.0, function="reference"), timed(1, 50.0)]
    assert TOOL.why_not_faster("01_allreduce", 0, 1, rows) is None
    assert TOOL.why_not_faster("01_allreduce", 0, 1, [*rows, timed(1, 120.0)])


def test_the_judge_is_part_of_it() -> None:
    assert TOOL.differences(suite(), replace(suite(), judge="another")) == {"judge": "its code is another"}


def test_helpers_and_constants_are_reached() -> None:
    own = TOOL.reached([get(27).inputs])
    assert any(part.startswith("pkb.problems.p27_moe_all2all_primitive.EMPTY_PIECES: ") for part in own)
    assert any(part.startswith("pkb.problems.moe_routing.") for part in TOOL.reached([get(31).inputs]))


def test_what_is_decorated_is_reached_with_its_decorator() -> None:
    by_compiler, with_tf32 = (dict(part.split(": ", 1) for part in TOOL.reached([get(n).baseline])) for n in (18, 74))
    scaled = "pkb.problems.p18_tp_rms_norm.scaled"
    assert "torch.rsqrt" in by_compiler[scaled]
    assert "torch.compile(" in by_compiler[f"{scaled} by"]
    assert "pkb.problems.chunked_state.solve" in with_tf32


def test_comments_docstrings_and_lines_do_not_matter() -> None:
    one = 'def f(x):\n    """Says é what."""\n    return x + 1  # more\n'
    two = "def f(\n    x\n):\n    # less\n    return (x\n        + 1)\n"
    assert bare_python(one) == "deff(x):{returnx+1}"
    assert bare_python(two) == "deff(x):{return(x+1)}"
    assert bare_python("def f(x):\n    return '# no comment'\n") == "deff(x):{return'#nocomment'}"
    assert bare_cuda("int a; // one\n/* two\n */ int  b;\n") == "inta;intb;"


def test_a_line_that_leaves_its_block_is_another_code() -> None:
    inside, outside = "if a:\n    b()\n    c()\n", "if a:\n    # why\n    b()\n    # then\nc()\n"
    assert bare_python(inside) == "ifa:{b()c()}"
    assert bare_python(outside) == "ifa:{b()}c()"
    assert bare_python(inside, blocks=False) == bare_python(outside, blocks=False)


@pytest.mark.parametrize(
    ("name", "text", "other"),
    [
        ("problems/draw.py", "values.mul_(scale)", "values.mul_(2 * scale)"),  # by which all problems draw
        ("judge/second_world.py", '("tiny", 3), ("odd", 3), ', ""),
        ("types/plan.py", "second_world_trials=2", "second_world_trials=0"),
    ],
)
def test_what_decides_verdicts_is_part_of_it(
    name: str, text: str, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for each in TOOL.JUDGE:
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOOL.PACKAGE / each, tmp_path / each)
    monkeypatch.setattr(TOOL, "PACKAGE", tmp_path)
    version = (suite().version, suite().date, suite().judge_version)
    before, path = TOOL.present(*version).judge, tmp_path / name
    assert text in path.read_text()
    path.write_text(path.read_text().replace(text, other))
    assert TOOL.present(*version).judge != before


def test_what_is_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pkb.problems import suite as module

    path = tmp_path / "suite.toml"
    path.write_text(TOOL.written(suite()))
    monkeypatch.setattr(module, "FILE", path)
    assert module.suite.__wrapped__() == suite()
