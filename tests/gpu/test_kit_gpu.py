"""The kit on a GPU: launches, errors, and the barriers of pkb.cuh with several ranks played by the blocks of one grid.

A block that calls itself rank r, with its own pad and buffer in ordinary device memory, runs the same instructions as
a block on GPU r would; only the links are missing. So a barrier that does not hold fails here already.
"""

import ctypes
import threading
import time

import pytest
import torch

from pkb import kit

pytestmark = pytest.mark.gpu

SCALE = """
extern "C" __global__ void scale(float* x, long long n, float by, int shift) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * by + shift;
}
struct Pair { int a; double b; };
extern "C" __global__ void pair(double* out, Pair p, bool yes) { *out = yes ? p.a + p.b : 0; }
extern "C" __global__ void much_shared(int* out) {
  extern __shared__ int s[];
  s[20000 + threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[20000 + 31 - threadIdx.x];
}
"""

# Block r is rank r. All ranks write, meet, read all buffers, and meet again, or the next round's writes would race.
RANKS = """
#include "pkb.cuh"
using namespace pkb;
__device__ bool meet(u32* const* pads, u32 rank, u32 world, int kind, u32* counter) {
  if (kind == 0) return barrier_block(pads, rank, world, 1, 2000000000ull);
  if (kind == 1) return barrier_epoch(pads, rank, world, 2, 2000000000ull);
  barrier_grid(counter);
  return true;
}
extern "C" __global__ void all_reduce(char* const* buffers, u32* const* pads, int world, char* out, long long bytes,
                                      int rounds, int kind, u32* counter, int* late) {
  const u32 rank = blockIdx.x;
  for (int round = 0; round < rounds; ++round) {
    for (u64 i = 16ull * threadIdx.x; i + 16 <= bytes; i += 16ull * blockDim.x) {
      float v[8];
      for (int k = 0; k < 8; ++k) v[k] = float((rank + 1) * (round + 1));
      st_weak(buffers[rank] + i, Lanes<bf16>::pack(v));
    }
    if (!meet(pads, rank, world, kind, counter)) atomicAdd(late, 1);
    for (u64 i = 16ull * threadIdx.x; i + 16 <= bytes; i += 16ull * blockDim.x) {
      float sum[8] = {};
      for (int peer = 0; peer < world; ++peer) Lanes<bf16>::accumulate(sum, ld_weak(buffers[peer] + i));
      st_weak(out + (round * world + rank) * bytes + i, Lanes<bf16>::pack(sum));
    }
    if (!meet(pads, rank, world, kind, counter)) atomicAdd(late, 1);
  }
}
extern "C" __global__ void wait_in_vain(u32* slot, int* result) { *result = wait_signal(slot, 1000000) ? 1 : 2; }
extern "C" __global__ void copy_bytes(char* to, char* from, long long bytes) { copy_grid(to, from, bytes); }
template <class T> __device__ void lanes(char* out, const char* a, const char* b) {
  float sum[Lanes<T>::count] = {};
  Lanes<T>::accumulate(sum, ld_fresh(a)); Lanes<T>::accumulate(sum, ld_once(b));
  st_fresh(out, Lanes<T>::pack(sum));
  st_stream(out + 16, Lanes<T>::add(ld_stream(a), ld_volatile(b)));
}
extern "C" __global__ void add_f32(char* out, char* a, char* b) { lanes<f32>(out, a, b); }
extern "C" __global__ void add_bf16(char* out, char* a, char* b) { lanes<bf16>(out, a, b); }
extern "C" __global__ void add_f16(char* out, char* a, char* b) { lanes<f16>(out, a, b); }
extern "C" __global__ void world_of_one(u32* const* pads, u32* counter, int* out) {
  for (int i = 0; i < 5; ++i) {
    if (thread_in_block() == 0) atomicAdd(out, 1);
    barrier_world(pads, 0, 1, 0, counter);
    if (*(volatile int*)out < (i + 1) * (int)blocks_in_grid()) atomicAdd(out + 1, 1);
    barrier_world(pads, 0, 1, 0, counter);
  }
}
"""


@pytest.fixture(autouse=True)
def build_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_BUILD_DIR", str(tmp_path_factory.getbasetemp() / "kit_build"))


def test_launch_with_all_kinds_of_arguments() -> None:
    module = kit.compile(SCALE, name="scale")
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    module.kernel("scale")[4, 256](x, x.numel(), kit.f32(0.5), kit.i32(-3))
    torch.testing.assert_close(x, torch.arange(1000, device="cuda") * 0.5 - 3)

    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))

    out = torch.zeros(1, device="cuda", dtype=torch.float64)
    module.kernel("pair").launch(1, 1, out, Pair(3, 0.25), True)
    assert out.item() == 3.25


