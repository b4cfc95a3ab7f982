# ruff: noqa: E501  (a table: one row reads best in one line)
"""Litmus tests of weak execution: programs whose reader counts what it should not have seen.

    python tests/races/weak_litmus.py --seeds 20 [part of a name ...]

Each is message passing in rounds: rank 0 writes 48 words of rank 1's and sets a flag, the last rank looks at the flag and reads the words,
and says properly that it has. Ranks are processes, and every round is a chance to be wrong.
"""

import argparse
import ctypes
import mmap
import os
import signal
import sys
import traceback
from ctypes import POINTER, c_int, c_uint, c_void_p
from dataclasses import dataclass

from pkb.kit.emulated.analyse import make_files
from pkb.kit.emulated.recipe import module_recipe
from pkb.rank.emulate import recorder

PAGE, ROUNDS, LIMIT_S = 4096, 8, 300
CAST = 0x70 << 48 | 1 << 40


@dataclass(frozen=True)
class Case:
    name: str
    set_flag: str
    look: str
    right: bool
    write: str = "WRITE"
    read: str = "READ"
    between: str = ""
    """What a third rank does, if there is one."""
    threads: int = 32


RELEASE, ACQUIRE = "ONE ST(release.sys, F, r)", "WAIT(acquire.sys, F, r); __syncthreads()"
CASES = (
    Case("release and acquire", RELEASE, ACQUIRE, True),
    Case("fences and relaxed accesses", "ONE { FENCE(acq_rel.sys); ST(relaxed.sys, F, r); }", "WAIT(relaxed.sys, F, r); FENCE(acq_rel.sys); __syncthreads()", True),
    Case("fences sc and volatile", "ONE { __threadfence_system(); *(volatile unsigned*)F = r; }", "while (*(volatile unsigned*)F < r) {} __threadfence_system(); __syncthreads()", True),
    Case("atomic functions and fences", "ONE { __threadfence_system(); atomicAdd_system(F, 1u); }", "while (atomicAdd_system(F, 0u) < r) {} __threadfence_system(); __syncthreads()", True),
    Case("atom with release, and acquire", 'ONE asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(F) : "memory")', ACQUIRE, True),
    Case("counted by all threads", '__threadfence_system(); atomicAdd_system(F, 1u)', "while (atomicAdd_system(F, 0u) < 32 * r) {} __threadfence_system(); __syncthreads()", True),
    Case("one looks for all", RELEASE, "ONE WAIT(acquire.sys, F, r); __syncthreads()", True),
    Case("bytes beside another rank's", RELEASE, ACQUIRE, True, write="BYTES", read="READ_BYTES"),
    Case("memcpy", RELEASE, ACQUIRE, True, write="MEMCPY"),
    Case("a strong write, read plainly", RELEASE, ACQUIRE, True, write="STRONG"),
    Case("a vector", RELEASE, ACQUIRE, True, write="VECTOR"),
    Case("multicast", RELEASE, ACQUIRE, True, write="CASTS"),
    Case("through a third rank", RELEASE, "WAIT(acquire.sys, G, r); __syncthreads()", True, between="WAIT(acquire.sys, F, r); __syncthreads(); ONE ST(release.sys, G, r)"),
    Case("through an atomic of a third rank", RELEASE, "WAIT(acquire.sys, F, 1000 * r + 1); __syncthreads()", True,
         between='ONE { while (atomicCAS_system(F, r, 1000 * r + 1) != r) {} }', write="WRITE_AND_CLEAR"),
    Case("a relaxed store", "ONE ST(relaxed.sys, F, r)", ACQUIRE, False),
    Case("a release of scope gpu", "ONE ST(release.gpu, F, r)", ACQUIRE, False),
    Case("a release of scope cta", "ONE ST(release.cta, F, r)", ACQUIRE, False),
    Case("a fence of scope gpu", "ONE { __threadfence(); ST(relaxed.sys, F, r); }", ACQUIRE, False),
    Case("a fence behind the flag", "ONE { ST(relaxed.sys, F, r); FENCE(acq_rel.sys); }", ACQUIRE, False),
    Case("a volatile store", "ONE *(volatile unsigned*)F = r", ACQUIRE, False),
    Case("atomicAdd without a fence", "ONE atomicAdd_system(F, 1u)", ACQUIRE, False),
    Case("a plain store", "ONE *F = r", ACQUIRE, False),
    Case("multicast, a relaxed store", "ONE ST(relaxed.sys, F, r)", ACQUIRE, False, write="CASTS"),
    Case("a relaxed look", RELEASE, "WAIT(relaxed.sys, F, r); __syncthreads()", False),
    Case("an acquire of scope gpu", RELEASE, "WAIT(acquire.gpu, F, r); __syncthreads()", False),
    Case("a volatile look", RELEASE, "while (*(volatile unsigned*)F < r) {} __syncthreads()", False),
    Case("a fence of scope gpu behind the look", RELEASE, "WAIT(relaxed.sys, F, r); __threadfence(); __syncthreads()", False),
    Case("a weak look", RELEASE, "while (__ldcg(F) < r) {} __syncthreads()", False),
    Case("a plain look", RELEASE, "while (*F < r) {} __syncthreads()", False, threads=1),
    Case("through a third rank, a relaxed store", "ONE ST(relaxed.sys, F, r)", "WAIT(acquire.sys, G, r); __syncthreads()", False, between="WAIT(relaxed.sys, F, r); __syncthreads(); ONE ST(release.sys, G, r)"),
)  # fmt: skip

