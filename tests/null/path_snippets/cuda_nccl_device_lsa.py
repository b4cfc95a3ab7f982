"""NCCL's device API: pointers to peers over NVLink, used with plain loads, and its barrier."""
# expect: sm_load_store

SRC = r"""
#include <nccl_device.h>
template <typename T>
__global__ void all_reduce(ncclWindow_t win, size_t offset, T* out, size_t n, ncclDevComm comm) {
  ncclLsaBarrierSession<ncclCoopCta> bar{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};  // <- sm_load_store
  bar.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    T sum = 0;
    for (int r = 0; r < comm.nRanks; ++r) {
      T* p = (T*)ncclGetLsaPointer(win, offset, r);
      sum += p[i];  // <- sm_load_store
    }
    out[i] = sum;
  }
}
"""
