"""Exceptions that say that a candidate was written for another torch, where a tensor was what is an address here."""

import re

_SIGNATURE = re.compile(r"\d+\. \((.*?)\) ->", re.DOTALL)
LEAST_ADDRESS = 1 << 32
"""Devices' addresses are larger, and numbers that anybody means to pass are not."""


def is_of_another_torch(exception: str, message: str) -> bool:
    """By the type's name and the words of Python and pybind11, which is all that is known of it: `signal_pad_ptrs_dev` of a
    symmetric-memory handle, for one, is an integer in torch 2.11 and was handed to C++ as a tensor before."""
    if exception == "AttributeError":
        return message.strip() == "'int' object has no attribute 'data_ptr'"
    signature = _SIGNATURE.search(message)
    if exception != "TypeError" or "incompatible function arguments" not in message or signature is None:
        return False
    wanted = _parts(signature[1])
    given = _parts(message.partition("Invoked with:")[2])
    return any("Tensor" in want and _is_address(got) for want, got in zip(wanted, given, strict=False))


def _is_address(text: str) -> bool:
    return text.isdecimal() and len(text) < 25 and int(text) >= LEAST_ADDRESS


def _parts(text: str) -> list[str]:
    """Of an argument list, at the commas outside of all brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
