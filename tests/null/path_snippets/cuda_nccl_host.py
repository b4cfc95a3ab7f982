"""NCCL called from C++."""
# expect: library

SRC = r"""
#include <nccl.h>
void reduce(const void* in, void* out, size_t n, ncclComm_t comm, cudaStream_t s) {
  ncclGroupStart();
  ncclAllReduce(in, out, n, ncclFloat, ncclSum, comm, s);  // <- library
  ncclGroupEnd();
}
"""
