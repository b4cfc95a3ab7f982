"""Run by test_cuda_on_cpu_device.py in a process of its own: the emulated GPU replaces parts of torch. Prints what is wrong."""

import os
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

from pkb.rank.devices import CpuDevice
from pkb.rank.emulate import aliases
from pkb.rank.emulate.cuda import wanted

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cooperative_groups.h>
#define PAIR(NAME, T) extern "C" __global__ void NAME(T* x) { x[threadIdx.x] += (T)1; }
PAIR(add_one_float, float)

extern "C" __global__ void lanes(int* out) {
  const int lane = threadIdx.x % 32;
  int sum = lane;
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
  const unsigned odd = __ballot_sync(~0u, lane & 1);
  int half = lane;  // two groups of one warp, each with a mask of its own
  if (lane < 16) half = __reduce_add_sync(0xffffu, lane);
  else half = __reduce_max_sync(0xffff0000u, lane);
  const int down = __shfl_down_sync(~0u, lane, 4, 8);
  out[threadIdx.x] = sum == 496 && odd == 0xaaaaaaaau && half == (lane < 16 ? 120 : 31) &&
                     down == (lane % 8 < 4 ? lane + 4 : lane);
}
extern "C" __global__ void reversed(const float* in, float* out) {  // static shared memory, and a barrier that is needed
  __shared__ float tile[64], last;
  tile[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
  if (threadIdx.x == 63) last = 100.f * blockIdx.x;
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x] + last;
}
extern "C" __global__ void unsynchronised(const float* in, float* out) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void counts(int* n, float* x, __nv_bfloat16* h) {
  atomicAdd(n, 1);
  atomicMax(n + 1, (int)threadIdx.x);
  atomicAdd(x, 0.5f);
  if (threadIdx.x < 4) atomicAdd(h, __float2bfloat16(1.f));
}
extern "C" __global__ void meets(unsigned* counter, unsigned* seen) {  // every block waits for all others
  if (threadIdx.x == 0) {
    atomicAdd(counter, 1u);
    while (*(volatile unsigned*)counter < gridDim.x) {
    }
    seen[blockIdx.x] = 1;
  }
}
extern "C" __global__ void meets_as_a_grid(unsigned* x) {
  x[blockIdx.x] = blockIdx.x + 1;
  cooperative_groups::this_grid().sync();
  unsigned sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += x[b];
  cooperative_groups::this_grid().sync();
  x[blockIdx.x] = sum;
}
extern "C" __global__ void rounds(const float* in, unsigned char* e4m3, unsigned char* e5m2, unsigned short* bf16,
                                  unsigned short* f16, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  e4m3[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E4M3);
  e5m2[i] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E5M2);
  bf16[i] = __bfloat16_as_ushort(__float2bfloat16(in[i]));
  f16[i] = __half_as_ushort(__float2half(in[i]));
}
extern "C" __global__ void many_instructions(unsigned* p, unsigned long long* wide, float* x) {
  unsigned old, got, low, high;
  asm volatile("st.global.release.sys.u32 [%0], %1;" ::"l"(p), "r"(7u) : "memory");
  asm volatile("atom.global.sys.acquire.cas.b32 %0, [%1], 7, 9;" : "=r"(old) : "l"(p) : "memory");
  asm volatile("{\n .reg .pred q;\n .reg .b32 t;\n mov.b32 t, 5;\n setp.eq.u32 q, %2, 7;\n @q add.u32 t, t, 1;\n"
               " mov.b32 %0, t;\n ld.acquire.sys.b32 %1, [%3 + 0];\n}" : "=r"(high), "=r"(got) : "r"(old), "l"(p) : "memory");
  asm volatile("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(old) : "l"(0x1122334455667788ull));
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(wide), "l"(3ull) : "memory");
  float y;
  asm("fma.rn.f32 %0, %1, 0f40000000, %2;" : "=f"(y) : "f"(1.5f), "f"(0.25f));
  p[1] = got, p[2] = high, p[3] = low, p[4] = old, x[0] = y;
}
extern "C" __global__ void copies_nobody_waits_for(const float* in, float* out) {
  __shared__ float place[4];
  for (int i = 0; i < 4; ++i) place[i] = -1.f;
  const unsigned to = (unsigned)__cvta_generic_to_shared(place);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in), "r"(16u) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  out[0] = place[0];
  asm volatile("cp.async.wait_group %0;" ::"n"(0) : "memory");
  out[1] = place[0];
}
"""


def check(name: str, *, right: bool) -> None:
    if not right:
        print(f"wrong: {name}", flush=True)


def main() -> None:
    store = dist.FileStore(tempfile.mktemp(), 1)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    aliases.install("cpu", shares_device=True, rank=0, source='"cuda"')
    wanted.install(CpuDevice(), SOURCE)
    from pkb import kit

    module = kit.compile(SOURCE, name="many")

    def kernel(name: str) -> kit.Kernel:
        return module.kernel(name)

    out = torch.zeros(64, dtype=torch.int32)
    kernel("lanes")[1, 64](out)
    check("shuffles, votes and reductions by mask", right=bool(out.all()))

    x = torch.rand(192)
    y = torch.empty(192)
    kernel("reversed")[3, 64](x, y)
    expected = x.view(3, 64).flip(1) + 100.0 * torch.arange(3).view(3, 1)
    check("static shared memory", right=torch.equal(y.view(3, 64), expected))

    z, times = torch.rand(256), 0
    for _ in range(20):
        w = torch.empty(256)
        kernel("unsynchronised")[1, 256, 1024](z, w)
        times += not torch.equal(w, z.flip(0))
    check("a missing block barrier shows", right=times > 0)

    n, total, h = torch.zeros(2, dtype=torch.int32), torch.zeros(1), torch.zeros(1, dtype=torch.bfloat16)
    kernel("counts")[8, 96](n, total, h)
    check("atomics", right=n.tolist() == [768, 95] and total.item() == 384.0 and h.item() == 32.0)

    counter, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(300, dtype=torch.int32)
    kernel("meets")[300, 32](counter, seen)
    check("as many blocks wait for each other as are resident, by a plain volatile load", right=int(seen.sum()) == 300)

    blocks = torch.zeros(40, dtype=torch.int32)
    kernel("meets_as_a_grid").launch(40, 1, blocks, cooperative=True)
    check("a barrier of the grid", right=blocks.tolist() == [820] * 40)

    numbers = torch.cat([torch.randn(4000) * 10.0**e for e in range(-6, 4)]).clamp(-440, 440)
    e4m3, e5m2 = torch.empty(len(numbers), dtype=torch.uint8), torch.empty(len(numbers), dtype=torch.uint8)
    bf16, f16 = torch.empty(len(numbers), dtype=torch.int16), torch.empty(len(numbers), dtype=torch.int16)
    kernel("rounds")[-(-len(numbers) // 128), 128](numbers, e4m3, e5m2, bf16, f16, kit.i32(len(numbers)))
    for kind, found in (
        (torch.float8_e4m3fn, e4m3),
        (torch.float8_e5m2, e5m2),
        (torch.bfloat16, bf16),
        (torch.float16, f16),
    ):
        check(f"rounding to {kind}", right=torch.equal(numbers.to(kind).view(found.dtype), found))

    p, wide, f = torch.zeros(8, dtype=torch.int32), torch.zeros(1, dtype=torch.int64), torch.zeros(1)
    kernel("many_instructions")[1, 1](p, wide, f)
    check("PTX", right=p.tolist()[:5] == [9, 9, 6, 0x55667788, 0x11223344] and wide.item() == 3 and f.item() == 3.25)

    kernel("copies_nobody_waits_for")[1, 1](kit.aligned(x), y)
    check("an asynchronous copy is late", right=y[0].item() == -1.0 and y[1].item() == x[0].item())

    check_streams(kernel)
    print("done", flush=True)


def check_streams(kernel: object) -> None:
    add = kernel("add_one_float")  # type: ignore[operator]
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    a = torch.zeros(32)
    with torch.cuda.stream(side):
        add[1, 32](a)
        add[1, 32](a)
    check("work on a side stream is late", right=a[0].item() == 0.0)
    torch.cuda.current_stream().wait_stream(side)
    check("and done when it is joined", right=a[0].item() == 2.0)
    with torch.cuda.stream(side):
        add[1, 32](a)
        event.record()
        b = a + 0  # an operator of torch comes after the kernels before it
    check("an operator of torch on a side stream sees the kernels before it", right=b[0].item() == 3.0)
    with torch.cuda.stream(side):
        add[1, 32](a)
        event.record(side)
        add[1, 32](a)
    event.synchronize()
    check("an event is a place in a stream", right=a[0].item() == 4.0 and not side.query())
    waited = threading.Event()
    for _ in range(100):
        waited.wait(0.05)
        if a[0].item() == 5.0:
            break
    check("what nobody waits for runs some time", right=a[0].item() == 5.0)
    torch.cuda.synchronize()


if __name__ == "__main__":
    os.environ.setdefault("PKB_EMULATOR_SEED", str(int(time.time()) % 1000))
    print("seed", os.environ["PKB_EMULATOR_SEED"], file=sys.stderr)
    main()
