"""One rank of `test_beyond_one_gpu_runs.py`, started by torchrun: `beyond_one_gpu_ranks.py gin|multimem|internode`.

Runs a kernel of `beyond_one_gpu.py` and compares what it made. Says `NOT HERE: why` where the machine has not what it takes.
"""

import ctypes
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from beyond_one_gpu import GIN, INTERNODE, MULTIMEM
from pkb import kit
from pkb.kit import nccl_device, nvshmem
from pkb.kit.arguments import ptr
from pkb.kit.nccl_device.library import Properties, Requirements
from pkb.kit.nccl_device.window import Communicator

FULL_CONNECTION = 1  # NCCL_GIN_CONNECTION_FULL


class NotHere(Exception):
    pass


class OverTheNetwork(Communicator):
    """A communicator whose device communicator has GIN, even among GPUs that reach each other's memory."""

    def _check(self) -> None:
        facts = Properties()
        self._nccl.call("ncclCommQueryProperties", self._comm, ctypes.byref(facts))
        if not facts.device_api or facts.gin_type == 0:
            raise NotHere("NCCL finds no network that kernels can use (ncclCommQueryProperties: ginType 0)")
        self._dev_comm_bytes = int(facts.dev_comm_bytes)
        self.multimem = False

    def _create(self) -> None:
        needed = Requirements(gin_force_enable=True, gin_connection_type=FULL_CONNECTION, gin_signal_count=1)
        self.device_communicator = (ctypes.c_uint64 * (self._dev_comm_bytes // 8))()
        self._nccl.call("ncclDevCommCreate", self._comm, ctypes.byref(needed), ctypes.byref(self.device_communicator))


def gin(rank: int, world: int, device: torch.device) -> None:
    piece = 1 << 16
    over = OverTheNetwork(device, dist.group.WORLD)
    buffer, handle = over.register(2 * world * piece)
    kernel = kit.compile(GIN, name="gin").kernel("all_to_all")
    for call in range(1, 4):
        outgoing = buffer.view(2, world, piece)[1]
        for peer in range(world):
            outgoing[peer].fill_((call * 31 + rank * 8 + peer) % 251)
        meet()
        kernel[1, 32](over.device_communicator, ptr(handle), piece, call)
        torch.cuda.synchronize()
        for peer in range(world):
            expect(buffer.view(2, world, piece)[0, peer], (call * 31 + peer * 8 + rank) % 251)
        meet()


def multimem(rank: int, world: int, device: torch.device) -> None:
    count = 1 << 16
    window = nccl_device.window(4 * count, device)
    if not window.multimem:
        raise NotHere("NCCL has no multimem: the GPUs are not on an NVSwitch")
    kernel = kit.compile(MULTIMEM, name="multimem").kernel("all_reduce")
    values = window.buffer.view(torch.float32)[:count]
    for call in range(1, 4):
        values.fill_(rank + call)
        meet()
        kernel[16, 256](window.comm, window.handle, count)
        torch.cuda.synchronize()
        expect(values, sum(peer + call for peer in range(world)))
        meet()


def internode(rank: int, world: int, device: torch.device) -> None:
    if not any(Path("/sys/class/infiniband").glob("*")):
        raise NotHere("no network adapter for NVSHMEM's transport ibrc")
    size = 1 << 16
    heap = nvshmem.symmetric(size, torch.uint8, name="heap")
    source = nvshmem.symmetric(size, torch.uint8, name="source")
    signal = nvshmem.symmetric(1, torch.int64, name="signal")
    kernel = kit.compile(INTERNODE, name="internode").kernel("shift")
    for call in range(1, 4):
        source.fill_((call * 16 + rank) % 251)
        meet()
        kernel[1, 128](heap, source, size, signal, call)
        torch.cuda.synchronize()
        expect(heap[:size], (call * 16 + (rank - 1) % world) % 251)
        meet()


def expect(values: torch.Tensor, wanted: float) -> None:
    wrong = int((values != wanted).sum())
    assert wrong == 0, f"rank {dist.get_rank()}: {wrong} of {values.numel()} are not {wanted}"


def meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()


def main() -> None:
    parts: dict[str, Any] = {"gin": gin, "multimem": multimem, "internode": internode}
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    try:
        parts[sys.argv[1]](dist.get_rank(), dist.get_world_size(), device)
        print("AS EXPECTED", flush=True)
    except NotHere as why:
        print(f"NOT HERE: {why}", flush=True)


if __name__ == "__main__":
    main()
