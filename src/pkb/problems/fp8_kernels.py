"""Triton kernels for baselines that quantise by blocks: one pass where torch's operators need several. For a GPU only."""

import triton
import triton.language as tl


@triton.jit
def quantise(  # type: ignore[no-untyped-def]
    x, codes, scales, blocks, SIZE: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr
):
    """Codes and scale of each block of SIZE values; WIDTH is the next power of two."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    at = row[:, None] * SIZE + column[None, :]
    inside = (row[:, None] < blocks) & (column[None, :] < SIZE)
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    peak = tl.max(tl.abs(values), axis=1)
    scale = tl.div_rn(peak, tl.full(peak.shape, 448.0, tl.float32))  # the largest float8_e4m3fn
    divisor = tl.where(scale == 0.0, 1.0, scale)
    quotient = tl.div_rn(values, tl.broadcast_to(divisor[:, None], values.shape))
    tl.store(codes + at, quotient.to(tl.float8e4nv), mask=inside)
    tl.store(scales + row, scale, mask=row < blocks)


@triton.jit
def dequantise(  # type: ignore[no-untyped-def]
    codes, scales, out, elements, SIZE: tl.constexpr, SPAN: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)
    inside = at < elements
    scale = tl.load(scales + at // SIZE, mask=inside)
    tl.store(out + at, tl.load(codes + at, mask=inside).to(tl.float32) * scale, mask=inside)
