"""Raises an exception whose text raises in turn."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# platform: cpu


class Nasty(Exception):
    def __str__(self):
        raise ValueError("no text")


def solution(tensor):
    raise Nasty
