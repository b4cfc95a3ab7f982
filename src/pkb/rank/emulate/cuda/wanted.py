"""Whether a candidate needs the emulated GPU, found out without loading it: what ranks of other candidates never import."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkb.rank.devices import Device
    from pkb.types.protocol.replies import Fidelity

_HOLDS_CUDA = re.compile(
    r"__global__|compile_cuda_extension|\bkit\.compile\b|pkb\.kit\.cuda|pkb\.kit import[^\n]*\bcompile\b"
)


def wanted(source: str) -> bool:
    return _HOLDS_CUDA.search(source) is not None


def install(device: "Device", source: str) -> "Device":
    """Puts it in place; returns the device to wait for."""
    from pkb.rank.emulate.cuda.install import install as put_in_place

    return put_in_place(device, source)


def reseed(seed: int) -> None:
    """Another order of threads from now on; nothing where the emulated GPU is not in place."""
    module = sys.modules.get("pkb.rank.emulate.cuda.device")
    if module is not None:
        module.gpu().reseed(seed)


@contextlib.contextmanager
def waiting(late_s: float = 0.0, *, stops: int = 0, held: bool = False) -> Iterator[None]:
    """Inside the block a peer may come so late: the emulated GPU waits as long in its own time, in which it looks as often as a
    GPU would. So many times it stands still itself for a while when it has waited, in the middle of a kernel.
    `held`: single threads stop for a while between what they tell others, and the rest of the device goes on."""
    module = sys.modules.get("pkb.rank.emulate.cuda.device")
    if module is None:
        yield
        return
    module.gpu().expect_late(late_s, stops=stops)
    module.gpu().hold_threads(wanted=held)
    try:
        yield
    finally:
        module.gpu().expect_late(0.0, stops=0)
        module.gpu().hold_threads(wanted=False)


def executed() -> dict[str, "Fidelity"]:
    """Instructions that the emulated GPU has executed; none where it is not in place."""
    module = sys.modules.get("pkb.rank.emulate.cuda.device")
    return module.executed() if module is not None else {}
