"""Inline assembly kept in a constant: a system-scope release store to a peer's flag."""
# expect: sm_load_store

import triton
import triton.language as tl

SIGNAL = "st.release.sys.global.u32 [$1], $2; mov.u32 $0, $2;"  # <- sm_load_store


@triton.jit
def signal(flag, value):
    return tl.inline_asm_elementwise(SIGNAL, "=r,l,r", [flag, value], tl.uint32, False, 1)  # <- sm_load_store
