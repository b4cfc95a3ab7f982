"""Poison for symmetric memory of a floating-point type: NaN in what may be data, and in nothing that may be a flag.

A workspace of floats often holds flags too, in an integer view of some part: an epoch that counts up and is never reset. NaN
there is a large number, the next wait is over at once, and an honest candidate would look like one with a race. What a flag
holds (a small integer) is, read as floats, zero or next to it, and no data worth speaking of. So zeros stay as well: who reads
a zero where fresh data should be is wrong in any case.
"""

import torch

CHUNK_WORDS = 1 << 24
SMALL = 1 << 16
"""A 32-bit integer below it, of either sign, may be a flag in memory of 16-bit and 8-bit floats."""
SUBNORMAL = {torch.float32: (torch.int32, 1 << 23), torch.float64: (torch.int64, 1 << 52)}
"""Word and bound by type: below it a float has no exponent, which is where small integers lie, two of 32 bits in a word of 64
as well."""


def poison_data(flat: torch.Tensor) -> int:
    """Overwrites a one-dimensional floating-point tensor, in stream order; returns its bytes."""
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat).reshape(-1)
    word, bound = SUBNORMAL.get(flat.dtype, (torch.int32, SMALL))
    in_a_word = word.itemsize // flat.element_size()
    nan = int(torch.full((in_a_word,), float("nan"), dtype=flat.dtype).view(word).item())
    whole = flat.numel() // in_a_word * in_a_word
    for words in flat[:whole].view(word).split(CHUNK_WORDS):
        words.masked_fill_((words < -bound) | (words >= bound), nan)
    flat[whole:].fill_(float("nan"))
    return flat.numel() * flat.element_size()
