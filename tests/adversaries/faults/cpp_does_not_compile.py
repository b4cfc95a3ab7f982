"""C++ with a mistake in it, found before any rank starts."""
# problem: 1
# ranks: 2
# plan: quick
# expect: compile_error
# stage: build
# platform: cpu

from pkb import kit

SOURCE = r"""
extern "C" void add(float* a) { a[0] = missing_name; }
"""
LIBRARY = kit.build_cpp(SOURCE, name="broken")


def solution(tensor):
    return tensor
