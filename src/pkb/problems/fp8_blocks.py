"""Quantisation by blocks in one pass, for baselines on a GPU."""

import torch


def quantise(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, block: int) -> None:
    """Fills codes and scales, both contiguous, from contiguous x."""
    from pkb.problems import fp8_kernels

    blocks, width = scales.numel(), 1 << (block - 1).bit_length()
    rows = max(1, 4096 // width)
    if blocks:
        fp8_kernels.quantise[(-(-blocks // rows),)](x, codes, scales, blocks, SIZE=block, WIDTH=width, ROWS=rows)


def dequantise(codes: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    """Codes times scales in float32, in the codes' shape."""
    from pkb.problems import fp8_kernels

    out = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    span = 4096
    if elements := codes.numel():
        fp8_kernels.dequantise[(-(-elements // span),)](codes, scales, out, elements, SIZE=block, SPAN=span)
    return out
