"""What is taken from a model's answer: one row an answer, with the code or the reason that must come out."""

import re

import pytest

from pkb.generate.answer import Extracted, extract

GOOD = "import torch\n\n\ndef solution(x):\n    return x + 1\n"
OTHER = "def solution(x):\n    return x - 1\n"
CUDA = 'SOURCE = r"""\n// usage:\n```\nk<<<1, 1>>>()\n```\n__global__ void k() {}\n"""\n\n\n' + OTHER
LAUNCH = "def launch(x):\n    return x\n"
ONE_FENCE = 'SOURCE = """\n```\nint x;\n"""\n\n\ndef solution(x):\n    return x\n'


def block(code: str, label: str = "python", fence: str = "```") -> str:
    return f"{fence}{label}\n{code}{fence}\n"


TAKEN = {
    "one block": (block(GOOD), GOOD),
    "prose around it": (f"Here it is.\n\n{block(GOOD)}\nIt is fast.", GOOD),
    "no label": (block(GOOD, ""), GOOD),
    "another label": (block(GOOD, "triton"), GOOD),
    "label with attributes": (block(GOOD, 'python title="a.py"'), GOOD),
    "capital label": (block(GOOD, "Python"), GOOD),
    "tildes": (block(GOOD, fence="~~~"), GOOD),
    "longer fence": (block(GOOD, fence="`````"), GOOD),
    "backticks inside tildes": (block('"""\n```\n"""\n' + GOOD, fence="~~~"), '"""\n```\n"""\n' + GOOD),
    "windows line ends": (block(GOOD).replace("\n", "\r\n"), GOOD),
    "byte order mark": ("\ufeff" + block(GOOD), GOOD),
    "kernel in a block of its own": (block("__global__ void k() {}\n", "cuda") + block(GOOD), GOOD),
    "usage after it": (block(GOOD) + "Run it:\n" + block("pkb eval a.py\n", "bash"), GOOD),
    "test after it": (block(GOOD) + block("import torch\nprint(torch.ones(1))\n"), GOOD),
    "two versions": (block(GOOD) + "Better:\n" + block(OTHER), OTHER),
    "second version is no Python": (block(GOOD) + block("def solution(x:\n    pass\n"), GOOD),
    "second repeats a helper of the first": (
        block("def helper(x):\n    return x\n\n\n" + GOOD) + block("def helper(x):\n    return x\n\n\n" + OTHER),
        "def helper(x):\n    return x\n\n\n" + OTHER,
    ),
    "thinking": (f"<think>\nFirst try:\n{block(OTHER)}</think>\n{block(GOOD)}", GOOD),
    "thinking that the template began": (f"maybe\n{block(OTHER)}</think>\n{block(GOOD)}", GOOD),
    "two thoughts": (f"<thinking>a</thinking>\nHm.\n<thinking>b</thinking>\n{block(GOOD)}", GOOD),
    "no fence": (GOOD, GOOD),
    "in a list": (
        "1. The file:\n\n   ```python\n" + "".join(f"   {x}\n" for x in GOOD.splitlines()) + "   ```\n",
        None,
    ),
    "fences inside a CUDA string": (block(CUDA), CUDA),
    "one fence inside a string": (block(ONE_FENCE), ONE_FENCE),
    "bound by assignment": (
        block("def f(x):\n    return x\n\n\nsolution = f\n"),
        "def f(x):\n    return x\n\n\nsolution = f\n",
    ),
    "under if": (block("if True:\n    def solution(x):\n        return x\n"), None),
    "comprehension and match names": (
        block("KEYS = [name for name in 'ab']\n") + block("def solution(x):\n    return [name for name in x]\n"),
        "def solution(x):\n    return [name for name in x]\n",
    ),
}

REFUSED = {
    "empty": ("", "empty", False),
    "only spaces": (" \n\n", "empty", False),
    "prose": ("I cannot do this.", "no code block", False),
    "no solution": (block("def kernel(x):\n    return x\n"), r"no block defines `solution` \(it defines kernel\)", False),
    "method": (block("class A:\n    def solution(self, x):\n        return x\n"), "inside a class", False),
    "no Python": (block("def solution(x)\n    return x\n"), r"not Python: line 1: expected ':'", False),
    "only CUDA": (block("__global__ void k() {}\n", "cuda"), r"no Python block \(found: cuda\)", False),
    "label only": (block(""), "is empty", False),
    "cut in the code": ("Here:\n```python\n" + GOOD, "not closed", True),
    "cut in a string": ('```python\nSOURCE = r"""\n__global__ void', "not closed", True),
    "cut in thought": ("<think>\nLet me see. " + block(GOOD), "still thinking", True),
    "uses a name of another block": (
        block('SOURCE = "x"\n') + block("def solution(x):\n    return SOURCE\n"), "`SOURCE` is used but only defined", False,
    ),
    "imports from another block": (
        block(LAUNCH) + block("from kernels import launch\n\n\ndef solution(x):\n    return launch(x)\n"),
        "line 1 imports launch from kernels", False,
    ),
    "imports another file": (
        "kernels.py:\n" + block(LAUNCH) + block("import kernels\n\n\ndef solution(x):\n    return kernels.launch(x)\n"),
        "imports kernels, which is another file", False,
    ),
    "code without fence, with prose": ("Sure, here it is:\n\n" + GOOD, "stands in no code block", False),
    "zero byte": (block("def solution(x):\n    return '\0'\n"), "not Python", False),
    "another encoding": (block("# coding: utf-7\n" + GOOD), "encoding", False),
    "too long": ("x" * (1 << 20), "longer than", False),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_code_is_taken(name: str) -> None:
    answer, expected = TAKEN[name]
    found = extract(answer)
    assert found.problem == ""
    assert not found.truncated
    if expected is not None:
        assert found.code == expected
    namespace: dict[str, object] = {}
    if found.code is not None and "torch" not in found.code:
        exec(compile(found.code, "answer", "exec"), namespace)  # what was taken runs, and defines what was asked
        assert callable(namespace["solution"])


@pytest.mark.parametrize("name", REFUSED)
def test_reason_is_given(name: str) -> None:
    answer, reason, truncated = REFUSED[name]
    found = extract(answer)
    assert found.code is None
    assert re.search(reason, found.problem)
    assert "```python block" in found.problem, "a reason ends with what to do"
    assert found.truncated == truncated


def test_cut_revision_leaves_the_complete_version() -> None:
    found = extract(block(GOOD) + "Better:\n```python\ndef solution(x):\n    return")
    assert found.code == GOOD
    assert found.truncated
    assert "passed over" in found.note


def test_choice_is_noted() -> None:
    assert "2 blocks" in extract(block(GOOD) + block(OTHER)).note
    assert extract(block(GOOD)).note == ""


def test_indented_block_is_dedented() -> None:
    assert extract(TAKEN["in a list"][0]).code == GOOD


def test_code_and_problem_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="either"):
        Extracted("x = 1\n", "but")
    with pytest.raises(ValueError, match="either"):
        Extracted(None)


def test_many_fences_take_no_time() -> None:
    opened = 'x = """\n' + "```\n" * 20_000
    assert extract("```python\n" + opened).code is None


@pytest.mark.timeout(60)
def test_an_answer_of_imports_is_read_in_seconds() -> None:
    """Each was looked for in the whole answer: half an hour for one of half a megabyte."""
    text = f"```python\nimport {','.join(['a'] * 60_000)}\ndef solution(t): return t\n```\n" + "x " * 100_000
    assert extract(text).code is not None
    assert "another file" in extract(text + "\na.py\n").problem
