"""The emulated GPU with few resident blocks: it must stop at what would fault or hang on a GPU, and show what a GPU shows.
What it shares with any candidate is in tests/cpu/test_cuda_on_cpu_device.py."""

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from emulate import Emulator, become_a_rank

from pkb import kit
from pkb.kit.emulated.gxx import find_gxx
from pkb.kit.pads import MAX_RANKS
from world import RankError, World

RESIDENT = 2


def launch(rank: int, size: int, folder: str, source: str, grid: int, threads: int) -> list[int]:
    """16 int32 that the kernel `k(int* out)` may write; 7 where it does not."""
    become_a_rank(None)
    emulator = Emulator(Path(folder), resident=RESIDENT, edits={})
    out = torch.full((16,), 7, dtype=torch.int32)
    head = '#include "pkb_mma.cuh"\nusing namespace pkb;\nextern "C" __global__ void k(int* out) {'
    emulator.compile(head + source + "}").kernel("k")[grid, threads, 1024](out)
    return out.tolist()


class Machine:
    """One rank that is started anew when a kernel has killed it."""

    def __init__(self, folder: Path) -> None:
        self.world, self.folder = World(1), folder

    def run(self, source: str, *, grid: int = 1, threads: int = 32) -> list[int]:
        return self.world.call(launch, str(self.folder), source, grid, threads)[0]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    if isinstance(find_gxx(), str):
        pytest.skip(str(find_gxx()))
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    machine.world.close()


WAIT_FOR_ALL = "add_release_sys((u32*)out, 1); wait_reaches((u32*)out, 7 + gridDim.x);"


def test_blocks_wait_for_each_other_as_far_as_they_are_resident(machine: Machine) -> None:
    assert machine.run(WAIT_FOR_ALL, grid=RESIDENT, threads=1)[0] == 7 + RESIDENT
    with pytest.raises(RankError, match="died with exit code -6"):
        machine.run(WAIT_FOR_ALL, grid=RESIDENT + 1, threads=1)


@pytest.mark.parametrize(
    "source",
    [
        "st_weak((char*)out + 4, uint4{});",
        "st_stream((char*)out + 8, uint4{});",
        "*(double*)((char*)out + 4) = 0;",
        "if (threadIdx.x < 16) __syncthreads(); else __syncwarp();",
        "wait_reaches((u32*)out, 8);",
    ],
    ids=["unaligned", "unaligned assembly", "unaligned element", "divided barrier", "no signal"],
)
def test_what_faults_or_hangs_ends_the_rank(source: str, machine: Machine) -> None:
    with pytest.raises(RankError, match="died with exit code -"):
        machine.run(source)


def test_threads_that_have_ended_count_as_come_to_a_barrier(machine: Machine) -> None:
    assert machine.run("if (threadIdx.x > 3) return; __syncthreads(); out[threadIdx.x] = 1;")[:5] == [1, 1, 1, 1, 7]


def test_the_product_of_the_tensor_cores_is_right(machine: Machine) -> None:
    """Row 1 of a product of a 16 x 16 matrix with 1 at (1, 2) and 3 at (1, 9), all bf16, with b[k][n] = k + n / 8."""
    source = """
    extern __shared__ char s[];
    if (threadIdx.x == 0) {
      for (int i = 0; i < 256; ++i) Lanes<bf16>::put(s + 2 * i, i == 18 ? 1.f : i == 25 ? 3.f : 0.f);
      for (int i = 0; i < 128; ++i) Lanes<bf16>::put(s + 512 + 2 * i, i / 8 + i % 8 / 8.f);
    }
    __syncthreads();
    u32 a[4], b[4];
    ldmatrix(a, s + 32 * (threadIdx.x % 16) + 16 * (threadIdx.x / 16));
    ldmatrix_trans(b, s + 512 + 16 * (threadIdx.x % 16));
    float c[4] = {};
    mma(bf16{}, c, a, b[0], b[1]);
    if (threadIdx.x / 4 == 1) out[threadIdx.x % 4 * 2] = 2 * c[0], out[threadIdx.x % 4 * 2 + 1] = 2 * c[1];
    """
    assert machine.run(source)[:8] == [2 * (2 + 27) + n for n in range(8)]


