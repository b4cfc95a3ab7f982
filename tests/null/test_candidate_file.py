"""Reading a candidate's file: what is no source, where a syntax error is, what counts as `solution`."""

from pathlib import Path

import pytest
from candidate_text import source

from pkb.candidates.rules import inspect_source
from pkb.candidates.source import MAX_BYTES, has_solution, parse, read
from pkb.types.errors import UserError
from pkb.types.failure import FailureKind


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"x = '\xff'\n", "not UTF-8"),
        (b"# coding: utf-7\nx = 1\n", "declares the encoding"),
        (b"# coding: nonsense\nx = 1\n", "encoding"),
        (b"#" * (MAX_BYTES + 1), "larger than 512 KiB"),
    ],
)
def test_a_file_that_is_no_source_is_wrong_usage(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "candidate.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=says):
        read(path)


def test_a_directory_and_a_zero_byte_path_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="directory"):
        read(tmp_path)
    with pytest.raises(UserError):
        read(Path("a\0b"))


def test_a_file_of_just_the_limit_is_read_and_hashed_as_it_lies_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\n" + b"#" * (MAX_BYTES - 10))
    assert read(path).syntax_error is None
    path.write_bytes(b"abc\n")
    assert read(path).sha256 == "edeaaff3f1774ad2888673770c6d64097e391bc362d7d6fb34982ddf0efd18cb"


def test_a_syntax_error_is_located() -> None:
    result = parse(b"import torch\n\ndef solution(x:\n    return x\n", path=Path("c.py"))
    assert result.tree is None
    assert result.syntax_error is not None
    assert result.syntax_line == 3
    assert (result.syntax_error.kind, result.syntax_error.name) == (FailureKind.SYNTAX, "SyntaxError")
    assert "never closed" in result.syntax_error.message
    assert result.syntax_error.trace == "line 3: def solution(x:"


@pytest.mark.parametrize(
    "text",
    [b"x = 1\0\n", b"(" * 100_000, b"x = " + b"-" * 50_000 + b"1\n", b"x = " + b"a." * 5000 + b"a\n"],
    ids=["zero byte", "parentheses", "signs", "attributes"],
)
def test_hostile_text_is_a_syntax_problem_and_no_exception(text: bytes) -> None:
    result = parse(text, path=Path("c.py"))
    assert result.tree is None
    assert result.syntax_error is not None
    assert inspect_source(result).findings == ()


def test_nesting_that_is_read_does_not_exhaust_our_own_stack() -> None:
    nested = "getattr(" * 80 + "torch" + ", 'a')" * 80
    text = f"import torch\nx = {nested}\ny = {' + '.join(['s'] * 200)}\nz = {'(' * 90 + 'x' + ')' * 90}\n"
    assert inspect_source(source(text)).rejections == ()


@pytest.mark.timeout(60)
def test_a_large_hostile_file_is_inspected_in_seconds() -> None:
    chain = "\n".join(f"a{i} = a{i + 1}" for i in range(20_000))
    code = "cudaMemcpyAsync(" * 10_000 + "ld.x:" * 20_000 + "\n" * 20_000 + ";"
    text = f"a20000 = h.get_buffer(1)\n{chain}\ncode = '''{code}'''\n"
    inspect_source(source(text))  # the time limit is the assertion: quadratic walks take many minutes


@pytest.mark.timeout(60)
def test_functions_of_one_name_by_the_thousand_are_inspected_in_seconds() -> None:
    text = "def f(a=f()):\n return f()\n" * 15_000 + "def solution(t): return t\n"
    inspect_source(source(text))  # took four minutes: every call was followed into every function of its name


@pytest.mark.parametrize(
    "text",
    [
        "def solution(x): return x",
        "async def solution(x): return x",
        "solution = lambda x: x",
        "a, solution = 1, print",
        "solution: object = print",
        "from m import f as solution",
        "import solution",
        "if True:\n    def solution(x): ...",
        "try:\n    import triton\nexcept ImportError:\n    def solution(x): ...",
        "if a:\n    pass\nelse:\n    with b:\n        solution = 1",
    ],
)
def test_a_solution_at_top_level_is_found(text: str) -> None:
    tree = source(text).tree
    assert tree is not None
    assert has_solution(tree)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    def solution(x): ...",
        "class A:\n    def solution(self): ...",
        "solution(3)",
        "x.solution = 3",
        "solution: int",
        "from solution import f",
        "'solution'",
    ],
)
def test_other_solutions_do_not_count(text: str) -> None:
    tree = source(text).tree
    assert tree is not None
    assert has_solution(tree) is False
