"""The race detector against the PTX memory model: recorder, log and analyser together, ranks as processes."""

import ctypes
import mmap
import os
import signal
import sys
import traceback
from ctypes import POINTER, c_int, c_uint, c_void_p
from typing import Any

import pytest
import race_litmus as table
from race_litmus import LITMUS, Litmus

from pkb.kit.emulated.analyse import analyse, make_files
from pkb.kit.emulated.gxx import find_gxx
from pkb.kit.emulated.recipe import module_recipe
from pkb.rank.emulate import recorder

pytestmark = pytest.mark.skipif(isinstance(find_gxx(), str), reason=str(find_gxx()))
CASES = [(number, test, where) for number, test in enumerate(LITMUS) for where in test.verdicts]
PAGE, CAST = 4096, 0x70 << 48 | 1 << 40
LOG_BYTES = 1 << 20
LIMIT_S = 100


def ranks_of(test: Litmus, where: str) -> int:
    if where == table.RANKS:
        return len(test.threads)
    return 2 if where in (table.GRID_THEN_RANK, table.BLOCK_THEN_RANK, table.RANK_THEN_BLOCK) else 1


class Gpu:
    def __init__(self, module: Any, memory: mmap.mmap) -> None:
        self.memory = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.size = len(memory)
        self.runtime, self.module = recorder._library(), ctypes.CDLL(str(module))
        self.runtime.emu_stream_create.restype = self.runtime.emu_event_create.restype = ctypes.c_uint64
        self.casts = (c_void_p * 2)(self.memory, self.memory + PAGE // 2)
        self.runtime.emu_set_multicast(c_uint(1), self.casts, c_uint(2))

    def launch(self, case: int, *, first: int, place: int, blocks: int = 1, threads: int = 1, stream: int = 0) -> None:
        number = CASES[case][0]
        values = [c_void_p(self.memory + PAGE * case), c_void_p(CAST + PAGE * case), c_int(first), c_int(place)]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        run = getattr(self.module, f"emu_run_litmus_{number}")
        run.argtypes = [POINTER(c_uint), POINTER(c_uint), c_uint, c_void_p, c_int, c_void_p]
        run((c_uint * 3)(blocks, 1, 1), (c_uint * 3)(threads, 1, 1), 0, stream, 0, pointers)

    def run(self, case: int, rank: int) -> None:
        _, test, where = CASES[case]
        count = len(test.threads)
        if where == table.RANKS:
            self.launch(case, first=rank, place=0)
        elif where == table.BLOCKS:
            self.launch(case, first=0, place=1, blocks=count)
        elif where == table.WARPS:
            self.launch(case, first=0, place=2, threads=32 * count)
        elif where == table.LANES:
            self.launch(case, first=0, place=3, threads=count)
        elif where == table.GRID_THEN_RANK:
            self.launch(case, first=2 * rank, place=1 - rank, blocks=2 - rank)
        elif where == table.BLOCK_THEN_RANK:
            self.launch(case, first=2 * rank, place=2 * (1 - rank), threads=64 if rank == 0 else 1)
        elif where == table.RANK_THEN_BLOCK:
            self.launch(case, first=rank, place=2 * rank, threads=64 if rank else 1)
        else:
            self.in_streams(case, where)
        self.runtime.emu_synchronize()

    def in_streams(self, case: int, where: str) -> None:
        one = self.runtime.emu_stream_create(0)
        two = one if where == table.SAME_STREAM else self.runtime.emu_stream_create(0)
        self.launch(case, first=0, place=0, stream=one)
        if where == table.JOINED_BY_EVENT:
            event = self.runtime.emu_event_create()
            self.runtime.emu_event_record(ctypes.c_uint64(event), ctypes.c_uint64(one))
            self.runtime.emu_event_wait(ctypes.c_uint64(event), ctypes.c_uint64(two))
        if where == table.JOINED_BY_HOST:
            self.runtime.emu_stream_synchronize(ctypes.c_uint64(one))
        self.launch(case, first=1, place=0, stream=two)


@pytest.fixture(scope="module")
def reports() -> list[dict[str, Any]]:
    """Of all cases, run once by three ranks one after another. A rank may be ahead: no case touches another's memory."""
    module = module_recipe(table.source(), name="litmus", options=()).obtain().path
    memory = mmap.mmap(-1, PAGE * len(CASES))
    files = [make_files(ranks_of(test, where), log_bytes=LOG_BYTES) for _, test, where in CASES]
    children = []
    for rank in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(LIMIT_S)
                gpu = Gpu(module, memory)
                for case, (shared, logs) in enumerate(files):
                    if rank < len(logs):
                        recorder.begin(shared, logs[rank], rank=rank, world=len(logs))
                        recorder.memory(gpu.memory, gpu.size, allocation=0, owner=0)
                        gpu.run(case, rank)
                        recorder._library().emu_record_end()  # without names of lines: a process for each
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    found = [analyse(logs) for _, logs in files]
    for shared, logs in files:
        for descriptor in (shared, *logs):
            os.close(descriptor)
    return found


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{test.name}, {where}" for _, test, where in CASES])
def test_the_verdict_is_that_of_the_memory_model(reports: list[dict[str, Any]], case: int) -> None:
    _, test, where = CASES[case]
    report = reports[case]
    assert (report["broken"], report["truncated"]) == (False, False)
    kinds = {finding["kind"] for finding in report["findings"]}
    allowed = set(test.verdicts[where].split())
    assert kinds <= allowed, (test.source, report["findings"])
    assert bool(kinds) == bool(allowed), test.source
    expected = "shared memory" if "SH" in "".join(test.threads) and "X" not in test.threads[0] else ""
    assert all(expected in finding["memory"] for finding in report["findings"])


def test_there_are_as_many_as_were_asked_for() -> None:
    assert len(CASES) >= 60
    assert len({(test.threads, where) for _, test, where in CASES}) == len(CASES)
