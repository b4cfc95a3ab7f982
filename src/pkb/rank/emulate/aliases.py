"""A candidate that asks for `cuda:<rank>` gets its device on every platform.

On a node there is a GPU per rank and nothing is done. On the virtual platform all ranks share GPU 0, so every index
means it; on the cpu platform every CUDA device means the CPU. What a device is asked for by name goes through three
doors: `torch.device`, the functions of `torch.cuda`, and device arguments of tensor functions. The last needs a mode
that costs a microsecond per call of torch, so it is entered only for a candidate whose text names a device.

Facts stay honest: `torch.cuda.is_available()` is False on a CPU, and properties of a GPU that is not there cannot be
had.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from pkb.rank.emulate import uneven_all_to_all
from pkb.rank.emulate.cuda_stand_ins import install_stand_ins

NAMES_A_DEVICE = re.compile(
    r"""cuda:|["']cuda["']|\.cuda\(|torch\.device\(|current_device|pin_memory"""
    r"""|\bdevice\s*=\s*\w*rank\b|\.to\(\s*\w*rank\b"""
)
"""Any of these in a candidate's text makes it worth the cost of the mode."""

RealDevice = torch.device
ON_COPY: list[Callable[[], None]] = []
"""Told of every call that would copy a tensor of the host to a device if it is one, and wait: who records, while it does."""


def install(device: str, *, shares_device: bool, rank: int, source: str) -> None:
    """To be called once, in the thread that will run the candidate (modes belong to a thread), before it is
    imported."""
    on_cpu = device == "cpu"
    if not on_cpu and not shares_device:
        return
    translate = _to_cpu if on_cpu else _to_first_gpu
    if on_cpu:
        install_stand_ins(rank)
        uneven_all_to_all.install()
    else:
        _wrap_cuda_functions(translate)
    if NAMES_A_DEVICE.search(source):
        _replace_torch_device(translate)
        _Aliases(translate, host_only=on_cpu).__enter__()


def translate_arguments() -> None:
    """On a CPU, for a candidate that has devices by other ways than their names."""
    _Aliases(_to_cpu, host_only=True).__enter__()


# --- translation: None, strings, indices and devices, to the same or to another ---


def _to_cpu(device: Any) -> Any:
    """Bare indices mean CUDA devices in torch."""
    if type(device) is int:
        return RealDevice("cpu")
    if isinstance(device, str):
        return "cpu" if device == "cuda" or device.startswith("cuda:") else device
    if isinstance(device, RealDevice) and device.type == "cuda":
        return RealDevice("cpu")
    return device


def _to_first_gpu(device: Any) -> Any:
    if type(device) is int:
        return 0 if device >= 0 else device
    if isinstance(device, str):
        return "cuda:0" if device.startswith("cuda:") else device
    if isinstance(device, RealDevice) and device.type == "cuda" and device.index:
        return RealDevice("cuda", 0)
    return device


# --- torch.device ---


def _replace_torch_device(translate: Callable[[Any], Any]) -> None:
    """`torch.device` becomes a class that makes translated devices and passes for the real one everywhere else."""

    class DeviceMeta(type):
        def __call__(cls, *arguments: Any, **options: Any) -> Any:
            if (arguments and isinstance(arguments[0], int)) or isinstance(options.get("device"), int):
                # The real constructor would look for an accelerator before we could say which one.
                return RealDevice(translate(arguments[0] if arguments else options["device"]))
            type_name = str(arguments[0] if arguments else options.get("type", options.get("device", "")))
            if type_name == "cuda" or type_name.startswith("cuda:"):
                return translate(RealDevice(*arguments, **options))
            return RealDevice(*arguments, **options)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, RealDevice)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, RealDevice) or subclass is cls

        # Tables inside torch have the real class as a key (schemas of custom operators, for one).
        def __eq__(cls, other: object) -> bool:
            return other is cls or other is RealDevice

        def __hash__(cls) -> int:
            return hash(RealDevice)

    # Pickle writes classes by name, and other processes must read torch's.
    alias = DeviceMeta("device", (), {"__module__": "torch", "__qualname__": "device", "__doc__": RealDevice.__doc__})
    torch.device = alias  # type: ignore[assignment,misc]


# --- device arguments ---


class _Aliases(TorchFunctionMode):
    """Translates the device arguments of every torch function that the candidate calls."""

    def __init__(self, translate: Callable[[Any], Any], *, host_only: bool) -> None:
        super().__init__()
        self._translate = translate
        self._host_only = host_only

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs:
            device = kwargs.get("device")
            if device is not None:
                kwargs = {**kwargs, "device": self._translate(device)}
            if self._host_only and kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
        if ON_COPY and func in (torch.Tensor.to, torch.Tensor.cuda) and not (kwargs or {}).get("non_blocking"):
            ON_COPY[-1]()
        if func is torch.Tensor.to:
            if len(args) > 1 and isinstance(args[1], (str, int, RealDevice)):
                args = (args[0], self._translate(args[1]), *args[2:])
        elif func is torch.Tensor.cuda:
            if self._host_only:
                return args[0]
            if len(args) > 1 and args[1] is not None:
                args = (args[0], self._translate(args[1]), *args[2:])
        elif self._host_only and func is torch.Tensor.pin_memory:
            return args[0]
        return func(*args, **kwargs) if kwargs else func(*args)


# --- torch.cuda on the virtual platform ---

TAKES_A_DEVICE_FIRST = (
    "set_device", "synchronize", "current_stream", "default_stream", "get_device_properties", "get_device_name",
    "get_device_capability", "mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "reset_peak_memory_stats", "memory_stats",
)  # fmt: skip


def _wrap_cuda_functions(translate: Callable[[Any], Any]) -> None:
    cuda = cast(Any, torch.cuda)
    for name in TAKES_A_DEVICE_FIRST:
        if hasattr(cuda, name):
            setattr(cuda, name, _first_translated(getattr(cuda, name), translate))

    class device(cuda.device):  # type: ignore[name-defined,misc]
        def __init__(self, device: Any) -> None:
            super().__init__(translate(device))

    device.__module__ = "torch.cuda"
    cuda.device = device  # torch.cuda.Stream(device=k) enters it as well
    cuda.can_device_access_peer = lambda device, peer_device: True  # there is one device, and it reaches itself


def _first_translated(function: Callable[..., Any], translate: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def translated(*arguments: Any, **options: Any) -> Any:
        if arguments:
            arguments = (translate(arguments[0]), *arguments[1:])
        if "device" in options:
            options["device"] = translate(options["device"])
        return function(*arguments, **options)

    return translated
