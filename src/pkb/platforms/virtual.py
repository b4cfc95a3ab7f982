"""Several ranks on one GPU, under MPS: communication is real, the interconnect is the GPU's own memory.

Each rank gets an equal share of the SMs and sees only that many, so kernels sized by their number stay
co-resident. NCCL must be 2.30 or newer to accept ranks that share a GPU, and its thread blocks are limited, or the first
collective of eight ranks deadlocks waiting for blocks that find no room.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pkb.platforms.base import Platform, PlatformFacts
from pkb.platforms.conditions import conditions
from pkb.platforms.cuda import (
    CUDA_ORDER,
    VISIBLE,
    cuda_environment,
    gpus,
    visible_environment,
    why_no_gpu,
    why_not_compute_mode,
)
from pkb.platforms.nccl import HOW_TO_GET_NCCL, nccl_home, suitable_nccl
from pkb.platforms.short_folder import short_parent
from pkb.types.errors import UserError

MAX_RANKS = 8
MEMORY_SHARE = 0.45
"""Of the GPU's memory that all candidate ranks may take together."""
SHM = Path("/dev/shm")
LEFTOVERS = ("nccl-*", "cuda.shm.*")
"""What NCCL and the driver leave there when their process is killed. Other names are somebody's, whoever that is."""


class VirtualPlatform(Platform):
    name = "virtual"
    device = "cuda"
    backend = "cpu:gloo,cuda:nccl"
    default_size = "paper"
    shares_device = True
    times = "ranks share one GPU; says nothing about NVLink"
    note = "all ranks share one GPU: right or wrong is as on a node, times say nothing about NVLink"
    private_shm = False  # an MPS client meets its server through files there, once

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._shm_before: set[Path] = set()
        self._keeper: subprocess.Popen[bytes] | None = None

    def facts(self) -> PlatformFacts:
        found = gpus()[:1]
        # Under MPS one process, the server, has the GPU: modes that allow one only are fine.
        why_not = why_no_gpu() or why_not_compute_mode(found, processes=1)
        if not why_not and shutil.which("nvidia-cuda-mps-control") is None:
            why_not = "nvidia-cuda-mps-control is not on the PATH; it comes with the driver's utilities"
        elif not why_not and suitable_nccl() is None:
            why_not = HOW_TO_GET_NCCL
        return PlatformFacts(
            name=self.name,
            shares_device=self.shares_device,
            available=not why_not,
            why_not=why_not,
            hardware=found[0].name if found else "",
            max_ranks=MAX_RANKS,
            capabilities=("torch", "triton", "cuda", "cpp"),
            memory_bytes=found[0].memory_bytes if found else 0,
            architecture=found[0].architecture if found else "",
            nccl_home="" if why_not else nccl_home(),
        )

    def start(self) -> None:
        """An MPS daemon of our own, with its own pipe directory, so that nobody else's is touched."""
        self._folder = Path(tempfile.mkdtemp(prefix=f"pkb-mps-{os.getpid()}-", dir=short_parent()))
        self._shm_before = set(SHM.iterdir())
        # By UUID, for the server as for its clients: numbers would be counted anew among those that the server has.
        environment = os.environ | self._mps() | CUDA_ORDER | {VISIBLE: gpus()[0].uuid}
        environment.pop("LD_PRELOAD", None)
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "pkb.platforms.mps_keeper", str(os.getpid())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        control = self._folder / "pipe" / "control"
        give_up = time.monotonic() + 15
        while not control.exists():
            if time.monotonic() > give_up or self._keeper.poll() is not None:
                self._keeper.terminate()
                _, errors = self._keeper.communicate(timeout=20)
                self.stop()
                raise UserError(
                    f"MPS does not start: {errors.decode(errors='replace').strip()[-500:]}", "see `pkb doctor`"
                )
            time.sleep(0.02)

    def _mps(self) -> dict[str, str]:
        assert self._folder is not None, "start() comes first"
        pipe, log = self._folder / "pipe", self._folder / "log"
        pipe.mkdir(exist_ok=True)
        log.mkdir(exist_ok=True)
        return {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}

    def stop(self) -> None:
        """End the daemon and its server; the keeper makes sure that both are gone before it goes itself."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.terminate()
            try:
                keeper.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.communicate()
        self._remove()

    def _remove(self) -> None:
        """The folder, and what killed ranks have left in the shared /dev/shm: they had no time to clean up themselves."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            _remove_leftovers(set(SHM.iterdir()) - self._shm_before)

    def environment(self, world_size: int) -> dict[str, str]:
        share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // world_size)}
        return self.import_environment() | visible_environment(gpus()[:1]) | self._mps() | share

    def import_environment(self) -> dict[str, str]:
        nccl = suitable_nccl()
        if nccl is None:
            raise UserError("this machine's NCCL refuses several ranks on one GPU", HOW_TO_GET_NCCL)
        headers = {"NCCL_HOME": nccl_home()} if nccl_home() else {}
        return cuda_environment() | headers | {
            "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
            "NCCL_MULTI_RANK_GPU_ENABLE": "1",
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_MAX_CTAS": "8",
            "LD_PRELOAD": str(nccl),
        }  # fmt: skip

    def candidate_environment(self, world_size: int) -> dict[str, str]:
        """A candidate that takes all memory of the GPU must fail itself, not the oracle beside it."""
        share_mib = int(MEMORY_SHARE * gpus()[0].memory_bytes / world_size) >> 20
        return {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={share_mib}M"}

    def device_indices(self, world_size: int) -> list[int]:
        return [0] * world_size

    def devices(self, world_size: int) -> list[str]:
        return [gpu.uuid for gpu in gpus()[:1]]

    def conditions(self, world_size: int) -> dict[str, str]:
        return conditions(gpus()[:1])

    def memory_in_use(self, world_size: int) -> list[int]:
        return []  # MPS keeps each to its share

    def readable(self) -> list[str]:
        nccl = suitable_nccl()
        return [str(nccl_home() or nccl.parent)] if nccl else []

    def writable(self) -> list[str]:
        return [str(self._folder)] if self._folder else []


def _remove_leftovers(appeared: set[Path]) -> None:
    """Of what appeared in /dev/shm since the start, the files of dead ranks of ours: another evaluation's, on the next GPU,
    have the same names, but are in use; so are those of a user's own work."""
    ours = [path for path in appeared if any(map(path.match, LEFTOVERS))]
    used = _used_inodes() if ours else set()
    for path in ours:
        with contextlib.suppress(OSError):
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid() and facts.st_ino not in used:
                path.unlink()


def _used_inodes() -> set[int]:
    """Of the files in /dev/shm that living processes have mapped or open, as far as this user may see them; a user sees
    their own, and only their own files are removed."""
    used: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()).startswith(str(SHM)):
                        used.add(descriptor.stat().st_ino)
        # After the descriptors: whoever maps a file and closes it in between has it in one of the two.
        with contextlib.suppress(OSError, ValueError):
            lines = (process / "maps").read_text(errors="replace").splitlines()
            used |= {int(line.split()[4]) for line in lines if str(SHM) in line}
    return used
