"""Puts the emulated GPU in place for a candidate whose text holds CUDA: builders, streams, what tensors say of themselves."""

import os
from collections.abc import Callable
from typing import Any, NoReturn, cast

import torch

import pkb.kit
import pkb.kit.cuda
from pkb.rank.devices import CpuDevice, Device
from pkb.rank.emulate.cuda import extensions, graphs, kernels, nvshmem, says_cuda, setters, switch
from pkb.rank.emulate.cuda.device import PROPERTIES, NotEmulatedHere, gpu
from pkb.rank.emulate.cuda.streams import install_streams


class EmulatedDevice(CpuDevice):
    """The host, and the streams of an emulated GPU that it waits for."""

    def wait(self) -> None:
        gpu().library.emu_stream_synchronize(0)

    def wait_elsewhere(self) -> float:
        gpu().synchronize()
        return 0.0

    def synchronize(self) -> None:
        gpu().synchronize()


def _not_emulated(name: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise NotEmulatedHere(name)

    return refuse


def install(before: Device, source: str) -> EmulatedDevice:
    cast(Any, pkb.kit).compile = cast(Any, pkb.kit.cuda).compile = kernels.compile
    extensions.install(source)
    nvshmem.install()
    cuda = cast(Any, torch.cuda)
    cuda.is_available = lambda: True
    cuda.get_device_properties = lambda device=None: PROPERTIES
    cuda.get_device_capability = lambda device=None: (PROPERTIES.major, PROPERTIES.minor)
    cuda.get_device_name = lambda device=None: PROPERTIES.name
    cuda.device_count = torch.distributed.get_world_size
    cuda.can_device_access_peer = lambda device, peer_device: True
    cuda._lazy_init = lambda: None
    # On a CPU all tensors are where kernels can reach them.
    cast(Any, torch.Tensor).is_cuda = property(lambda self: True)
    install_streams()
    graphs.install(cuda)
    cuda.make_graphed_callables = _not_emulated("torch.cuda.make_graphed_callables")
    if says_cuda.wanted(source):
        says_cuda.install()
    setters.install()
    if os.environ.get("PKB_NVLS") == "1":
        switch.install()
    cuda.synchronize = lambda device=None: gpu().synchronize()
    device = EmulatedDevice()
    device.window = before.window
    return device
