"""Writes twenty candidates in the style in which frontier models write them, all our own: one `torch/extension.h` source with
`PYBIND11_MODULE`, launched with `<<<>>>` on the current stream, over symmetric memory; eight collectives in three variants.

    python tools/frontier_kernels.py FOLDER

`pull` meets at the handle's barriers, `pads` at signal pads of its own inside a kernel, `wide` moves 16 bytes at a time.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

SUM = "float sum = 0.f; for (int p = 0; p < world; ++p) sum += __bfloat162float(elements(table, p)[{}]);"


@dataclass(frozen=True)
class Collective:
    """`element` says where element `i` of the output comes from; `unit` is the length of one rank's piece."""

    file: str
    element: str
    signature: str = "tensor"
    root: str = "0"
    staged: str = "tensor.numel()"
    """How many elements the symmetric buffer has: the same on all ranks."""
    writes: str = "True"
    """Which ranks put their tensor there."""
    unit: str = "tensor.numel()"
    shape: str = "tensor.shape"
    result: str = "out"
    wide: str = ""
    """The same for vectors of eight elements, where every piece is whole vectors."""


PIECE = "tensor.numel() // world"
ROOT_HAS_ALL = "tensor.numel() if rank == src else tensor.numel() * world"
ROOT_PIECE = "tensor.numel() // world if rank == src else tensor.numel()"
COLLECTIVES = (
    Collective(
        "01_allreduce", SUM.format("i") + " out[i] = __float2bfloat16(sum);",
        wide="float sum[8] = {}; for (int p = 0; p < world; ++p) { Vector v = vectors(table, p)[i]; for (int k = 0; k < 8; ++k)"
             " sum[k] += __bfloat162float(v.e[k]); } Vector r; for (int k = 0; k < 8; ++k) r.e[k] = __float2bfloat16(sum[k]);"
             " wide[i] = r;",
    ),
    Collective(
        "02_allgather", "out[i] = elements(table, (int)(i / unit))[i % unit];", shape="(world, *tensor.shape)",
        wide="wide[i] = vectors(table, (int)(i / unit))[i % unit];",
    ),
    Collective(
        "03_broadcast", "out[i] = elements(table, root)[i];", signature="tensor, src=0", root="src", writes="rank == src",
        wide="wide[i] = vectors(table, root)[i];",
    ),
    Collective(
        "04_reduce", "if (rank != root) { out[i] = elements(table, rank)[i]; } else { " + SUM.format("i")
        + " out[i] = __float2bfloat16(sum); }", signature="tensor, dst=0", root="dst",
    ),
    Collective(
        "05_scatter", "out[i] = elements(table, root)[rank * unit + i];", signature="tensor, src=0", root="src",
        staged=ROOT_HAS_ALL, writes="rank == src", unit=ROOT_PIECE,
        shape="tensor.shape[1:] if rank == src else tensor.shape",
    ),
    Collective(
        "06_gather", "if (rank == root) out[i] = elements(table, (int)(i / unit))[i % unit];", signature="tensor, dst=0",
        root="dst", shape="(world, *tensor.shape) if rank == dst else (0,)", result="out if rank == dst else tensor",
    ),
    Collective(
        "07_reducescatter", SUM.format("rank * unit + i") + " out[i] = __float2bfloat16(sum);", unit=PIECE,
        shape="(tensor.shape[0] // world, *tensor.shape[1:])",
    ),
    Collective(
        "08_alltoall", "out[i] = elements(table, (int)(i / unit))[rank * unit + i % unit];", unit=PIECE,
        wide="wide[i] = vectors(table, (int)(i / unit))[rank * unit + i % unit];",
    ),
)  # fmt: skip

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cstdint>

using bf16 = __nv_bfloat16;
struct alignas(16) Vector { bf16 e[8]; };

__device__ const bf16* elements(const int64_t* table, int peer) { return reinterpret_cast<const bf16*>(table[peer]); }
__device__ const Vector* vectors(const int64_t* table, int peer) { return reinterpret_cast<const Vector*>(table[peer]); }

