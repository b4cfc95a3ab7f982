"""Finds problems by listing the modules of a folder: nothing to edit when a problem is added."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType

from pkb.problems.base import Problem
from pkb.problems.minimal import is_minimal, problem_from
from pkb.types.errors import UserError

MODULE = re.compile(r"p(\d+)_(\w+)\.py")


@dataclass(frozen=True)
class RegisteredProblem:
    """A problem known by its file's name; its module is imported when it is asked for."""

    id: int
    name: str
    load: Callable[[], Problem]


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

    def all(self) -> list[Problem]:
        return [entry.load() for entry in self._by_id.values()]

    def ids(self) -> list[int]:
        return list(self._by_id)

    def get(self, key: int | str) -> Problem:
        """A problem by id (`13`), name (`gemm_allreduce`) or stem (`13_gemm_allreduce`)."""
        text = str(key).strip()
        found = self._by_id.get(int(text)) if text.isdigit() else self._by_name.get(text)
        if found is None:
            raise UserError(f"no problem is called {key!r}", "`pkb problems` lists ids and names")
        return found.load()

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
    paths = sorted(path for path in folder.iterdir() if MODULE.fullmatch(path.name))
    if not paths:
        raise UserError(f"{folder} holds no problem modules", "they are named pNN_name.py")
    problems = []
    for path in paths:
        spec = importlib.util.spec_from_file_location(f"pkb_user_problems.{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        problems.append(_problem_of(module, path.name))
    return problems


def get(key: int | str) -> Problem:
    return default_registry().get(key)


def select(keys: str) -> list[Problem]:
    return default_registry().select(keys)
