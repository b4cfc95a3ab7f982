"""Build once, use many times: a content-addressed store of compiled files, shared by the ranks of one evaluation.

An artifact's name is the hash of everything that went into it, so a stale one cannot be found, and two candidates that
differ in a byte never meet. Two places are searched:

- `PKB_BUILD_CACHE`, read only, may be shared by many evaluations. Candidates must not be able to write it: whoever can
  write there can hand a rival a broken kernel.
- `PKB_BUILD_DIR`, private to this evaluation and writable; what is missing is built into it. Default:
  `~/.cache/pkb/build`.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pkb.kit.errors import BuildTimeout, CompileError
from pkb.types.file_lock import lock

WAIT_SECONDS = 600.0
"""How long a rank waits for another that builds the same thing (a torch extension takes 35 to 90 s). `PKB_BUILD_WAIT`
sets it.
"""


@dataclass(frozen=True)
class Artifact:
    path: Path
    cached: bool
    """It was there already: this call ran no compiler."""
    seconds: float


@dataclass(frozen=True)
class Recipe:
    """Something to build: `key` is the hash of all that goes in, and names the result together with `suffix`."""

    key: str
    suffix: str
    name: str
    build: Callable[[Path, Path], None]
    """`build(scratch, output)` may write what it likes into the folder `scratch` and must leave its result in `output`."""

    @property
    def file_name(self) -> str:
        return self.key + self.suffix

    def obtain(self) -> Artifact:
        """The artifact: found, or built by one process while the others wait for it.

        A build that fails with `CompileError` fails at once for all who were waiting too: eight ranks must not run a broken
        60 s build one after another. The failure is not remembered beyond that, so a repaired machine needs no cleaning.
        """
        began = time.monotonic()
        began_wall = time.time()
        found = find(self.file_name)
        if found is not None:
            return Artifact(path=found, cached=True, seconds=time.monotonic() - began)
        folder = build_dir()
        target = folder / self.file_name
        failure = folder / f"{self.key}.failed"
        with _locked(folder / f"{self.key}.lock", name=self.name):
            if target.is_file():
                return Artifact(path=target, cached=True, seconds=time.monotonic() - began)
            if failure.is_file() and failure.stat().st_mtime >= began_wall:
                own = (f"{self.name}.cu", f"{self.name}.cpp")
                raise CompileError(failure.read_text(), name=self.name, own_files=own)
            _remove_abandoned(folder)
            scratch = Path(tempfile.mkdtemp(prefix=f"building-{os.getpid()}-", dir=folder))
            try:
                output = scratch / self.file_name
                self.build(scratch, output)
                output.replace(target)  # atomic: a reader sees the whole file or none
            except CompileError as error:
                failure.write_text(error.log)
                raise
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return Artifact(path=target, cached=False, seconds=time.monotonic() - began)


def content_key(*parts: str) -> str:
    """A hash of the parts; each is preceded by its length, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:40]


def build_dir() -> Path:
    """The private writable folder, made if it is not there."""
    chosen = os.environ.get("PKB_BUILD_DIR")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = Path(chosen) if chosen else base / "pkb" / "build"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def find(file_name: str) -> Path | None:
    for variable in ("PKB_BUILD_CACHE", "PKB_BUILD_DIR"):
        folder = os.environ.get(variable)
        if folder and (Path(folder) / file_name).is_file():
            return Path(folder) / file_name
    return None


def _remove_abandoned(folder: Path) -> None:
    """Folders of builds whose process was killed: their number is nobody's any more."""
    for path in folder.glob("building-*-*"):
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(path: Path, *, name: str) -> Iterator[None]:
    limit = float(os.environ.get("PKB_BUILD_WAIT") or WAIT_SECONDS)
    with path.open("a") as file:
        try:
            lock(file.fileno(), wait_s=limit)
        except TimeoutError:
            raise BuildTimeout(f"waited {limit:.0f} s for another process to build {name!r}") from None
        yield  # closing the file gives the lock back
