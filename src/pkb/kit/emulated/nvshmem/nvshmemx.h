// NVSHMEM's device functions for warps and blocks, on the emulated GPU. What is not here (teams, collectives, mc_ptr) is not
// emulated.
#pragma once
#include "nvshmem.h"

__device__ inline void nvshmemx_signal_op(uint64_t* at, uint64_t value, int operation, int pe) { emu_nvshmem::signal(at, value, operation, pe); }

#define EMU_NVSHMEM_WIDE(suffix, Group)                                                                                \
  EMU_NVSHMEM_GROUP(nvshmemx_, suffix, Group)                                                                          \
  EMU_NVSHMEM_GROUP(nvshmemx_, _nbi##suffix, Group)                                                                    \
  __device__ inline void nvshmemx_barrier_all##suffix() { emu_nvshmem::meet_all<emu_nvshmem::Group>(); }               \
  __device__ inline void nvshmemx_sync_all##suffix() { emu_nvshmem::meet_all<emu_nvshmem::Group>(); }
EMU_NVSHMEM_WIDE(_warp, Warp)
EMU_NVSHMEM_WIDE(_block, Block)

#define EMU_NVSHMEM_WIDE_TYPE(NAME, T)                                                                                 \
  EMU_NVSHMEM_TYPED(nvshmemx_, NAME, T, _warp, Warp)                                                                   \
  EMU_NVSHMEM_TYPED(nvshmemx_, NAME, T, _nbi_warp, Warp)                                                               \
  EMU_NVSHMEM_TYPED(nvshmemx_, NAME, T, _block, Block)                                                                 \
  EMU_NVSHMEM_TYPED(nvshmemx_, NAME, T, _nbi_block, Block)
EMU_NVSHMEM_TYPES(EMU_NVSHMEM_WIDE_TYPE)
