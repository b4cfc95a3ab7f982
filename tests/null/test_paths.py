"""Which ways a candidate's text uses, on a set of files labelled by hand; and SASS."""

import random
import re
import subprocess
from pathlib import Path

import pytest

from pkb.candidates.machine_code import binary_paths, sass_paths
from pkb.candidates.names import is_code
from pkb.candidates.paths import cuda, kernel_paths, static_paths
from pkb.candidates.paths.known import KIT_ON_POINTERS, KIT_SYSTEM
from pkb.candidates.rules import inspect_source
from pkb.candidates.source import Source, parse, read

SNIPPETS = sorted((Path(__file__).parent / "path_snippets").glob("*.py"))
CATEGORIES = {"copy_engine", "sm_load_store", "tma", "nvls", "library", "none"}


def header(path: Path, key: str) -> str | None:
    match = re.search(rf"^# {key}: (.+)$", path.read_text(), re.MULTILINE)
    return match.group(1) if match else None


def marked(path: Path) -> set[tuple[str, int]]:
    """`<- nvls` at the end of a line: that use must be told with that line."""
    lines = enumerate(path.read_text().split("\n"), start=1)
    return {(use, number) for number, line in lines if "<- " in line for use in line.rpartition("<- ")[2].split()}


def holds_code(path: Path) -> bool:
    return any(is_code(literal.text) for literal in read(path).names.literals)


def cases(paths: list[Path]) -> list[object]:
    """A known gap fails, and must go on to fail: one that closes is to be labelled so."""
    without = pytest.mark.skipif(
        not cuda.available(), reason="tree-sitter is not installed: pip install 'pkb[analysis]'"
    )
    found: list[object] = []
    for path in paths:
        gap = header(path, "known gap")
        marks = [pytest.mark.xfail(reason=gap, strict=True)] if gap else []
        found.append(pytest.param(path, id=path.stem, marks=[*marks, *([without] if holds_code(path) else [])]))
    return found


needs_parser = pytest.mark.skipif(
    not cuda.available(), reason="tree-sitter is not installed: pip install 'pkb[analysis]'"
)


def source_of(text: str) -> Source:
    return parse(text.encode(), path=Path("c.py"))


@pytest.mark.parametrize("path", cases(SNIPPETS))
def test_a_labelled_file_is_read_as_it_is_labelled(path: Path) -> None:
    uses = static_paths(read(path))
    expected = header(path, "expect")
    assert expected is not None
    assert {use.path for use in uses} == set(expected.split())
    if expected != "none":
        assert {(use.path, use.line) for use in uses} == marked(path)
    assert all(use.text for use in uses)


@pytest.mark.parametrize("path", cases([path for path in SNIPPETS if header(path, "kernels")]))
def test_kernels_are_told_apart(path: Path) -> None:
    labels = dict(label.split("=") for label in (header(path, "kernels") or "").split())
    expected = {name: set() if ways == "-" else set(ways.split(",")) for name, ways in labels.items()}
    assert {name: set(ways) for name, ways in kernel_paths(read(path)).items()} == expected


def test_the_labelled_set_covers_every_way_and_says_why_where_it_cannot_be_read() -> None:
    labels = [set((header(path, "expect") or "").split()) for path in SNIPPETS]
    assert len(SNIPPETS) >= 48
    assert set().union(*labels) == CATEGORIES
    for category in CATEGORIES:
        assert sum(category in label for label in labels) >= 4, category
    assert sum(len(label) > 1 for label in labels) >= 8
    assert sum(header(path, "known gap") is not None for path in SNIPPETS) <= len(SNIPPETS) // 10


