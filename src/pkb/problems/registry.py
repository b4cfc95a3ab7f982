"""Finds problems by listing the modules of a folder: nothing to edit when a problem is added."""

import importlib
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from pkb.problems.base import Problem
from pkb.types.errors import UserError

MODULE = re.compile(r"p(\d+)_(\w+)\.py")


class Registry:
    """The problems of one or more folders, by id and by name."""

    def __init__(self, problems: list[Problem]) -> None:
        self._by_id: dict[int, Problem] = {}
        for problem in sorted(problems, key=lambda p: p.id):
            if problem.id in self._by_id:
                raise UserError(f"two problems have the id {problem.id}", "ids must be unique")
            self._by_id[problem.id] = problem
        self._by_name = {p.name: p for p in problems} | {p.stem: p for p in problems}

    def all(self) -> list[Problem]:
        return list(self._by_id.values())

    def get(self, key: int | str) -> Problem:
        """A problem by id (`13`), name (`gemm_allreduce`) or stem (`13_gemm_allreduce`)."""
        text = str(key).strip()
        found = self._by_id.get(int(text)) if text.isdigit() else self._by_name.get(text)
        if found is None:
            raise UserError(f"no problem is called {key!r}", "`pkb problems` lists ids and names")
        return found

    def select(self, keys: str) -> list[Problem]:
        """Problems by `all`, or a comma-separated list of ids, names, stems and ranges (`1-8,13`)."""
        if keys.strip() == "all":
            return self.all()
        chosen: dict[int, Problem] = {}
        for key in filter(None, (part.strip() for part in keys.split(","))):
            if span := re.fullmatch(r"(\d+)-(\d+)", key):
                inside = [p for p in self.all() if int(span[1]) <= p.id <= int(span[2])]
                if not inside:
                    raise UserError(f"no problem has an id in {key}", "`pkb problems` lists ids and names")
                chosen |= {p.id: p for p in inside}
            else:
                problem = self.get(key)
                chosen[problem.id] = problem
        if not chosen:
            raise UserError(f"{keys!r} names no problem", "`pkb problems` lists ids and names")
        return list(chosen.values())


def _problem_of(module: ModuleType, origin: str) -> Problem:
    problem = getattr(module, "PROBLEM", None)
    if not isinstance(problem, Problem):
        raise UserError(f"{origin} does not declare a PROBLEM", "see docs/adding-a-problem.md")
    return problem


@cache
def default_registry() -> Registry:
    """The problems that come with the package."""
    folder = Path(__file__).parent
    stems = sorted(path.stem for path in folder.iterdir() if MODULE.fullmatch(path.name))
    return Registry([_problem_of(importlib.import_module(f"{__package__}.{stem}"), stem) for stem in stems])


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
