"""Every problem has a test file of its own, with a model."""

import importlib
from pathlib import Path

from pkb.problems import default_registry

HERE = Path(__file__).parent


def test_every_problem_has_its_file() -> None:
    wanted = {f"test_p{problem.stem}.py" for problem in default_registry().all()}
    assert {path.name for path in HERE.glob("test_p[0-9]*.py")} == wanted


def test_every_file_tests_its_problem_by_a_model() -> None:
    for problem in default_registry().all():
        text = (HERE / f"test_p{problem.stem}.py").read_text()
        assert f"class TestModel(ModelTests):\n    spec = Spec(\n        {problem.id},\n" in text or (
            f"class TestModel(ModelTests):\n    spec = Spec({problem.id}, " in text
        )


def test_every_model_is_run_with_two_three_and_four_ranks() -> None:
    for problem in default_registry().all():
        spec = importlib.import_module(f"test_p{problem.stem}").TestModel.spec
        possible = {
            ranks
            for ranks in (2, 3, 4)
            if any(problem.why_not(size, ranks, problem.dtypes[0]) is None for size in ("tiny", "odd"))
        }
        assert possible <= {ranks for ranks, _, _ in spec.cases}, problem.stem
