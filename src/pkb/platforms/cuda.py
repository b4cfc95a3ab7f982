"""What the two GPU platforms share: which GPUs there are for us, and the environment of ranks.

A GPU is ours if CUDA would show it: `CUDA_VISIBLE_DEVICES` counts here as it does there, with GPUs in the order of the PCI bus.
Ranks are told their GPUs by UUID, so that neither a number nor another order of counting can mean a different one.
"""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from pkb.platforms.nccl import torch_cuda
from pkb.platforms.nvml import Gpu, machine

VISIBLE = "CUDA_VISIBLE_DEVICES"
CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may run ranks on. Without a choice of the user's the largest come first: a small card for
    the display is no reason to judge on it."""
    known, asked = machine().gpus, os.environ.get(VISIBLE)
    found = sorted(known, key=lambda gpu: -(gpu.memory_bytes >> 30)) if asked is None else visible(asked, known)
    return tuple(gpu for gpu in found if not gpu.mig)


def visible(asked: str, known: Sequence[Gpu]) -> list[Gpu]:
    """As CUDA reads the variable: numbers, or beginnings of UUIDs if the first is one; the first entry that names no GPU
    ends the list, and one that comes twice makes all of it void."""
    chosen: list[Gpu] = []
    entries = [entry.strip() for entry in asked.split(",")]
    by_uuid = entries[0].startswith("GPU-")
    for entry in entries:
        gpu = _by_uuid(entry, known) if by_uuid else _by_number(entry, known)
        if gpu is None:
            break
        if gpu in chosen:
            return []
        chosen.append(gpu)
    return chosen


def _by_number(entry: str, known: Sequence[Gpu]) -> Gpu | None:
    digits = re.match(r"\+?(\d+)", entry)
    number = int(digits[1]) if digits else -1
    return known[number] if 0 <= number < len(known) else None


def _by_uuid(entry: str, known: Sequence[Gpu]) -> Gpu | None:
    """One that fits two GPUs means neither."""
    fitting = [gpu for gpu in known if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return fitting[0] if len(fitting) == 1 else None


class Unused(NamedTuple):
    why: str
    to_do: str

    def __str__(self) -> str:
        return f"{self.why}; {self.to_do}"


def unused_gpus() -> list[Unused]:
    """GPUs of this machine that are not used."""
    notes = [Unused(words, "ask who gives out the GPUs of this machine") for words in machine().left_out]
    notes += [
        Unused(
            f"GPU {gpu.index} is split by MIG, which is not supported",
            f"`nvidia-smi -i {gpu.index} -mig 0`, or use another GPU",
        )
        for gpu in machine().gpus
        if gpu.mig
    ]
    asked, whole = os.environ.get(VISIBLE), [gpu for gpu in machine().gpus if not gpu.mig]
    if asked is not None and len(gpus()) < len(whole):
        notes.append(
            Unused(f"{VISIBLE}={asked!r} makes {len(gpus())} of {len(whole)} GPUs visible", "unset it for all")
        )
    return notes


def why_no_gpu() -> str:
    """What stands in the way of any rank on a GPU; empty if nothing does."""
    if not gpus():
        return (
            "; ".join(map(str, unused_gpus()))
            or "no NVIDIA GPU is visible (nvidia-ml-py and the driver are needed to look)"
        )
    if not torch_cuda():
        return (
            "torch is a CPU build here: `make clean`, then `make demo` with the GPU there, or install torch from PyPI"
        )
    return why_old_driver()


def why_old_driver() -> str:
    """A torch built for a newer major version of CUDA than the driver's finds no GPU at all; minor versions are compatible."""
    runs, built = machine().cuda, torch_cuda()
    if not any(runs) or runs[0] >= int(built.partition(".")[0]):
        return ""
    return (
        f"driver {gpus()[0].driver} runs CUDA {runs[0]}.{runs[1]} at most, and torch is built for {built}: install a newer "
        f"driver, or `make clean` and set up with a torch for CUDA {runs[0]} (TORCH_INDEX, docs/setup.md)"
    )


def why_not_compute_mode(used: Sequence[Gpu], *, processes: int) -> str:
    """`processes`: how many of ours have a context on each GPU."""
    refused = ("prohibited", "exclusive_process", "exclusive_thread") if processes > 1 else ("prohibited",)
    for gpu in used:
        if gpu.compute_mode in refused:
            return (
                f"GPU {gpu.index} is in compute mode {gpu.compute_mode}, and an evaluation has {processes} processes on it: "
                f"`nvidia-smi -i {gpu.index} -c DEFAULT`"
            )
    return ""


def visible_environment(used: Sequence[Gpu]) -> dict[str, str]:
    """These GPUs and no other."""
    return {VISIBLE: ",".join(gpu.uuid for gpu in used)}


def cuda_environment() -> dict[str, str]:
    """Common to `virtual` and `node`: a loopback rendezvous, and libraries where the user has them."""
    keep = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES")
    return {name: os.environ[name] for name in keep if name in os.environ} | CUDA_ORDER | {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",  # one machine needs no adapter, and ranks cannot open one
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "1",
        # Torch's profiler stays attached otherwise, once a rank was profiled, and slows every call of CUDA from then on.
        "TEARDOWN_CUPTI": "1",
    }  # fmt: skip
