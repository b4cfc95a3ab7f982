"""Every synchronisation of a kernel, weakened by one notch, chosen when it runs.

A mutant would be a build of its own. Here one build holds all of them: `pkb_is(n)` asks whether mutant n is the one that
runs, and tells that the place was come to. So a kernel is compiled once, and a mutant whose place is never reached is not
counted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MOST = 1024
CHOICE = (
    'extern "C" { __attribute__((visibility("default"))) int pkb_chosen; '
    f'__attribute__((visibility("default"))) unsigned char pkb_reached[{MOST}]; }} '
    '__attribute__((noinline, no_sanitize("thread"))) static bool pkb_is(int n) '
    "{ pkb_reached[n] = 1; return pkb_chosen == n; } "
)
"""On one line, so that lines stay what they are. Not seen by the recorder: it belongs to no kernel."""


@dataclass(frozen=True)
class Site:
    """A place in a text, and what may stand there instead."""

    old: str
    new: str
    """With `@name@` for "this mutant runs"."""
    file: str = "pkb.cuh"


@dataclass(frozen=True)
class Mutant:
    number: int
    file: str
    line: int
    notch: str
    text: str
    """The line as it stands in the file."""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.notch}"


def _atomic_add(order: str, scope: str) -> str:
    return (
        f"__device__ __forceinline__ u32 add_{order}_{scope}_(u32* p, u32 v) {{ u32 old; "
        f'asm volatile("atom.{order}.{scope}.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory"); '
        "return old; } "
    )


EXTRA = (
    "__device__ __forceinline__ void st_release_gpu_(u32* p, u32 v) "
    '{ asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); } '
    + _atomic_add("relaxed", "gpu")
    + _atomic_add("release", "gpu")
    + _atomic_add("acquire", "gpu")
    + _atomic_add("acq_rel", "cta")
)
"""What mutants use and the header has not."""

WEAKER = (
    "(@acquire -> relaxed@ ? ld_relaxed_sys(counter) : @acquire: sys -> gpu@ ? ld_acquire_gpu(counter) : "
    "ld_acquire_sys(counter))"
)
FINISH = "finish_grid: "
SITES: Sequence[Site] = (
    # wait_reaches: whichever of its two acquires comes to see the value, both are weakened.
    Site("if ((int)(ld_acquire_sys(counter) - value) >= 0) return true;",
         f"if ((int)({WEAKER} - value) >= 0) return true;"),
    Site("return (int)(ld_acquire_sys(counter) - value) >= 0;", f"return (int)({WEAKER} - value) >= 0;"),
    # announce
    Site("  __syncthreads();  // the writes of all threads come before\n",
         "  if (!@barrier before the release removed@ && !@barrier after the release, not before@) __syncthreads();\n"),
    Site("    if (peer != rank) st_release_sys(slot_of(counts, peer, rank, world, channel), count);\n}",
         "    if (peer != rank) { u32* to = slot_of(counts, peer, rank, world, channel); "
         "if (@release -> relaxed@) st_relaxed_sys(to, count); "
         "else if (@release: sys -> gpu@) st_release_gpu_(to, count); "
         "else if (@release -> plain store@) *to = count; else st_release_sys(to, count); }\n"
         "  if (@barrier after the release, not before@) __syncthreads(); }"),
    # await_counts
    Site("    if (wait_reaches(own + peer, count, timeout_ns)) continue;",
         "    if (@wait removed@) continue; if (@waits for one peer only@ && peer != (rank + 1) % world) continue;"
         " if (wait_reaches(own + peer, count - (@wrong flag: the count before@ ? 1 : 0), timeout_ns)) continue;"),
    Site("  for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block()) {\n"
         "    if (peer == rank) continue;",
         "  if (@barrier before the wait, not after@) __syncthreads(); "
         "for (u32 peer = thread_in_block(); peer < world; peer += threads_in_block()) {\n    if (peer == rank) continue;"),
    Site("  __syncthreads();  // and the reads of all threads after\n",
         "  if (!@barrier after the wait removed@ && !@barrier before the wait, not after@) __syncthreads();\n"),
    # Pipe and pipeline
    Site("((epoch + turn) & (slots_each - 1))", "(@one slot@ ? 0 : (epoch + turn) & (slots_each - 1))"),
    Site("    if (thread_in_block() == 0) st_relaxed_sys(block_counts() + rank, count);\n",
         "    if (!@turns not counted@ && thread_in_block() == 0) st_relaxed_sys(block_counts() + rank, count);\n"),
    Site("      produce(turn);\n      p.announce(epoch + turn + 1);\n",
         "      if (@announced before it is produced@) { p.announce(epoch + turn + 1); produce(turn); } else {\n"
         "      produce(turn); p.announce(epoch + turn + 1); }\n"),
    Site("    p.await_all(epoch + turn - p.ahead + 1);\n    consume(turn - p.ahead);\n",
         "    if (@consumed before it is awaited@) "
         "{ consume(turn - p.ahead); p.await_all(epoch + turn - p.ahead + 1); } else {\n"
         "    p.await_all(epoch + turn - p.ahead + 1); consume(turn - p.ahead); }\n"),
    # finish_grid
    Site("  __syncthreads();\n"
         "  if (thread_in_block() == 0) last = add_acq_rel_gpu(arrived, 1) == blocks_in_grid() - 1;\n"
         "  __syncthreads();\n  if (!last) return;\n",
         f"  if (!@{FINISH}barrier before the count removed@) __syncthreads();\n"
         f"  if (thread_in_block() == 0) last = (@{FINISH}acq_rel -> relaxed@ ? add_relaxed_gpu_(arrived, 1) : "
         f"@{FINISH}acq_rel -> release@ ? add_release_gpu_(arrived, 1) : "
         f"@{FINISH}acq_rel -> acquire@ ? add_acquire_gpu_(arrived, 1) : "
         f"@{FINISH}gpu -> cta@ ? add_acq_rel_cta_(arrived, 1) : "
         "add_acq_rel_gpu(arrived, 1)) == blocks_in_grid() - 1;\n"
         f"  if (!@{FINISH}barrier after the count removed@) __syncthreads();\n"
         f"  if (@{FINISH}any block may be the last@ ? block_in_grid() != 0 : !last) return;\n"),
    Site("*arrived = 0, st_relaxed_sys(p.own_count(exchange), count);",
         f"{{ *arrived = 0; if (!@{FINISH}exchanges not counted@) st_relaxed_sys(p.own_count(exchange), count); }}"),
    Site("(ld_relaxed_sys(own_count(0)) + more) % regions",
         "(@one region@ ? 0 : (ld_relaxed_sys(own_count(0)) + more) % regions)"),
    Site("      wait_async<STAGES - 2>();\n",
         "      if (@waits for a group fewer@) wait_async<STAGES - 1>(); else wait_async<STAGES - 2>();\n", "pkb_mma.cuh"),
    Site("      if (number < steps) load(number);\n      commit_async();\n",
         "      if (number < steps) load(number);\n      if (!@first groups not closed@) commit_async();\n", "pkb_mma.cuh"),
    Site("load(number + STAGES - 1);\n      commit_async();\n",
         "load(number + STAGES - 1);\n      if (!@groups not closed@) commit_async();\n", "pkb_mma.cuh"),
    Site("    wait_async<0>();\n", "    if (!@last wait removed@) wait_async<0>();\n", "pkb_mma.cuh"),
)  # fmt: skip
"""What is particular; block and warp barriers are found by their names."""

BARRIERS = re.compile(r"\b(__syncthreads|__syncwarp)\(\);")


class Schemata:
    """The texts of one kernel with all mutants in them."""

    def __init__(self, headers: Mapping[str, str], source: str, *, name: str) -> None:
        self.mutants: list[Mutant] = []
        self._numbers: dict[tuple[str, str], int] = {}
        # Headers before the source, and numbers in the order of the text: the same in every run.
        self.headers = {file: self._mutated(file, text) for file, text in sorted(headers.items())}
        self.headers["pkb.cuh"] = (
            self.headers["pkb.cuh"]
            .replace("namespace pkb {\n", f"{CHOICE}namespace pkb {{\n", 1)
            .replace("// torch's convention:", f"{EXTRA}\n// torch's convention:", 1)
        )
        self.source = self._mutated(name, source)

    def _mutated(self, file: str, text: str) -> str:
        for site in SITES:
            if site.file == file:
                if text.count(site.old) != 1:
                    raise ValueError(f"{text.count(site.old)} times in {file}, not once: {site.old!r}")
                line = text[: text.index(site.old)].count("\n") + 1
                text = text.replace(site.old, self._numbered(site, line))
        return "".join(self._without_barriers(file, text))

    def _numbered(self, site: Site, line: int) -> str:
        first = site.old.strip().splitlines()[0]
        return re.sub(r"@([^@]+)@", lambda m: f"pkb_is({self._number(site.file, line, m[1], first)})", site.new)

    def _number(self, file: str, line: int, notch: str, text: str) -> int:
        """Places that share the name of a notch in a file are one mutant."""
        key = (file, notch)
        if key not in self._numbers:
            self._numbers[key] = len(self.mutants) + 1
            self.mutants.append(Mutant(len(self.mutants) + 1, file, line, notch, text.strip()))
        return self._numbers[key]

    def _without_barriers(self, file: str, text: str) -> Iterator[str]:
        for at, line in enumerate(text.splitlines(keepends=True), 1):
            code = line.split("//")[0]
            if "pkb_is" in code or not BARRIERS.search(code):
                yield line
                continue

            def choice(found: "re.Match[str]", at: int = at, line: str = line) -> str:
                number = len(self.mutants) + 1
                self.mutants.append(Mutant(number, file, at, f"{found[1]} removed", line.strip()))
                return f"if (!pkb_is({number})) {found[0]}"

            yield BARRIERS.sub(choice, code) + line[len(code) :]
