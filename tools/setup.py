"""Sets the project up in .venv: `make demo` asks for the core, everything else for the tools of development as well.

    python3 tools/setup.py core|dev

What is there already is kept, large packages are installed one by one, and a second call only compares fingerprints: a set-up
that was interrupted goes on where it was. TORCH_INDEX names where torch comes from: the URL or folder of a package index, a
folder of wheels, or `pypi`.

Standard library only, and nothing that Python 3.6 cannot parse: an old Python must be able to say that it is too old.
"""

import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from typing import Iterator

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from setup_pip import PipFailed, Progress, megabytes, run_pip

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
STATE = os.path.join(VENV, ".pkb-setup.json")
PINS = os.path.join(ROOT, "constraints.txt")
OLDEST = (3, 11)
OTHER_PYTHONS = ("python3.12", "python3.13", "python3.11", "python3.14")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_TORCH_MB = 195
ONE_BY_ONE_MB = 20  # packages from this size on are installed by themselves: an interrupted download costs one of them
PIP_WANTED = (25, 1)  # shows progress for programs too, and goes on with a broken download; else the next is installed
PIP = "pip==26.3"
DISK_PER_DOWNLOAD = 2.3  # wheels unpacked, and one of them packed beside
CUDA_ONLY = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton$)")


class Refused(Exception):
    """One line that says what is missing and how to get it."""


