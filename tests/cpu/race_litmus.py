# ruff: noqa: E501  (a table: one row reads best in one line)
"""Litmus tests of the race detector: programs of two to four threads, and what the PTX memory model says of them.

Threads are placed in one warp, in several warps of a block, in several blocks, or on several ranks. Sources: PTX ISA 9.0,
chapter "Memory Consistency Model" (the words in quotes are its sections), Lustig, Sahasrabuddhe and Giroux, "A Formal Analysis
of the NVIDIA PTX Memory Consistency Model", ASPLOS 2019 (L19), and the CUDA C++ Programming Guide (CUDA).
"""

from dataclasses import dataclass, field

NO, SCOPE, RELAXED = "no_synchronisation", "scope_too_narrow", "relaxed_where_release_acquire_is_needed"
REUSED, CACHE = "buffer_reused_too_early", "read_only_cache"
EITHER = f"{NO} {REUSED}"
"""Nothing orders them: which is the first depends on the run."""

RANKS, BLOCKS, WARPS, LANES = "ranks", "blocks", "warps", "lanes"
GRID_THEN_RANK = "threads 0 and 1 in two blocks of rank 0, thread 2 on rank 1"
BLOCK_THEN_RANK = "threads 0 and 1 in one block of rank 0, thread 2 on rank 1"
RANK_THEN_BLOCK = "thread 0 on rank 0, threads 1 and 2 in one block of rank 1"
SAME_STREAM, TWO_STREAMS = "two launches in one stream", "two launches in two streams"
JOINED_BY_EVENT, JOINED_BY_HOST = "two streams joined by an event", "two streams, the host waits between"


@dataclass(frozen=True)
class Litmus:
    """`threads` are their programs in C++, with the words of `PRELUDE`; `verdicts` a kind for each placement, "" for no race."""

    name: str
    threads: tuple[str, ...]
    verdicts: dict[str, str]
    source: str
    all_lanes: bool = field(default=False)
    """Of a warp: else only its first runs."""


PRELUDE = r"""
#include <cooperative_groups.h>
#define X (m + 0)
#define Y (m + 16)
#define F ((unsigned*)(m + 32))
#define G ((unsigned*)(m + 48))
#define OUT (m + 64 + 16 * me)
#define W(p) *(p) = 1 + me
#define R(p) OUT[0] += *(p)
#define ST(how, p, v) asm volatile("st." #how ".global.u32 [%0], %1;" ::"l"(p), "r"((unsigned)(v)) : "memory")
#define LD(how, v, p) asm volatile("ld." #how ".global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory")
#define WAIT(how, p, at_least) do { unsigned v_; do { LD(how, v_, p); } while (v_ < (at_least)); } while (0)
#define LOOK(how, p) do { unsigned v_; LD(how, v_, p); OUT[1] += v_; } while (0)
#define FENCE(how) asm volatile("fence." #how ";" ::: "memory")
#define ADD(how, p) asm volatile("red." #how ".global.add.u32 [%0], 1;" ::"l"(p) : "memory")
#define VST(p) *(volatile unsigned*)(p) = 1
#define VWAIT(p) while (*(volatile unsigned*)(p) == 0) {}
#define WAITADD(f, p) while (f(p, 0u) == 0) {}
#define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from))
#define COMMIT asm volatile("cp.async.commit_group;")
#define COPIED(n) asm volatile("cp.async.wait_group %0;" ::"n"(n))
"""


def _mp(store: str, load: str) -> tuple[str, str]:
    """Message passing: data, then a flag."""
    return f"W(X); {store};", f"{load}; R(X);"