SHARED = """
extern "C" __global__ void sums(int* out) {
  extern __shared__ __align__(1024) int all[];
  __shared__ int first[4];
  if (threadIdx.x < 4) first[threadIdx.x] = threadIdx.x;
  all[threadIdx.x] = (unsigned long long)all % 1024 + threadIdx.x;
  __syncthreads();
  if (threadIdx.x < 16) out[threadIdx.x] = all[31 - threadIdx.x] + first[threadIdx.x % 4];
}
extern "C" __global__ void copies(int* out) {
  extern __shared__ __align__(16) int all[];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(all)), "l"(out) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
}
"""


def launch_with_shared(rank: int, size: int, folder: str, name: str, shared: int) -> tuple[list[int], str, int]:
    """What a kernel of SHARED wrote, what the emulator said, and how the process ended: a child, since it may not live."""
    become_a_rank(None)
    kernel = Emulator(Path(folder), resident=RESIDENT, edits={}).compile(SHARED).kernel(name)
    out = torch.zeros(16, dtype=torch.int32).share_memory_()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writes, 2)
        kernel[3, 32, shared](out)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as stream:
        said = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return out.tolist(), said, code


def test_exactly_enough_dynamic_shared_memory(machine: Machine) -> None:
    for asked in (128, 1024, 227 * 1024 - 64):
        out, said, code = machine.world.call(launch_with_shared, str(machine.folder), "sums", asked)[0]
        assert (out, said, code) == ([31 - n + n % 4 for n in range(16)], "", 0)


@pytest.mark.parametrize(
    ("name", "asked", "byte"),
    [("sums", 0, r"\d+ .* is accessed"), ("sums", 124, "124 .* was written"), ("copies", 0, r"\d+ .* is accessed")],
    ids=["none", "four bytes short", "late copy"],
)
def test_dynamic_shared_memory_that_was_not_asked_for(name: str, asked: int, byte: str, machine: Machine) -> None:
    _, said, code = machine.world.call(launch_with_shared, str(machine.folder), name, asked)[0]
    assert code == -6
    assert re.search(f"byte {byte}.*, and the launch asked for {asked} bytes.*, kernel {name}, block", said), said


LATE = """
#define PKB_DEBUG 1
#define PKB_DEBUG_TIMEOUT_MS 20
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void k(const __grid_constant__ Pipe pipe) { meet(pipe); }
"""


def wait_for_a_rank_that_never_comes(
    rank: int, size: int, folder: str, said: str, me: int, late: int, world: int
) -> None:
    """One process is rank `me` of `world`. Nobody is in its peers' memory: all but `late` have come to block 1."""
    with open(said, "wb") as file:
        os.dup2(file.fileno(), 1)
    counts = torch.zeros(world, 8 * world, dtype=torch.int32)
    table = (ctypes.c_uint64 * MAX_RANKS)(*(row.data_ptr() for row in counts))
    counts[me, :world], counts[me, me] = 1, 0  # of block 0: as many steps as it will have made
    counts[me, world : 2 * world], counts[me, world + late], counts[me, world + me] = 7, 6, 6
    pipe = kit.Pipe(counts=table, own_counts=counts[me].data_ptr(), rank=me, world=world, blocks=8, slots_each=2)
    become_a_rank(None)
    emulator = Emulator(Path(folder), resident=RESIDENT, edits={}, limit_s=5.0)
    emulator.compile(LATE).kernel("k")[2, 32](pipe)


@pytest.mark.parametrize(("me", "late", "of"), [(3, 2, 5), (35, 38, 40)])  # and more ranks than a warp has threads
def test_debug_builds_say_who_waits_for_whom(me: int, late: int, of: int, machine: Machine, tmp_path: Path) -> None:
    world = World(1)
    try:
        with pytest.raises(RankError, match="died with exit code -6"):
            world.call(wait_for_a_rank_that_never_comes, str(machine.folder), str(tmp_path / "said"), me, late, of)
    finally:
        world.close()
    said = (tmp_path / "said").read_text()
    assert (
        f"pkb: rank {me}, block 1 of kernel grid 2: rank {late} has not come to step 7 of channel 1, it is at 6" in said
    )
