"""The suite's version, and what it stands for: `suite.toml` beside this file, written by `tools/suite.py` (docs/suite.md)."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("suite.toml")


@dataclass(frozen=True)
class SuiteProblem:
    version: int
    baseline_version: int
    """0 where the baseline is the reference."""
    question: str
    """Digest of inputs, reference and tolerances."""
    baseline: str
    """Digest of its code; empty where it is the reference."""
    sizes: dict[str, str]
    """By name, a digest of each: one more is no other question."""


@dataclass(frozen=True)
class Suite:
    version: int
    date: str
    judge_version: int
    judge: str
    """Digest of the code that compares, times and decides."""
    problems: Mapping[str, SuiteProblem]
    """By stem."""


@cache
def suite() -> Suite:
    said = tomllib.loads(FILE.read_text())
    problems = {stem: SuiteProblem(**fields) for stem, fields in said["problems"].items()}
    return Suite(said["version"], said["date"], said["judge_version"], said["judge"], problems)
