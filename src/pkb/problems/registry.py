"""Finds problems by listing the modules of a folder: nothing to edit when a problem is added."""

import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import torch

from pkb.problems.base import DTYPES, Problem
from pkb.problems.draw import Draw
from pkb.problems.minimal import is_minimal, problem_from
from pkb.types.errors import UserError

MODULE = re.compile(r"p(\d+)_(\w+)\.py")


@dataclass(frozen=True)
class RegisteredProblem:
    """A problem known by its file's name; its module is imported when it is asked for."""

    id: int
    name: str
    load: Callable[[], Problem]
    why_broken: str = ""
    """Of a file of a user's that cannot be loaded; whoever asks for it is told."""


class Registry:
    """Problems by id and by name."""

    def __init__(self, problems: Iterable[Problem] = (), *, entries: Iterable[RegisteredProblem] = ()) -> None:
        loaded = (RegisteredProblem(p.id, p.name, partial(_itself, p)) for p in problems)
        self._by_id: dict[int, RegisteredProblem] = {}
        for entry in sorted([*entries, *loaded], key=lambda entry: entry.id):
            if entry.id in self._by_id:
                raise UserError(f"two problems have the id {entry.id}", "ids must be unique")
            self._by_id[entry.id] = entry
        self._by_name = {name: e for e in self._by_id.values() for name in (e.name, f"{e.id:02d}_{e.name}")}

    def plus(self, problems: Iterable[Problem]) -> "Registry":
        return Registry(problems, entries=self._by_id.values())

    def with_folder(self, folder: Path | None) -> "Registry":
        """These and a user's own; without a folder, these."""
        return self if folder is None else Registry(entries=[*self._by_id.values(), *read_folder(folder)])

    def all(self) -> list[Problem]:
        """All that can be loaded."""
        return [entry.load() for entry in self._by_id.values() if not entry.why_broken]

    def broken(self) -> list[RegisteredProblem]:
        return [entry for entry in self._by_id.values() if entry.why_broken]

    def ids(self) -> list[int]:
        return list(self._by_id)

    def get(self, key: int | str) -> Problem:
        """A problem by id (`13`), name (`gemm_allreduce`) or stem (`13_gemm_allreduce`)."""
        text = str(key).strip()
        found = self._by_id.get(int(text)) if text.isdigit() else self._by_name.get(text)
        if found is None:
            raise UserError(f"no problem is called {key!r}", self._fix(text))
        return found.load()

    def _fix(self, text: str) -> str:
        near = difflib.get_close_matches(text.lower(), self._by_name, n=3, cutoff=0.75)
        # A name and its stem are near the same words: one suggestion each.
        stems = dict.fromkeys(f"{self._by_name[name].id:02d}_{self._by_name[name].name}" for name in near)
        meant = f"did you mean {' or '.join(stems)}? " if stems else ""
        return f"{meant}`pkb problems` lists ids and names"

    def select(self, keys: str) -> list[Problem]:
        """Problems by `all`, or a comma-separated list of ids, names, stems and ranges (`1-8,13`)."""
        if keys.strip() == "all":
            return self.all()
        chosen: dict[int, Problem] = {}
        for key in filter(None, (part.strip() for part in keys.split(","))):
            if span := re.fullmatch(r"(\d+)-(\d+)", key):
                inside = [number for number in self._by_id if int(span[1]) <= number <= int(span[2])]
                if not inside:
                    raise UserError(f"no problem has an id in {key}", "`pkb problems` lists ids and names")
                chosen |= {number: self.get(number) for number in inside}
            else:
                problem = self.get(key)
                chosen[problem.id] = problem
        if not chosen:
            raise UserError(f"{keys!r} names no problem", "`pkb problems` lists ids and names")
        return list(chosen.values())


def _itself(problem: Problem) -> Problem:
    return problem


def _problem_of(module: ModuleType, origin: str) -> Problem:
    problem = getattr(module, "PROBLEM", None)
    if isinstance(problem, Problem):
        return problem
    named = MODULE.fullmatch(origin)
    if named and is_minimal(module):
        return problem_from(module, number=int(named[1]), name=named[2])
    raise UserError(f"{origin} declares neither a PROBLEM nor solution and inputs", "see docs/adding-a-problem.md")


@cache
def _import(stem: str) -> Problem:
    return _problem_of(importlib.import_module(f"{__package__}.{stem}"), stem)


@cache
def default_registry() -> Registry:
    """The problems that come with the package: listed by file name, imported one by one when needed."""
    found = (MODULE.fullmatch(path.name) for path in sorted(Path(__file__).parent.iterdir()))
    entries = [RegisteredProblem(int(m[1]), m[2], partial(_import, m[0].removesuffix(".py"))) for m in found if m]
    return Registry(entries=entries)


def load_folder(folder: Path) -> list[Problem]:
    """A user's own problem modules: every `pNN_name.py` of a folder."""
    return [entry.load() for entry in read_folder(folder)]


def read_folder(folder: Path) -> list[RegisteredProblem]:
    """The same, where a file that cannot be loaded spoils itself only. All of them broken is an error."""
    paths = sorted(path for path in folder.iterdir() if MODULE.fullmatch(path.name))
    if not paths:
        raise UserError(f"{folder} holds no problem modules", "they are named pNN_name.py")
    entries = []
    for path in paths:
        try:
            problem = _load_file(path)
            entries.append(RegisteredProblem(problem.id, problem.name, partial(_itself, problem)))
        except UserError as error:
            named = MODULE.fullmatch(path.name)
            assert named is not None
            entries.append(RegisteredProblem(int(named[1]), named[2], partial(_refuse, error), str(error)))
    if all(entry.why_broken for entry in entries):
        entries[0].load()
    return entries


def _refuse(error: UserError) -> Problem:
    raise error


def _load_file(path: Path) -> Problem:
    spec = importlib.util.spec_from_file_location(f"pkb_user_problems.{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        problem = _problem_of(module, path.name)
        _check_arguments(problem, path.name)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # the edge to a user's file: whatever it does, the other files go on
        line = _line_in(error, path)
        where = f"{path.name}, line {line}" if line else path.name
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UserError(f"{where}: {type(error).__name__}: {said}", "mend the file") from error
    return problem


def _line_in(error: BaseException, path: Path) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return frames[-1] if frames else None


def _check_arguments(problem: Problem, origin: str) -> None:
    """Arguments are passed by position: with other names or another order, a value would silently be taken for another."""
    size = next(iter(problem.sizes))
    ranks = next((n for n in problem.world_sizes if problem.why_not(size, n, problem.default_dtype) is None), None)
    if ranks is None:
        return
    draw = Draw(
        secret=b"names", call=0, rank=0, world_size=ranks, size=problem.sizes[size],
        dtype=DTYPES[problem.default_dtype], device=torch.device("meta"), layout=problem.layout,
    )  # fmt: skip
    given, taken = list(problem.inputs(draw)), problem.signature.parameters
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind in variable for parameter in taken.values()):
        return
    names = list(taken)
    left_out = [name for name in names[len(given) :] if taken[name].default is inspect.Parameter.empty]
    if given != names[: len(given)] or left_out:
        raise UserError(
            f"{origin}: inputs() gives {', '.join(given) or 'nothing'}, and solution takes {', '.join(names) or 'nothing'}",
            "the names must be the same, in the same order",
        )


def get(key: int | str) -> Problem:
    return default_registry().get(key)


def select(keys: str) -> list[Problem]:
    return default_registry().select(keys)
