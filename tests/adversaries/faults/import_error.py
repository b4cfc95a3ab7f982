"""Imports what is not installed."""
# problem: 1
# ranks: 2
# plan: quick
# expect: load_error
# stage: start
# rule: ModuleNotFoundError
# platform: cpu

import a_module_that_nobody_has


def solution(tensor):
    return tensor
