"""Compares the problems, their baselines and the judge with `src/pkb/problems/suite.toml`, or writes that file.

    python tools/suite.py                              what differs; exit status 1 if anything does
    python tools/suite.py --write                      the suite's version rises, with today's date
    python tools/suite.py --write --same 13,judge      these were rewritten and mean what they meant before
    python tools/suite.py --write --version 2          keep or set the version, while it has not been released
    python tools/suite.py --write --times out/references/baselines.jsonl    another baseline: times of both versions

Refused are: other inputs, tolerances or another reference without a higher `version`, and another baseline without a higher
`baseline_version` or without times that show it to be faster, unless `--same` says that only the code was rewritten.
docs/suite.md has the rule.
"""

import argparse
import datetime
import functools
import hashlib
import inspect
import json
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pkb.problems.base import Problem
from pkb.problems.registry import default_registry
from pkb.problems.suite import FILE, Suite, SuiteProblem, suite
from pkb.types.bare_code import bare_python

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "pkb"
JUDGE = (
    "judge/timing/statistics.py", "judge/timing/conclude.py", "judge/timing/rounds.py", "judge/timing/clock.py",
    "judge/timing/measure.py", "judge/timing/starts.py", "judge/timing/other.py", "judge/timing/sides.py",
    "judge/timing/looks.py",
    "judge/crew/company.py", "judge/stages/correctness.py", "judge/stages/races.py", "judge/stages/race_proof.py",
    "judge/timing/verify.py", "judge/kinds.py", "judge/second_world.py", "types/plan.py", "problems/draw.py",
    "problems/compare.py", "rank/execute.py", "rank/comparison/truth.py",
)  # fmt: skip
"""What draws arguments, compares outputs, takes times and decides by them, and how much of it is done. A problem's inputs are
handed a `Draw` and name no part of it: what all problems draw by is here."""
OURS = "pkb.problems"
NOT_HERE = "pkb.problems.compare"
"""Part of the judge."""
NOISE = 0.1
PLAIN = (bool, int, float, str, bytes, type(None))


def digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def reached(start: Iterable[Any]) -> list[str]:
    """The code of these functions and classes, and of all of the problems' own that they use, constants included."""
    found: dict[str, str] = {}
    waiting = list(start)
    while waiting:
        item = waiting.pop()
        while isinstance(item, functools.partial):
            found[f"{item.func.__qualname__} of"] = repr((item.args, sorted(item.keywords.items())))
            item = item.func
        name = f"{item.__module__}.{item.__qualname__}"
        if name in found or not item.__module__.startswith(OURS) or item.__module__ == NOT_HERE:
            continue
        found[name] = bare_python(inspect.getsource(item))
        functions = [item] if inspect.isfunction(item) else [m for m in vars(item).values() if inspect.isfunction(m)]
        if (inner := inspect.unwrap(item)) is not item:  # decorated: the source above is that of what is inside
            found[f"{name} by"] = bare_python(inspect.getsource(item.__code__))
            functions.append(inner)
        for function in functions:
            names = _names(function.__code__)
            for word in sorted(names):
                value = function.__globals__.get(word)
                if isinstance(value, types.ModuleType) and value.__name__.startswith(OURS):
                    waiting += [each for other in names if _is_code(each := getattr(value, other, None))]
                elif _is_code(value):
                    waiting.append(value)
                elif word in function.__globals__ and _is_plain(value):
                    plain = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
                    found[f"{item.__module__}.{word}"] = repr(plain)
    return [f"{name}: {found[name]}" for name in sorted(found)]


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _is_code(value: Any) -> bool:
    return inspect.isfunction(value) or inspect.isclass(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    return isinstance(value, PLAIN) or (
        isinstance(value, list | tuple | set | frozenset) and all(map(_is_plain, value))
    )


def question_of(problem: Problem) -> str:
    rules = [
        *(problem.compare if isinstance(problem.compare, tuple) else (problem.compare,)),
        *problem.mutates.values(),
    ]
    said = (
        problem.dtypes, dict(problem.kinds), problem.truth,
        problem.world_sizes, problem.layout, problem.returns_input, problem.same_bits, sorted(problem.mutates),
        [re.sub(r" at 0x\w+", "", repr(rule)) for rule in rules],
    )  # fmt: skip
    code: list[Callable[..., Any]] = [problem.inputs, problem.reference, *(_class_of(rule) for rule in rules)]
    code += [problem.published] if problem.published else []
    code += [problem.exact] if problem.exact is not None else []
    return digest([repr(said), *reached(code)])


def _class_of(rule: Any) -> Any:
    return rule if inspect.isfunction(rule) else type(rule)


def entry_of(problem: Problem) -> SuiteProblem:
    sizes = {name: digest([repr(sorted(size.items()))])[:8] for name, size in problem.sizes.items()}
    if problem.baseline is None:
        return SuiteProblem(problem.version, 0, question_of(problem), "", sizes)
    baseline = digest(reached([problem.baseline]))
    return SuiteProblem(problem.version, problem.baseline_version, question_of(problem), baseline, sizes)


def present(version: int, date: str, judge_version: int) -> Suite:
    """What is there now."""
    judge = digest(f"{name}: {bare_python((PACKAGE / name).read_text())}" for name in JUDGE)
    problems = {problem.stem: entry_of(problem) for problem in default_registry().all()}
    return Suite(version, date, judge_version, judge, problems)


def differences(old: Suite, new: Suite) -> dict[str, str]:
    """By stem, or `judge`: what differs, in words."""
    found = {}
    for stem in sorted(old.problems.keys() | new.problems.keys()):
        was, now = old.problems.get(stem), new.problems.get(stem)
        if was is None or now is None:
            found[stem] = "new" if was is None else "gone"
        elif was != now:
            found[stem] = ", ".join(
                f"{name} {a or 'none'}, now {b or 'none'}"
                for name, a, b in zip(
                    SuiteProblem.__dataclass_fields__, vars(was).values(), vars(now).values(), strict=True
                )
                if a != b
            )
    if old.judge != new.judge:
        found["judge"] = "its code is another"
    return found


def why_not_faster(stem: str, was: int, now: int, rows: Iterable[Mapping[str, Any]]) -> str | None:
    """By the rows that `benchmarks/references.py` wrote, what speaks against a baseline of version `now` instead of `was` (0:
    the reference). Single cases may be slower by what starts of a machine differ."""
    times: dict[int, dict[tuple[str, int], float]] = {was: {}, now: {}}
    for row in rows:
        # Rows without a version are older than any second one.
        version = row.get("version", 1) if row["function"] == "baseline" else 0
        if row["id"] == int(stem.partition("_")[0]) and version in times and row["time_us"]:
            times[version][row["size"], row["ranks"]] = row["time_us"]
    common = times[was].keys() & times[now].keys()
    ratios = {case: times[now][case] / times[was][case] for case in common}
    if not ratios:
        return "no case was timed with both: see --times"
    if slow := [f"{size} with {ranks} ranks" for (size, ranks), ratio in ratios.items() if ratio > 1 + NOISE]:
        return f"it is slower at {', '.join(sorted(slow))}"
    return None if math.prod(ratios.values()) < 1 else "it is not faster"


def refusals(old: Suite, new: Suite, same: set[str], rows: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """Changes that a version should have risen for, and baselines that are not known to be faster."""
    found = []
    for stem, now in new.problems.items():
        was = old.problems.get(stem)
        if was is None or same & {stem, str(int(stem.partition("_")[0]))}:
            continue
        same_sizes = was.sizes.items() <= now.sizes.items()  # one more is no other question
        if (was.question != now.question or not same_sizes) and now.version <= was.version:
            what = "inputs, reference or tolerance are" if same_sizes else "sizes are"
            found.append(f"{stem}: its {what} others: raise `version`, or say --same")
        other_baseline = bool(now.baseline) and was.baseline != now.baseline
        if other_baseline and now.baseline_version <= was.baseline_version:
            found.append(f"{stem}: its baseline is another: raise `baseline_version`, or say --same")
        elif other_baseline and (why := why_not_faster(stem, was.baseline_version, now.baseline_version, rows)):
            found.append(f"{stem}: a baseline changes only to become faster, and {why}")
        if was.baseline and not now.baseline:
            found.append(f"{stem}: its baseline is gone, and the reference is slower")
    return found


def written(said: Suite) -> str:
    lines = [
        "# Written by tools/suite.py; docs/suite.md says what it is for.",
        f"version = {said.version}",
        f'date = "{said.date}"',
        f"judge_version = {said.judge_version}",
        f'judge = "{said.judge}"',
        "",
        "[problems]",
    ]
    for stem, one in said.problems.items():
        sizes = ", ".join(f'{name} = "{value}"' for name, value in one.sizes.items())
        fields = f"version = {one.version}, baseline_version = {one.baseline_version}"
        fields += f', question = "{one.question}", baseline = "{one.baseline}", sizes = {{ {sizes} }}'
        lines.append(f"{stem} = {{ {fields} }}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--write", action="store_true")
    options.add_argument("--same", default="", help="stems or ids with commas, and judge")
    options.add_argument("--version", type=int)
    options.add_argument("--times", type=Path, nargs="*", default=[], help="rows of benchmarks/references.py")
    args = options.parse_args(arguments)
    old = suite() if FILE.exists() else Suite(0, "", 0, "", {})
    new = present(old.version, old.date, old.judge_version)
    changed = differences(old, new)
    if not args.write:
        print(
            "\n".join(f"{name}: {words}" for name, words in changed.items())
            or f"suite {old.version}: nothing has changed"
        )
        return 1 if changed else 0
    same = set(filter(None, args.same.split(",")))
    rows = [json.loads(line) for path in args.times for line in path.read_text().splitlines()]
    if refused := refusals(old, new, same, rows):
        print("\n".join(refused), file=sys.stderr)
        return 1
    if "judge" in changed and "judge" not in same and args.version != old.version:
        new = replace(new, judge_version=old.judge_version + 1)
    meant = {
        name for name in changed if not same & {name, str(int(name.partition("_")[0])) if name != "judge" else name}
    }
    version = args.version if args.version is not None else old.version + bool(meant)
    if version < old.version:
        print(f"version {version} is below {old.version}", file=sys.stderr)
        return 1
    date = datetime.datetime.now(datetime.UTC).date().isoformat() if meant or not old.date else old.date
    FILE.write_text(written(replace(new, version=version, date=date)))
    print(f"suite {version}: {', '.join(meant) or 'nothing new'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
