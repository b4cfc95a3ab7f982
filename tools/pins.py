"""Makes constraints.txt, and proves that it holds on every supported Python with the torch that PyPI publishes.

    python tools/pins.py make [--upgrade]   # after a change of dependencies in pyproject.toml; --upgrade takes newer versions
    python tools/pins.py check              # part of `make check`

uv resolves; it looks at PyPI alone, so that a wheel which only one machine has can hide nothing. Only metadata is downloaded.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
INDEX = "https://pypi.org/simple"
TORCH = "torch==2.13.0"
"""Chosen by hand. PyPI's build of it decides which triton and which CUDA packages there are."""
VERSIONS = ("3.11.2", "3.12", "3.13")
"""3.11.2 is Debian 12's own: older than what some packages ask of 3.11."""
PLATFORM = "x86_64-manylinux_2_28"
HEADER = f"""\
# Written by `make pins` from pyproject.toml: what `make demo` and `make test` install on Python 3.11 and newer.
# They hold for PyPI's build of {TORCH} (CUDA) and for its CPU build, which asks for no CUDA packages and no triton.
# Sizes are downloads for Python 3.12 on x86_64.
"""
CORE_TITLE = "# --- the core: `make demo` ---"
REST_TITLE = "# --- the rest: `make test` ---"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("make", "check"))
    options.add_argument(
        "--upgrade", action="store_true", help="take the newest versions in place of those in the file"
    )
    options.add_argument("--pins", type=Path, default=PINS, help="the file to write or to check")
    args = options.parse_args()
    why_not = unreachable()
    if why_not:
        print(f"pins: SKIPPED, no network: {why_not}; whether constraints.txt can be installed elsewhere is not known")
        return 1 if args.what == "make" else 0
    return make(args.pins, upgrade=args.upgrade) if args.what == "make" else check(args.pins)


def unreachable() -> str:
    try:
        with urllib.request.urlopen(f"{INDEX}/pip/", timeout=20):
            return ""
    except (urllib.error.URLError, OSError) as error:
        return str(error)


def check(pins: Path) -> int:
    pinned = {requirement(line) for line in pins.read_text().splitlines() if "==" in line and line[0] != "#"}
    wrong = []
    with ThreadPoolExecutor(len(VERSIONS)) as pool:
        resolved = list(pool.map(lambda version: compile_for(version, pins), VERSIONS))
    for version, found in zip(VERSIONS, resolved, strict=True):
        if found.returncode:
            wrong.append(f"Python {version}: the pins contradict each other or what PyPI has\n{found.stderr.strip()}")
            continue
        loose = sorted({requirement(line) for line in found.stdout.splitlines() if "==" in line} - pinned)
        if loose:
            wrong.append(f"Python {version}: not pinned: {', '.join(loose)} (`make pins` does it)")
    for text in wrong:
        print(f"pins: {text}", file=sys.stderr)
    if not wrong:
        print(
            f"pins: can be installed from PyPI on Python {', '.join(VERSIONS)} ({PLATFORM}), its build of torch included"
        )
    return 1 if wrong else 0


def compile_for(version: str, pins: Path) -> "subprocess.CompletedProcess[str]":
    """What would be installed on one version of Python; wheels only, since nobody is asked to have compilers."""
    return uv(
        "--python-version", version, "--python-platform", PLATFORM, "--only-binary", ":all:", "--all-extras",
        "--constraints", str(pins), "--no-header", "--no-annotate",
    )  # fmt: skip


def make(pins: Path, *, upgrade: bool) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        torch, out, lock = (Path(scratch) / name for name in ("torch.txt", "pins.txt", "pylock.toml"))
        torch.write_text(TORCH + "\n")
        if pins.is_file() and not upgrade:  # what uv finds in its output file it keeps where it can
            out.write_text(pins.read_text())
        common = [
            "--universal",
            "--python-version",
            "3.11",
            "--no-header",
            "--no-annotate",
            "--constraints",
            str(torch),
        ]
        for target in (["-o", str(out)], ["-o", str(lock), "--format", "pylock.toml", "--constraints", str(out)]):
            done = uv(*common, "--all-extras", *target)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 1
        core = uv(*common, "--constraints", str(out))
        sizes = download_sizes(tomllib.loads(lock.read_text()))
        lines = list(filter(None, map(for_linux, out.read_text().splitlines())))
    in_core = {requirement(line) for line in core.stdout.splitlines() if "==" in line}
    parts = [HEADER]
    for title, wanted in ((CORE_TITLE, True), (REST_TITLE, False)):
        part = [line for line in lines if (requirement(line) in in_core) is wanted]
        parts.append("\n".join((title, *(with_size(line, sizes) for line in part))) + "\n")
    pins.write_text("".join(parts))
    print(f"{pins}: {len(lines)} pins")
    return check(pins)


def uv(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """No configuration of this machine's: another index or a folder of wheels would be trusted as if everybody had it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "-q", "--default-index", INDEX]
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def requirement(line: str) -> str:
    return line.partition(";")[0].partition("#")[0].strip()


def for_linux(line: str) -> str:
    """A pin without what is said about other systems. A marker only stays where it tells versions of Python apart: a pin for
    what is not asked for does no harm."""
    pin, _, marker = line.partition(" ; ")
    if "==" not in pin or pin[0] == "#" or "'win32'" in marker or "== 'emscripten'" in marker:
        return ""
    return line if "python_full_version" in marker else pin


def with_size(line: str, sizes: dict[str, float]) -> str:
    size = sizes.get(requirement(line), 0)
    return f"{line}  # {size:.1f} MB" if size >= 0.1 else line


def download_sizes(lock: dict[str, list[dict[str, object]]]) -> dict[str, float]:
    """Megabytes of each pinned package's wheel; an index that does not tell sizes is asked for each file's."""
    wheels = {}
    for package in lock["packages"]:
        url, size = best_wheel(package.get("wheels", []))  # type: ignore[arg-type]
        if url:
            wheels[f"{package['name']}=={package['version']}"] = (url, size)
    with ThreadPoolExecutor(16) as pool:
        megabytes = pool.map(lambda wheel: (wheel[1] or length(wheel[0])) / 1e6, wheels.values())
        return dict(zip(wheels, megabytes, strict=True))


def best_wheel(wheels: list[dict[str, object]]) -> tuple[str, int]:
    from packaging.tags import compatible_tags, cpython_tags
    from packaging.utils import parse_wheel_filename

    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)]
    platforms += [f"{name}_x86_64" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
    tags = [*cpython_tags((3, 12), platforms=platforms), *compatible_tags((3, 12), platforms=platforms)]
    rank = {tag: index for index, tag in enumerate(tags)}
    fitting = []
    for wheel in wheels:
        url = str(wheel["url"])
        fits = [rank[tag] for tag in parse_wheel_filename(url.rpartition("/")[2])[3] if tag in rank]
        if fits:
            fitting.append((min(fits), url, int(str(wheel.get("size", 0)))))
    return min(fitting)[1:] if fitting else ("", 0)


def length(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
        return int(answer.headers.get("Content-Length", 0))


if __name__ == "__main__":
    sys.exit(main())
