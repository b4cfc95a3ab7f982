"""M20: raises an exception that bears the name of the kit's own."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# platform: cpu


class CompileError(Exception):
    pass


def solution(tensor):
    raise CompileError("ptxas fatal")
