"""Trap: atomics at GPU scope on the rank's own lock (split-K)."""
# expect: none

import triton
import triton.language as tl


@triton.jit
def split_k(c, lock, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1, sem="acquire", scope="gpu") == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.atomic_add(c + at, 1.0)
    tl.atomic_xchg(lock, 0)
