"""The kit's device headers: every part compiles, and host and device agree on what they share."""

import ctypes
import re

import kit_compilers
import pytest
from kit_compilers import ARCHITECTURES, needs_cuda_compiler

from pkb import kit
from pkb.kit import cuda

build_dir = kit_compilers.build_dir

EVERY_PART = """
#include <stdint.h>
#include "pkb.cuh"
using namespace pkb;
template <class T> __device__ void lanes(char* x) {
  wide_t<T> sum[Lanes<T>::count] = {};
  Lanes<T>::accumulate(sum, ld_weak(x));
  st_weak(x + 16, Lanes<T>::pack(sum));
  Lanes<T>::put(x + 24, Lanes<T>::get(x + 28));
  st_fresh(x + 32, Lanes<T>::add(ld_fresh(x), ld_volatile(x + 48)));
}
template <class T> __device__ void by_the_switch(char* x) {
#if __CUDA_ARCH__ >= 900
  Multimem<T>::st(x + 64, Multimem<T>::ld_reduce(x + 80));
  Multimem<T>::red(x + 96, ld_once(x + 112));
#endif
}
template <class T> __device__ void most(char* x) {
  const uint4 v = max_lanes<T>(ld_leaving(x), make_uint4(larger(T{}, 1, 2), 0, 0, 0));
  *(float*)x = top_lane<T>(v);
  in_flight<8>(0, 9, [&](u32 i) { return ld_stream(x + 16 * i); }, [&](u32 i, uint4 v) { st_leaving(x + 16 * i, v); });
}
extern "C" __global__ void everything(const __grid_constant__ Pipe pipe, const __grid_constant__ Peers peers,
                                      u32* const* pads, int rank, int world, char* x, u32* counter, bool* met) {
  *met = barrier_block(pads, rank, world, block_in_grid(), 1000000) && barrier_epoch(pads, rank, world, 40)
      && barrier_world(pads, rank, world, 41, counter, 1000);
  barrier_grid(counter);
  copy(x, x + 4096, 1000, thread_in_block(), threads_in_block());
  copy_block(x, x + 8192, 1001);
  copy_grid(x, x + 8192, 16 * (uint64_t)blocks_in_grid());
  st_stream(x, ld_stream(x + 16));
  const Part part = part_of_block(4096);
  reduce_block<bf16>(x + part.begin, (char* const*)pads, part.begin, part.bytes, world);
  most<f32>(x); most<bf16>(x + 512); most<f16>(x + 1024);
  lanes<f32>(x); lanes<bf16>(x + 512); lanes<f16>(x + 1024); lanes<f64>(x + 2048);
  by_the_switch<f32>(x); by_the_switch<bf16>(x + 512); by_the_switch<f16>(x + 1024);
  announce(pads, rank, world, 42, 1);
  *met &= await_all(pads, rank, world, 42, 1, 1000) && await_counts(pipe.block_counts(), rank, world, 43, 1, 1000);
  const u32 epoch = pipe.epoch();
  pipeline(pipe, epoch, [&](u32 turn) { pipe.slots[0][pipe.at(epoch, turn)] = 1; }, [&](u32 turn) { x[turn] = 2; });
  meet(pipe);
  pipe.announce(9); pipe.await_all(9); pipe.advance(9);
  Deadline late(5);
  *met &= put_signal(slot_of(pads, rank, 0, world, 3)) && wait_signal(counter + 1, 7) && wait_reaches(counter, 9);
  *met &= late.passed() && now_ns() > 0;
  st_relaxed_sys(counter, ld_relaxed_sys(counter) + ld_acquire_sys(counter) + ld_acquire_gpu(counter));
  st_release_sys(counter, cas_release_sys(counter, 0, 1) + cas_acquire_sys(counter, 1, 0));
  add_release_sys(counter, 1); add_acq_rel_gpu(counter, 1); fence_sys();
  x[0] = (char)(Lanes<bf16>::add2(1, 2) + Lanes<bf16>::pack2(1.f, 2.f));
#if __CUDA_ARCH__ >= 900
  multimem_add_release(counter, 1);
#endif
  x[peers.next_region() + peers.this_region() + peers.region(2)] = (char)*peers.own_count(1);
  if (world > 99) report_late(0, 1, 2, 3, counter), report_grid(0, 1), report_overwritten(0);
  finish_grid(peers, 0);
}
"""
COLLECTIVE = """
#include "pkb_collective.cuh"
using namespace pkb;
template <class T> __device__ void sums(const Turns& t, char* x) {
  sum_one_shot<T>(t, x, x + 4096, 4000, 512, t.rank == 0);
  sum_two_shot<T>(t, x, x + 4096, 4000, 64);
  sum_two_shot<T>(t, x, x + 4096, 4000, 64, all_but(t.world, 3).rank_of(0) + all_but(t.world, 3).row_of(1));
  sum_rows<T>(x, t.world, 100, [&](u32 k) { return x + 128 * k; });
#if __CUDA_ARCH__ >= 900
  if constexpr (Lanes<T>::size < 8) sum_by_switch<T>(x, x + 4096, 512);
  if constexpr (Lanes<T>::size < 8) sum_by_switch<T, true>(x, x + 4096, 512);
  stage_by_switch(x, x + 4096, 512);
#endif
}
extern "C" __global__ void everything(const __grid_constant__ Pipe pipe, char* x) {
  const Turns t = turns_of(pipe);
  auto row = [&](u32 k) { return x + 64 * k; };
  copy_rows<true>(640, 64, (u64)x, row, row, Nowhere{}, Turned{3, 10});
  auto produce = [&](u32 turn) { stage_rows(640, 64, (u64)x, row, [&](u32) { return t.slots[t.peer(0)] + t.at(turn); }); };
  t.run(produce, [&](u32 turn) { deliver_rows(t.part(4000, 64, turn).bytes, 64, (u64)x, row, row); });
  st_narrow(x, ld_narrow(x + 4, 2), 2);
  sums<f32>(t, x); sums<bf16>(t, x); sums<f16>(t, x); sums<f64>(t, x);
}
"""
MMA = """
#include "pkb_mma.cuh"
using namespace pkb;
template <class T, class Tile> __device__ void product(char* tile, const char* a, const char* b, char* out) {
  Tile::template multiply<T>(tile, a, b, 0, 64, 40, [](u32 row) { return row < 50 ? (int)row : -1; });
  st_weak(out, Tile::get(tile, 3, 1));
}
extern "C" __global__ void everything(const char* a, const char* b, char* out) {
  extern __shared__ uint4 memory[];
  char* tile = reinterpret_cast<char*>(memory);
  product<bf16, MmaTile<128, 128, 4>>(tile, a, b, out);
  product<f16, MmaTile<64, 64, 3>>(tile, a, b, out + 16);
  copy_async(tile, a, 16); commit_async(); wait_async<0>();
  u32 r[4], s[4]; float c[4] = {};
  ldmatrix(r, tile); ldmatrix_trans(s, tile + 512); mma(bf16{}, c, r, s[0], s[1]);
  out[32] = (char)c[0];
}
"""
FFT = """
#include "pkb_fft.cuh"
using namespace pkb;
template <int LOG> __device__ void there_and_back(float2* io) {
  using F = Fft<LOG>;
  extern __shared__ float2 data[];
  float2* turns = data + F::data;
  F::prepare(turns);
  __syncthreads();
  float2 x[16];
  for (int k = 0; k < 16; ++k) x[k] = io[threadIdx.x + k * F::threads];
  F::run(x, data, turns, root_of_one(0.f), [&] { x[0] = mul(add(x[0], x[1]), sub(x[2], x[3])); return true; });
  twiddle(x, x[0], x[1]);
  dft<8>(x);
  for (int k = 0; k < 16; ++k) io[threadIdx.x + k * F::threads] = x[k];
}
#define KERNEL(LOG) extern "C" __global__ void everything_##LOG(float2* io) { there_and_back<LOG>(io); }
KERNEL(9) KERNEL(11) KERNEL(12) KERNEL(13) KERNEL(14)
"""
EVERY_HEADER = {"pkb": EVERY_PART, "pkb_collective": COLLECTIVE, "pkb_mma": MMA, "pkb_fft": FFT}


