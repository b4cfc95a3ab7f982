"""Signals of our kernels in machine code: released and acquired at system scope, no peer's data by the read-only path.

The emulator runs on an x86, which orders nearly everything, and where ranks share a GPU its own scope is enough. So a release
that became relaxed, or `.sys` that became `.gpu`, passes both; here it does not. Needs NVRTC or nvcc, and cuobjdump, which
Triton brings.
"""

import re
import subprocess
from pathlib import Path

import kit_compilers
import pytest
from kit_compilers import needs_cuda_compiler

from pkb import kit
from pkb.candidates import machine_code
from pkb.kit import cuda

build_dir = kit_compilers.build_dir
HEADER = (cuda.DEVICE_HEADERS / "pkb.cuh").read_text()
COLLECTIVE = """
#include "pkb.cuh"
using namespace pkb;
extern "C" __global__ void turns(const __grid_constant__ Pipe pipe, char* x) {
  const u32 epoch = pipe.epoch();
  pipeline(pipe, epoch, [&](u32 turn) { st_weak(pipe.slots[1] + pipe.at(epoch, turn), ld_weak(x + 16 * turn)); },
           [&](u32 turn) { st_weak(x + 16 * turn, ld_stream(pipe.slots[0] + pipe.at(epoch, turn))); });
}
extern "C" __global__ void finish(const __grid_constant__ Peers p, char* x) {
  p.stages[1][p.next_region() + threadIdx.x] = x[threadIdx.x];
  finish_grid(p, 0);
}
extern "C" __global__ void barriers(u32* const* pads, int rank, int world) {
  barrier_block(pads, rank, world, 0);
  barrier_epoch(pads, rank, world, 1);
}
"""
MEMORY = re.compile(r"\b(MEMBAR\.\S+|CCTL\.\S+|(?:LDG?|STG?|ATOMG?)\.E\S*)")
# A fence at system scope and then the signal; a look at the signal and then a dropped L1.
RELEASE = re.compile(r"MEMBAR\.(ALL|SC)\.SYS (STG?|ATOMG?)\.E\S*\.STRONG\.SYS")
LOCAL = re.compile(r"(LDG?|STG?)\.E\S*\.STRONG\.GPU")  # none of the kernels below meets blocks of its own grid by loads
ACQUIRE = re.compile(r"(LDG?|ATOMG?)\.E\S*\.STRONG\.SYS CCTL\.IVALL")


def disassembled(text: str, *, header: str = HEADER) -> dict[str, str]:
    """SASS by kernel."""
    source = text.replace('#include "pkb.cuh"', header.replace("#pragma once", ""))
    cubin = kit.compile(source, name="orders", arch="sm_90a").artifact.path
    tool = machine_code._tool(cubin)
    if tool is None or tool.name != "cuobjdump":
        pytest.skip("no cuobjdump: it comes with Triton or the CUDA toolkit")
    printed = subprocess.run([str(tool), "-sass", str(cubin)], capture_output=True, text=True, timeout=60, check=True)
    parts = re.split(r"Function : (\w+)", printed.stdout)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def lacks(code: str) -> list[str]:
    """What a kernel that tells its peers, and waits for them, should have and has not."""
    memory = " ".join(MEMORY.findall(code))
    found = [] if RELEASE.search(memory) else ["a release at system scope"]
    found += [] if ACQUIRE.search(memory) and not LOCAL.search(memory) else ["an acquire at system scope"]
    return found + (["no load by the read-only path"] if "CONSTANT" in memory else [])


@needs_cuda_compiler
def test_kernels_release_and_acquire_at_system_scope() -> None:
    kernels = disassembled(COLLECTIVE)
    assert set(kernels) == {"turns", "finish", "barriers"}
    assert {name: lacks(code) for name, code in kernels.items()} == {name: [] for name in kernels}


# In the header, by the PTX that `pipeline` and `finish_grid` are made of.
FAULTS = {
    "release becomes relaxed": ("st.release.sys.global.u32", "st.relaxed.sys.global.u32", "a release"),
    "release of the own GPU": ("st.release.sys.global.u32", "st.release.gpu.global.u32", "a release"),
    "acquire becomes relaxed": ("ld.acquire.sys.global.u32", "ld.relaxed.sys.global.u32", "an acquire"),
    "acquire of the own GPU": ("ld.acquire.sys.global.u32", "ld.acquire.gpu.global.u32", "an acquire"),
    "read-only loads of slots": (
        "ld.global.L1::no_allocate.v4.u32",
        "ld.global.nc.L1::no_allocate.v4.u32",
        "read-only",
    ),
}


@needs_cuda_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_weaker_order_is_noticed(fault: str) -> None:
    old, new, what = FAULTS[fault]
    assert HEADER.count(old) == 1
    found = lacks(disassembled(COLLECTIVE, header=HEADER.replace(old, new))["turns"])
    assert any(what in text for text in found), found


def test_signals_have_the_scope_of_all_gpus_in_the_headers() -> None:
    """Without any tool: `.gpu` where blocks of one grid meet, and nowhere else."""
    scopes = {
        name: set(re.findall(r'asm volatile\("(?:st|ld|atom|multimem\.red)\.(\w+\.(?:sys|gpu|cta))\.\S*?u?b?32', text))
        for name, text in ((path.name, path.read_text()) for path in Path(cuda.DEVICE_HEADERS).glob("*.cuh"))
    }
    assert scopes.pop("pkb.cuh") == {
        "release.sys", "relaxed.sys", "acquire.sys", "acquire.gpu", "acq_rel.gpu",
    }  # fmt: skip
    assert not any(scopes.values()), scopes
