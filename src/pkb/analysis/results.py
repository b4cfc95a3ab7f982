"""Reads verdicts from files and folders. Nothing is lost: what cannot be read is kept with its place and the reason.

A file holds one verdict (`.json`, as `pkb eval --json` writes it) or one entry a line (`.jsonl`); see `entries`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pkb.analysis.entries import Entry, MalformedEntry, read_entry
from pkb.analysis.lost import AS_PUBLISHED, is_published_plan
from pkb.analysis.samples import Sample, total
from pkb.types.errors import UserError

MAX_BYTES = 1 << 30
_NUMBER = re.compile(r"(\d+)")


class BadEntry(NamedTuple):
    where: str
    """File, and line where there are several."""
    why: str


@dataclass(frozen=True)
class Results:
    samples: tuple[Sample, ...]
    """One a try; of an agent's loop the last judged step, with what all its steps have cost."""
    unreadable: tuple[BadEntry, ...]
    earlier_steps: int = 0
    """Entries that are another step of a loop, and so not a sample of their own."""

    def collections(self) -> dict[str, list[Sample]]:
        """Samples by collection, in the order in which they were named."""
        groups: dict[str, list[Sample]] = {}
        for sample in self.samples:
            groups.setdefault(sample.collection, []).append(sample)
        return groups


def read_results(
    paths: Sequence[Path], *, labels: Sequence[str] = (), stored: Mapping[Path, Sequence[Sample]] | None = None
) -> Results:
    """All verdicts under the paths; one that is in `stored` means these samples of a run. One label names everything; several
    name the paths one by one. Without labels a folder or a `.jsonl` file is a collection named after itself, and loose `.json`
    files are one named after their folder.
    """
    if len(labels) > 1 and len(labels) != len(paths):
        raise UserError(
            f"{len(labels)} labels for {len(paths)} results", "give --label once, or once for each of the results"
        )
    entries: list[Entry] = []
    bad: list[BadEntry] = []
    seen: set[Path] = set()
    of_runs: list[Sample] = []
    for position, path in enumerate(paths):
        label = labels[position if len(labels) > 1 else 0] if labels else ""
        if stored is not None and path in stored:
            of_runs += [replace(sample, collection=label or sample.collection) for sample in stored[path]]
            continue
        for file in _files(path):
            if file.resolve() in seen:  # a folder and a file inside it: the same verdict is not two samples
                continue
            seen.add(file.resolve())
            for where, document in _documents(file, bad):
                try:
                    entries.append(read_entry(document, collection=_name(path), origin=where, label=label))
                except MalformedEntry as error:
                    bad.append(BadEntry(where, str(error)))
    samples, earlier = _one_a_try(entries, bad)
    return Results(tuple(_numbered(list(map(_apart, [*samples, *of_runs])))), tuple(bad), earlier)


def _apart(sample: Sample) -> Sample:
    """What the plan `published` says is a collection of its own: it is never counted among what others say."""
    if not is_published_plan(sample):
        return sample
    return replace(sample, collection=sample.collection.removesuffix(AS_PUBLISHED) + AS_PUBLISHED)


def _one_a_try(entries: Sequence[Entry], bad: list[BadEntry]) -> tuple[list[Sample], int]:
    """The last judged step of every try, with the cost of all its steps."""
    tries: dict[tuple[str, ...], dict[int, Sample]] = {}
    for position, (sample, identity) in enumerate(entries):
        steps = tries.setdefault(identity or ("bare", str(position)), {})
        step = sample.step or 0
        if step in steps:
            bad.append(BadEntry(sample.origin, f"the same sample and step as {steps[step].origin}"))
        else:
            steps[step] = sample
    samples = []
    for steps in tries.values():
        # Last words and looks at the problem are steps too: paid for, but nothing to score.
        judged = [step for step, sample in steps.items() if sample.evaluation is not None]
        every = steps.values()
        samples.append(
            replace(
                steps[max(judged or steps)],
                cost_usd=total(one.cost_usd for one in every),
                tokens=total(one.tokens for one in every),
                tokens_in=total(one.tokens_in for one in every),
                tokens_out=total(one.tokens_out for one in every),
            )
        )
    return samples, sum(len(steps) - 1 for steps in tries.values())


def _numbered(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Tries without a number, or with one that another has (a second backend, a second run), get the next free one."""
    taken: set[tuple[str, int, int]] = set()
    waiting = []
    for sample in samples:
        key = (sample.collection, sample.problem, sample.index)
        if sample.index < 0 or key in taken:
            waiting.append(sample)
            continue
        taken.add(key)
        yield sample
    following: dict[tuple[str, int], int] = {}
    for collection, problem, index in taken:
        following[collection, problem] = max(following.get((collection, problem), 0), index + 1)
    for sample in waiting:
        index = following.get((sample.collection, sample.problem), 0)
        following[sample.collection, sample.problem] = index + 1
        yield replace(sample, index=index)


def _name(path: Path) -> str:
    full = path.resolve()
    if path.is_dir():
        return full.name or str(full)
    return full.stem if full.suffix == ".jsonl" else full.parent.name or str(full.parent)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.suffix in (".json", ".jsonl")]
        return sorted(found, key=lambda file: [_natural(part) for part in file.relative_to(path).parts])
    if not path.exists():
        raise UserError(f"{path} does not exist", "give verdicts (.json), lines of them (.jsonl) or folders")
    if path.suffix not in (".json", ".jsonl"):
        raise UserError(f"{path} is neither .json nor .jsonl", "`pkb eval --json OUT.json` writes a verdict")
    return [path]


def _natural(text: str) -> list[tuple[int, str]]:
    """`try_2` before `try_10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(text) if part]


def _documents(file: Path, bad: list[BadEntry]) -> Iterator[tuple[str, object]]:
    try:
        if not file.is_file():  # a pipe could be read for ever
            raise OSError("not a regular file")
        if file.stat().st_size > MAX_BYTES:
            raise OSError(f"larger than {MAX_BYTES >> 30} GiB")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        bad.append(BadEntry(str(file), f"cannot be read: {getattr(error, 'strerror', None) or error}"))
        return
    if file.suffix == ".json":
        pieces = [(str(file), text)]
    else:  # only \n ends a line: strings may hold other characters that str.splitlines would break at
        pieces = [(f"{file}:{number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for where, piece in pieces:
        try:
            yield where, json.loads(piece)
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}" if file.suffix == ".json" else f"column {error.colno}"
            bad.append(BadEntry(where, f"not JSON: {error.msg} at {place}"))
        except (RecursionError, ValueError) as error:  # nested for ever, or a number of too many digits
            bad.append(BadEntry(where, f"not JSON: {error}"))