@needs_cuda_compiler
@pytest.mark.parametrize("header", ["pkb", "pkb_collective"])
def test_debug_builds_compile(header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kit.compile(EVERY_HEADER[header], name="everything")
    monkeypatch.setenv("PKB_KIT_DEBUG", "1")
    debug = kit.compile(EVERY_HEADER[header], name="everything")
    assert plain.artifact.path != debug.artifact.path
    assert b"has not come to step" in debug.artifact.path.read_bytes()


@needs_cuda_compiler
@pytest.mark.parametrize(
    ("header", "arch"),
    [
        # The large headers have nothing that Ampere's and Ada's small chips take differently from its large one.
        pytest.param(
            header, arch, marks=[pytest.mark.slow] * (arch in ("sm_86", "sm_89") and header in ("pkb_mma", "pkb_fft"))
        )
        for header in EVERY_HEADER
        for arch in ARCHITECTURES
    ],
)
def test_every_part_of_the_device_headers_compiles(header: str, arch: str) -> None:
    module = kit.compile(EVERY_HEADER[header], name="everything", arch=arch)
    binary = module.artifact.path.read_bytes()
    assert binary[:4] == b"\x7fELF"
    assert b"everything" in binary
    assert not module.artifact.cached


@pytest.mark.parametrize("header", EVERY_HEADER)
def test_the_kernels_above_name_every_function_of_the_headers(header: str) -> None:
    text = re.sub(r"\n private:.*?\n};", "", (cuda.DEVICE_HEADERS / f"{header}.cuh").read_text(), flags=re.S)
    functions = set(re.findall(r"inline__ (?:static )?(?:explicit )?(?:constexpr )?[\w:*]+ (?!operator)(\w+)\(", text))
    assert len(functions) > (40 if header == "pkb" else 6)
    assert [name for name in sorted(functions) if not re.search(rf"\b{name}\b", EVERY_HEADER[header])] == []


def test_no_header_is_left_out() -> None:
    assert {path.stem for path in cuda.DEVICE_HEADERS.glob("*.cuh")} == set(EVERY_HEADER)


SIZES = """
#include "pkb.cuh"
using namespace pkb;
#define HAS(S, member, size) static_assert(sizeof(((S*)0)->member) == size, #member);
{checks}
static_assert(sizeof({name}) == {size}, "size");
extern "C" __global__ void checked() {{}}
"""


@needs_cuda_compiler
@pytest.mark.parametrize("struct", [kit.Pipe, kit.Peers], ids=lambda struct: struct.__name__)
def test_the_device_sees_structs_as_the_host_wrote_them(struct: type[ctypes.Structure]) -> None:
    names = [field[0] for field in struct._fields_]
    checks = "".join(f"HAS({struct.__name__}, {name}, {getattr(struct, name).size})\n" for name in names)
    kit.compile(SIZES.format(checks=checks, name=struct.__name__, size=ctypes.sizeof(struct)), name="sizes")
    header = (cuda.DEVICE_HEADERS / "pkb.cuh").read_text()
    members = re.search(rf"struct {struct.__name__} \{{.*?\n(.*?)\n\n", header, re.S)
    assert members is not None
    assert re.findall(r"(\w+)(?:\[\w+\])?[,;]", re.sub(r"//.*", "", members[1])) == names


def test_every_type_of_the_header_has_its_dtype() -> None:
    import torch

    header = (cuda.DEVICE_HEADERS / "pkb.cuh").read_text()
    named = {kit.lanes(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)}
    assert named == set(re.findall(r"struct Lanes<(\w+)>", header))
    with pytest.raises(TypeError, match=r"no lanes of torch\.int32"):
        kit.lanes(torch.int32)
