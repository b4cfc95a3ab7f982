"""S21: imports the reference of the problem and calls it. Stopped by the static rule harness_access;
import_reference_dynamically.py shows that the module cannot be read either.
"""
# problem: 1
# ranks: 2
# plan: quick
# expect: rejected
# stage: inspect
# rule: harness_access
# platform: cpu

from pkb.problems.p01_allreduce import solution as reference


def solution(tensor):
    return reference(tensor)