def test_the_kit_s_header_defines_what_the_tables_say() -> None:
    kit = Path(__file__).parents[2] / "src/pkb/kit/device/pkb.cuh"
    text = kit.read_text()
    names = (*f"{KIT_SYSTEM}|{KIT_ON_POINTERS}".split("|"), "fence_sys", "multimem_add_release", "Multimem", "slot_of")
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_text_that_is_no_code_raises_nothing() -> None:
    pieces = [
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        "<",
        ">",
        ";",
        "asm(",
        '"',
        "__global__ void k(",
        "float** t",
        "t[0]",
        "=",
        "*",
    ]
    pieces += [
        "#if 0\n",
        "#define A(x) ",
        "\\\n",
        "->",
        "::",
        "A(",
        "st.sys [%0];",
        "\x00",
        "\u00e9",
        "<<<",
        "// ",
        "/*",
    ]
    draw = random.Random(5)
    code = ["".join(draw.choice(pieces) for _ in range(120)) for _ in range(40)]
    assert static_paths(source_of("".join(f"S{index} = {text!r}\n" for index, text in enumerate(code))))


SIZE = 512 << 10


def filled(unit: str) -> str:
    """A kernel of half a MiB: quadratic steps would take minutes, and the whole suite shares two cores."""
    return f"S = r'''__global__ void k(float** t) {{ {unit * ((SIZE - 200) // len(unit))}; }}'''\n"


