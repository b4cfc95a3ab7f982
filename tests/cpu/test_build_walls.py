"""The build's walls, tried by a compiler that is hostile itself: whatever a source makes a compiler do, it can do no more."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from forked import in_child

from pkb.candidates import walled_build
from pkb.candidates.walled_build import BuildLimits, BuildStopped, build_behind_walls
from pkb.judge.check import check
from pkb.judge.stages import artifacts
from pkb.kit import cpp, recipes
from pkb.kit.errors import CompileError
from pkb.rank.isolation import landlock, seccomp
from pkb.rank.isolation import syscalls as kernel
from pkb.rank.isolation.report import probe_isolation
from pkb.types.verdict import Verdict

GIVEN = {"source": 'extern "C" int f() { return 41; }', "name": "library"}
CANDIDATE = (
    "from pkb import kit\nLIBRARY = kit.build_cpp({source!r}, name='own')\ndef solution(tensor):\n    return tensor\n"
)
SRC = Path(walled_build.__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.setenv("PKB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PKB_BUILD_CACHE", raising=False)
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def landlock_here() -> None:
    try:
        landlock.version()
    except OSError as error:
        pytest.skip(f"this kernel has no Landlock: {error}")


def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A g++ of our own making, first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "g++").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(cpp, "find_cxx", lambda: folder / "g++")


def build(**options: BuildLimits) -> tuple[Path, dict[str, str]]:
    artifact, walls = build_behind_walls("cpp", GIVEN, recipes.recipe("cpp", GIVEN), **options)
    return artifact.path, walls


def without_namespaces() -> None:
    """As in a container that forbids them: unshare and mount answer EPERM."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, what="no_new_privs")
    seccomp.install()


@pytest.fixture(params=["namespaces", "no namespaces"])
def carried_out(request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], object]:
    """Runs something on a machine with all walls, or on one without namespaces."""

    def run(work: Callable[[], object]) -> object:
        def there() -> object:
            if request.param == "no namespaces":
                without_namespaces()
            return work()

        return in_child(there)

    return run


def said_by_the_compiler() -> str:
    try:
        build()
    except CompileError as error:
        return error.log
    raise AssertionError("it was meant to fail")


ATTEMPTS = """
try() { if eval "$2" >/dev/null 2>&1; then echo "library.cpp:1:1: error: $1 got through"; fi; }
try password 'cat /etc/passwd'
try secret 'cat %(secret)s'
try cache 'ls %(cache)s'
try artifacts 'ls %(out)s'
try problems 'cat %(problems)s/registry.py'
try judge 'cat %(judge)s/decision.py'
try home 'ls ~root /root /home/*'
try write 'echo x > %(beside)s'
try environment 'test -n "$PKB_TEST_TOKEN$CPATH$LD_PRELOAD$NVCC_APPEND_FLAGS"'
try capabilities 'grep -E "Cap(Eff|Prm|Bnd):.*[1-9a-f]" /proc/self/status'
try socket '%(python)s -c "import socket; socket.socket()"'
try signal 'kill -0 %(pid)d'
try mount 'mount -t tmpfs none %(tmp)s'
try namespace 'unshare -U true'
echo 'library.cpp:1:1: error: all was tried'
exit 1
"""


def test_a_hostile_compiler_reaches_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    landlock_here: None,
    carried_out: Callable[[Callable[[], object]], object],
) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "cache").mkdir()
    (tmp_path / "build").mkdir()
    for name in ("PKB_TEST_TOKEN", "CPATH", "NVCC_APPEND_FLAGS"):
        monkeypatch.setenv(name, "/etc")
    places = {
        "secret": tmp_path / "secret", "cache": tmp_path / "cache", "out": tmp_path / "build", "beside": tmp_path / "new",
        "problems": SRC / "pkb" / "problems", "judge": SRC / "pkb" / "judge", "python": sys.executable, "tmp": tmp_path,
        "pid": os.getpid(),
    }  # fmt: skip
    script = ATTEMPTS % places
    harmless = "\n".join(line for line in script.splitlines() if not line.startswith("try mount"))
    plain = subprocess.run(["sh", "-c", harmless], capture_output=True, text=True, check=False).stdout
    assert {"password", "secret", "problems", "write", "environment", "signal", "socket"} <= set(plain.split()), plain
    (tmp_path / "new").unlink()
    plant(tmp_path, monkeypatch, script)
    assert carried_out(said_by_the_compiler) == "library.cpp:1:1: error: all was tried"
    assert not (tmp_path / "new").exists()