def test_launch_uses_the_current_stream_and_works_from_another_thread() -> None:
    scale = kit.compile(SCALE, name="scale").kernel("scale")
    x = torch.ones(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        scale[4096, 256](x, x.numel(), kit.f32(2.0), kit.i32(0))
        y = x.clone()
    side.synchronize()
    assert y.sum().item() == 2 * x.numel()
    worker = threading.Thread(target=lambda: scale[4096, 256](x, x.numel(), kit.f32(2.0), kit.i32(0)))
    worker.start()
    worker.join()
    torch.cuda.synchronize()
    assert x.sum().item() == 4 * x.numel()


def test_more_than_48_kb_of_shared_memory() -> None:
    kernel = kit.compile(SCALE, name="scale").kernel("much_shared")
    out = torch.zeros(32, device="cuda", dtype=torch.int32)
    kernel[1, 32, 4 * 20032](out)
    assert out.tolist() == list(range(31, -1, -1))
    with pytest.raises(kit.DriverError, match="shared memory"):
        kernel[1, 32, 1 << 20](out)


def test_errors_carry_the_drivers_text() -> None:
    module = kit.compile(SCALE, name="scale")
    scale = module.kernel("scale")
    x = torch.ones(8, device="cuda")
    with pytest.raises(kit.DriverError, match="CUDA_ERROR_INVALID_VALUE"):
        scale[1, 5000](x, 8, kit.f32(1.0), kit.i32(0))
    with pytest.raises(KeyError, match="much_shared"):
        module.kernel("nothing")[1, 1]()
    with pytest.raises(TypeError, match="takes 4 arguments"):
        scale[1, 8](x, 8)
    with pytest.raises(TypeError, match=r"kit\.i32"):
        scale[1, 8](x, 8, kit.f32(1.0), 0)
    with pytest.raises(TypeError, match="cpu tensor"):
        scale[1, 8](x.cpu(), 8, kit.f32(1.0), kit.i32(0))


def test_a_launch_costs_microseconds() -> None:
    kernel = kit.compile(SCALE, name="scale").kernel("scale")[1, 32]
    x, by, shift = torch.ones(8, device="cuda"), kit.f32(1.0), kit.i32(0)
    times_us = []
    for _ in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            kernel(x, 8, by, shift)
        times_us.append((time.perf_counter() - begin) * 1e4)
    print(f"launch: {sorted(times_us)[10]:.1f} us")
    assert sorted(times_us)[10] < 30  # about 5 on an idle machine; a launch that allocates or queries costs far more


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["block", "epoch", "grid"])
@pytest.mark.parametrize("world", [1, 2, 8])
def test_barriers_hold_between_ranks(kind: int, world: int) -> None:
    kernel = kit.compile(RANKS, name="ranks").kernel("all_reduce")
    bytes_, rounds = 64 << 10, 20
    data = [torch.zeros(bytes_, device="cuda", dtype=torch.uint8) for _ in range(world)]
    pads = [torch.zeros(512, device="cuda", dtype=torch.int32) for _ in range(world)]
    out = torch.zeros(rounds, world, bytes_ // 2, device="cuda", dtype=torch.bfloat16)
    counter, late = (torch.zeros(1, device="cuda", dtype=torch.int32) for _ in range(2))
    tables = kit.pointer_table(data), kit.pointer_table(pads)
    assert kernel.resident_blocks(256) >= world
    for launch in range(3):  # state in the pads must carry over from launch to launch
        out.zero_()
        # Fewer threads than ranks in the second launch: all puts must come before the waits.
        threads = 4 if launch == 1 else 256
        arguments = (*tables, kit.i32(world), out, bytes_, kit.i32(rounds), kit.i32(kind), counter, late)
        kernel.launch(world, threads, *arguments, cooperative=kind == 2)
    expected = torch.arange(1, rounds + 1, device="cuda").mul(world * (world + 1) // 2).to(torch.bfloat16)
    assert late.item() == 0
    assert torch.equal(out, expected.view(rounds, 1, 1).expand_as(out))
    if kind == 0:
        assert all(not pad.any() for pad in pads)  # torch's convention: every signal is taken


def test_a_wait_with_a_timeout_gives_up() -> None:
    result, slot = (torch.zeros(1, device="cuda", dtype=torch.int32) for _ in range(2))
    kit.compile(RANKS, name="ranks").kernel("wait_in_vain")[1, 1](slot, result)
    assert result.item() == 2


def test_a_world_of_one_with_many_blocks() -> None:
    kernel = kit.compile(RANKS, name="ranks").kernel("world_of_one")
    pad, counter = (torch.zeros(64, device="cuda", dtype=torch.int32) for _ in range(2))
    out = torch.zeros(2, device="cuda", dtype=torch.int32)
    blocks = min(kernel.resident_blocks(64), 200)
    kernel.launch(blocks, 64, kit.pointer_table([pad]), counter, out, cooperative=True)
    assert out.tolist() == [5 * blocks, 0]


@pytest.mark.parametrize(("offset", "length"), [(0, 100_000), (0, 15), (0, 0), (16, 4097), (3, 1000)])
def test_copies_are_exact(offset: int, length: int) -> None:
    source = torch.randint(0, 255, (120_000,), device="cuda", dtype=torch.uint8)
    target = torch.full_like(source, 255)
    copy = kit.compile(RANKS, name="ranks").kernel("copy_bytes")
    copy[3, 96](kit.ptr(target.data_ptr() + offset), kit.ptr(source.data_ptr() + offset), length)
    assert torch.equal(target[offset : offset + length], source[offset : offset + length])
    assert (target[:offset] == 255).all()
    assert (target[offset + length :] == 255).all()


@pytest.mark.parametrize(
    ("name", "dtype"), [("add_f32", torch.float32), ("add_bf16", torch.bfloat16), ("add_f16", torch.float16)]
)
def test_packed_sums_round_as_torch_does(name: str, dtype: torch.dtype) -> None:
    count = 16 // dtype.itemsize
    a, b = (torch.randn(count, device="cuda").to(dtype) for _ in range(2))
    out = torch.zeros(2, count, device="cuda", dtype=dtype)
    kit.compile(RANKS, name="ranks").kernel(name)[1, 1](out, a, b)
    assert torch.equal(out[0], a + b)
    assert torch.equal(out[1], a + b)


@pytest.mark.slow
def test_an_upstream_extension_runs() -> None:
    from pkb.kit.extension import compile_cuda_extension

    source = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2.f; }
void run(torch::Tensor x) { twice<<<1, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.numel()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
    x = torch.ones(100, device="cuda")
    compile_cuda_extension("twice", source).run(x)
    assert x.sum().item() == 200
    compile_cuda_extension("twice", source).run(x)  # from the cache
    assert x.sum().item() == 400
