"""M20: raises an exception that bears the name of the kit's own.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# platform: cpu
# xfail: classified by the name of the exception's class (decision._from_exception)

class CompileError(Exception):
    pass


def solution(tensor):
    raise CompileError("ptxas fatal")
