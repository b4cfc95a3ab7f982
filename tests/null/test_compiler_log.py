"""A compiler's log in terms of the candidate's file."""

from pkb.candidates.compiler_log import candidate_line, in_candidate

KERNEL = """
#include <pkb.cuh>
__global__ void first(float* a) {
    int i = threadIdx.x;
    a[i] = wrong_name;
    __syncthreads();
}
__global__ void second(float* a, int n) {
    int i = threadIdx.x;
    if (i < n) {
        a[i] = n;
        printf("%d\\n", i);
    }
    __syncthreads();
}
"""
CANDIDATE = f'''"""A candidate."""
from pkb import kit

SOURCE = r"""{KERNEL}"""
module = kit.compile(SOURCE, name="two")
'''
LOG = """two.cu(9): warning #177-D: variable "i" was declared but never referenced
      int i = threadIdx.x;
          ^

two.cu(5): error: identifier "wrong_name" is undefined
      a[i] = wrong_name;
             ^

/usr/include/stdio.h(5): error: something in a header

two.cu(14): error: calling __syncthreads in a branch

2 errors detected in the compilation of "two.cu"."""


def python_line_of(text: str, occurrence: int = 0) -> int:
    found = [number for number, line in enumerate(CANDIDATE.splitlines(), start=1) if line.strip() == text]
    return found[occurrence]


def test_lines_are_found_by_their_text_and_told_apart_by_their_neighbours() -> None:
    compiled = KERNEL
    assert candidate_line(5, compiled=compiled, candidate=CANDIDATE) == python_line_of("a[i] = wrong_name;")
    assert candidate_line(6, compiled=compiled, candidate=CANDIDATE) == python_line_of("__syncthreads();")
    assert candidate_line(14, compiled=compiled, candidate=CANDIDATE) == python_line_of("__syncthreads();", 1)
    for number, text in enumerate(compiled.splitlines(), start=1):
        if text.strip() and number > 1:
            found = candidate_line(number, compiled=compiled, candidate=CANDIDATE)
            assert found is not None
            assert CANDIDATE.splitlines()[found - 1].strip() == text.strip()


def test_a_header_before_the_text_does_not_shift_it() -> None:
    compiled = "#define MORE 1\n#define YET_MORE 2\n" + KERNEL
    assert candidate_line(7, compiled=compiled, candidate=CANDIDATE) == python_line_of("a[i] = wrong_name;")


def test_an_escape_makes_a_line_look_different_and_its_neighbours_find_it() -> None:
    escaped = CANDIDATE.replace('r"""', '"""').replace("\\n", "\\\\n")
    line = next(number for number, text in enumerate(KERNEL.splitlines(), start=1) if "printf" in text)
    found = candidate_line(line, compiled=KERNEL, candidate=escaped)
    assert found is not None
    assert "printf" in escaped.splitlines()[found - 1]


def test_what_is_not_in_the_file_has_no_line() -> None:
    assert candidate_line(5, compiled="a\nb\nc\nd\ne\n", candidate=CANDIDATE) is None
    assert candidate_line(99, compiled=KERNEL, candidate=CANDIDATE) is None
    twice = CANDIDATE.replace("module =", f'OTHER = r"""{KERNEL}"""\nmodule =')
    assert candidate_line(5, compiled=KERNEL, candidate=twice) is None  # one of two: not guessed


def test_errors_come_first_and_name_their_line() -> None:
    lines = in_candidate(LOG, compiled=KERNEL, candidate=CANDIDATE).split("\n")
    number = python_line_of("a[i] = wrong_name;")
    assert lines[0] == f'line {number} of the candidate: two.cu(5): error: identifier "wrong_name" is undefined'
    assert lines[1].strip() == "a[i] = wrong_name;"
    assert "/usr/include/stdio.h(5): error: something in a header" in lines  # not the candidate's line 5
    second = python_line_of("__syncthreads();", 1)
    position = next(i for i, line in enumerate(lines) if line.startswith(f"line {second} of the candidate"))
    assert position < next(i for i, line in enumerate(lines) if "warning" in line)
    assert sorted(line.rpartition(": two.cu")[2] for line in lines) == sorted(
        line.rpartition("two.cu")[2] if line.startswith("two.cu") else line for line in LOG.splitlines()
    )
