"""A class is known by its name: no two of the package share one."""

import ast
from collections import defaultdict
from pathlib import Path

import pkb

PACKAGE = Path(pkb.__file__).parent
CANDIDATES = {PACKAGE / "generate" / "examples", PACKAGE / "cli" / "demo_candidates"}
"""Files that a judge loads one by one, as a model's answer would be."""


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if CANDIDATES.isdisjoint(path.parents):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert len(places) > 100
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