__global__ void meet(const int64_t* pads, int rank, int world, int channel) {
  const int peer = threadIdx.x;
  if (peer >= world) return;
  __threadfence_system();
  unsigned* theirs = reinterpret_cast<unsigned*>(pads[peer]) + channel * world + rank;
  while (atomicCAS_system(theirs, 0u, 1u) != 0u) {}
  unsigned* mine = reinterpret_cast<unsigned*>(pads[rank]) + channel * world + peer;
  while (atomicCAS_system(mine, 1u, 0u) != 1u) {}
  __threadfence_system();
}

__global__ void transfer(const int64_t* table, bf16* out, int64_t n, int64_t unit, int rank, int world, int root) {
  const int64_t step = (int64_t)gridDim.x * blockDim.x;
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
@BODY@
}

void launch(torch::Tensor table, torch::Tensor out, int64_t unit, int64_t rank, int64_t world, int64_t root) {
  auto stream = c10::cuda::getCurrentCUDAStream();
  if (out.numel() == 0) return;
  transfer<<<128, 256, 0, stream>>>(table.data_ptr<int64_t>(), reinterpret_cast<bf16*>(out.data_ptr<at::BFloat16>()),
                                    out.numel(), unit, (int)rank, (int)world, (int)root);
}

void sync_ranks(torch::Tensor pads, int64_t rank, int64_t world, int64_t channel) {
  meet<<<1, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(pads.data_ptr<int64_t>(), (int)rank, (int)world, (int)channel);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("launch", &launch);
  m.def("sync_ranks", &sync_ranks);
}
"""
SCALAR = "  for (; i < n; i += step) { @ELEMENT@ }"
WIDE = """  if (unit % 8 == 0) {  // every piece begins at a whole vector
    Vector* wide = reinterpret_cast<Vector*>(out);
    n /= 8;
    unit /= 8;
    for (; i < n; i += step) { @WIDE@ }
    return;
  }
  for (; i < n; i += step) { @ELEMENT@ }"""
MODULE = '''"""@FILE@, variant `@VARIANT@`: written by tools/frontier_kernels.py."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

CUDA_SRC = r"""@CUDA@"""
_ext = None
_state = {}


def _get(numel, dtype, device):
    if (numel, dtype) not in _state:
        buffer = symm_mem.empty(numel, dtype=dtype, device=device)
        handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
        table = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=device)
        pads = torch.tensor(handle.signal_pad_ptrs, dtype=torch.int64, device=device)
        _state[numel, dtype] = buffer, handle, table, pads
    return _state[numel, dtype]


def solution(@SIGNATURE@):
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension("frontier_@FILE@_@VARIANT@", CUDA_SRC)
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = tensor.contiguous()
    buffer, handle, table, pads = _get(@STAGED@, tensor.dtype, tensor.device)
    if @WRITES@:
        buffer.copy_(tensor.reshape(-1))
    @ENTER@
    out = torch.empty(@SHAPE@, dtype=tensor.dtype, device=tensor.device)
    _ext.launch(table, out, @UNIT@, rank, world, @ROOT@)
    @LEAVE@
    return @RESULT@
'''


def text(one: Collective, variant: str) -> str:
    body = (WIDE if variant == "wide" else SCALAR).replace("@ELEMENT@", one.element).replace("@WIDE@", one.wide)
    own_pads = variant == "pads"
    parts = {
        "CUDA": CUDA.replace("@BODY@", body),
        "FILE": one.file, "VARIANT": variant, "SIGNATURE": one.signature, "STAGED": one.staged, "WRITES": one.writes,
        "SHAPE": one.shape, "UNIT": one.unit, "ROOT": one.root, "RESULT": one.result,
        "ENTER": "_ext.sync_ranks(pads, rank, world, 4)" if own_pads else "handle.barrier(channel=0)",
        "LEAVE": "_ext.sync_ranks(pads, rank, world, 5)" if own_pads else "handle.barrier(channel=1)",
    }  # fmt: skip
    module = MODULE
    for name, part in parts.items():
        module = module.replace(f"@{name}@", part)
    return module


def write(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for variant in ("pull", "pads", "wide"):
        for one in COLLECTIVES:
            if variant != "wide" or one.wide:
                path = folder / f"{one.file}_frontier_{variant}.py"
                path.write_text(text(one, variant))
                written.append(path)
    return written


if __name__ == "__main__":
    print("\n".join(map(str, write(Path(sys.argv[1])))))
