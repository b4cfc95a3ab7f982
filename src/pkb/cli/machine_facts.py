"""What `pkb doctor` looks at, one small function a topic. Nothing here starts a rank or takes GPU memory."""

import importlib.metadata
import os
import platform as python_platform
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pkb.types.units import bytes_words

if TYPE_CHECKING:
    from pkb.platforms.base import PlatformFacts

SHM_WANTED_BYTES = 1 << 30


@dataclass(frozen=True)
class Fact:
    name: str
    ok: bool
    found: str
    """What was found, or what its absence means."""
    to_do: str = ""


def platform_fact(facts: "PlatformFacts") -> Fact:
    if not facts.available:
        return Fact(facts.name, ok=False, found=facts.why_not)
    words = [facts.hardware, f"up to {facts.max_ranks} ranks", *facts.capabilities]
    return Fact(facts.name, ok=True, found=", ".join(filter(None, words)))


def software() -> list[Fact]:
    facts = [Fact("python", ok=True, found=python_platform.python_version())]
    for name, to_do in (
        ("torch", "pip install torch"),
        ("triton", "Triton candidates need it: pip install 'pkb[triton]'"),
    ):
        try:
            facts.append(Fact(name, ok=True, found=importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            facts.append(Fact(name, ok=False, found="not installed", to_do=to_do))
    facts.append(_nccl())
    return facts


def _nccl() -> Fact:
    """Which one `virtual` would load; `node` uses torch's own."""
    from pkb.platforms import nccl
    from pkb.platforms.cuda import why_no_gpu

    if why_no_gpu():
        return Fact("NCCL", ok=False, found="only virtual and node use it, and there is no GPU for them here")
    path = nccl.suitable_nccl()
    if path is not None:
        return Fact("NCCL", ok=True, found=f"{'.'.join(map(str, nccl.version(path)))} for virtual, {path}")
    seen = "; ".join(f"{path} {nccl.why_unfit(path)}" for path in nccl.places()) or "none found"
    return Fact(
        "NCCL",
        ok=False,
        found=f"none for virtual, where ranks share a GPU: {seen}",
        to_do="`pkb doctor --fix` gets one",
    )


WITHOUT_NVRTC = "no kit kernels for GPUs, and on cpu a mistake in one may be called unsupported"


def compilers() -> list[Fact]:
    from pkb.kit import nvrtc
    from pkb.kit.emulated.gxx import find_gxx
    from pkb.kit.toolkit import nvcc_path

    nvcc = nvcc_path()
    library = nvrtc.load()
    cpp = next(
        filter(None, (shutil.which(name) for name in (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))), None
    )
    gxx = find_gxx()
    header = Path(sysconfig.get_path("include", "posix_prefix"), "Python.h")
    return [
        Fact("nvcc", ok=True, found=str(nvcc)) if nvcc
        else Fact("nvcc", ok=False, found="no CUDA extensions without it", to_do="install the CUDA toolkit"),
        Fact("nvrtc", ok=True, found=library[1]) if library
        else Fact("nvrtc", ok=False, found=WITHOUT_NVRTC, to_do="pip install 'pkb[cuda]'"),
        Fact("c++", ok=True, found=cpp) if cpp
        else Fact("c++", ok=False, found="C++ candidates cannot be built", to_do="install g++ or clang++, or set CXX"),
        Fact("CUDA on cpu", ok=False, found="CUDA candidates need a GPU here", to_do=gxx) if isinstance(gxx, str)
        else Fact("CUDA on cpu", ok=True, found=f"{gxx} builds CUDA candidates for the platform cpu"),
        c_compiler(shutil.which("gcc") or shutil.which("clang"), header),
    ]  # fmt: skip


def c_compiler(compiler: str | None, header: Path) -> Fact:
    """What Triton builds the host's side of its kernels with. `CC` plays no part: ranks do not see it."""
    if compiler and header.is_file():
        return Fact("cc", ok=True, found=f"{compiler}, with Python's headers")
    lacking = f"no {header}" if compiler else "no gcc or clang"
    means = "on a GPU no Triton candidate runs, nor any baseline by torch.compile (docs/references.md)"
    to_do = "install gcc and Python's headers (python3-dev); without, `pkb eval --against reference`"
    return Fact("cc", ok=False, found=f"{lacking}: {means}", to_do=to_do)


def backends() -> list[Fact]:
    """Libraries that only some candidates need: docs/backends.md says which, and what works where."""
    from pkb.candidates.libraries import LIBRARIES

    facts = []
    for library in LIBRARIES:
        found = library.found()
        missing = "candidates that use it are unsupported"
        to_do = "" if found else library.install()
        facts.append(Fact(library.title, ok=bool(found), found=found or missing, to_do=to_do))
    return facts


def gpu() -> list[Fact]:
    from pkb.platforms.cuda import gpus, unused_gpus

    facts = [
        Fact(f"GPU {gpu.index}", ok=True, found=f"{gpu.name}, {bytes_words(gpu.memory_bytes)}, driver {gpu.driver}")
        for gpu in gpus()
    ]
    if not facts:
        facts.append(Fact("GPU", ok=False, found="no NVIDIA GPU or driver: only the platform cpu can work"))
    facts += [Fact("not used", ok=False, found=unused.why, to_do=unused.to_do) for unused in unused_gpus()]
    mps = shutil.which("nvidia-cuda-mps-control")
    if mps:
        facts.append(Fact("MPS", ok=True, found=mps))
    else:
        facts.append(Fact(
            "MPS", ok=False, found="no nvidia-cuda-mps-control on the path: virtual needs it",
            to_do="it comes with the NVIDIA driver",
        ))  # fmt: skip
    return facts


def machine() -> list[Fact]:
    import psutil

    cores = len(os.sched_getaffinity(0))
    memory = psutil.virtual_memory()
    facts = [
        Fact("cores", ok=True, found=f"{cores} usable of {os.cpu_count()}"),
        Fact("memory", ok=True, found=f"{bytes_words(memory.available)} free of {bytes_words(memory.total)}"),
    ]
    shm = Path("/dev/shm")
    if not shm.is_dir():
        facts.append(
            Fact("/dev/shm", ok=False, found="no shared memory: ranks on cpu need it", to_do="mount a tmpfs there")
        )
        return facts
    usage = shutil.disk_usage(shm)
    room = f"{bytes_words(usage.free)} free of {bytes_words(usage.total)}"
    if usage.free < SHM_WANTED_BYTES:
        to_do = "larger sizes need more: docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm"
        facts.append(Fact("/dev/shm", ok=False, found=room, to_do=to_do))
    else:
        facts.append(Fact("/dev/shm", ok=True, found=room))
    return facts


def isolation() -> list[Fact]:
    """Which isolation layers between a candidate and the judge this machine offers: layer -> `on` or why not."""
    from pkb.rank.isolation.report import probe_isolation

    return isolation_facts(probe_isolation())


def isolation_facts(report: Mapping[str, str]) -> list[Fact]:
    """A layer that only some candidates ask for is neither there nor missing."""
    asked = {layer: words for layer, words in report.items() if words != "off: not asked for"}
    return [Fact(layer, ok=_is_there(words), found=words) for layer, words in asked.items()]


def _is_there(words: str) -> bool:
    return words.split(" ")[0].rstrip(":;,(") in ("on", "active")
