"""Problems are found by id, name and stem, in the package and in a folder of the user's."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pkb.cli.main import app
from pkb.problems import Registry, default_registry, get, select
from pkb.problems.registry import load_folder
from pkb.types.errors import UserError

MINIMAL = '''"""A problem of somebody else's."""
from dataclasses import replace
from pkb.problems import get
PROBLEM = replace(get(1), id=901, name="mine")
'''


@pytest.mark.parametrize("key", [13, "13", " 13 ", "gemm_allreduce", "13_gemm_allreduce"])
def test_a_problem_is_found_by_any_of_its_names(key: int | str) -> None:
    assert get(key).id == 13


def test_a_padded_stem_is_a_name_too() -> None:
    assert get("01_allreduce") is get(1) is get("allreduce")


def test_every_module_of_the_package_is_found() -> None:
    folder = Path(str(__import__("pkb.problems").problems.__file__)).parent
    files = {path.stem for path in folder.glob("p[0-9]*_*.py")}
    assert {f"p{problem.stem}" for problem in default_registry().all()} == files
    assert select("all") == default_registry().all()


def test_select_takes_ranges_lists_and_names_once_each() -> None:
    assert [p.id for p in select("1-8,13")] == [1, 2, 3, 4, 5, 6, 7, 8, 13]
    assert [p.id for p in select("gemm_allreduce, 2-3 ,2,13_gemm_allreduce")] == [13, 2, 3]
    assert [p.id for p in select("7-7")] == [7]


@pytest.mark.parametrize("key", [0, 999, "nothing", "", "13_allreduce"])
def test_an_unknown_problem_is_a_user_error(key: int | str) -> None:
    with pytest.raises(UserError, match="pkb problems"):
        get(key)


@pytest.mark.parametrize("keys", ["", " , ", "900-950", "8-1", "1,nothing", "1-x"])
def test_a_selection_of_nothing_is_a_user_error(keys: str) -> None:
    with pytest.raises(UserError):
        select(keys)


def test_two_problems_with_one_id_are_refused() -> None:
    with pytest.raises(UserError, match="id 1"):
        Registry([get(1), replace(get(2), id=1)])


def test_a_folder_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "p901_mine.py").write_text(MINIMAL)
    (tmp_path / "notes.py").write_text("raise SystemExit('not a problem module')")
    (found,) = load_folder(tmp_path)
    assert (found.id, found.name) == (901, "mine")


def test_a_folder_without_problems_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no problem modules"):
        load_folder(tmp_path)
    (tmp_path / "p902_empty.py").write_text("")
    with pytest.raises(UserError, match="PROBLEM"):
        load_folder(tmp_path)


MINIMAL_FORM = """
import torch.distributed as dist
SIZES = {"tiny": {"n": 24}, "real": {"n": 4096}}

def inputs(draw):
    return {"x": draw.normal("x", (draw.size["n"],))}

def solution(x):
    total = x.clone()
    dist.all_reduce(total)
    return total
"""


def test_two_functions_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "p902_my_layer.py").write_text(MINIMAL_FORM)
    (found,) = load_folder(tmp_path)
    assert (found.id, found.name, found.stem) == (902, "my_layer", "902_my_layer")
    assert found.sizes["odd"] == found.sizes["tiny"] == {"n": 24}
    assert found.argument_bytes("real", 2, "bf16") == 4096 * 2
    assert found.why_not("paper", 4, "fp32") is None
    assert default_registry().plus([found]).get("my_layer") is found


def test_half_a_problem_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "p903_half.py").write_text("def solution(x):\n    return x\n")
    with pytest.raises(UserError, match="neither"):
        load_folder(tmp_path)


def test_a_broken_file_spoils_itself_only(tmp_path: Path) -> None:
    (tmp_path / "p901_mine.py").write_text(MINIMAL_FORM)
    broken = {
        "p902_typo.py": ("import torch\n\ndef solution(x:\n", "p902_typo.py, line 3: SyntaxError"),
        "p903_raises.py": ("x = 1\nprint(missing)\n", "p903_raises.py, line 2: NameError"),
        "p904_exits.py": ("raise SystemExit('no')", "p904_exits.py, line 1: SystemExit: no"),
        "p905_half.py": ("def solution(x):\n    return x\n", "declares neither"),
        "p906_draws.py": (MINIMAL_FORM.replace("draw.normal", "draw.nomal"), "p906_draws.py, line 6: AttributeError"),
    }
    for name, (text, _) in broken.items():
        (tmp_path / name).write_text(text)
    registry = default_registry().with_folder(tmp_path)
    assert registry.get(901).name == "mine"
    assert {problem.id for problem in registry.all()} >= {1, 901}
    assert not {problem.id for problem in registry.all()} & {902, 903, 904, 905, 906}
    assert len(registry.broken()) == len(broken)
    for entry in registry.broken():
        said = broken[f"p{entry.id}_{entry.name}.py"][1]
        assert said in entry.why_broken
        with pytest.raises(UserError, match=re.escape(said)):
            registry.get(entry.id)


@pytest.mark.parametrize(
    ("takes", "fits"),
    [
        ("x", True), ("x, scale=1.0", True), ("*arguments", True), ("y", False), ("x, y", False),
        ("y, x=None", False), ("", False),
    ],
)  # fmt: skip
def test_names_of_inputs_and_of_the_signature_are_compared(tmp_path: Path, takes: str, fits: bool) -> None:
    (tmp_path / "p901_mine.py").write_text(MINIMAL_FORM.replace("def solution(x)", f"def solution({takes})"))
    if fits:
        assert load_folder(tmp_path)
    else:
        with pytest.raises(UserError, match=r"inputs\(\) gives x, and solution takes"):
            load_folder(tmp_path)


def test_a_misspelt_problem_is_suggested() -> None:
    with pytest.raises(UserError, match="did you mean 13_gemm_allreduce"):
        get("13_gemm_alreduce")
    with pytest.raises(UserError, match="13_gemm_allreduce"):
        select("1,gemm_allredcue")
    with pytest.raises(UserError) as error:
        get("something else entirely")
    assert "did you mean" not in str(error.value)


def test_a_problem_without_a_cost_has_no_limit(tmp_path: Path) -> None:
    (tmp_path / "p901_mine.py").write_text(MINIMAL_FORM)
    folder = ["--problems-dir", str(tmp_path)]
    shown = CliRunner().invoke(app, ["show", "901", *folder])
    assert shown.exit_code == 0, shown.output
    assert "not known: the problem declares no cost" in " ".join(shown.stdout.split())
    assert "0 us" not in shown.stdout
    document = json.loads(CliRunner().invoke(app, ["show", "901", *folder, "--json"]).stdout)
    assert {case["bounds"] for case in document["cases"].values()} == {None}
    bounds = CliRunner().invoke(app, ["roofline", "901,1", *folder, "--json"])
    assert [row["id"] for row in json.loads(bounds.stdout)] == [1]
    assert "901_mine declares no cost" in bounds.stderr
