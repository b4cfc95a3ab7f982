"""Which GPUs this process works on, asked of the driver: a kernel on a peer's GPU is behind no mark on our own stream."""

import ctypes
from ctypes import byref, c_int, c_uint
from typing import Any

_MULTICAST_SUPPORTED = 132
_BLOCKING_SYNC = 4


def load_driver() -> Any:
    """The driver's library, or None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def wait_asleep(driver: Any, index: int) -> None:
    """A host that waits for this GPU is to sleep, not to ask again and again. Before the context is made; where the driver
    does not do it, hosts wait as ever."""
    if driver is not None and driver.cuInit(0) == 0:
        driver.cuDevicePrimaryCtxSetFlags_v2(index, _BLOCKING_SYNC)


class Contexts:
    """Counted once, before a candidate is loaded; whether a context is active is asked anew each time."""

    def __init__(self, driver: Any, own: int, count: int) -> None:
        self._others = [] if driver is None else [index for index in range(count) if index != own]
        # One by one and kept: looking a function up, and making numbers to point at, costs more than the call.
        self._state = getattr(driver, "cuDevicePrimaryCtxGetState", None)
        self._flags, self._active = c_uint(), c_int()

    def others(self) -> list[int]:
        """Devices but our own on which this process has an active primary context. One that somebody else has made (MPS, the
        peer's own process) is none of ours."""
        return [index for index in self._others if self._is_active(index)]

    def _is_active(self, index: int) -> bool:
        if self._state is None or self._state(index, byref(self._flags), byref(self._active)) != 0:
            return True  # cannot be asked: waiting for an idle device costs little
        return bool(self._active.value)


def multicast_words(driver: Any, index: int) -> str:
    """Whether the driver offers multicast objects on this GPU."""
    found = c_int()
    if driver is None or driver.cuDeviceGetAttribute(byref(found), _MULTICAST_SUPPORTED, index) != 0:
        return "unknown"
    return "yes" if found.value else "no"
