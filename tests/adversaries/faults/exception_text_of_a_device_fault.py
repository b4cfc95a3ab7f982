"""M20: an exception of its own that says what torch says of a faulted kernel."""
# problem: 1
# ranks: 2
# plan: quick
# expect: runtime_error
# rule: RuntimeError
# platform: cpu


def solution(tensor):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
