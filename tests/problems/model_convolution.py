"""A convolution as a sum over the offsets of its kernel."""

import torch


def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> torch.Tensor:
    """Any number of axes: a sum over the offsets of the kernel."""
    axes = len(stride)
    for axis in range(axes):
        zeros = list(x.shape)
        zeros[2 + axis] = padding[axis]
        x = torch.cat([x.new_zeros(zeros), x, x.new_zeros(zeros)], dim=2 + axis)
    kernel = weight.shape[2:]
    lengths = [(x.shape[2 + a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in range(axes)]
    out = x.new_zeros(x.shape[0], weight.shape[0], *lengths)
    for offset in torch.cartesian_prod(*(torch.arange(n) for n in kernel)).tolist():
        part = x
        for a in range(axes):
            index = offset[a] * dilation[a] + stride[a] * torch.arange(lengths[a])
            part = part.index_select(2 + a, index)
        out += torch.einsum("bc...,oc->bo...", part, weight[(slice(None), slice(None), *offset)])
    return out