def test_a_hostile_compiler_changes_no_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landlock_here: None
) -> None:
    if not (words := probe_isolation()["file modes"]).startswith("on"):
        pytest.skip(words)
    (tmp_path / "secret").touch(0o600)
    plant(
        tmp_path, monkeypatch, f"chmod 644 {tmp_path / 'secret'}\necho 'library.cpp:1:1: error: it was tried'\nexit 1\n"
    )
    assert "it was tried" in str(in_child(said_by_the_compiler))
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_the_walls_are_named_and_missing_ones_too(
    tmp_path: Path, landlock_here: None, carried_out: Callable[[Callable[[], object]], object]
) -> None:
    def walls() -> dict[str, str]:
        path, found = build()
        assert path.read_bytes()[:4] == b"\x7fELF"
        return found

    found = carried_out(walls)
    assert isinstance(found, dict)
    always = ("files", "system calls", "capabilities", "no_new_privs", "limits")
    assert {name: found[name].split(":")[0] for name in always} == dict.fromkeys(always, "on")
    assert all(words.startswith(("on", "off: ")) for words in found.values())
    assert {"network", "pid", "mount", "ipc", "tmp"} <= set(found)


def test_no_daemon_outlives_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried_out: Callable[[Callable[[], object]], object]
) -> None:
    number = f"3{time.time_ns() % 10**6:06}"
    quiet = "</dev/null >/dev/null 2>&1"
    plant(
        tmp_path, monkeypatch, f"setsid sleep {number} {quiet} &\n(setsid sleep {number} {quiet} &)\nsleep 0.2\nexit 1"
    )
    carried_out(said_by_the_compiler)
    assert not [process for process in psutil.process_iter(["cmdline"]) if number in (process.info["cmdline"] or [])]


@pytest.mark.parametrize(
    ("leaves", "why"),
    [
        ("ln -s /etc/passwd artifact", "no result"),
        ("mkfifo artifact", "no plain file"),
        ("mkdir artifact", "no plain file"),
        ("echo text > artifact", "no machine code"),
        ("true", "No such file"),
        ("head -c 3000000 /dev/zero > artifact", "MiB"),
    ],
)
def test_only_a_plain_file_of_machine_code_is_taken(
    leaves: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, monkeypatch, leaves)
    limits = BuildLimits(artifact_bytes=1 << 20, file_bytes=16 << 20, folder_bytes=64 << 20)
    with pytest.raises(BuildStopped, match=why):
        build(limits=limits)
    assert not list((tmp_path / "build").iterdir())


def test_files_and_the_folder_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = (
        "(head -c 30000000 /dev/zero > one) 2>/dev/null; for i in 1 2 3 4 5 6; do head -c 15000000 /dev/zero > $i; done"
    )
    plant(tmp_path, monkeypatch, f"{tries} 2>/dev/null; stat -c %s one; du -sm . | cut -f1; exit 1")
    with pytest.raises(CompileError) as caught:
        build(limits=BuildLimits(file_bytes=16 << 20, folder_bytes=64 << 20))
    largest, megabytes = caught.value.log.split()[-2:]
    assert int(largest) <= 16 << 20
    assert int(megabytes) <= 64


