"""What one GPU cannot run still compiles: NCCL's networking from kernels (GIN), its multimem, NVSHMEM's puts between machines.

Headers of NCCL and NVSHMEM come with their wheels, which a CPU build of torch does not bring: `NCCL_HOME` and `NVSHMEM_HOME`
name them elsewhere.
"""

import subprocess
from pathlib import Path

import pytest

from pkb.candidates.libraries import LIBRARIES
from pkb.kit import nvcc

HOMES = {library.name: library.found() for library in LIBRARIES if library.name in ("nccl-device", "nvshmem")}
GIN = r"""
#include <nccl.h>
#include <nccl_device.h>
extern "C" __global__ void all_to_all(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, size_t bytes,
                                      uint64_t call) {
  ncclGin gin{comm, 0};
  for (int peer = threadIdx.x; peer < comm.nRanks; peer += blockDim.x)
    gin.put(ncclTeamWorld(comm), peer, window, comm.rank * bytes, window, (comm.nRanks + peer) * bytes, bytes,
            ncclGin_SignalInc{0});
  gin.waitSignal(ncclCoopCta(), 0, call * comm.nRanks);
  gin.flush(ncclCoopCta());
}
"""
MULTIMEM = r"""
#include <nccl.h>
#include <nccl_device.h>
extern "C" __global__ void all_reduce(const __grid_constant__ ncclDevComm comm, ncclWindow_t window, size_t count) {
  ncclLsaBarrierSession<ncclCoopCta> meeting{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x, true};
  meeting.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  float* shared = (float*)ncclGetLsaMultimemPointer(window, 0, comm);
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    float sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(sum) : "l"(shared + i) : "memory");
    asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" ::"l"(shared + i), "f"(sum) : "memory");
  }
  meeting.sync(ncclCoopCta(), cuda::memory_order_release);
}
"""
INTERNODE = r"""
#include <nvshmem.h>
#include <nvshmemx.h>
extern "C" __global__ void shift(char* heap, const char* source, size_t bytes, uint64_t* signal, uint64_t call) {
  const int next = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
  // No nvshmem_ptr: the peer may be on another machine.
  nvshmemx_putmem_signal_nbi_block(heap, source, bytes, signal, call, NVSHMEM_SIGNAL_SET, next);
  if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, call);
  nvshmem_quiet();
}
"""


@pytest.mark.skipif(nvcc.find() is None, reason="nvcc is not here")
@pytest.mark.parametrize(
    ("library", "source", "flags", "instruction"),
    [
        pytest.param("nccl-device", GIN, [], "atom", id="GIN"),
        pytest.param("nccl-device", MULTIMEM, [], "multimem.ld_reduce", id="multimem"),
        pytest.param("nvshmem", INTERNODE, ["-rdc=true"], "nvshmem", id="internode"),
    ],
)
def test_it_compiles(library: str, source: str, flags: list[str], instruction: str, tmp_path: Path) -> None:
    if not HOMES[library]:
        pytest.skip(f"no headers of {library} here")
    found = nvcc.find()
    assert found is not None
    (tmp_path / "k.cu").write_text(source)
    command = [
        str(found[0]),
        "-ptx",
        "-arch=sm_90a",
        "-std=c++17",
        *flags,
        f"-I{HOMES[library]}/include",
        "k.cu",
        "-o",
        "k.ptx",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert instruction in (tmp_path / "k.ptx").read_text()
