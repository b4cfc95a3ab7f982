"""A host collective of NCCL through ctypes, beside the set-up of its device API, which moves nothing."""
# expect: library

import ctypes


def solution(tensor):
    nccl = ctypes.CDLL("libnccl.so.2")
    nccl.ncclCommWindowRegister(COMM, tensor.data_ptr(), 64, None, 1)
    nccl.ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), 16, 7, 0, COMM, None)  # <- library
    return tensor
