"""Trap: NCCL makes the communicator and allocates, but moves nothing."""
# expect: none

SRC = r"""
#include <nccl.h>
void setup(ncclComm_t* comm, int world, ncclUniqueId id, int rank, void** buffer, size_t n) {
  ncclCommInitRank(comm, world, id, rank);
  ncclMemAlloc(buffer, n);
  int v;
  ncclGetVersion(&v);
}
"""
