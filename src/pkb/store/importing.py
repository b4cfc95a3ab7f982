"""Candidates that lie in a folder become a run whose tasks wait to be evaluated.

The files are named `{number}_{name}_{backend}.py`, as upstream's are: `13_gemm_allreduce_cuda.py`. Upstream has renumbered its
problems, so the name says which one is meant, and a number that disagrees is reported. Names that problems had once are known
(`types/old_names.py`). A file whose name is not understood is refused and named; the others are imported.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pkb.store.records import CandidateFile, Run, TaskSpec
from pkb.store.store import Store
from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.json_value import Json
from pkb.types.old_names import current_name, is_gone

BACKENDS = (
    "cuda", "cuda-kit", "triton", "cpp", "torch", "nvshmem", "nvshmem_triton", "nccl", "parallelkittens", "thunderkittens",
    "tilelang", "cutlass", "cute", "cutedsl", "gluon", "helion", "pallas", "mojo",
)  # fmt: skip
MAX_BYTES = 2 << 20  # the judge reads no longer candidate either
_NUMBERED = re.compile(r"p?0*(\d+)_(.+)")


class ProblemGone(UserError):
    """The file is for a problem that is no longer in the list."""


@dataclass(frozen=True)
class FileNameParts:
    """What a file's name says."""

    problem_id: int
    name: str
    backend: str
    said_number: int | None

    @property
    def stem(self) -> str:
        return f"{self.problem_id:02d}_{self.name}"


@dataclass(frozen=True)
class ImportReport:
    run: Run
    imported: tuple[str, ...]
    renumbered: tuple[tuple[str, str], ...]
    """(file, stem of the problem it is now): number and name disagreed, and the name won."""
    resampled: tuple[tuple[str, int], ...]
    """(file, sample): another file of that collection is for the same problem and backend already."""
    refused: tuple[tuple[str, str], ...]
    """(file, why): Python files that were not imported."""
    ignored: tuple[str, ...]
    """What is no Python file."""

    def to_dict(self) -> dict[str, Json]:
        return asdict(self)


def read_name(stem: str, *, problems: Mapping[str, int], default: str = "") -> FileNameParts:
    """Problem and backend from a file's name without `.py`; `problems` gives ids by name.

    The whole rest is tried as a name before its last word is taken for a backend: `12_allgather_gemm` is problem 12 without
    a backend, not problem 2 with the backend `gemm`.
    """
    numbered = _NUMBERED.fullmatch(stem)
    number, rest = (int(numbered[1]), numbered[2]) if numbered else (None, stem)
    name, backend = _known(current_name(rest, number), problems), ""
    if name is None:
        known = [word for word in BACKENDS if rest.lower().endswith(f"_{word}")]
        backend = rest[-len(max(known, key=len)) :] if known else rest.rpartition("_")[2]
        front = rest.removesuffix(backend).removesuffix("_")
        name = _known(current_name(front, number), problems)
        if name is None:
            if is_gone(front) or is_gone(rest):
                raise ProblemGone(f"the problem {front if is_gone(front) else rest} is no longer in the list")
            raise UserError(f"no problem is called {front or rest!r}", "`pkb problems` lists names")
        backend = backend.lower()
        if backend not in BACKENDS and backend != default:
            raise UserError(f"{backend!r} is no backend we know", f"give --backend {backend} if it is one")
    elif not default:
        raise UserError("the name gives no backend", "give --backend WORD for such files")
    return FileNameParts(problems[name], name, backend or default, number)


def _known(name: str, problems: Mapping[str, int]) -> str | None:
    if name in problems:
        return name
    same = [known for known in problems if known.lower() == name.lower()]
    return same[0] if len(same) == 1 else None


def import_folder(
    store: Store,
    folder: Path,
    *,
    problems: Mapping[str, int],
    like: Case,
    name: str = "",
    backend: str = "",
    settings: Mapping[str, Json] | None = None,
) -> ImportReport:
    """`like` is every task's case but for the problem. The collection of a file is the folder that it lies
    in: the given one, or a folder inside it (one a model, say). `settings`: how the run is to be carried out."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a directory", "give the folder with the candidates")
    top = folder.resolve().name or "import"
    specs: dict[str, TaskSpec] = {}
    files: dict[str, CandidateFile] = {}
    renumbered: list[tuple[str, str]] = []
    resampled: list[tuple[str, int]] = []
    refused: list[tuple[str, str]] = []
    ignored: list[str] = []
    for path in walk_candidates(folder):
        shown = path.relative_to(folder).as_posix()
        if path.suffix != ".py":
            ignored.append(shown)
            continue
        try:
            named = read_name(path.stem, problems=problems, default=backend)
            source = read_candidate(path)
        except UserError as error:
            refused.append((shown, str(error)))
            continue
        inside = path.parent.relative_to(folder).as_posix()
        spec = TaskSpec(
            collection=top if inside == "." else inside, case=replace(like, problem=named.stem), backend=named.backend
        )
        while spec.key in specs:
            spec = replace(spec, sample=spec.sample + 1)
        if spec.sample:
            resampled.append((shown, spec.sample))
        if named.said_number not in (None, named.problem_id):
            renumbered.append((shown, named.stem))
        specs[spec.key] = spec
        files[spec.key] = CandidateFile(source=source, filename=path.name, origin=str(path.absolute()))
    if not specs:
        every = "".join(f"; {file}: {why}" for file, why in refused)
        raise UserError(
            f"{folder} holds no candidate that can be imported{every}", "names are like 13_gemm_allreduce_cuda.py"
        )
    config = {
        "folder": str(folder.absolute()),
        "renumbered": renumbered,
        "refused": refused,
        "settings": dict(settings or {}),
    }
    run = store.create_run("import", name=name or top, config=config, tasks=specs.values(), candidates=files)
    imported = tuple(Path(file.origin).relative_to(folder.absolute()).as_posix() for file in files.values())
    return ImportReport(run, imported, tuple(renumbered), tuple(resampled), tuple(refused), tuple(ignored))


def walk_candidates(folder: Path) -> Iterator[Path]:
    """Files in order of their names; hidden ones and Python's caches are nobody's candidates."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted(names):
            if not name.startswith((".", "__")):
                yield Path(parent) / name


def read_candidate(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UserError("it is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise UserError(f"it is longer than {MAX_BYTES >> 20} MiB")
        source = path.read_bytes()
        source.decode("utf-8")
    except OSError as error:
        raise UserError(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UserError("it is not UTF-8 text") from None
    return source
