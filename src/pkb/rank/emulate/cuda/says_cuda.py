"""`tensor.device` for a candidate that asks for its type: the emulated GPU, as on a machine that has one.

Only in the candidate's own lines, and only if its text asks: torch's own code goes on seeing the CPU that tensors are on, and
a device that the candidate hands back to torch is translated there (`aliases`).
"""

import re
import sys
from types import FrameType
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from pkb.rank.emulate import aliases

_ASKS = re.compile(r"dev(ice)?\w*\.type\b")  # also of `compute_device`, `dev`
_NOT_ITS_OWN = ("torch", "pkb", "triton", "numpy")


def wanted(source: str) -> bool:
    return _ASKS.search(source) is not None


class _SaysCuda(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func == _GETTER and found.type == "cpu" and not _caller().startswith(_NOT_ITS_OWN):
            return aliases.RealDevice("cuda", torch.cuda.current_device())
        return found


_GETTER = cast(Any, torch.Tensor.device).__get__


def _caller() -> str:
    """The module whose line led to `__torch_function__`, past other modes of ours."""
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None and (name := str(frame.f_globals.get("__name__", ""))).startswith("pkb.rank.emulate"):
        frame = frame.f_back
    return name


def install() -> None:
    aliases.translate_arguments()
    cast(Any, torch).device = aliases.RealDevice  # one that the candidate makes says what it was made for
    _SaysCuda().__enter__()