def test_a_build_cannot_write_the_artifact_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sources of one candidate, the first of which breaks its compiler: each is built by itself."""
    find = f"for f in {tmp_path}/build /tmp/pkb-build-*; do cp $0 $f/$(printf %040d 1).so; done 2>/dev/null"
    plant(tmp_path, monkeypatch, f"{find}\nexit 1")
    with pytest.raises(CompileError):
        build()
    assert not list((tmp_path / "build").iterdir())


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, f"exec {sys.executable} -c 'x = bytearray(1 << 30)'")
    with pytest.raises(CompileError, match="MemoryError"):
        build(limits=BuildLimits(memory_bytes=512 << 20))


def test_time_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(source="int f() { return 1; }"))
    plant(tmp_path, monkeypatch, "sleep 97")
    report = check(candidate, build_limit_s=2.0)
    assert report.verdict is Verdict.COMPILE_ERROR
    assert "2 s" in report.detail
    assert not [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", "97"]]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("line", ['#include "/etc/passwd"', 'asm(".incbin \\"/etc/passwd\\"");'])
def test_a_check_shows_nothing_of_a_file_it_was_pointed_to(line: str, tmp_path: Path, landlock_here: None) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(source=line))
    report = check(candidate, build_limit_s=60)
    assert report.verdict is Verdict.COMPILE_ERROR
    assert report.failure is not None
    first = Path("/etc/passwd").read_text().split(":")[0]
    assert f"{first}:" not in json.dumps(report.to_dict())


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_check_names_the_option_that_it_refuses(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.py"
    text = CANDIDATE.format(source="int x;").replace("name='own'", "options=['-O2', '-fplugin=./x.so']")
    candidate.write_text(text)
    report = check(candidate, build_limit_s=60)
    assert report.verdict is Verdict.REJECTED
    assert "-fplugin=./x.so" in report.detail
    assert "line 2" in report.detail


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_check_keeps_its_result_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(source='extern "C" int f() { return 4; }'))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert check(candidate, build_limit_s=60).ok
    kept = list((tmp_path / "cache" / "build").iterdir())
    assert [path.suffix for path in kept] == [".so"]
    before = kept[0].stat().st_mtime_ns
    os.utime(kept[0], (1, 1))
    assert check(candidate, build_limit_s=60).ok
    assert kept[0].stat().st_mtime_ns >= before, "a hit counts as use"
    assert not list(scratch.iterdir())


@pytest.fixture
def others_python() -> Iterator[tuple[Path, list[str]]]:
    """A folder of an ordinary user, and a command that is run by that user."""
    if os.getuid() != 0 or shutil.which("setpriv") is None or not Path("/usr/bin/python3").exists():
        pytest.skip("needs root, setpriv and a Python that everybody can run")
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(sys.version_info >= (3, 11))"],
        capture_output=True,
        text=True,
        check=True,
    )
    if version.stdout.strip() != "True":
        pytest.skip("the system's Python is too old")
    folder = Path(tempfile.mkdtemp(prefix="pkb-test-"))
    shutil.copytree(SRC / "pkb", folder / "lib" / "pkb")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    try:
        yield folder, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    finally:
        shutil.rmtree(folder)


def test_an_ordinary_user_builds_behind_walls_too(others_python: tuple[Path, list[str]], landlock_here: None) -> None:
    folder, python = others_python
    (folder / "candidate.py").write_text(CANDIDATE.format(source='extern "C" int f() { return 5; }'))
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder / "lib"), "TMPDIR": str(folder),
        "PKB_BUILD_DIR": str(folder / "out"),
    }  # fmt: skip
    command = [*python, "-m", "pkb.candidates.prebuild", str(folder / "candidate.py")]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )
    report = json.loads(done.stdout)
    assert (report["error"], report["unavailable"]) == (None, None), done.stderr
    assert len(report["built"]) == 1
    assert report["walls"]["files"].startswith("on")
    assert report["walls"]["capabilities"].startswith("on")


# -- the cache --------------------------------------------------------------------------------------------------------


def test_the_cache_drops_what_was_used_least_recently_and_what_killed_builds_left(tmp_path: Path) -> None:
    names = [f"{number:040x}.so" for number in range(5)]
    for age, name in enumerate(names):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "building-1-abc" / "deep").mkdir(parents=True)
    (tmp_path / "old.lock").write_text("")
    (tmp_path / "somebody's file").write_text("")
    fresh = tmp_path / "building-2-abc"
    for path in (tmp_path / "building-1-abc", tmp_path / "old.lock", tmp_path / "somebody's file"):
        os.utime(path, (1, 1))
    fresh.mkdir()
    assert artifacts.evict(tmp_path, limit=250) == [names[4], names[3], names[2]]
    assert {path.name for path in tmp_path.iterdir()} == {names[0], names[1], "somebody's file", fresh.name}


@pytest.mark.parametrize("trick", ["link", "text", "name", "large"])
def test_the_cache_takes_only_what_a_build_leaves(trick: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = tmp_path / "given", artifacts.cache_folder()
    folder.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setattr(artifacts, "ARTIFACT_BYTES", 1000)
    good, name = f"{1:040x}.so", f"{2:040x}.so"
    (folder / good).write_bytes(b"\x7fELF" + b"x" * 900)
    match trick:
        case "link":
            (folder / name).symlink_to(folder / good)
        case "text":
            (folder / name).write_bytes(b"text")
        case "name":
            name = "../escaped.so"
            (folder / name).write_bytes(b"\x7fELF")
        case "large":
            (folder / name).write_bytes(b"\x7fELF" + b"x" * 1000)
    artifacts.store(folder, [good, name], [])
    assert [path.name for path in cache.iterdir()] == [good]


def test_the_judges_own_kernels_are_kept_and_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MOST_OWN_KERNELS", 2)
    given = tmp_path / "given"
    given.mkdir()
    kernels = [f"{number:040x}.cubin" for number in range(3)]
    for age, name in enumerate(kernels):
        built = tmp_path / f"built by evaluation {age}"
        built.mkdir()
        (built / name).write_bytes(b"\x7fELF" + name.encode())
        (built / f"{7:040x}.cubin").write_bytes(b"no kernel")
        (built / f"{8:040x}.so").write_bytes(b"\x7fELF")
        artifacts.keep_own_kernels(built)
        os.utime(artifacts.own_kernels() / name, (age, age))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("somebody's")
    (given / kernels[1]).symlink_to(elsewhere)
    artifacts.give_own_kernels(given)
    assert sorted(path.name for path in given.iterdir()) == kernels[1:], "the two newest, and nothing else"
    assert (given / kernels[1]).read_bytes() == b"\x7fELF" + kernels[1].encode()
    assert elsewhere.read_text() == "somebody's", "a link that a build left is replaced, not followed"


def test_a_cache_that_is_named_from_here_is_found_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The analyser of races lies in it and is started in another folder: it was not found, and races were not looked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PKB_CACHE", "kept")
    assert artifacts.cache_folder() == tmp_path / "kept" / "build"
