"""When the switch adds and copies (NVLS): only where that puts fewer bytes on the links."""

import ctypes
import os
from typing import Any

from pkb.kit.arguments import ptr
from pkb.kit.pads import check_offset

FORCED = "PKB_NVLS"


def nvls(handle: Any, *, links: float, switch: float) -> bool:
    """Whether to take the way through the switch, by what it costs: bytes in the busiest direction of any GPU's links
    without it (`links`) and with it (`switch`), in any unit. All ranks decide alike.

    `PKB_NVLS=0` never takes it, `PKB_NVLS=1` always, and then raises where the machine cannot.
    """
    forced = os.environ.get(FORCED, "")
    if forced not in ("", "0", "1"):
        raise ValueError(f"PKB_NVLS={forced!r}: it is 0, 1 or unset")
    if forced == "1":
        multicast_address(handle)
        return True
    return not forced and int(handle.multicast_ptr) != 0 and switch < links


def multicast_address(handle: Any) -> int:
    address = int(handle.multicast_ptr)
    if address == 0:
        raise RuntimeError("this machine has no NVLS multicast (it needs several GPUs on an NVSwitch)")
    check_offset(handle)
    return address


def multicast(handle: Any) -> ctypes.c_uint64:
    """The multicast address for `pkb::Multimem`. Raises where the machine has no NVLS, where it would be null."""
    return ptr(multicast_address(handle))
