"""Numbers as people read them."""

from pkb.types.units import bytes_words

__all__ = ["bytes_words", "flops_words", "time_words"]


def flops_words(count: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if abs(count) < 999.5 or unit == "T":
            break
        count /= 1000
    return f"{count:.3g} {unit}FLOP"


def time_words(time_us: float) -> str:
    if time_us < 9_999.5:
        return f"{time_us:.4g} us"
    if time_us < 9_999_500:
        return f"{time_us / 1e3:.4g} ms"
    return f"{time_us / 1e6:.4g} s"