_PATTERNS = '"Release and Acquire Patterns"'
_STRONG = '"Morally Strong Operations"'
_CAUSE = '"Causality Order"'
_RACE = '"Conflict and Data-races"'
_SAME = f"{_RACE}, with one outcome: threads of a launch that store the same value race without effect, and are not reported"
_UNREAD = f"{_RACE}, with one outcome: nobody reads what they leave"
LITMUS = (
    Litmus("mp release acquire sys", _mp("ST(release.sys, F, 1)", "WAIT(acquire.sys, F, 1)"),
           {RANKS: "", BLOCKS: "", WARPS: "", LANES: ""}, f"{_PATTERNS}; L19 fig. 2"),
    Litmus("mp release acquire gpu", _mp("ST(release.gpu, F, 1)", "WAIT(acquire.gpu, F, 1)"),
           {RANKS: SCOPE, BLOCKS: "", WARPS: ""}, _STRONG),
    Litmus("mp release acquire cta", _mp("ST(release.cta, F, 1)", "WAIT(acquire.cta, F, 1)"),
           {RANKS: SCOPE, BLOCKS: SCOPE, WARPS: "", LANES: ""}, _STRONG),
    Litmus("mp release sys, acquire gpu", _mp("ST(release.sys, F, 1)", "WAIT(acquire.gpu, F, 1)"),
           {RANKS: SCOPE, BLOCKS: ""}, f"{_STRONG}: each scope includes the other thread"),
    Litmus("mp release gpu, acquire sys", _mp("ST(release.gpu, F, 1)", "WAIT(acquire.sys, F, 1)"),
           {RANKS: SCOPE, BLOCKS: ""}, f"{_STRONG}: each scope includes the other thread"),
    Litmus("mp relaxed", _mp("ST(relaxed.sys, F, 1)", "WAIT(relaxed.sys, F, 1)"),
           {RANKS: RELAXED, BLOCKS: RELAXED, WARPS: RELAXED}, _PATTERNS),
    Litmus("mp release, relaxed", _mp("ST(release.sys, F, 1)", "WAIT(relaxed.sys, F, 1)"),
           {RANKS: RELAXED, BLOCKS: RELAXED}, _PATTERNS),
    Litmus("mp relaxed, acquire", _mp("ST(relaxed.sys, F, 1)", "WAIT(acquire.sys, F, 1)"), {RANKS: RELAXED}, _PATTERNS),
    Litmus("mp fences sys", _mp("FENCE(acq_rel.sys); ST(relaxed.sys, F, 1)", "WAIT(relaxed.sys, F, 1); FENCE(acq_rel.sys)"),
           {RANKS: "", BLOCKS: "", WARPS: ""}, f"{_PATTERNS}; L19 fig. 2"),
    Litmus("mp fences sc", _mp("FENCE(sc.sys); ST(relaxed.sys, F, 1)", "WAIT(relaxed.sys, F, 1); FENCE(sc.sys)"),
           {RANKS: ""}, _PATTERNS),
    Litmus("mp fences gpu", _mp("FENCE(acq_rel.gpu); ST(relaxed.sys, F, 1)", "WAIT(relaxed.sys, F, 1); FENCE(acq_rel.gpu)"),
           {RANKS: SCOPE, BLOCKS: ""}, f'{_STRONG}; "Synchronizes"'),
    Litmus("mp fence and acquire", _mp("FENCE(acq_rel.sys); ST(relaxed.sys, F, 1)", "WAIT(acquire.sys, F, 1)"),
           {RANKS: ""}, _PATTERNS),
    Litmus("mp membar", _mp('asm volatile("membar.sys;"); VST(F)', 'VWAIT(F); asm volatile("membar.sys;")'), {RANKS: ""},
           "membar is fence.sc (instruction membar)"),
    Litmus("mp threadfence_system and volatile", _mp("__threadfence_system(); VST(F)", "VWAIT(F); __threadfence_system()"),
           {RANKS: "", BLOCKS: ""}, '"Volatile Operations": relaxed at scope sys'),
    Litmus("mp threadfence and volatile", _mp("__threadfence(); VST(F)", "VWAIT(F); __threadfence()"),
           {RANKS: SCOPE, BLOCKS: ""}, f"CUDA: __threadfence has device scope; {_STRONG}"),
    Litmus("mp threadfence_block and volatile", _mp("__threadfence_block(); VST(F)", "VWAIT(F); __threadfence_block()"),
           {BLOCKS: SCOPE, WARPS: ""}, f"CUDA: __threadfence_block has block scope; {_STRONG}"),
    Litmus("mp volatile", _mp("VST(F)", "VWAIT(F)"), {RANKS: RELAXED, BLOCKS: RELAXED}, '"Volatile Operations"; ' + _PATTERNS),
    Litmus("mp fence of the writer only", _mp("__threadfence_system(); VST(F)", "VWAIT(F)"), {RANKS: RELAXED}, _PATTERNS),
    Litmus("mp fence of the reader only", _mp("VST(F)", "VWAIT(F); __threadfence_system()"), {RANKS: RELAXED}, _PATTERNS),
    Litmus("mp fence behind the flag", _mp("ST(relaxed.sys, F, 1); FENCE(acq_rel.sys)", "WAIT(relaxed.sys, F, 1); FENCE(acq_rel.sys)"),
           {RANKS: RELAXED}, f"{_PATTERNS}: the fence comes first in program order"),
    Litmus("mp fence before the look", _mp("FENCE(acq_rel.sys); ST(relaxed.sys, F, 1)", "FENCE(acq_rel.sys); WAIT(relaxed.sys, F, 1)"),
           {RANKS: RELAXED}, f"{_PATTERNS}: the fence comes last in program order"),
    Litmus("mp data behind the release", ("ST(release.sys, F, 1); W(X);", "WAIT(acquire.sys, F, 1); R(X);"),
           {RANKS: EITHER, BLOCKS: EITHER}, _CAUSE),
    Litmus("mp weak flag", ("W(X); *F = 1;", "WAIT(acquire.sys, F, 1); R(X);"), {RANKS: NO}, f"{_STRONG}: both are strong"),
    Litmus("mp weak look", ("W(X); ST(release.sys, F, 1);", "while (__ldcg(F) == 0) {} R(X);"), {BLOCKS: NO},
           "cache operators are hints (instruction ld): weak"),
    Litmus("release sequence", ("W(X); ST(release.sys, F, 1);", "WAIT(relaxed.sys, F, 1); ADD(relaxed.sys, F);",
           "WAIT(acquire.sys, F, 2); R(X);"), {RANKS: "", BLOCKS: ""}, '"Observation Order": through atomic operations'),
    Litmus("release sequence broken by a store", ("W(X); ST(release.sys, F, 1);", "WAIT(relaxed.sys, F, 1); ST(relaxed.sys, F, 2);",
           "WAIT(acquire.sys, F, 2); R(X);"), {RANKS: RELAXED}, '"Observation Order": only through atomic operations'),
    Litmus("release sequence of scope gpu", ("W(X); ST(release.sys, F, 1);", "WAIT(relaxed.sys, F, 1); ADD(relaxed.gpu, F);",
           "WAIT(acquire.sys, F, 2); R(X);"), {RANKS: SCOPE, BLOCKS: ""}, f'"Observation Order"; {_STRONG}'),
    Litmus("atomics release and acquire sys", ("W(X); ADD(release.sys, F);", "WAIT(acquire.sys, F, 1); R(X);"),
           {RANKS: "", BLOCKS: ""}, _PATTERNS),
    Litmus("atomics release and acquire gpu", ("W(X); ADD(release.gpu, F);", "WAIT(acquire.gpu, F, 1); R(X);"),
           {RANKS: SCOPE, BLOCKS: ""}, _STRONG),
    Litmus("atomicAdd alone", ("W(X); atomicAdd(F, 1u);", "WAITADD(atomicAdd, F); R(X);"), {BLOCKS: RELAXED},
           "CUDA: atomic functions are relaxed"),
    Litmus("atomicAdd and fences", ("W(X); __threadfence(); atomicAdd(F, 1u);", "WAITADD(atomicAdd, F); __threadfence(); R(X);"),
           {BLOCKS: "", RANKS: SCOPE}, "CUDA: atomicAdd has device scope"),
    Litmus("atomicAdd_system and fences", ("W(X); __threadfence_system(); atomicAdd_system(F, 1u);",
           "WAITADD(atomicAdd_system, F); __threadfence_system(); R(X);"), {RANKS: ""}, "CUDA: _system has system scope"),
    Litmus("atomicAdd_block and fences", ("W(X); __threadfence(); atomicAdd_block(F, 1u);",
           "WAITADD(atomicAdd_block, F); __threadfence(); R(X);"), {WARPS: "", BLOCKS: SCOPE}, "CUDA: _block has block scope"),
    Litmus("lock with fences", 2 * ("while (atomicCAS(F, 0u, 1u) != 0) {} __threadfence(); X[0] += 1; __threadfence(); atomicExch(F, 0u);",),
           {BLOCKS: ""}, _PATTERNS),
    Litmus("lock without fences", 2 * ("while (atomicCAS(F, 0u, 1u) != 0) {} X[0] += 1; atomicExch(F, 0u);",),
           {BLOCKS: RELAXED}, _PATTERNS),
    Litmus("lock of another scope", 2 * ("while (atomicCAS(F, 0u, 1u) != 0) {} __threadfence(); X[0] += 1; __threadfence(); atomicExch(F, 0u);",),
           {RANKS: SCOPE}, _STRONG),
    Litmus("atomic and plain read", ("atomicAdd(F, 1u);", "R(F);"), {BLOCKS: EITHER}, f"{_STRONG}: both are strong"),
    Litmus("isa2", ("W(X); ST(release.sys, F, 1);", "WAIT(acquire.sys, F, 1); ST(release.sys, G, 1);", "WAIT(acquire.sys, G, 1); R(X);"),
           {RANKS: "", BLOCKS: ""}, f"{_CAUSE}: transitive; L19 sec. 3"),
    Litmus("isa2 with a relaxed store", ("W(X); ST(release.sys, F, 1);", "WAIT(acquire.sys, F, 1); ST(relaxed.sys, G, 1);",
           "WAIT(acquire.sys, G, 1); R(X);"), {RANKS: RELAXED}, _CAUSE),
    Litmus("isa2, gpu then sys (finish_grid)", ("W(X); ADD(release.gpu, F);", "WAIT(acquire.gpu, F, 1); ST(release.sys, G, 1);",
           "WAIT(acquire.sys, G, 1); R(X);"), {GRID_THEN_RANK: "", RANKS: SCOPE}, f"{_CAUSE}: scopes of each pair alone; L19 sec. 3"),
    Litmus("isa2, relaxed then sys", ("W(X); ADD(relaxed.gpu, F);", "WAIT(relaxed.gpu, F, 1); ST(release.sys, G, 1);",
           "WAIT(acquire.sys, G, 1); R(X);"), {GRID_THEN_RANK: RELAXED}, _CAUSE),
    Litmus("isa2, gpu then gpu", ("W(X); ADD(release.gpu, F);", "WAIT(acquire.gpu, F, 1); ST(release.gpu, G, 1);",
           "WAIT(acquire.sys, G, 1); R(X);"), {GRID_THEN_RANK: SCOPE}, _STRONG),
    Litmus("wrc", ("ST(relaxed.sys, F, 1);", "WAIT(relaxed.sys, F, 1); FENCE(acq_rel.sys); ST(relaxed.sys, G, 1);",
           "WAIT(relaxed.sys, G, 1); FENCE(acq_rel.sys); R(F);"), {RANKS: "", BLOCKS: ""}, f"{_CAUSE}: observed, then base causality order"),
    Litmus("wrc without a fence", ("ST(relaxed.sys, F, 1);", "WAIT(relaxed.sys, F, 1); ST(relaxed.sys, G, 1);",
           "WAIT(relaxed.sys, G, 1); R(F);"), {RANKS: RELAXED}, _CAUSE),
    Litmus("sb strong", ("ST(relaxed.sys, F, 1); LOOK(relaxed.sys, G);", "ST(relaxed.sys, G, 1); LOOK(relaxed.sys, F);"),
           {RANKS: "", BLOCKS: ""}, f"{_STRONG}: not a data race, whatever is read"),
    Litmus("sb weak", ("W(X); R(Y);", "W(Y); R(X);"), {RANKS: EITHER, BLOCKS: EITHER}, _STRONG),
    Litmus("sb weak with fences", ("W(X); FENCE(sc.sys); R(Y);", "W(Y); FENCE(sc.sys); R(X);"), {RANKS: EITHER},
           '"Fence-SC Order" relates fences; the accesses stay weak'),
    Litmus("lb strong", ("LOOK(relaxed.sys, F); ST(relaxed.sys, G, 1);", "LOOK(relaxed.sys, G); ST(relaxed.sys, F, 1);"), {RANKS: ""}, _STRONG),
    Litmus("lb weak", ("R(X); W(Y);", "R(Y); W(X);"), {RANKS: EITHER}, _STRONG),
    Litmus("iriw strong", ("ST(relaxed.sys, F, 1);", "ST(relaxed.sys, G, 1);", "LOOK(acquire.sys, F); LOOK(acquire.sys, G);",
           "LOOK(acquire.sys, G); LOOK(acquire.sys, F);"), {BLOCKS: ""}, f"{_STRONG}; L19 fig. 9"),
    Litmus("iriw weak", ("W(X);", "W(Y);", "R(X); R(Y);", "R(Y); R(X);"), {BLOCKS: EITHER}, _STRONG),
    Litmus("2+2w strong", ("ST(relaxed.sys, F, 1); ST(relaxed.sys, G, 2);", "ST(relaxed.sys, G, 1); ST(relaxed.sys, F, 2);"), {RANKS: ""}, _STRONG),
    Litmus("2+2w weak", 2 * ("W(X); W(Y);",), {RANKS: NO}, _STRONG),
    Litmus("observed, then overwritten weakly", ("ST(relaxed.sys, F, 1);", "WAIT(relaxed.sys, F, 1); *F = 0;"), {RANKS: "", BLOCKS: ""},
           f"{_CAUSE}: what was observed comes before"),
    Litmus("the last of several resets", 3 * ("if (atomicAdd(F, 1u) == 2) *F = 0;",), {BLOCKS: ""}, f'{_CAUSE}; "Observation Order"'),
    Litmus("not observed, and overwritten weakly", ("ST(relaxed.sys, F, 1);", "*F = 2;"), {RANKS: NO}, _STRONG),
    Litmus("vectors with their flags", ('asm volatile("st.volatile.global.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(X), "r"(1));',
           'unsigned a, b, c, d; do { asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(X)); __nanosleep(1); } '
           "while (!(a & b & c & d));"), {RANKS: ""}, '"Vector Data-types": elements are accesses of their own'),
    Litmus("neighbouring bytes", ("((char*)X)[0] = 1;", "((char*)X)[1] = 1;"), {RANKS: "", LANES: ""}, '"Overlap"'),
    Litmus("a byte of a word", ("((char*)X)[3] = 1;", "W(X);"), {RANKS: NO}, '"Overlap"'),
    Litmus("__syncthreads", ("W(X); __syncthreads();", "__syncthreads(); R(X);"), {WARPS: "", BLOCKS: EITHER}, "instruction bar: orders prior accesses of the block"),
    Litmus("shared memory", ("SH[0] = 1; __syncthreads();", "__syncthreads(); R(SH);"), {WARPS: ""}, "instruction bar"),
    Litmus("shared memory, barrier too early", ("__syncthreads(); SH[0] = 1;", "__syncthreads(); R(SH);"), {WARPS: NO}, "instruction bar"),
    Litmus("bar.sync of some", ("if (LANE0) W(X); BAR(sync, 1, 64);", "BAR(sync, 1, 64); if (LANE0) R(X);", "__nanosleep(1);"), {WARPS: ""}, "instruction bar", True),
    Litmus("bar.arrive and bar.sync", ("if (LANE0) W(X); BAR(arrive, 2, 64);", "BAR(sync, 2, 64); if (LANE0) R(X);"), {WARPS: ""},
           '"Synchronizes": bar.arrive with bar.sync', True),
    Litmus("data behind bar.arrive", ("BAR(arrive, 2, 64); if (LANE0) W(X);", "BAR(sync, 2, 64); if (LANE0) R(X);"), {WARPS: NO}, '"Synchronizes"', True),
    Litmus("__syncwarp", ("W(X); __syncwarp(3);", "__syncwarp(3); R(X);"), {LANES: ""}, "CUDA: __syncwarp orders memory among its threads"),
    Litmus("a shuffle", ("W(X); __shfl_sync(3, 1, 0);", "__shfl_sync(3, 1, 0); R(X);"), {LANES: NO}, "CUDA: shuffles do not order memory"),
    Litmus("grid.sync", ("W(X); cooperative_groups::this_grid().sync();", "cooperative_groups::this_grid().sync(); R(X);"), {BLOCKS: ""}, "CUDA: grid.sync"),
    Litmus("release for the block", ("W(X); __syncthreads();", "__syncthreads(); ST(release.sys, F, 1);", "WAIT(acquire.sys, F, 1); R(X);"),
           {BLOCK_THEN_RANK: ""}, f"{_CAUSE}: a barrier, then a release"),
    Litmus("release without the barrier", ("W(X);", "__nanosleep(1); ST(release.sys, F, 1);", "WAIT(acquire.sys, F, 1); R(X);"),
           {BLOCK_THEN_RANK: EITHER}, _CAUSE),
    Litmus("acquire for the block", ("W(X); ST(release.sys, F, 1);", "WAIT(acquire.sys, F, 1); __syncthreads();", "__syncthreads(); R(X);"),
           {RANK_THEN_BLOCK: ""}, f"{_CAUSE}: an acquire, then a barrier"),
    Litmus("relaxed look for the block", ("W(X); ST(release.sys, F, 1);", "WAIT(relaxed.sys, F, 1); __syncthreads();", "__syncthreads(); R(X);"),
           {RANK_THEN_BLOCK: RELAXED}, f"{_PATTERNS}: a barrier is no fence"),
    Litmus("a flag set twice to the same", ("W(X); ST(release.sys, F, 1); WAIT(acquire.sys, G, 1); W(Y); ST(release.sys, F, 1);",
           "for (int i = 0; i < 2; ++i) { WAIT(acquire.sys, F, 1); R(i ? Y : X); __syncthreads(); __syncthreads(); }",
           "for (int i = 0; i < 2; ++i) { __syncthreads(); ST(relaxed.sys, F, 0); ST(release.sys, G, i + 1); __syncthreads(); }"),
           {RANK_THEN_BLOCK: ""}, f"{_CAUSE}: the second release is observed, though the value is the same"),
    Litmus("a counter of two ranks, acquired at gpu", ("W(X); ADD(release.sys, F);", "WAIT(relaxed.sys, F, 1); ADD(release.sys, F);",
           "WAIT(acquire.gpu, F, 2); R(X);"), {RANK_THEN_BLOCK: SCOPE}, f"{_STRONG}: each pair alone"),
    Litmus("buffer free again", ("W(X); ST(release.sys, F, 1); WAIT(acquire.sys, G, 1); W(X);", "WAIT(acquire.sys, F, 1); R(X); ST(release.sys, G, 1);"),
           {RANKS: ""}, _CAUSE),
    Litmus("buffer reused too early", ("W(X); ST(release.sys, F, 1); WAIT(acquire.sys, G, 1); W(X);", "WAIT(acquire.sys, F, 1); ST(release.sys, G, 1); R(X);"),
           {RANKS: EITHER}, _CAUSE),
    Litmus("read-only path, written meanwhile", ("W(X); ST(release.sys, F, 1);", "WAIT(acquire.sys, F, 1); OUT[0] = __ldg(X);"),
           {RANKS: CACHE, BLOCKS: CACHE}, "instruction ld.global.nc: read-only for the whole kernel"),
    Litmus("read-only path, written before", ("W(X);", "OUT[0] = __ldg(X);"), {SAME_STREAM: ""}, "instruction ld.global.nc"),
    Litmus("launches", ("W(X);", "R(X);"), {SAME_STREAM: "", TWO_STREAMS: NO, JOINED_BY_EVENT: "", JOINED_BY_HOST: ""}, "CUDA: streams and events"),
    Litmus("cp.async waited for", ("COPY(SH, X); COMMIT; COPIED(0); R(SH);", ""), {LANES: ""}, "instruction cp.async.wait_group"),
    Litmus("cp.async not waited for", ("COPY(SH, X); COMMIT; COPIED(1); R(SH);", ""), {LANES: NO}, "instruction cp.async.wait_group"),
    Litmus("cp.async, its source overwritten", ("COPY(SH, X); W(X); COMMIT; COPIED(0);", ""), {LANES: NO}, "instruction cp.async: asynchronous"),
    Litmus("cp.async for the block", ("COPY(SH, X); COMMIT; COPIED(0); __syncthreads();", "__syncthreads(); R(SH);"), {WARPS: ""}, "instruction cp.async"),
    Litmus("cp.async waited for behind the barrier", ("COPY(SH, X); COMMIT; __syncthreads(); COPIED(0);", "__syncthreads(); R(SH);"),
           {WARPS: NO}, "instruction cp.async: the issuing thread waits"),
    Litmus("a mark that all set", ("X[0] = 7; __syncthreads(); R(X);", "X[0] = 7; __syncthreads(); R(X);"), {WARPS: "", LANES: ""}, _SAME),
    Litmus("marks that differ", ("X[0] = 7; __syncthreads(); R(X);", "X[0] = 8; __syncthreads(); R(X);"), {WARPS: NO, LANES: NO}, _RACE),
    Litmus("marks of two bytes that differ in one", ("*(short*)X = 7; __syncthreads(); R(X);", "*(short*)X = 263; __syncthreads(); R(X);"), {WARPS: NO}, _RACE),
    Litmus("a mark that all set, in shared memory", ("SH[0] = 7; __syncthreads(); R(SH);", "SH[0] = 7; __syncthreads(); R(SH);"), {WARPS: ""}, _SAME),
    Litmus("marks in shared memory that differ", ("SH[0] = 7; __syncthreads(); R(SH);", "SH[0] = 8; __syncthreads(); R(SH);"), {WARPS: NO}, _RACE),
    Litmus("a mark that was there already", ("X[0] = 0; __syncthreads(); R(X);", "X[0] = 0; __syncthreads(); R(X);"), {WARPS: ""}, _SAME),
    Litmus("vectors that overlap and agree there", ("*(long long*)X = 0x700000005; __syncthreads(); R(X);", "*(int*)(X + 1) = 7; X[2] = 9; __syncthreads(); R(X + 1);"),
           {WARPS: ""}, _SAME),
    Litmus("vectors that overlap and do not agree there", ("*(long long*)X = 0x700000005; __syncthreads(); R(X);", "*(int*)(X + 1) = 8; X[2] = 9; __syncthreads(); R(X + 1);"),
           {WARPS: NO}, _RACE),
    Litmus("marks that differ, overwritten before they are read", ("X[0] = 7; __syncthreads(); X[0] = 1; R(X);", "X[0] = 8; __syncthreads();"), {WARPS: ""}, _UNREAD),
    Litmus("one launch writes, the next reads", ("X[0] = 7; if (!threadIdx.x) X[0] = 8;", "R(X);"), {SAME_STREAM: ""}, '"Program Order"'),
    Litmus("the same mark on two ranks", ("X[0] = 7;", "X[0] = 7;"), {RANKS: NO}, f"{_RACE}: values are not compared across launches"),
    Litmus("multimem store, released", ('asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(cast + 0), "r"(1)); ST(release.sys, F, 1);',
           "WAIT(acquire.sys, F, 1); R(X);"), {RANKS: ""}, "instruction multimem.st; " + _PATTERNS),
    Litmus("multimem store, relaxed", ('asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(cast + 0), "r"(1)); ST(relaxed.sys, F, 1);',
           "WAIT(relaxed.sys, F, 1); R(X);"), {RANKS: RELAXED}, "instruction multimem.st; " + _PATTERNS),
)  # fmt: skip


def source() -> str:
    """One kernel for each: `place` says how threads get their numbers, `first` is the first of this launch."""
    text = PRELUDE + '#define BAR(how, n, count) asm volatile("bar." #how " %0, %1;" ::"r"(n), "r"(count) : "memory")\n'
    text += "#define LANE0 (threadIdx.x % 32 == 0)\n"
    for number, test in enumerate(LITMUS):
        bodies = "".join(f"if (me == {n}) {{ {program} }}\n" for n, program in enumerate(test.threads))
        text += (
            f'extern "C" __global__ void litmus_{number}(int* m, char* cast, int first, int place) {{\n'
            "  __shared__ int SH[4]; (void)SH;\n"
            f"  if (place == 2 && {int(not test.all_lanes)} && threadIdx.x % 32) return;\n"
            "  const int me = first + (place == 1 ? blockIdx.x : place == 2 ? threadIdx.x / 32 : place == 3 ? threadIdx.x : 0);\n"
            f"{bodies}}}\n"
        )
    return text
