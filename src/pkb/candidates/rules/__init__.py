"""Static rules: what can be said against a candidate by reading it. One rule a file, found by listing this folder.

A rule is a module with `check(source, report)` and a docstring in three parts: What it finds, Why, Example.
Rules are triage. Text can always be written so that a reader misses it, so the walls that hold stand at run time
(docs/rules.md). For the same reason `reject` is only for what no honest kernel does: everything that merely deserves
a look is `warn`.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Literal

from pkb.candidates.backend import Backend, backend, needs
from pkb.candidates.paths import PathUse, static_paths
from pkb.candidates.source import Source

Severity = Literal["reject", "warn"]


@dataclass(frozen=True)
class Finding:
    rule: str
    severity: Severity
    line: int
    text: str
    """The line of the candidate."""
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message} [{self.rule}]: {self.text}"


@dataclass(frozen=True)
class Inspection:
    """All that is known about a candidate before it is built."""

    findings: tuple[Finding, ...]
    """In the order of the file."""
    backend: Backend
    needs: frozenset[str]
    paths: tuple[PathUse, ...]

    @property
    def rejections(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "reject")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warn")


class Reporter:
    """Collects the findings of one rule: one for each line and severity."""

    def __init__(self, source: Source, rule: str) -> None:
        self._source = source
        self._rule = rule
        self._found: dict[tuple[int, Severity], Finding] = {}

    def reject(self, line: int, message: str) -> None:
        self._add("reject", line, message)

    def warn(self, line: int, message: str) -> None:
        self._add("warn", line, message)

    def findings(self) -> list[Finding]:
        return sorted(self._found.values(), key=lambda finding: (finding.line, finding.severity))

    def _add(self, severity: Severity, line: int, message: str) -> None:
        finding = Finding(self._rule, severity, line, self._source.line_text(line), message)
        self._found.setdefault((line, severity), finding)


@lru_cache
def rule_modules() -> dict[str, ModuleType]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def run_rules(source: Source, names: Iterable[str] | None = None) -> list[Finding]:
    findings: list[Finding] = []
    for name in rule_modules() if names is None else names:
        report = Reporter(source, name)
        rule_modules()[name].check(source, report)
        findings += report.findings()
    return sorted(findings, key=lambda finding: (finding.line, finding.rule))


def inspect_source(source: Source) -> Inspection:
    """Everything at once, for a source that parses; one that does not has no tree to inspect and gives an empty
    answer."""
    return Inspection(
        findings=tuple(run_rules(source)),
        backend=backend(source),
        needs=needs(source),
        paths=tuple(static_paths(source)),
    )
