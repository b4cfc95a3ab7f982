"""Trap: inline assembly that converts numbers, and a plain load of own memory."""
# expect: none

import triton
import triton.language as tl


@triton.jit
def convert(x, y):
    at = tl.arange(0, 128)
    v = tl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f", [tl.load(x + at), tl.load(x + at)], tl.int32, True, 1)
    w = tl.inline_asm_elementwise("ld.global.nc.u32 $0, [$1];", "=r,l", [x + at], tl.int32, True, 1)
    tl.store(y + at, v + w)
