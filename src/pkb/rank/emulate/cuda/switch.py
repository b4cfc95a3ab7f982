"""An emulated NVSwitch: a multicast address for every handle, which stands for the same place of all ranks."""

from itertools import count

from pkb.rank.emulate.cuda.device import gpu
from pkb.rank.symmetric import rendezvous
from pkb.rank.symmetric.handle import Handle

_numbers = count(1)
_MOST = 255
"""Buffers that have an address in the switch. Those after them have none, as on a GPU that has run out."""


def install() -> None:
    Handle.has_switch = True
    rendezvous.ON_HANDLE.append(_give_address)


def _give_address(handle: Handle) -> None:
    number = next(_numbers)
    if number <= _MOST:
        gpu().library.emu_set_multicast(number, handle.buffer_ptrs_dev, handle.world_size)
        handle.multicast_ptr = 0x70 << 48 | number << 40
