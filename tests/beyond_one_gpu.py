"""Kernels for what one GPU has not: NCCL's networking from kernels (GIN), its multimem, NVSHMEM's puts to PEs elsewhere.

`tests/cpu/test_beyond_one_gpu.py` compiles them anywhere, `tests/gpu/test_beyond_one_gpu_runs.py` runs them where it can.
"""

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
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  float* shared = (float*)ncclGetLsaMultimemPointer(window, 0, comm);
  // Each rank adds a part of its own and stores it on all.
  const size_t part = (count + comm.nRanks - 1) / comm.nRanks, first = part * comm.rank;
  const size_t last = first + part < count ? first + part : count;
  for (size_t i = first + blockIdx.x * blockDim.x + threadIdx.x; i < last; i += blockDim.x * gridDim.x) {
    float sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(sum) : "l"(shared + i) : "memory");
    asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" ::"l"(shared + i), "f"(sum) : "memory");
  }
  meeting.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
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
