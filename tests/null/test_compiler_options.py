"""The list of compiler options, option by option, and what is left of a compiler's messages."""

import pytest

from pkb.kit.errors import OptionRefused
from pkb.kit.messages import LEFT_OUT, own_words
from pkb.kit.options import check_folders, check_options, compiler_environment

ALLOWED = {
    "host": [
        "-O0", "-O3", "-Ofast", "-std=c++17", "-std=gnu++20", "-DX", "-DX=1", "-DX=(1 + 2)", '-DNAME="a"', "-UX", "-I.",
        "-I/usr/include", "-I include", "-isystem /usr/include", "-D X=1", "-Wall", "-Wno-unused",
        "-Werror=return-type", "-w",
        "-fPIC", "-ffast-math", "-fno-exceptions", "-fopenmp", "-funroll-loops", "-march=native", "-mtune=native",
        "-mavx2",
        "-mno-avx512f", "-fconstexpr-ops-limit=1000", "-ftemplate-depth=2000", "-fvisibility=hidden", "-g",
        "-pthread", "-lm",
        "-lpthread", "-L/usr/lib",
    ],
    "device": [
        "-O3", "-std=c++20", "--std=c++17", "-std c++17", "-DX=1", "-UNDEBUG", "-U__CUDA_NO_HALF_OPERATORS__", "-I.",
        "-I/usr/include", "--include-path=/usr/include", "-arch=sm_90a", "-arch sm_80", "--gpu-architecture=compute_90",
        "-gencode=arch=compute_90a,code=sm_90a", "-gencode arch=compute_90a,code=[sm_90a,compute_90a]", "-code=sm_90a",
        "--generate-code=arch=compute_100a,code=sm_100a", "--use_fast_math", "-use_fast_math",
        "--expt-relaxed-constexpr",
        "--expt-extended-lambda", "--extended-lambda", "-lineinfo", "--generate-line-info", "-G", "-rdc=true", "-dc",
        "--relocatable-device-code=true", "-Xptxas -v", "-Xptxas=-v,-O3", "-Xptxas -dlcm=cg", "--ptxas-options=-v",
        "-Xcompiler -fPIC", "-Xcompiler=-fPIC,-O3", "-Xcompiler -fopenmp", "-maxrregcount=64", "-maxrregcount 64",
        "--maxrregcount=128", "-diag-suppress 177", "-diag-suppress=177,20012", "-Xcudafe --diag_suppress=177",
        "--threads=4", "--threads 4", "-t4", "--ftz=true", "-prec-div=false", "--fmad=true", "-lcuda", "-res-usage",
        "--extra-device-vectorization", "-default-device", "--default-stream=per-thread", "-w", "-cudart=shared",
    ],
    "link": [
        "-lcuda", "-lcudart", "-lcublas", "-lnvrtc", "-lnccl", "-lnvshmem_host", "-lnvshmem_device", "-L/usr/local/lib",
        "-L /usr/lib", "-Wl,-rpath,/usr/local/lib", "-Wl,--no-as-needed", "-pthread", "/usr/lib/libsomething.so.1",
        "-fopenmp",
        "-gencode=arch=compute_90a,code=sm_90a",
    ],
}  # fmt: skip
REFUSED = {
    "host": [
        "-wrapper", "-wrapper sh,-c,id", "-fplugin=x.so", "-fplugin-arg-x-y", "-specs=x", "--specs=x", "-B/usr",
        "-B.", "@options",
        "-Xlinker", "-Wl,-T,script", "-Wl,--script=x", "-Wp,-MD,x", "-Wa,-a=x", "-include /usr/include/stdio.h",
        "-imacros x",
        "-o x", "-ox", "-I/etc", "-I/", "-I..", "-I../..", "-Ia/../../b", "-I /root", "-iprefix /etc",
        "-idirafter /etc",
        "--sysroot=/", "-isysroot /", "-fdump-tree-all", "-save-temps", "-fmodule-mapper=|sh", "-fuse-ld=x",
        "-flto-partition=x",
        "-fprofile-use=/etc/passwd", "-fcallgraph-info", "-fopt-info=x", "-fdiagnostics-format=sarif-file", "-x c",
        "-T x",
        "-MD", "-MF x", "-dumpdir x", "-D", "-DX=`id`", "-DX=$(id)", "-DX=1;id", "-D1", "-mllvm -load=x", "-lfoo",
        "-l:x.a", "-l/x",
        "-L/etc", "/etc/passwd", "x.o", "-", "", "-###", "-print-prog-name=x", "-pass-exit-codes", "-aux-info x", "-v",
    ],
    "device": [
        "-ccbin /x", "-ccbin=/x", "--compiler-bindir=/x", "--run", "-run", "--options-file x", "-optf x", "-optf=x",
        "-dlink", "-lib",
        "-keep", "-keep-dir=/x", "--keep-dir /x", "-o x", "--output-file=x", "-odir x", "-Xcompiler -wrapper,sh",
        "-Xcompiler -o,x",
        "-Xcompiler=-fplugin=x", "--compiler-options=-specs=x", "-Xlinker -T", "-Xarchive x", "-Xnvlink x",
        "-Xptxas -o,/x",
        "-Xptxas=--output-file=x", "-Xcudafe --gen_c_file_name=x", "--pre-include=/etc/passwd", "-include=/etc/passwd",
        "-include /etc/passwd", "-I/etc", "--include-path=/etc", "-isystem=/root", "--time=/x", "-time x",
        "--pch-dir=/x",
        "--create-pch=x", "--use-pch=x", "-MF x", "--fdevice-time-trace=x", "--dryrun", "-ldir /x", "-dd",
        "--libdevice-directory=/x",
        "-arch=sm_90;id", "-DX=$(id)", "@x", "x.cu", "--input-drive-prefix=/", "--dependency-output=x",
    ],
    "link": [
        "-T/x", "-Wl,--script=/x", "-Wl,-T,/x", "-Wl,-rpath,/root", "-Wl,-plugin,x", "-Wl,--dynamic-linker=/x",
        "-Wl,@x", "/etc/passwd",
        "/etc/libx.so", "libx.so/../../x", "-wrapper sh", "-fuse-ld=/x", "-B/x", "@x", "-L/etc", "-lfoo", "-o x",
        "-Xlinker -T", "-specs=x",
        "-fplugin=x", "-dlink", "-Wl,-Map=x",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("dialect", "option"), [(d, option) for d, options in ALLOWED.items() for option in options])
def test_what_real_candidates_use_passes(dialect: str, option: str) -> None:
    words = [option] if option.startswith("-DX=(") else option.split(" ")
    check_options(words, dialect, name="k")


@pytest.mark.parametrize(("dialect", "option"), [(d, option) for d, options in REFUSED.items() for option in options])
def test_everything_else_is_refused_by_name(dialect: str, option: str) -> None:
    with pytest.raises(OptionRefused) as caught:
        check_options(["-O2", *option.split(" "), "-O3"], dialect, name="k")
    assert caught.value.option.split(" ")[0] == option.split(" ")[0]
    assert repr(option.split(" ")[0])[1:-1] in caught.value.first_error


def test_folders_of_headers_lie_inside_reach() -> None:
    check_folders(["/usr/include", "include", "."], name="k")
    for folder in ("/etc", "/", "/root", "/home", "..", "/usr/include/../../etc", ""):
        with pytest.raises(OptionRefused):
            check_folders([folder], name="k")


def test_a_compiler_inherits_nothing_that_steers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    steering = (
        "CXX",
        "CC",
        "CPATH",
        "LIBRARY_PATH",
        "COMPILER_PATH",
        "GCC_EXEC_PREFIX",
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
    )
    for name in (*steering, "LD_PRELOAD", "LD_AUDIT", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "MY_TOKEN"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PATH", "/usr/bin")
    assert (
        set(compiler_environment()) & {*steering, "LD_PRELOAD", "LD_AUDIT", "DEPENDENCIES_OUTPUT", "MY_TOKEN"} == set()
    )
    assert compiler_environment()["PATH"] == "/usr/bin"


FOREIGN = """In file included from own.cpp:1:
/srv/private/notes:1:1: error: 'root' does not name a type
    1 | root:x:0:0:root
      | ^~~~
/srv/private/notes:2:1: error: expected unqualified-id before ':' token
own.cpp:3:5: error: 'b' was not declared
    3 | a = b;
      |     ^"""


def test_a_message_quotes_the_candidate_and_nobody_else() -> None:
    kept = own_words(FOREIGN, ("own.cpp",))
    assert "root" not in kept
    assert kept.count(LEFT_OUT) == 2
    assert "/srv/private/notes:1:1: error" in kept
    assert "    3 | a = b;" in kept
    assert "own.cpp:3:5: error: 'b' was not declared" in kept


@pytest.mark.parametrize(
    "line",
    [
        "/srv/private/notes(4): error: identifier root is undefined",
        '"/srv/private/notes", line 4: error: root is undefined',
        "/usr/bin/ld:/srv/private/notes:4: root: syntax error",
        "../../notes:4:1: error: root",
    ],
)
def test_every_dialect_of_a_foreign_message_is_cut(line: str) -> None:
    assert "root" not in own_words(line, ("own.cu",))


def test_messages_about_own_text_and_the_toolchain_stay_as_they_are() -> None:
    log = "/usr/include/c++/12/vector:3:4: error: no match\n    3 |  x;\nown.cu(4): error: b\n      a = b;\n          ^"
    assert own_words(log, ("own.cu",)) == log
