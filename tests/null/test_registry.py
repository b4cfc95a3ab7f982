"""Problems are found by id, name and stem, in the package and in a folder of the user's."""

from dataclasses import replace
from pathlib import Path

import pytest

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