SOURCE = r"""
#define F ((unsigned*)(m + 512))
#define G ((unsigned*)(m + 528))
#define B ((unsigned*)(m + 544))
#define ONE if (threadIdx.x == 0)
#define ST(how, p, v) asm volatile("st." #how ".global.u32 [%0], %1;" ::"l"(p), "r"((unsigned)(v)) : "memory")
#define LD(how, v, p) asm volatile("ld." #how ".global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory")
#define WAIT(how, p, at_least) do { unsigned v_; do { LD(how, v_, p); } while (v_ < (at_least)); } while (0)
#define FENCE(how) asm volatile("fence." #how ";" ::: "memory")
#define EACH for (int i = threadIdx.x; i < 48; i += blockDim.x)
#define WRITE EACH m[i] = r
#define READ EACH bad += m[i] != r
#define WRITE_AND_CLEAR WRITE; ONE if (r > 1) ST(relaxed.sys, F, 0)
#define BYTES for (int i = threadIdx.x; i < 192; i += blockDim.x) if (i % 3) ((volatile char*)0 == (char*)m ? 0 : ((char*)m)[i] = (char)r)
#define READ_BYTES for (int i = threadIdx.x; i < 192; i += blockDim.x) if (i % 3) bad += ((char*)m)[i] != (char)r; else ((char*)m)[i] = (char)(r + 1)
#define MEMCPY int some[48]; for (int& s : some) s = r; ONE memcpy(m, some, sizeof some)
#define STRONG EACH ST(relaxed.sys, m + i, r)
#define VECTOR for (int i = threadIdx.x; i < 12; i += blockDim.x) ((int4*)m)[i] = make_int4(r, r, r, r)
#define CASTS EACH asm volatile("multimem.st.weak.global.u32 [%0], %1;" ::"l"(cast + 4 * i), "r"(r) : "memory")
"""


def source() -> str:
    text = SOURCE
    for number, case in enumerate(CASES):
        between = f"if (rank == 1 && last == 2) {{ {case.between}; }}" if case.between else ""
        text += (
            f'extern "C" __global__ void litmus_{number}(int* m, char* cast, int rank, int last, int* wrong) {{\n'
            f"  for (int r = 1; r <= {ROUNDS}; ++r) {{\n    int bad = 0;\n    (void)cast;\n"
            f"    if (rank == 0) {{ {case.write}; __syncthreads(); {case.set_flag}; WAIT(acquire.sys, B, r); __syncthreads(); }}\n"
            f"    {between}\n"
            f"    if (rank == last) {{ {case.look}; {case.read}; atomicAdd(wrong, bad); __syncthreads(); ONE ST(release.sys, B, r); }}\n"
            "  }\n}\n"
        )
    return text


def ranks_of(case: Case) -> int:
    return 3 if case.between else 2


def run(cases: list[int], seeds: range, *, weak: bool = True) -> dict[int, list[int]]:
    """Wrong words by case and seed."""
    module = module_recipe(source(), name="weak_litmus", options=()).obtain().path
    turns = [(case, seed) for case in cases for seed in seeds]
    memory, counts = mmap.mmap(-1, PAGE * len(turns)), mmap.mmap(-1, max(4 * len(turns), 1))
    files = [make_files(3, log_bytes=1 << 16) for _ in turns]
    children = []
    for rank in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(LIMIT_S)
                _rank(rank, module, turns, memory, counts, files, weak)
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    for shared, logs in files:
        for descriptor in (shared, *logs):
            os.close(descriptor)
    if any(statuses):
        raise RuntimeError(f"ranks ended with {statuses}")
    words = memoryview(counts).cast("i")
    found: dict[int, list[int]] = {case: [] for case in cases}
    for turn, (case, _) in enumerate(turns):
        found[case].append(words[turn])
    words.release()
    return found


def _rank(rank: int, module: object, turns: list[tuple[int, int]], memory: mmap.mmap, counts: mmap.mmap,
          files: list[tuple[int, list[int]]], weak: bool) -> None:  # fmt: skip
    runtime, library = recorder._library(), ctypes.CDLL(str(module))
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    results = memoryview(counts).cast("i")
    for turn, (case, seed) in enumerate(turns):
        ranks = ranks_of(CASES[case])
        if rank >= ranks:
            continue
        shared, logs = files[turn]
        runtime.emu_configure(c_uint(8 * seed + rank), None)
        recorder.begin(shared, logs[rank], rank=rank, world=ranks, weak_seed=8 * seed + rank if weak else None)
        place, wrong = base + PAGE * turn, c_int(0)
        casts = (c_void_p * 1)(place)
        runtime.emu_set_multicast(c_uint(1), casts, c_uint(1))
        recorder.memory(place, PAGE, allocation=0, owner=0)
        values = [c_void_p(place), c_void_p(CAST), c_int(rank), c_int(ranks - 1), c_void_p(ctypes.addressof(wrong))]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        launch = getattr(library, f"emu_run_litmus_{case}")
        launch.argtypes = [POINTER(c_uint), POINTER(c_uint), c_uint, c_void_p, c_int, c_void_p]
        launch((c_uint * 3)(1, 1, 1), (c_uint * 3)(CASES[case].threads, 1, 1), 0, None, 0, pointers)
        runtime.emu_synchronize()
        runtime.emu_record_end()  # without names of lines
        if rank == ranks - 1:
            results[turn] = wrong.value
    results.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--strong", action="store_true", help="recorded as usual")
    options = parser.parse_args()
    for number, case in enumerate(CASES):
        if options.names and not any(name in case.name for name in options.names):
            continue
        counts = run([number], range(options.seeds), weak=not options.strong)[number]
        print(
            f"{case.name}: {'right' if case.right else 'wrong'} by the model; wrong words by seed: {counts}", flush=True
        )


if __name__ == "__main__":
    main()
