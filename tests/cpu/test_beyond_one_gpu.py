"""What one GPU cannot run still compiles, with the real headers and without a GPU: NCCL's networking from kernels (GIN), its
multimem, NVSHMEM's puts between machines. So do our solutions in both: on the emulated GPU they run with headers of ours.

By NVRTC, in CI. It knows no GNU C++: of GIN's ways to the network it compiles NCCL's proxy, by NCCL's own switches; nvcc
compiles all of them where it is installed.
"""

import re
import subprocess
from pathlib import Path

import pytest
import vendor_headers

from beyond_one_gpu import GIN, INTERNODE, MULTIMEM
from pkb.kit import nvcc, nvrtc
from pkb.kit.cuda import DEVICE_HEADERS
from pkb.kit.errors import CompileError

SOLUTIONS = Path(__file__).parents[2] / "solutions"
PACKED = "gin_proxy_device_host_common.h"
"""Of NCCL; NVRTC overlooks `packed` behind a closing brace, and NCCL's assertions of its structures' sizes notice."""
HOST_HEADERS = {
    "limits.h": "#pragma once\n#include <cuda/std/climits>\n",
    "type_traits": "#pragma once\n#include <cuda/std/type_traits>\nnamespace std { using namespace cuda::std; }\n",
    **dict.fromkeys(("algorithm", "cstring", "errno.h", "new", "stdbool.h", "string.h"), "#pragma once\n"),
    "linux/types.h": "#pragma once\n#include <stdint.h>\ntypedef uint32_t __be32;\n",
    # The kit's stand-in for this one is for TMA; NCCL asks for kinds of memory.
    "cuda.h": "#pragma once\nenum CUmemLocationType { CU_MEM_LOCATION_TYPE_HOST_NUMA = 3 };\n",
}
NO_GNU = [f"-DNCCL_GIN_{way}_ENABLE=0" for way in ("GDAKI", "GPI", "EFA_GDA")]
FIRST = ["--pre-include=limits.h", "--pre-include=type_traits", "-DINFINITY=__int_as_float(0x7f800000)"]
"""NCCL includes the one after `extern "C"`, NVSHMEM uses the other without including it; nvcc brings the host's <math.h>."""


def sources(ending: str) -> dict[str, str]:
    """The CUDA text of our solutions, by name."""
    found = {path.stem: path.read_text() for path in sorted(SOLUTIONS.glob(f"*_{ending}.py"))}
    assert len(found) >= 6
    return {
        stem: re.findall(r'^SOURCE = r"""(.*?)^"""', text, re.MULTILINE | re.DOTALL)[0] for stem, text in found.items()
    }


def one_unit(parts: dict[str, str]) -> str:
    """All in one, each in a namespace of its own: the library's headers take most of the time."""
    includes = {line for text in parts.values() for line in re.findall(r"^#include .*$", text, re.MULTILINE)}
    unit = "\n".join(sorted(includes)) + "\n"
    for name, text in parts.items():
        own = re.sub(r"^#include .*$", "", text, flags=re.MULTILINE).replace('extern "C" ', "")
        unit += f'namespace unit_{name} {{\n#line 1 "{name}"\n{own}\n#undef KERNEL\n}}\n'
    return unit


def compiled(text: str, include: list[Path], *options: str) -> bytes:
    headers = HOST_HEADERS | {path.name: path.read_text() for path in DEVICE_HEADERS.glob("*.cuh")}
    packed = next((path for path in include[0].rglob(PACKED)), None)
    if packed is not None:
        headers[PACKED] = f"#pragma pack(push, 1)\n{packed.read_text()}\n#pragma pack(pop)\n"
    given = [*FIRST, "--Ofast-compile=max", *options, *(f"-I{folder}" for folder in include)]
    return nvrtc.compile_cubin(text, name="unit", arch="sm_90a", options=given, headers=headers)


@pytest.fixture(autouse=True)
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in CI, where the headers are those that were fetched and no others."""
    monkeypatch.setattr(nvrtc, "include_dirs", tuple)


by_nvrtc = pytest.mark.skipif(nvrtc.load() is None, reason="NVRTC is not here")


@by_nvrtc
def test_nccl_device_kernels_compile() -> None:
    include = vendor_headers.include_folders(vendor_headers.NCCL, *vendor_headers.CUDA)
    parts = {"gin": GIN, "multimem": MULTIMEM, **sources("nccl")}
    cubin = compiled(one_unit(parts), include, *NO_GNU, "-DMOST_RANKS=64")
    assert all(f"unit_{name}".encode() in cubin for name in parts)
    wrong = MULTIMEM.replace("ncclGetLsaMultimemPointer", "ncclGetMulticastPointer")
    with pytest.raises(CompileError, match="ncclGetMulticastPointer"):
        compiled(wrong, include, *NO_GNU)


@by_nvrtc
def test_nvshmem_kernels_compile() -> None:
    include = vendor_headers.include_folders(vendor_headers.NVSHMEM, *vendor_headers.CUDA)
    parts = {"internode": INTERNODE, **sources("nvshmem")}
    cubin = compiled(one_unit(parts), include, "--relocatable-device-code=true")
    assert all(f"unit_{name}".encode() in cubin for name in parts)
    assert b"nvshmemi_" in cubin  # what the device library will be linked for


@pytest.mark.skipif(nvcc.find() is None, reason="nvcc is not here")
@pytest.mark.parametrize(
    ("wheel", "source", "flags", "instruction"),
    [
        pytest.param(vendor_headers.NCCL, GIN, [], "atom", id="GIN"),
        pytest.param(vendor_headers.NCCL, MULTIMEM, [], "multimem.ld_reduce", id="multimem"),
        pytest.param(vendor_headers.NVSHMEM, INTERNODE, ["-rdc=true"], "nvshmem", id="internode"),
    ],
)
def test_nvcc_compiles_every_way_to_the_network(
    wheel: vendor_headers.Wheel, source: str, flags: list[str], instruction: str, tmp_path: Path
) -> None:
    (include,) = vendor_headers.include_folders(wheel)
    found = nvcc.find()
    assert found is not None
    (tmp_path / "k.cu").write_text(source)
    command = [str(found[0]), "-ptx", "-arch=sm_90a", "-std=c++17", *flags, f"-I{include}", "k.cu", "-o", "k.ptx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert instruction in (tmp_path / "k.ptx").read_text()
