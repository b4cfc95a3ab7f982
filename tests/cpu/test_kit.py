"""The kit without a GPU: real compilers, a real cache on disk, real processes that race for it."""

import ctypes
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pkb import kit
from pkb.kit import cpp, cuda, nvcc, nvrtc
from pkb.kit.arguments import Frame
from pkb.kit.toolkit import cuda_home, normal_arch
from world import World

HAS_CUDA_COMPILER = nvrtc.load() is not None or nvcc.find() is not None
needs_cuda_compiler = pytest.mark.skipif(not HAS_CUDA_COMPILER, reason="neither NVRTC nor nvcc is on this machine")
needs_nvcc = pytest.mark.skipif(nvcc.find() is None or cuda_home() is None, reason="no nvcc on this machine")
needs_cxx = pytest.mark.skipif(cpp.find_cxx() is None, reason="no C++ compiler on this machine")

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
extern "C" __global__ void everything(u32* const* pads, int rank, int world, char* x, u32* counter, bool* met) {
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
  *met &= await_all(pads, rank, world, 42, 1, 1000);
  pipeline<1>(pads, rank, world, 0, 4, [&](u32 turn) { x[turn % pipeline_slots<1>()] = 1; }, [&](u32 turn) { x[turn] = 2; });
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
  finish_grid(Peers{(char* const*)pads, rank, world, 1}, 0);
}
"""
COLLECTIVE = """
#include "pkb_collective.cuh"
using namespace pkb;
template <class T> __device__ void sums(const Turns& t, char* x) {
  sum_one_shot<T>(t, x, x + 4096, 4000, 512, t.rank == 0);
  sum_two_shot<T>(t, x, x + 4096, 4000, 64, true);
  sum_rows<T>(x, t.world, 100, [&](u32 k) { return x + 128 * k; });
#if __CUDA_ARCH__ >= 900
  if constexpr (Lanes<T>::size < 8) sum_by_switch<T>(x, x + 4096, 512);
  if constexpr (Lanes<T>::size < 8) sum_by_switch<T, true>(x, x + 4096, 512);
  stage_by_switch(x, x + 4096, 512);
#endif
}
extern "C" __global__ void everything(char* const* slots, u32* const* counts, int rank, int world, char* x) {
  const Turns t = turns_of(slots, counts, rank, world, 4096, 3, 0);
  auto row = [&](u32 k) { return x + 64 * k; };
  copy_rows<true>(640, 64, (u64)x, row, row, Nowhere{});
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
BROKEN = 'extern "C" __global__ void broken(float* x) {\n  x[0] = 1.0f;\n  x[1] = nobody;\n}\n'
SUM_CPP = """
extern "C" double sum(const float* x, long n) { double s = 0; for (long i = 0; i < n; ++i) s += x[i]; return s; }
"""


@pytest.fixture(autouse=True)
def build_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "build"
    monkeypatch.setenv("PKB_BUILD_DIR", str(folder))
    monkeypatch.delenv("PKB_BUILD_CACHE", raising=False)
    return folder


def counting(real: Path, folder: Path, *, delay: float = 0.0) -> tuple[Path, Path]:
    """A compiler that writes a line to a file each time it is started, and then is the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    script, runs = folder / real.name, folder / "runs"
    script.write_text(f'#!/bin/sh\necho run >> "{runs}"\nsleep {delay}\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    return script, runs


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], env=variables, stdout=pipe, stderr=pipe, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@needs_cuda_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("header", EVERY_HEADER)
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


@needs_cuda_compiler
def test_a_compile_error_names_its_line_and_leaves_nothing(build_dir: Path) -> None:
    with pytest.raises(kit.CompileError) as caught:
        kit.compile(BROKEN, name="bad kernel!", arch="sm_90a")
    assert caught.value.line == 3
    assert caught.value.first_error.startswith("bad_kernel_.cu(3): error")
    assert "nobody" in caught.value.first_error
    assert "nobody" in caught.value.log
    assert not [path for path in build_dir.iterdir() if path.suffix not in (".lock", ".failed")]


@needs_cuda_compiler
def test_an_error_inside_ptx_is_a_compile_error_too() -> None:
    source = 'extern "C" __global__ void k(int* x) { asm volatile("no.such.instruction %0;" :: "l"(x)); }'
    with pytest.raises(kit.CompileError) as caught:
        kit.compile(source, arch="sm_90a")
    assert "ptxas" in caught.value.first_error or "no.such" in caught.value.log


@needs_nvcc
def test_the_second_compile_runs_no_compiler_and_any_change_does(tmp_path: Path) -> None:
    home, real_home = tmp_path / "cuda", cuda_home()
    assert real_home is not None
    _, runs = counting(real_home / "bin" / "nvcc", home / "bin")
    (home / "include").symlink_to(real_home / "include")
    code = """
from pkb import kit
source = 'extern "C" __global__ void k(int* x) { x[0] = N; }'
for n, arch in ((1, "sm_90a"), (1, "sm_90a"), (2, "sm_90a"), (1, "sm_80")):
    print(kit.compile(source, name="k", options=[f"-DN={n}"], arch=arch).artifact.cached)
"""
    environment = {"CUDA_HOME": str(home), "PKB_CUDA_COMPILER": "nvcc"}
    assert finish(start(code, **environment)).split() == ["False", "True", "False", "False"]
    assert len((home / "bin" / "runs").read_text().split()) == 3
    assert finish(start(code, **environment)).split() == ["True"] * 4
    assert len(runs.read_text().split()) == 3


@needs_cxx
def test_processes_at_once_build_once(tmp_path: Path) -> None:
    real = cpp.find_cxx()
    assert real is not None
    script, runs = counting(real, tmp_path / "bin", delay=0.5)
    code = "from pkb import kit; print(kit.build_cpp('extern \"C\" int f() { return 41; }').f())"
    ranks = [start(code, CXX=str(script)) for _ in range(3)]
    assert [finish(rank).strip() for rank in ranks] == ["41"] * 3
    assert len(runs.read_text().split()) == 1


@needs_cxx
def test_processes_that_wait_for_a_failing_build_fail_with_it(tmp_path: Path) -> None:
    real = cpp.find_cxx()
    assert real is not None
    script, runs = counting(real, tmp_path / "bin", delay=1.5)
    code = """
from pkb import kit
try: kit.build_cpp('int f() {\\n return nobody; }')
except kit.CompileError as error: print(error.line)
"""
    ranks = [start(code, CXX=str(script)) for _ in range(3)]
    assert [finish(rank).strip() for rank in ranks] == ["2"] * 3
    assert len(runs.read_text().split()) == 1
    # Not remembered: the next one tries again.
    assert finish(start(code, CXX=str(script))).strip() == "2"
    assert len(runs.read_text().split()) == 2


@needs_cxx
def test_waiting_for_another_build_is_bounded(build_dir: Path, tmp_path: Path) -> None:
    real = cpp.find_cxx()
    assert real is not None
    script, runs = counting(real, tmp_path / "bin", delay=4)
    code = "from pkb import kit; kit.build_cpp('extern \"C\" int f() { return 41; }')"
    first = start(code, CXX=str(script))
    while not runs.exists():
        assert first.poll() is None
    second = start(code, CXX=str(script), PKB_BUILD_WAIT="0.3")
    _, err = second.communicate(timeout=60)
    assert "BuildTimeout" in err
    finish(first)


@needs_cxx
def test_cpp_end_to_end_and_from_a_read_only_cache(
    build_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = kit.build_cpp(SUM_CPP, name="sum")
    library.sum.restype = ctypes.c_double
    library.sum.argtypes = [ctypes.c_void_p, ctypes.c_long]
    values = (ctypes.c_float * 4)(1.0, 2.0, 3.0, 4.5)
    assert library.sum(ctypes.addressof(values), 4) == 10.5

    prebuilt = tmp_path / "prebuilt"
    build_dir.rename(prebuilt)
    monkeypatch.setenv("PKB_BUILD_CACHE", str(prebuilt))
    artifact = cpp.build_library(SUM_CPP, name="sum", options=())
    assert artifact.cached
    assert artifact.path.parent == prebuilt
    assert not build_dir.exists()


@needs_cxx
def test_a_cpp_error_names_its_line() -> None:
    with pytest.raises(kit.CompileError, match="nobody") as caught:
        kit.build_cpp("int f() {\n\n  return nobody;\n}", name="bad")
    assert caught.value.line == 3
    assert caught.value.first_error.startswith("bad.cpp:3:")


@needs_cuda_compiler
def test_a_launch_without_a_gpu_says_so() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    kernel = kit.compile('extern "C" __global__ void k() {}', arch="sm_90a").kernel("k")
    with pytest.raises(RuntimeError, match="GPU"):
        kernel[1, 32]()


def test_importing_the_kit_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, pkb.kit, pkb.candidates.prebuild; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert finish(start(code)).strip() == "[]"


def test_integers_do_not_wrap_around() -> None:
    assert kit.i32(-(2**31)).value == -(2**31)
    assert kit.u32(2**32 - 1).value == 2**32 - 1
    for convert, value in ((kit.i32, 2**31), (kit.u32, -1), (kit.u64, 2**64)):
        with pytest.raises(OverflowError):
            convert(value)


def test_parameters_are_marshalled_by_value() -> None:
    class Triple(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int * 3),)

    no_tensor = type("Tensor", (), {})
    triple, small = Triple((7, 8, 9)), kit.i32(-3)
    frame = Frame(6)
    for first in (-5, 6):  # the second fill reuses the storage of the first
        frame.fill((first, 2.5, True, None, small, triple), (8, 8, 1, 8, 4, 12), no_tensor, "k")
    address = [pointer or 0 for pointer in frame.pointers]
    assert ctypes.c_int64.from_address(address[0]).value == 6
    assert ctypes.c_double.from_address(address[1]).value == 2.5
    assert ctypes.c_bool.from_address(address[2]).value is True
    assert ctypes.c_uint64.from_address(address[3]).value == 0
    assert ctypes.c_int32.from_address(address[4]).value == -3
    assert list(Triple.from_address(address[5]).a) == [7, 8, 9]
    with pytest.raises(TypeError, match=r"kit\.i32"):
        frame.fill((1,), (4,), no_tensor, "k")
    with pytest.raises(TypeError, match="is a str"):
        frame.fill(("x",), (8,), no_tensor, "k")


def test_only_what_is_not_aligned_is_copied() -> None:
    import torch

    whole = torch.arange(64, dtype=torch.float32)
    assert kit.aligned(whole) is whole
    for view in (whole[1:], whole.view(8, 8)[:, 1]):
        copy = kit.aligned(view)
        assert (copy.data_ptr() % 16, copy.is_contiguous()) == (0, True)
        assert torch.equal(copy, view)


# ---- pipelines and exchanges: their host side, between real ranks


@pytest.mark.parametrize("unit", [16, 48])
@pytest.mark.parametrize("nbytes", [0, 1, 511, 512, 1000, 12345, 2**20, 2**31 + 7])
def test_turns_share_out_everything_in_equal_pieces(nbytes: int, unit: int) -> None:
    most = 10 * unit
    for limit in (1, 7, 64):
        blocks, turns, chunk = kit.turns(nbytes, blocks=limit, least=512, most=most, unit=unit)
        assert 1 <= blocks <= max(1, min(limit, nbytes // 512))
        assert turns >= 1
        assert chunk % unit == 0
        assert chunk <= most
        assert blocks * turns * chunk >= nbytes
        assert turns == 1 or blocks * (turns - 1) * most < nbytes  # not a turn too many


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two ranks of our own with symmetric memory: its module is patched, which other tests must not inherit."""
    world = World(2)
    world.call(install_symmetric, str(tmp_path_factory.mktemp("symmetric")))
    yield world
    world.close()


def install_symmetric(rank: int, size: int, folder: str) -> None:
    from pkb.rank.symmetric import memory as symmetric

    symmetric.install(Path(folder), timeout_s=30.0)


def words_at(table: int, peer: int, count: int) -> list[int]:
    """What a kernel would read of a peer's buffer through a table of pointers."""
    address = (ctypes.c_uint64 * (peer + 1)).from_address(table)[peer]
    return list((ctypes.c_uint32 * count).from_address(address))


def use_a_pipeline(rank: int, size: int) -> dict[str, Any]:
    pipe = kit.pipeline("test", blocks=3, slot_bytes=100, device="cpu")
    again = kit.pipeline("test", blocks=3, slot_bytes=100, device="cpu")
    others = [kit.pipeline("test", blocks=3, slot_bytes=200, device="cpu")]
    others += [kit.pipeline("test", blocks=4, slot_bytes=100, device="cpu")]
    others += [kit.pipeline("other", blocks=3, slot_bytes=100, device="cpu")]
    bases = [pipe.base(turns).value for turns in (3, 0, 2**32 - 5, 4, 1)]
    pipe.stage.buffer.fill_(rank + 1)
    pipe.stage.handle.barrier(channel=1)
    slots, counts = (table.value for table in pipe.tables[:2])
    found = {
        "same": again is pipe,
        "different": len({id(p) for p in (pipe, *others)}),
        "bases": bases,
        "another's base": others[0].base(1).value,
        "rank and world": [value.value for value in pipe.tables[2:]] == [rank, size],
        "slots": [words_at(slots, peer, 25) for peer in range(size)],
        "counts": [words_at(counts, peer, 3 * size) for peer in range(size)],
    }
    pipe.stage.handle.barrier(channel=1)
    return found


def test_a_pipeline_is_kept_and_counts_its_turns(ranks: World) -> None:
    for found in ranks.call(use_a_pipeline):
        assert found == {
            "same": True,
            "different": 4,
            "bases": [0, 3, 3, 2**32 - 2, 2],  # around at 2**32, as the device's counts
            "another's base": 0,
            "rank and world": True,
            "slots": [[0x01010101 * (peer + 1)] * 25 for peer in range(2)],
            "counts": [[0] * 6] * 2,
        }


def use_an_exchange(rank: int, size: int) -> list[Any]:
    module: Any = sys.modules["pkb.kit.exchange"]  # `kit.exchange` is the function
    calls = [kit.exchange("test", region_bytes=64, device="cpu") for _ in range(3)]
    ((key, (stage, _)),) = module._CALLS.items()
    module._CALLS[key] = stage, itertools.count(2**32)
    single = kit.exchange("test", region_bytes=64, regions=1, device="cpu")
    calls.append(kit.exchange("test", region_bytes=64, device="cpu"))
    right = all((call.peers.rank, call.peers.world) == (rank, size) for call in (*calls, single))
    calls[0].buffer[1024:] = rank + 1  # as a kernel would, in its own stage; peers read by their tables
    same = all(call.peers.stages == calls[0].peers.stages != single.peers.stages for call in calls)
    signals = words_at(calls[0].peers.stages, 1 - rank, 256)
    return [right, same, [(call.peers.epoch, call.region) for call in (*calls, single)], sum(signals)]


def test_an_exchange_counts_calls_and_uses_regions_in_turn(ranks: World) -> None:
    expected = [(1, 1024 + 64), (2, 1024), (3, 1024 + 64), (0, 1024), (1, 1024)]
    assert ranks.call(use_an_exchange) == [[True, True, expected, 0]] * 2


def test_the_device_sees_peers_as_the_host_wrote_them() -> None:
    assert (ctypes.sizeof(kit.Peers), kit.Peers.epoch.offset) == (24, 16)
    header = (cuda.DEVICE_HEADERS / "pkb.cuh").read_text()
    members = re.search(r"struct Peers \{.*?\n(.*?)\n\};", header, re.S)
    assert members is not None
    assert re.findall(r"(\w+)[,;]", re.sub(r"//.*", "", members[1])) == [name for name, *_ in kit.Peers._fields_]


def test_architectures_are_written_in_many_ways() -> None:
    assert {normal_arch(text) for text in ("9.0a", "90a", "sm_90a", "compute_90a")} == {"sm_90a"}
    with pytest.raises(ValueError, match="hopper"):
        normal_arch("hopper")


# ---- prebuild: `python -m pkb.candidates.prebuild` as the judge runs it

GOOD = '''
import torch
from pkb import kit
from pkb.kit import build_cpp as make
BLOCK = 128
BODY = "x[threadIdx.x] *= 2.f;"
SOURCE = f"""
#include "pkb.cuh"
#define BLOCK {BLOCK * 2}
extern "C" __global__ void twice(float* x) {{ {BODY} }}
""" + "// end"
raise SystemExit("the candidate must not be run")
module = kit.compile(SOURCE, name="twice", options=("-lineinfo",), arch="sm_90a")
def solution(x):
    text = 'extern "C" int NAME() { return 3; }'.replace("NAME", "three")
    make(text)
    return compile("1", "f", "eval")
'''


def prebuild(source: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "candidate.py"
    file.write_text(source)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "pkb.candidates.prebuild", str(file)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@needs_cxx
@needs_cuda_compiler
def test_prebuild_fills_the_cache_of_the_ranks(tmp_path: Path) -> None:
    status, report = prebuild(GOOD, tmp_path)
    assert (status, report["error"], report["skipped"], report["unavailable"]) == (0, None, [], None)
    assert [(b["name"], b["kind"], b["cached"]) for b in report["built"]] == [
        ("twice", "cubin", False),
        ("library", "cpp", False),
    ]
    body = "x[threadIdx.x] *= 2.f;"
    text = f'\n#include "pkb.cuh"\n#define BLOCK 256\nextern "C" __global__ void twice(float* x) {{ {body} }}\n// end'
    assert kit.compile(text, name="twice", options=["-lineinfo"], arch="sm_90a").artifact.cached
    assert prebuild(GOOD, tmp_path)[1]["built"][1]["cached"]


@needs_cuda_compiler
def test_prebuild_reports_a_compile_error(tmp_path: Path) -> None:
    status, report = prebuild(f"import pkb.kit\nS = {BROKEN!r}\nM = pkb.kit.compile(S, name='bad')\n", tmp_path)
    assert status == 1
    assert report["error"]["name"] == "bad"
    assert (report["error"]["kind"], report["error"]["line"]) == ("cubin", 3)
    assert report["error"]["first_error"].startswith("bad.cu(3): error")


@needs_cuda_compiler
def test_a_compile_error_inside_a_try_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    source = f"from pkb import kit\ntry:\n    kit.compile({BROKEN!r})\nexcept kit.CompileError:\n    pass\n"
    status, report = prebuild(source, tmp_path)
    assert (status, report["error"]) == (0, None)
    assert "inside a try" in report["skipped"][0]["why"]


@needs_cuda_compiler
def test_the_kernels_in_the_manual_compile(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "kit.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", manual, re.S)
    kernels = [text for language, text in blocks if language == "cuda"]
    assert len(kernels) == 2
    for text in kernels:
        assert kit.compile(text, name="manual", arch="sm_90a").artifact.path.exists()
    status, report = prebuild(next(text for language, text in blocks if language == "python"), tmp_path)
    assert (status, report["skipped"]) == (0, [])
    assert [built["name"] for built in report["built"]] == ["one_shot"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("S = open('x').read()\nkit.compile(S)", "open"),
        ("S = 'a'\nS = 'b'\nkit.compile(S)", "`S`"),
        ("S = 'a'\ndef f():\n    global S\n    S = 'b'\nkit.compile(S)", "`S`"),
        ("def f(S):\n    return kit.compile(S)", "`S`"),
        ("kit.compile(*['a'])", "star"),
        ("kit.compile('x' * 10**9)", "Pow"),
        ("kit.compile(f'{1:>999999999}')", "wide"),
        ("kit.compile(('a' * 4000000).replace('a', 'b' * 4000000))", "too large"),
        ("kit.compile(name='k')", "`source`"),
    ],
)
def test_prebuild_skips_what_only_running_can_tell(source: str, why: str, tmp_path: Path) -> None:
    status, report = prebuild(f"from pkb import kit\n{source}\n", tmp_path)
    assert (status, report["built"], report["error"]) == (0, [], None)
    assert why in report["skipped"][0]["why"]


def test_prebuild_without_compilers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if nvrtc.load() is not None or Path("/usr/local/cuda").exists():
        source, variable = "kit.build_cpp('int x;')", "PATH"
    else:
        source, variable = "kit.compile('int x;')", "PATH"
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    status, report = prebuild(f"from pkb import kit\n{source}\n", tmp_path)
    assert status == 0
    assert "compiler" in report["unavailable"]


UPSTREAM = '''
from utils.cuda_helpers import compile_cuda_extension
CUDA_SRC = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_bf16.h>
__global__ void twice(float* x, long n) { long i = threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(x.device());
  twice<<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();MISTAKE
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
_ext = None
def _get():
    global _ext
    if _ext is None:
        _ext = compile_cuda_extension("twice_ext", CUDA_SRC, extra_cuda_cflags=["-O3"])
    return _ext
'''


@needs_nvcc
@pytest.mark.slow
def test_prebuild_of_an_upstream_candidate(tmp_path: Path) -> None:
    status, report = prebuild(UPSTREAM.replace("MISTAKE", ""), tmp_path)
    assert (status, report["error"], report["skipped"]) == (0, None, [])
    assert [(b["name"], b["kind"], b["line"]) for b in report["built"]] == [("twice_ext", "extension", 20)]


@needs_nvcc
@pytest.mark.slow
def test_prebuild_of_an_upstream_candidate_with_a_mistake(tmp_path: Path) -> None:
    status, report = prebuild(UPSTREAM.replace("MISTAKE", " nobody();"), tmp_path)
    assert status == 1
    assert report["error"]["first_error"].startswith("twice_ext.cu(10): error")
    assert "nobody" in report["error"]["first_error"]


def test_every_type_of_the_header_has_its_dtype() -> None:
    import torch

    header = (cuda.DEVICE_HEADERS / "pkb.cuh").read_text()
    named = {kit.lanes(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)}
    assert named == set(re.findall(r"struct Lanes<(\w+)>", header))
    with pytest.raises(TypeError, match=r"no lanes of torch\.int32"):
        kit.lanes(torch.int32)
