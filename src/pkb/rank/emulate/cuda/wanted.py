"""Whether a candidate needs the emulated GPU, found out without loading it: what ranks of other candidates never import."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkb.rank.devices import Device

_HOLDS_CUDA = re.compile(
    r"__global__|compile_cuda_extension|\bkit\.compile\b|pkb\.kit\.cuda|pkb\.kit import[^\n]*\bcompile\b"
)


def wanted(source: str) -> bool:
    return _HOLDS_CUDA.search(source) is not None


def install(device: "Device", source: str) -> "Device":
    """Puts it in place; returns the device to wait for."""
    from pkb.rank.emulate.cuda.install import install as put_in_place

    return put_in_place(device, source)
