"""Whose fault a failed build for the CPU is: errors that no header of the emulator can cause are the candidate's, no others."""

import pytest

from pkb.kit.emulated.blame import candidates_error, certain_by_nvcc
from pkb.kit.emulated.rewrite import rewrite
from pkb.kit.errors import CompileError
from pkb.platforms.cpu import CpuPlatform


def said(text: str) -> CompileError:
    return CompileError(text, name="k", own_files=("k.cu", "k.cpp"))


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("k.cu:3:9: error: expected ';' before 'x'", True),
        ("k.cu:3:9: error: invalid conversion from ‘long int*’ to ‘const long long int*’ [-fpermissive]", True),
        ("k.cu:3:9: error: invalid conversion from ‘void*’ to ‘cudaEvent_t’ [-fpermissive]", False),
        ("k.cu:3:9: error: invalid cast from type ‘__nv_bfloat16’ to type ‘float’", True),
        ("k.cu:3:9: error: invalid cast from type ‘__nv_fp8_e4m3’ to type ‘float’", False),
        ("k.cu:3:9: error: could not convert ‘p[i]’ from ‘const pkb_slim::BFloat16’ to ‘__nv_bfloat16’", True),
        ("k.cu:3:9: error: could not convert ‘p[i]’ from ‘pkb_slim::Tensor’ to ‘float’", False),
        ("k.cu:3:9: error: ‘CUDART_INF_F’ was not declared in this scope", True),
        ("k.cu:3:9: error: ‘at::cuda’ has not been declared", True),
        ("k.cu:3:9: error: ‘cudaIpcGetMemHandle’ was not declared in this scope", False),
        ("k.cu:3:9: error: no matching function for call to ‘min<int64_t>(int, int64_t&)’", True),
        ("k.cu:3:9: error: no matching function for call to ‘atomicAdd(char*, int)’", False),
        ("k.cu:3:9: error: ‘CountingInputIterator’ in namespace ‘cub’ does not name a template type", True),
        ("k.cu:3:9: error: ‘BlockRadixSort’ in namespace ‘cub’ does not name a template type", False),
        ("k.cu:3:10: fatal error: curand_kernel.h: No such file or directory", False),
        ("k.cu:3:10: fatal error: ATen/core/NoSuchHeader.h: No such file or directory", True),
        ("k.cu:3:10: fatal error: ATen/core/Tensor.h: No such file or directory", False),  # torch has it, ours may not
        ("tensor.h:9:4: error: incomplete type ‘pkb_slim::ScalarOf<long long int>’ used in nested name", True),
        ("emu.h:9:4: error: expected ';' before 'x'", False),  # ours
    ],
)
def test_an_error_of_gxx(text: str, held: bool) -> None:
    assert (candidates_error(said(text), name="k") is not None) is held


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ('k.cu(35): error: argument of type "int64_t *" is incompatible with parameter of type "long long *"', True),
        ('k.cu(35): error: identifier "offsets_of_peers" is undefined', True),
        ('k.cu(35): error: identifier "AT_DISPATCH_SOMETHING" is undefined', False),
        ('k.cu(35): error: class "pkb_slim::Tensor" has no member "quantile"', False),
        ('k.cu(35): error: no instance of overloaded function "max" matches the argument list', True),
        (
            'k.cu(35): error: no instance of overloaded function "f" matches the argument list\n'
            "            argument types are: (pkb_slim::Tensor, int)\n",
            False,
        ),
        (
            'k.cu(35): error: identifier "here" is undefined\n\nk.cu(36): error: "pkb_slim::Tensor" has no member',
            True,
        ),
        ('k.cu(35): error: namespace "torch" has no member "stack"', False),
        ("k.cu(3): catastrophic error: cannot open source file", False),
    ],
)
def test_an_error_of_nvcc(text: str, certain: bool) -> None:
    assert certain_by_nvcc(said(text)) is certain


def test_a_switch_is_a_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PKB_NVLS", raising=False)
    assert "multicast" not in CpuPlatform().facts().capabilities
    monkeypatch.setenv("PKB_NVLS", "1")
    facts = CpuPlatform().facts()
    assert ("multicast" in facts.capabilities) == (not facts.without_cuda)


def test_launches_and_attributes_name_their_kernel() -> None:
    text = rewrite(
        "template <int N> __global__ void k(int* p) {}\n"
        "void f(int* p, int b) { cudaFuncSetAttribute((void*)k<3>, W, b); auto q = k<4>; cudaFuncSetAttribute(q, W, b);\n"
        " k<3><<<1, 2, b>>>(p); q<<<1, 2, b>>>(p); long t = clock(); s.clock(); }"
    ).text
    assert 'emu_func_set_attribute("k", (void*)k<3>' in text
    assert 'emu_func_set_attribute("", q' in text
    assert '("k<3>", "k", ' in text
    assert '("q", "", ' in text
    assert "t = emu_clock(); s.clock();" in text
