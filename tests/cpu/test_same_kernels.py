"""benchmarks/same_kernels.py: sees the kernels of each source, alone and in one text with others, and sees a difference."""

from pathlib import Path

import pytest
from kit_compilers import needs_nvcc

from program_files import program

program_ = program("benchmarks/same_kernels.py")
Kept = program_.Kept
SOURCE = """#include <torch/extension.h>
#include <cuda_runtime.h>
#define FACTOR {factor}
__constant__ float table[4];
__global__ void scale(float* x) {{ x[threadIdx.x] *= FACTOR; }}
template <class T> __global__ void shift(T* x) {{ x[threadIdx.x] += T(1); }}
void run(torch::Tensor x) {{
  scale<<<1, 32>>>(x.data_ptr<float>());
  shift<<<1, 32>>>({pointer});
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("run", &run); }}
"""
FLOATS = Kept("floats", SOURCE.format(factor="3.f", pointer="x.data_ptr<float>()"))
DOUBLES = Kept("doubles", SOURCE.format(factor="3.f", pointer="x.data_ptr<double>()"))
OTHER = Kept("other", SOURCE.format(factor="5.f", pointer="x.data_ptr<float>()"))


@needs_nvcc
def test_each_source_has_its_own_kernels_alone_and_beside_others() -> None:
    beside = program_.sections(program_.device_code(program_.together([FLOATS, DOUBLES, OTHER]), real=False))
    floats, doubles, other = (
        program_.kernels_of(number, source, beside, alone=False)
        for number, source in enumerate((FLOATS, DOUBLES, OTHER))
    )
    alone = program_.sections(program_.device_code(program_.together([FLOATS]), real=False))
    assert floats == program_.kernels_of(0, FLOATS, alone, alone=True)
    assert sum(row.startswith(".text.") for row in floats) == 2
    assert len({tuple(floats), tuple(doubles), tuple(other)}) == 3


@needs_nvcc
def test_what_does_not_compile_is_left_out_and_named() -> None:
    broken = Kept("broken", FLOATS.text.replace("*= FACTOR", "*= nobody"))
    foreign = Kept(
        "foreign", FLOATS.text.replace("data_ptr<float>()", "data_ptr<char>()")
    )  # torch has no such function
    left, code, gone = program_.compiling([FLOATS, broken, foreign, OTHER])
    assert [source.file for source in (*left, *gone)] == ["floats", "other", "broken", "foreign"]
    assert code.startswith(b"\x7fELF")
    assert program_.compiling([broken]) == ([], b"", [broken])


def test_only_the_symbol_of_the_parameters_section_is_left_out() -> None:
    def info(*, symbol: int, size: int) -> bytes:
        return bytes((3, 0x1B, 0xFF, 0, 4, 0x0A, 8, 0, symbol, 0, 0, 0, 0x10, 2, size, 0))

    assert program_.without_symbols(info(symbol=7, size=16)) == program_.without_symbols(info(symbol=9, size=16))
    assert program_.without_symbols(info(symbol=7, size=16)) != program_.without_symbols(info(symbol=7, size=24))


@needs_nvcc
@pytest.mark.parametrize(
    ("changed", "status", "words"), [("3.f", 0, "1 of 1 sources, 2 kernels"), ("5.f", 1, "0 of 1 ")]
)
def test_a_difference_is_told_by_the_exit_status(
    changed: str,
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (
        f'from utils.cuda_helpers import compile_cuda_extension\nX = compile_cuda_extension("x", """{FLOATS.text}""")\n'
    )
    (tmp_path / "one.py").write_text(text)
    compiled = program_.device_code

    def other_headers(text: str, *, real: bool) -> bytes:
        """In place of torch's, which take half a minute: our own, and another kernel where they are asked to differ."""
        return bytes(compiled(text.replace("3.f", changed) if real else text, real=False))

    monkeypatch.setattr(program_, "device_code", other_headers)
    monkeypatch.setattr("sys.argv", ["same_kernels.py", str(tmp_path)])
    assert program_.main() == status
    assert words in capsys.readouterr().out
