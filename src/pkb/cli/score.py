"""`pkb score`: what a set of verdicts says together."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.against_option import AgainstOption, known_against
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.runs_option import StoreFolder
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.analysis.compare import RunComparison
    from pkb.analysis.results import Results
    from pkb.analysis.samples import Sample
    from pkb.problems.base import Problem

AXES = ("parallelism", "layer", "stage", "pattern", "system")


def score(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Verdicts (.json), lines of them (.jsonl), folders, or stored runs (id or latest).",
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option(help="Name of the collection; once for all results, or once for each of them."),
    ] = None,
    by: Annotated[str, typer.Option(help=f"Group by one of {', '.join(AXES)}.")] = "parallelism",
    k: Annotated[str | None, typer.Option("--k", help="Tries for pass@k and fast_1@k, such as 1,3.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="The second collection against the first.")] = False,
    published: Annotated[bool, typer.Option("--published", help="Show the published results beside.")] = False,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Count reused outputs as right, as the published protocol does.")
    ] = False,
    against: AgainstOption = "baseline",
    seed: Annotated[int, typer.Option(help="Of the resampling behind the intervals.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    csv_out: Annotated[bool, typer.Option("--csv", help="One line a sample on standard output.")] = False,
    store: StoreFolder = None,
    folder: ProblemsFolder = None,
) -> None:
    """Score verdicts: failure modes, pass@k, fast_p, speedups, by taxonomy. Runs nothing."""
    if by not in AXES:
        raise UserError(f"--by {by!r} is not known", f"one of {', '.join(AXES)}")
    if json_out and csv_out:
        raise UserError("--json and --csv both want standard output", "give one of them")
    wanted = _parse_ks(k)

    from pkb.analysis.results import read_results

    with tempfile.TemporaryDirectory(prefix="pkb-score-") as scratch:
        paths = [_exported(str(path), store, Path(scratch)) if _names_a_run(path) else path for path in results]
        found = read_results(paths, labels=label or ())
    for entry in found.unreadable:
        print(f"not read: {entry.where}: {entry.why}", file=sys.stderr)
    if not found.samples:
        held = f"{len(found.unreadable)} entries, none readable" if found.unreadable else "no .json or .jsonl file"
        raise UserError(f"nothing to score: {held}", "`pkb eval --json OUT.json` writes a verdict")
    if as_published:
        found = replace(found, samples=tuple(replace(sample, as_published=True) for sample in found.samples))
    reading = known_against(against)
    found = replace(found, samples=tuple(replace(sample, against=reading) for sample in found.samples))
    if csv_out:
        _write_csv(found)
        return
    comparison = _compared(found, max(wanted) if wanted else 1) if compare else None
    _report(
        found, _problems_of(found, folder), comparison,
        axis=by, wanted=wanted, seed=seed, json_out=json_out, with_published=published,
    )  # fmt: skip


def _names_a_run(path: Path) -> bool:
    return not path.exists() and len(path.parts) == 1 and not path.suffix


def _exported(name: str, store: Path | None, scratch: Path) -> Path:
    """A stored run as the file that `pkb runs export` would write."""
    from pkb.cli.runs_option import open_reader
    from pkb.store.exporting import write_jsonl

    try:
        with open_reader(store) as reader:
            run = reader.run(name)
            out = scratch / f"{run.id}.jsonl"
            write_jsonl(reader, [run], out=str(out))
    except UserError as error:
        raise UserError(f"{name} is neither a file nor a stored run: {error}") from None
    return out


def _report(
    found: "Results",
    problems: "dict[int, Problem]",
    comparison: "RunComparison | None",
    *,
    axis: str,
    wanted: list[int],
    seed: int,
    json_out: bool,
    with_published: bool,
) -> None:
    from pkb.analysis.document import comparison_document, group_document, score_document
    from pkb.analysis.groups import group_by
    from pkb.analysis.published import published
    from pkb.analysis.score import score as score_of
    from pkb.cli.output import stdout_console, write_json

    scored = []
    for samples in found.collections().values():
        ks = wanted or _usual_ks(samples)
        scored.append((score_of(samples, ks=ks, seed=seed), group_by(samples, problems, axis, seed=seed)))
    if json_out:
        import dataclasses

        document = {
            "collections": [
                score_document(one) | {"by": [group_document(g) for g in groups]} for one, groups in scored
            ],
            "comparison": comparison_document(comparison) if comparison else None,
            "unreadable": [entry._asdict() for entry in found.unreadable],
            "earlier_steps": found.earlier_steps,
        }
        if with_published:
            document["published"] = dataclasses.asdict(published())
        write_json("-", document)
        return

    from pkb.cli.score_tables import comparison_part, published_part, score_part

    console = stdout_console()
    for one, groups in scored:
        console.print(score_part(one, groups, problems_known=len(problems)))
    if comparison:
        console.print(comparison_part(comparison))
    if with_published:
        console.print(published_part(published()))
    if found.earlier_steps:
        console.print(f"{found.earlier_steps} earlier steps of loops are not scored: the last step is", style="dim")
    if found.unreadable:
        console.print(f"{len(found.unreadable)} entries could not be read; standard error names them", style="yellow")


def _parse_ks(text: str | None) -> list[int]:
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UserError(f"--k {text!r} is no list of whole numbers above 0", "such as --k 1,3")
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
            f"--compare wants two collections, and these are {len(collections)}",
            "give two folders or .jsonl files; --label once for each names them",
        )
    return compare(*collections, k=k)


def _write_csv(found: "Results") -> None:
    import csv

    from pkb.analysis.document import COLUMNS, sample_row

    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(sample_row, found.samples))