def main() -> int:
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what not in ("core", "dev"):
        print("usage: python3 tools/setup.py core|dev", file=sys.stderr)
        return 2
    if sys.version_info < OLDEST:
        return with_newer_python()
    try:
        if is_done(what):
            return 0
        set_up(what)
        return 0
    except (Refused, PipFailed) as error:
        print("set-up: {}".format(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


# --- which Python ---


def with_newer_python() -> int:
    for name in OTHER_PYTHONS:
        path = shutil.which(name)
        if path and works(path):
            print(
                "set-up: {} is Python {}, using {}".format(sys.executable, platform.python_version(), path), flush=True
            )
            return subprocess.call([path] + sys.argv)
    print(
        "set-up: Python 3.11 or newer is needed, this is {} ({}): install one (Debian 12, Ubuntu 24.04: `apt install python3 "
        "python3-venv`; anywhere: `uv python install 3.12`) and name it: `make demo PYTHON=python3.12`".format(
            platform.python_version(), sys.executable
        ),
        file=sys.stderr,
    )
    return 1


def works(python: str) -> bool:
    """Is it new enough, and can it make virtual environments? A shim may be there with nothing behind it."""
    code = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.call([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


# --- what has been done ---


def is_done(what: str) -> bool:
    """A set-up for development has the core, too."""
    state = read_state()
    return os.path.exists(VENV_PYTHON) and fingerprint() in (state.get(what), state.get("dev"))


def fingerprint() -> str:
    parts = [os.environ.get("TORCH_INDEX", "") or str(read_state().get("torch_index", ""))]
    for path in (os.path.join(ROOT, "pyproject.toml"), PINS):
        with open(path, encoding="utf-8") as file:
            parts.append(file.read())
    parts += [ROOT, "gpu" if has_gpu() else "no gpu"]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_state() -> "dict[str, str]":
    try:
        with open(STATE, encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def write_state(**changes: str) -> None:
    state = dict(read_state(), **changes)
    with open(STATE + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(STATE + ".new", STATE)


# --- the stages ---


def set_up(what: str) -> None:
    started = time.time()
    if platform.system() != "Linux":
        raise Refused("ranks need Linux (memfd, namespaces), this is {}".format(platform.system()))
    make_venv()
    remove_half_installed()
    if not any(map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "c++", "clang++"))):
        note = (
            "note: no C++ compiler; CUDA candidates on cpu, C++ ones and torch extensions need g++ (`apt install g++`)"
        )
        print(note + ("; the demo does without" if what == "core" else "; their tests will fail"), flush=True)
    renew_pip()
    torch_version = pinned()["torch"][0]
    source, words, cpu_build = choose_torch(torch_version)
    announce(what, words, cpu_build)
    install_torch(torch_version, source)
    target = "." if what == "core" else ".[dev]"
    pip_install(["-c", PINS, "-e", target], say=True)
    smoke = "import torch, numpy, typer, rich, psutil, pkb.cli.main"
    done = subprocess.run([VENV_PYTHON, "-c", smoke], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=VENV)
    if done.returncode:
        tail = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        raise Refused("what was installed cannot be imported ({}): `make clean`, then again".format("".join(tail)))
    if has_gpu():
        # Several ranks on one GPU need a newer NCCL than torch brings; without it the demo still runs, on the CPU.
        subprocess.call([VENV_PYTHON, "-m", "pkb.platforms.nccl"])
    write_state(**{what: fingerprint()})
    size = sum(entry.stat().st_size for entry in files_below(VENV)) / 1e6
    print("set-up: done in {:.0f} s, {} in .venv".format(time.time() - started, megabytes(size)), flush=True)


def make_venv() -> None:
    if os.path.isdir(VENV) and os.listdir(VENV) and not os.path.exists(os.path.join(VENV, "pyvenv.cfg")):
        raise Refused(".venv is there and is no virtual environment: move it away")
    here = "{}.{}".format(*sys.version_info[:2])
    if os.path.isdir(VENV):
        there = venv_version()
        finished = read_state().get("core") or read_state().get("dev")
        if there is not None and there >= OLDEST and (finished or there == sys.version_info[:2]):
            if there != sys.version_info[:2]:
                words = "set-up: .venv has Python {}.{} and keeps it; `make clean` first for {}"
                print(words.format(there[0], there[1], here), flush=True)
            if subprocess.call([VENV_PYTHON, "-c", "import pip"], stderr=subprocess.DEVNULL) == 0:
                return
        print("set-up: .venv is unfinished, broken or for another Python: made anew", flush=True)
    try:
        import ensurepip
        import venv

        del venv, ensurepip
    except ImportError:
        raise Refused(
            "{} has no venv module: `apt install python{}-venv` on Debian and Ubuntu".format(sys.executable, here)
        )
    command = [sys.executable, "-m", "venv", "--clear", VENV]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        words = " ".join(done.stdout.decode(errors="replace").split())
        raise Refused("no virtual environment can be made in {}: {}".format(VENV, words[-300:]))


def venv_version() -> "tuple[int, ...] | None":
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([VENV_PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def remove_half_installed() -> None:
    """pip writes INSTALLER when everything else of a package is in place; what lacks it was interrupted."""
    for folder in glob.glob(os.path.join(glob.escape(VENV), "lib", "python3*", "site-packages", "*.dist-info")):
        if not os.path.exists(os.path.join(folder, "INSTALLER")):
            shutil.rmtree(folder)


def renew_pip() -> None:
    done = subprocess.run([VENV_PYTHON, "-m", "pip", "--version"], stdout=subprocess.PIPE)
    found = re.search(r"pip (\d+)\.(\d+)", done.stdout.decode())
    if not found or tuple(map(int, found.groups())) < PIP_WANTED:
        try:
            pip_install(["--retries", "1", "--timeout", "20", PIP])
        except PipFailed as error:
            if error.final:
                raise


def choose_torch(version: str) -> "tuple[list[str], str, bool]":
    """Where torch comes from: arguments for pip, words, and whether it is a CPU build."""
    asked = os.environ.get("TORCH_INDEX", "")
    gpu = has_gpu()
    if asked and asked != "pypi":
        arguments = index_arguments(asked)
        builds = builds_found(version, arguments)
        if not builds:
            raise Refused("TORCH_INDEX={} has no torch {} for this Python and machine".format(asked, version))
        return arguments, "torch {} from {}".format(version, asked), "+cpu" in builds
    builds = builds_found(version, [])
    if (gpu or asked) and builds != {"+cpu"}:
        exact = "==={}".format(version) if "" in builds else "=={}".format(version)
        return [exact], "torch's CUDA build" + (", since there is an NVIDIA GPU" if gpu else ""), False
    if "+cpu" in builds:
        return [], "torch's CPU build, from where pip looks here", True
    if not own_index() and reachable(CPU_INDEX + "/torch/") and builds_found(version, ["--index-url", CPU_INDEX]):
        return (
            ["--index-url", CPU_INDEX],
            "torch's CPU build from {}, since there is no NVIDIA GPU".format(CPU_INDEX),
            True,
        )
    words = "torch's CUDA build (no NVIDIA GPU here, but no CPU build within reach: TORCH_INDEX=URL names an index with one)"
    return [], words, False


def index_arguments(place: str) -> "list[str]":
    folder = place[len("file://") :] if place.startswith("file://") else place
    if os.path.isdir(folder):
        if not os.path.isdir(os.path.join(folder, "torch")):
            return ["--no-index", "--find-links", folder]
        place = "file://" + os.path.abspath(folder)
    return ["--index-url", place]


def builds_found(version: str, arguments: "list[str]") -> "set[str]":
    """Of this version of torch, for this Python: {"", "+cpu"} and the like."""
    command = [VENV_PYTHON, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check", "--timeout", "20"]
    done = subprocess.run(command + arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return builds_listed(version, done.stdout.decode())


def builds_listed(version: str, text: str) -> "set[str]":
    listed = re.search(r"^Available versions: (.*)$", text, re.M)
    names = listed.group(1).split(", ") if listed else []
    return {name[len(version) :] for name in names if name.partition("+")[0] == version}


def own_index() -> bool:
    """Who has configured an index of their own may not want, or be allowed, any other."""
    if os.environ.get("PIP_INDEX_URL"):
        return True
    command = [VENV_PYTHON, "-m", "pip", "config", "list"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return b".index-url=" in done.stdout


def reachable(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
        return True
    except (OSError, ValueError):
        return False


def announce(what: str, words: str, cpu_build: bool) -> None:
    total = Progress.total_mb = to_download(what, cpu_build)
    print("set-up: {} into .venv with Python {}".format(what, platform.python_version()), flush=True)
    print("set-up: {}".format(words))
    print("set-up: {} to download".format("about " + megabytes(total) if total else "hardly anything"), flush=True)
    needed = total * DISK_PER_DOWNLOAD * 1e6 + 2e8
    free = shutil.disk_usage(VENV).free
    if free < needed:
        raise Refused("{} needs {:.1f} GB of disk, {:.1f} GB are free".format(VENV, needed / 1e9, free / 1e9))


def to_download(what: str, cpu_build: bool) -> float:
    """Megabytes that are not installed yet."""
    there = installed()
    total = 0.0
    for name, (version, size, core) in pinned().items():
        if "{}=={}".format(name, version) in there or not (core or what == "dev"):
            continue
        if cpu_build and core and (name == "torch" or CUDA_ONLY.match(name)):
            size = CPU_TORCH_MB if name == "torch" and "torch=={}+cpu".format(version) not in there else 0.0
            if what == "dev" and name in ("triton", "nvidia-cuda-nvrtc"):
                size = pinned()[name][1]
        total += size
    return total


def install_torch(version: str, source: "list[str]") -> None:
    changed = os.environ.get("TORCH_INDEX", "") not in ("", read_state().get("torch_index", ""))
    wrong_build = (
        has_gpu() and "torch=={}+cpu".format(version) in installed() and source[:1] == ["==={}".format(version)]
    )
    exact = source.pop(0) if source and source[0].startswith("==") else "=={}".format(version)
    again = ["--force-reinstall"] if changed or wrong_build else []
    pip_install(["--no-deps", "torch" + exact] + source + again, say=True)
    if os.environ.get("TORCH_INDEX"):
        write_state(torch_index=os.environ["TORCH_INDEX"])
    if not torch_asks_for_cuda():
        return
    there = installed()
    for name, (pin, size, core) in sorted(pinned().items(), key=lambda item: -item[1][1]):
        if core and size >= ONE_BY_ONE_MB and CUDA_ONLY.match(name) and "{}=={}".format(name, pin) not in there:
            try:
                pip_install(["--no-deps", "{}=={}".format(name, pin)], say=True)
            except PipFailed as error:
                if error.final:
                    raise  # else torch for this machine may not ask for it: what resolves dependencies will know


def torch_asks_for_cuda() -> bool:
    pattern = os.path.join(glob.escape(VENV), "lib", "python3*", "site-packages", "torch-*.dist-info", "METADATA")
    for path in glob.glob(pattern):
        with open(path, encoding="utf-8", errors="replace") as file:
            return re.search(r"^Requires-Dist: (nvidia-|cuda-)", file.read(), re.M) is not None
    return False


def pip_install(arguments: "list[str]", say: bool = False) -> None:
    command = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check"] + arguments
    run_pip(command, cwd=ROOT, log=os.path.join(VENV, "setup.log"), say=say)


# --- facts ---


def pinned() -> "dict[str, tuple[str, float, bool]]":
    """name -> (version, megabytes, is it of the core?)"""
    pins, core = {}, True
    with open(PINS, encoding="utf-8") as file:
        for line in file:
            if line.startswith("# ---"):
                core = "the core" in line
            found = re.match(r"([\w.-]+)==([\w.+]+)", line)
            if found:
                size = re.search(r"# ([\d.]+) MB", line)
                pins[found.group(1)] = (found.group(2), float(size.group(1)) if size else 0.0, core)
    return pins


def installed() -> "set[str]":
    pattern = os.path.join(glob.escape(VENV), "lib", "python3*", "site-packages", "*.dist-info")
    names = [os.path.basename(path)[: -len(".dist-info")].rsplit("-", 1) for path in glob.glob(pattern)]
    return {"{}=={}".format(name.lower().replace("_", "-"), version) for name, version in names}


def has_gpu() -> bool:
    return bool(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/proc/driver/nvidia/gpus/*") or wsl_gpu())


def wsl_gpu() -> bool:
    return os.path.exists("/dev/dxg") and os.path.exists("/usr/lib/wsl/lib/libcuda.so.1")


def files_below(folder: str) -> "Iterator[os.DirEntry[str]]":
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            for inner in files_below(entry.path):
                yield inner
        elif entry.is_file(follow_symlinks=False):
            yield entry


if __name__ == "__main__":
    sys.exit(main())
