"""NCCL's device API: its low-latency all-to-all, and its copy to all peers."""
# expect: sm_load_store

SRC = r"""
#include <nccl_device.h>
extern "C" __global__ void tell(ncclDevComm comm, ncclLLA2AHandle handle, ncclWindow_t window, float* in, int* out) {
  ncclLLA2ASession<ncclCoopCta> session{ncclCoopCta(), comm, ncclTeamLsa(comm), handle, 0, 8};  // <- sm_load_store
  if (threadIdx.x == 0) session.bcast(comm.rank, 1);
  ncclLsaCopy(ncclCoopCta(), in, window, 0, 128, comm);  // <- sm_load_store
}
"""
