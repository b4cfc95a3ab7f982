"""Collectives of NCCL and NVSHMEM that the host calls: by their names, in a candidate's text, and in a library's ELF file."""

import shutil
import subprocess
from pathlib import Path

import pytest
from candidate_text import source

from pkb.candidates.host_collectives import unwatched_collectives
from pkb.rank.host_calls import host_collectives
from pkb.types.protocol.limits import is_host_collective

MOVES = ("ncclAllReduce", "pncclAllGather", "ncclBcast", "ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather",
         "ncclPutSignal", "nvshmemx_float_sum_reduce_on_stream", "nvshmemx_putmem_signal_on_stream",
         "nvshmemx_alltoallmem_on_stream")  # fmt: skip
MOVES_NOTHING = (
    "ncclCommInitRank", "ncclMemAlloc", "ncclCommWindowRegister", "ncclDevCommCreate", "ncclGetUniqueId", "ncclGroupEnd",
    "ncclWaitSignal", "ncclLsaReduceSum", "ncclLsaCopy", "ncclGetLsaPointer", "ncclReduceOp", "my_ncclAllReduce",
    "nvshmem_barrier_all", "nvshmemx_barrier_all_on_stream", "nvshmemx_team_sync_on_stream", "nvshmemx_quiet_on_stream",
    "nvshmemx_signal_op_on_stream", "nvshmemx_signal_wait_until_on_stream", "nvshmemx_uint64_wait_until_all_on_stream",
    "nvshmemx_putmem_block", "nvshmemx_float_sum_reduce_block", "nvshmemi_call_rdxn_on_stream_kernel",
)  # fmt: skip
SOLUTIONS = sorted(Path(__file__).parents[2].glob("solutions/*_n[cv]*.py"))


def test_names_of_what_moves_data() -> None:
    assert [name for name in MOVES if not is_host_collective(name)] == []
    assert [name for name in MOVES_NOTHING if is_host_collective(name)] == []


@pytest.mark.parametrize(
    "text",
    [
        'f = ctypes.CFUNCTYPE(ctypes.c_int)(("ncclAllReduce", lib))',
        'f = PROTOTYPE((b"ncclAllReduce", ctypes.CDLL("libnccl.so.2")))',
        'f = lib._FuncPtr(("nccl" + "AllReduce", lib))',
        'f = PROTOTYPE(_ctypes.dlsym(lib._handle, "ncclAllReduce"))',
        "import cffi\nf = lib.ncclAllReduce",
        'from cffi import FFI\nf = getattr(lib, "ncclAllReduce")',
    ],
)
def test_ways_that_pass_the_count_by(text: str) -> None:
    found = unwatched_collectives(source(text))
    assert found == [(len(text.splitlines()), "ncclAllReduce")]


@pytest.mark.parametrize(
    "text",
    [
        "lib.ncclAllReduce(x)",  # counted when it is called, not when it stands there
        'getattr(lib, "ncclAllReduce")',
        '# PROTOTYPE(("ncclAllReduce", lib))',
        '"""Instead of ncclAllReduce."""',
        'table.append(("ncclAllReduce", types))',
        'NAMES = set(("ncclAllReduce", "ncclAllGather"))',
        'f = PROTOTYPE(("ncclCommWindowRegister", lib))',
        'import cffi\nffi.cdef("int ncclAllReduce(void);")\nlib.ncclMemAlloc(x)',
    ],
)
def test_what_is_no_call_is_not_taken_for_one(text: str) -> None:
    assert unwatched_collectives(source(text)) == []


def test_solutions_on_device_apis_name_none() -> None:
    assert len(SOLUTIONS) >= 12
    texts = {path.name: path.read_text() for path in SOLUTIONS}
    assert {name: found for name, text in texts.items() if (found := unwatched_collectives(source(text)))} == {}


def called(folder: Path, text: str, *options: str) -> list[str]:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    file, out = folder / "it.c", folder / "it.so"
    file.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", out, file], check=True)
    return sorted(host_collectives([out]).values())


DLSYM = "void* dlsym(void*, const char*); void* find(void) { return dlsym(0, %s); }\n"
SET_UP = "int ncclMemAlloc(void), ncclDevCommCreate(void); int f(void) { return ncclMemAlloc() + ncclDevCommCreate(); }"


def test_a_library_that_calls_a_collective(tmp_path: Path) -> None:
    text = "int ncclAllReduce(void); int f(void) { return ncclAllReduce(); }"
    assert called(tmp_path, text, "-s") == ["its extension imports ncclAllReduce"]
    reduce = "nvshmemx_float_sum_reduce_on_stream"
    assert called(tmp_path, text.replace("ncclAllReduce", reduce)) == [f"its extension imports {reduce}"]


def test_a_library_that_looks_a_collective_up(tmp_path: Path) -> None:
    found = called(tmp_path, DLSYM % '"ncclAllGather"')
    assert found == ["its extension imports dlsym and holds the name ncclAllGather"]
    table = 'const char* names[] = {"ncclMemAlloc", "ncclSend"};\n'
    assert called(tmp_path, table + DLSYM % "names[1]") == ["its extension imports dlsym and holds the name ncclSend"]


@pytest.mark.parametrize(
    "text",
    [
        SET_UP,
        "int ncclAllReduce(void); /* ncclAllReduce */" + SET_UP,  # declared, as by NCCL's header
        "int ncclAllReduce(void) { return 1; } int f(void) { return ncclAllReduce(); }",  # NCCL inside, or a name of its own
        'const char* f(void) { return "ncclAllReduce"; }',  # nothing to look it up with
        DLSYM % '"ncclCommWindowRegister"' + 'const char* g(void) { return "instead of ncclAllReduce"; }',
        DLSYM % '"ncclMemAlloc"'
        + 'const char* g[] = {"ncclAllReduce", "ncclDevKernel_AllReduce_Sum_f32"};',  # linked whole
    ],
)
def test_a_library_that_calls_none(tmp_path: Path, text: str) -> None:
    assert called(tmp_path, text, "-g") == []


def test_what_is_no_library(tmp_path: Path) -> None:
    for data in (b"", b"\x7fELF", b"\x7fELF\x02" + bytes(20), b"\x7fELF\x02" + b"\xff" * 200, b"ncclAllReduce\0"):
        (tmp_path / "it.so").write_bytes(data)
        assert host_collectives([tmp_path / "it.so", tmp_path / "missing.so"]) == {}
