"""`pkb score`: what a set of verdicts says together."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.against_option import AgainstOption, known_against
from pkb.cli.command import JsonTarget
from pkb.cli.counts_words import outcomes_words, spent_words
from pkb.cli.output import check_json_target
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.runs_option import StoreFolder
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.analysis.compare import RunComparison
    from pkb.analysis.outcomes import RunCounts
    from pkb.analysis.results import Results
    from pkb.analysis.samples import Sample
    from pkb.problems.base import Problem

AXES = ("parallelism", "layer", "stage", "pattern", "system")


def score(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS",
            help="Stored runs (id, name or latest), verdicts (.json), lines of them (.jsonl), folders.",
        ),
    ],
    label: Annotated[
        list[str] | None, typer.Option(help="Name of the collection; once for all results, or once for each of them.")
    ] = None,
    by: Annotated[str, typer.Option(help=f"Group by one of {', '.join(AXES)}.")] = "parallelism",
    k: Annotated[str | None, typer.Option("--k", help="Tries for pass@k and fast_1@k, such as 1,3.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="The second collection against the first.")] = False,
    published: Annotated[bool, typer.Option("--published", help="Also show the published results.")] = False,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Count reused outputs as correct, as the published protocol does.")
    ] = False,
    against: AgainstOption = "baseline",
    seed: Annotated[int, typer.Option(help="Seed of the resampling for the intervals.")] = 0,
    json_out: JsonTarget = None,
    csv_out: Annotated[bool, typer.Option("--csv", help="One line per sample, on standard output.")] = False,
    store: StoreFolder = None,
    folder: ProblemsFolder = None,
) -> None:
    """Score verdicts: failure modes, pass@k, fast_p, speedups, by taxonomy. Runs nothing."""
    if by not in AXES:
        raise UserError(f"--by {by!r} is not known", f"one of {', '.join(AXES)}")
    if json_out == "-" and csv_out:
        raise UserError("--json and --csv both want standard output", "give one of them")
    wanted = _parse_ks(k)
    check_json_target(json_out)

    from pkb.analysis.results import read_results

    stored, without = _stored(results, store)
    found = read_results([Path(name) for name in results], labels=label or (), stored=stored)
    for entry in found.unreadable:
        print(f"not read: {entry.where}: {entry.why}", file=sys.stderr)
    if not found.samples:
        if without:
            held = "; ".join(f"{run}: {outcomes_words(counted.outcomes)}" for run, counted in without.items())
            raise UserError(f"nothing to score yet: {held}", f"pkb run --resume {next(iter(without))}")
        held = f"{len(found.unreadable)} entries, none readable" if found.unreadable else "no .json or .jsonl file"
        raise UserError(
            f"nothing to score: {held}", "`pkb eval --json OUT.json` writes a verdict; `pkb runs` lists runs"
        )
    if as_published:
        found = replace(found, samples=tuple(replace(sample, as_published=True) for sample in found.samples))
    reading = known_against(against)
    found = replace(found, samples=tuple(replace(sample, against=reading) for sample in found.samples))
    if csv_out:
        _write_csv(found)
        return
    comparison = _compared(found, max(wanted) if wanted else 1) if compare else None
    _report(
        found, _problems_of(found, folder), comparison, without,
        axis=by, wanted=wanted, seed=seed, json_out=json_out, with_published=published,
    )  # fmt: skip


def _stored(names: list[str], store: Path | None) -> "tuple[dict[Path, list[Sample]], dict[str, RunCounts]]":
    """Samples of those names that are stored runs; and by run, what of it has no outcome."""
    from pkb.analysis.outcomes import read_samples
    from pkb.cli.runs_option import open_reader
    from pkb.store import root_folder

    samples: dict[Path, list[Sample]] = {}
    without: dict[str, RunCounts] = {}
    for name in names:
        path = Path(name)
        if os.sep in name or path.suffix in (".json", ".jsonl"):  # ./mine is the folder, whatever runs are called
            continue
        if path.exists() and not (root_folder(store) / "pkb.db").is_file():
            continue
        try:
            with open_reader(store) as reader:
                run = reader.run(name)
                if _holds_verdicts(path):
                    raise _TwoMeanings(f"{name} is a stored run and {_what(path)} here", f"{run.id}, or ./{name}")
                samples[path], left = read_samples(reader, run)
        except _TwoMeanings:
            raise
        except UserError as error:
            if path.exists():
                continue
            raise UserError(f"{name} is neither a file nor a stored run: {error.message}", error.fix) from None
        if left.tasks:
            without[run.id] = left
    return samples, without


class _TwoMeanings(UserError):
    pass


def _what(path: Path) -> str:
    return "a folder with verdicts" if path.is_dir() else "a file"


def _holds_verdicts(path: Path) -> bool:
    if not path.is_dir():
        return path.exists()
    return any(file.suffix in (".json", ".jsonl") for file in path.rglob("*"))


def _report(
    found: "Results",
    problems: "dict[int, Problem]",
    comparison: "RunComparison | None",
    without: "dict[str, RunCounts]",
    *,
    axis: str,
    wanted: list[int],
    seed: int,
    json_out: str | None,
    with_published: bool,
) -> None:
    from pkb.analysis.document import comparison_document, group_document, plans_document, score_document
    from pkb.analysis.groups import group_by
    from pkb.analysis.lost import AS_PUBLISHED, compare_plans
    from pkb.analysis.published import published
    from pkb.analysis.score import score as score_of
    from pkb.cli.output import stdout_console, write_json

    scored = []
    collections = found.collections()
    beside = {
        name: compared
        for name, samples in collections.items()
        if (compared := compare_plans(samples, collections.get(name + AS_PUBLISHED, ())))
    }
    for samples in collections.values():
        ks = wanted or _usual_ks(samples)
        scored.append((score_of(samples, ks=ks, seed=seed), group_by(samples, problems, axis, seed=seed)))
    if json_out is not None:
        import dataclasses

        document = {
            "collections": [
                score_document(one)
                | {"by": [group_document(g) for g in groups]}
                | {"plans": plans_document(beside[one.collection]) if one.collection in beside else None}
                for one, groups in scored
            ],
            "comparison": comparison_document(comparison) if comparison else None,
            "unreadable": [entry._asdict() for entry in found.unreadable],
            "earlier_steps": found.earlier_steps,
            "without_outcome": {run: counted.to_dict() for run, counted in without.items()},
        }
        if with_published:
            document["published"] = dataclasses.asdict(published())
        write_json(json_out, document)
        if json_out == "-":
            return

    from pkb.cli.score_plans import plans_part
    from pkb.cli.score_tables import comparison_part, published_part, score_part

    console = stdout_console()
    for one, groups in scored:
        console.print(score_part(one, groups, problems_known=len(problems)))
        if one.collection in beside:
            console.print(plans_part(beside[one.collection]))
    if comparison:
        console.print(comparison_part(comparison))
    if with_published:
        console.print(published_part(published()))
    for run, counted in without.items():
        told = ", ".join(filter(None, (outcomes_words(counted.outcomes), spent_words(counted.spent))))
        console.print(f"in no figure, since they have no outcome: {told} (run {run})", style="yellow")
    if found.earlier_steps:
        console.print(
            f"{found.earlier_steps} other steps of loops are not scored: the last judged step is", style="dim"
        )
    if found.unreadable:
        console.print(f"{len(found.unreadable)} entries could not be read; standard error names them", style="yellow")


def _parse_ks(text: str | None) -> list[int]:
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--k {text!r} is not a list of positive whole numbers", "such as --k 1,3")
    return sorted({int(part) for part in parts})


def _usual_ks(samples: "list[Sample]") -> list[int]:
    """1, 3 (the published ones) as far as there are that many tries, and all tries."""
    from pkb.analysis.samples import judged_by_problem

    most = max(map(len, judged_by_problem(samples).values()), default=1)
    return sorted({1, min(3, most), most})


def _problems_of(found: "Results", folder: Path | None) -> "dict[int, Problem]":
    """Only the problems that occur: importing one imports torch."""
    from pkb.cli.problems_option import open_registry

    registry = open_registry(folder)
    known = set(registry.ids())
    return {number: registry.get(number) for number in {s.problem for s in found.samples} if number in known}


def _compared(found: "Results", k: int) -> "RunComparison":
    from pkb.analysis.compare import compare

    collections = list(found.collections().values())
    if len(collections) != 2:
        raise UserError(
            f"--compare needs two collections, but got {len(collections)}",
            "give two folders or .jsonl files; --label once for each names them",
        )
    return compare(*collections, k=k)


def _write_csv(found: "Results") -> None:
    import csv

    from pkb.analysis.document import COLUMNS, sample_row

    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(sample_row, found.samples))
