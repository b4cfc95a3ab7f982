"""What a sweep is to do, decided once and stored before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pkb.store import CandidateFile, TaskSpec
from pkb.store.importing import ProblemGone, read_candidate, read_name, walk_candidates
from pkb.types.case import Case
from pkb.types.errors import UserError


@dataclass(frozen=True)
class SweepPlan:
    tasks: tuple[TaskSpec, ...]
    candidates: Mapping[str, CandidateFile]
    """By task key; empty where a model writes them."""
    refused: tuple[tuple[str, str], ...] = ()
    """(file, why): Python files that are no candidates we can name."""
    gone: tuple[str, ...] = ()
    """Files for problems that are no longer in the list."""
    notes: tuple[str, ...] = ()


def plan_candidates(paths: Sequence[Path], *, problems: Mapping[str, int], like: Case, backend: str = "") -> SweepPlan:
    """Files and folders of files, named as `pkb runs import` takes them: `13_gemm_allreduce_cuda.py`.

    A file's collection is the folder that it lies in. `like` is every task's case but for the problem.
    """
    tasks: dict[str, TaskSpec] = {}
    files: dict[str, CandidateFile] = {}
    refused: list[tuple[str, str]] = []
    gone: list[str] = []
    renumbered: list[str] = []
    notes: list[str] = []
    for path, collection in _files(paths):
        try:
            named = read_name(path.stem, problems=problems, default=backend)
            source = read_candidate(path)
        except ProblemGone:
            gone.append(str(path))
            continue
        except UserError as error:
            refused.append((str(path), str(error)))
            continue
        case = replace(like, problem=named.stem)
        task = TaskSpec(collection=collection, case=case, backend=named.backend)
        while task.key in tasks:
            task = replace(task, sample=task.sample + 1)
        if task.sample:
            notes.append(f"{path}: one more for the same problem and backend, now sample {task.sample}")
        if named.said_number not in (None, named.problem_id):
            renumbered.append(f"{path.name} is {named.stem}")
        tasks[task.key] = task
        files[task.key] = CandidateFile(source=source, filename=path.name, origin=str(path.absolute()))
    if renumbered:
        count = f"{len(renumbered)} files have another number than the problem that they name"
        notes.append(f"{count}, such as {renumbered[0]}: the name decides")
    if gone:
        notes.append(f"{len(gone)} files are for problems that are no longer in the list, such as {Path(gone[0]).name}")
    if not tasks:
        every = "".join(f"; {file}: {why}" for file, why in refused)
        raise UserError(f"there is no candidate to evaluate{every}", "names are like 13_gemm_allreduce_cuda.py")
    return SweepPlan(tuple(tasks.values()), files, tuple(refused), tuple(gone), tuple(notes))


def _files(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Every file once, with its collection."""
    found: dict[Path, str] = {}
    for path in paths:
        if path.is_dir():
            top = path.resolve().name or "candidates"
            for file in walk_candidates(path):
                if file.suffix == ".py":
                    inside = file.parent.relative_to(path).as_posix()
                    found.setdefault(file, top if inside == "." else inside)
        elif path.exists():
            found.setdefault(path, path.resolve().parent.name or "candidates")
        else:
            raise UserError(f"{path} does not exist", "give candidate files, or folders of them")
    return list(found.items())


def plan_models(models: Sequence[str], *, problems: Sequence[str], samples: int, backend: str, like: Case) -> SweepPlan:
    """Every problem's first sample before any second one: a sweep that is stopped half-way says something about all."""
    tasks = [
        TaskSpec(collection=model, case=replace(like, problem=problem), backend=backend, sample=sample)
        for sample in range(samples)
        for model in models
        for problem in problems
    ]
    if not tasks:
        raise UserError("there is no problem to ask for", "`pkb problems` lists them")
    return SweepPlan(tuple({task.key: task for task in tasks}.values()), {})