@pytest.mark.timeout(90)  # each takes a few seconds; one quadratic step takes hours
@pytest.mark.parametrize(
    "text",
    [
        filled("t[0][1];"),
        filled("a=(t[1],"),
        filled("f(a<"),
        filled('asm("st.x [%0] ");'),
        "S = r'''{;" + "if (0) {" * (SIZE // 8 - 20) + "'''\n",
        "x = h.get_buffer(1)\n" + "x = (x, [x, {1: x}])\n" * 10_000,
        "import triton.language as tl\n" + ("x = " + "tl.load(" * 80 + "h" + ")" * 80 + "\n") * 100,
    ],
    ids=["accesses", "assignments", "templates", "assembler", "dead", "containers", "nested calls"],
)
def test_a_large_hostile_text_is_read_in_seconds(text: str) -> None:
    assert static_paths(source_of(text))


HOSTILE = "S = r'''__global__ void k(float** t) { t[1][0] = 0; " + "a<a>::" * 12_000 + "f(); }'''\n"
"""Cubic in tree-sitter's parser: it would take minutes."""


@needs_parser
@pytest.mark.timeout(60)
def test_a_short_text_on_which_the_grammar_needs_minutes_is_given_up() -> None:
    (use,) = static_paths(source_of(HOSTILE))
    assert use.path == "unknown"
    assert use.text == "code that was not read: reading it takes more than 5 s"


@needs_parser
def test_kernels_that_the_grammar_makes_nothing_of_are_unknown() -> None:
    (use,) = static_paths(source_of("S = '__global__ ( ; { ] }'\n"))
    assert (use.path, use.text) == ("unknown", "code that was not read: the grammar does not understand it")


# --- without the parser ---------------------------------------------------------------------------------------------


def test_without_tree_sitter_cuda_is_unknown_and_all_that_a_verdict_rests_on_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_it = {path: inspect_source(read(path)) for path in SNIPPETS}
    monkeypatch.setattr(cuda, "available", lambda: False)
    cuda.ask.cache_clear()
    for path, before in with_it.items():
        after = inspect_source(read(path))
        assert (after.findings, after.backend, after.needs) == (before.findings, before.backend, before.needs)
        if holds_code(path) and (path.stem.startswith("cuda") and path.stem != "cuda_unused_source"):
            assert "unknown" in {use.path for use in after.paths}
            assert kernel_paths(read(path)) == {}
        elif not holds_code(path):
            assert after.paths == before.paths
    cuda.ask.cache_clear()


# --- binaries -------------------------------------------------------------------------------------------------------

# As nvdisasm 13.1 printed it for sm_90a; the PTX that each instruction was compiled from is beside it.
SASS = """
.text.tma:
        /*00a0*/                   UBLKCP.S.G [UR4], [UR8], UR6 ;              // cp.async.bulk, global to shared
        /*0100*/                   UBLKCP.G.S [UR8], [UR4], UR6 ;              // cp.async.bulk, shared to global
        /*0130*/                   UBLKRED.G.S.ADD [UR8], [UR4], UR6 ;         // cp.reduce.async.bulk
        /*01e0*/                   UTMALDG.2D [UR4], [UR10] ;                  // cp.async.bulk.tensor
        /*0250*/                   UTMASTG.2D [UR4], [UR10] ;
        /*0280*/                   UTMAREDG.2D.ADD [UR4], [UR10] ;
        /*02c0*/                   UTMACMDFLUSH ;                              // commit_group: moves nothing
        /*0300*/                   UBLKPF.L2 [UR8], UR4 ;                      // prefetch
.text.sys:
        /*0060*/                   MEMBAR.ALL.SYS ;
        /*0090*/                   STG.E.STRONG.SYS desc[UR6][R2.64], R23 ;    // st.release.sys
        /*00b0*/                   LDG.E.STRONG.SYS R11, desc[UR6][R2.64] ;    // ld.acquire.sys
        /*0220*/                   ATOMG.E.CAS.STRONG.SYS PT, R11, [R8+0x8], R24, R25 ;
        /*0340*/               @P0 REDG.E.ADD.STRONG.SYS desc[UR6][R8.64+0x14], R15 ;
.text.nvls:
        /*0020*/                   LDGMC.E.ADD.F32x4.RN.STRONG.SYS R12, [RZ.U32+UR4] ;  // multimem.ld_reduce
        /*0120*/                   STG.E.128.STRONG.SYS desc[UR4][R4.64+0x10], R12 ;    // multimem.st looks like a store
		Function : plain
        /*0060*/                   LDG.E R3, desc[UR4][R2.64] ;                                     /* 0x0000000304007986 */
        /*0150*/                   LDG.E.STRONG.GPU R17, desc[UR6][R4.64+0x14] ;
        /*0350*/               @P0 ATOMG.E.ADD.STRONG.GPU PT, RZ, desc[UR6][R8.64+0x20], R15 ;
        /*0080*/                   STG.E desc[UR4][R4.64], R3 ;                                     /* 0x0000000304007986 */
"""


def test_instructions_of_a_binary_are_told_by_kernel() -> None:
    uses = sass_paths(SASS.split("\n"))
    found = [(use.kernel, use.path, use.text.split()[0]) for use in uses]
    bulk = ["UBLKCP.S.G", "UBLKCP.G.S", "UBLKRED.G.S.ADD", "UTMALDG.2D", "UTMASTG.2D", "UTMAREDG.2D.ADD"]
    system = ["STG.E.STRONG.SYS", "LDG.E.STRONG.SYS", "ATOMG.E.CAS.STRONG.SYS", "REDG.E.ADD.STRONG.SYS"]
    assert found == [
        *(("tma", "tma", name) for name in bulk),
        *(("sys", "sm_load_store", name) for name in system),
        ("nvls", "nvls", "LDGMC.E.ADD.F32x4.RN.STRONG.SYS"),
        ("nvls", "sm_load_store", "STG.E.128.STRONG.SYS"),
    ]
    assert SASS.split("\n")[uses[0].line - 1].strip().startswith("/*00a0*/")


PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry flag(.param .u64 p) {
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [p];
  st.release.sys.global.u32 [%rd1], 1;
  ret;
}
"""


def test_a_real_binary_is_disassembled_where_the_tools_are(tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    assembler = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    if not assembler.is_file():
        pytest.skip("this Triton brings no ptxas")
    (tmp_path / "flag.ptx").write_text(PTX)
    subprocess.run([assembler, "-arch=sm_90", "flag.ptx", "-o", "flag.cubin"], cwd=tmp_path, check=True, timeout=60)
    answer = binary_paths(tmp_path / "flag.cubin")
    assert answer.problem == ""
    assert answer.uses is not None
    assert {(use.kernel, use.path) for use in answer.uses} == {("flag", "sm_load_store")}


def test_a_binary_that_cannot_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.cubin"
    broken.write_bytes(b"not a cubin")
    answer = binary_paths(broken)
    assert answer.uses is None
    assert answer.problem
    monkeypatch.setattr("pkb.candidates.machine_code._folders", list)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binary_paths(broken).problem.startswith("neither cuobjdump nor nvdisasm was found")
    assert binary_paths(tmp_path / "absent").problem.endswith("is no file")
