"""Every problem has a test file of its own, with a model."""

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
