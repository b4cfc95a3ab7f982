"""`pkb runs check, export, import, delete`: the store as files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget
from pkb.cli.completion import run_names
from pkb.cli.problems_option import ProblemsFolder
from pkb.cli.runs_option import StoreFolder, open_reader, open_store
from pkb.cli.shared_options import PlanName, Ranks, Timed, path_text
from pkb.types.case import Case
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.store.check import Findings
    from pkb.store.importing import ImportReport

FORMATS = ("jsonl", "parquet")
_SHOWN_OWNERS = 5


def check(
    ctx: typer.Context,
    store: StoreFolder = None,
    clean: Annotated[bool, typer.Option("--clean", help="Also remove files that no run refers to.")] = False,
    json_out: JsonTarget = None,
) -> None:
    """Check that nothing stored is missing or damaged, and say what a loss belongs to. Exit status 1 if there is any."""
    from pkb.cli.output import check_json_target, write_json
    from pkb.store.check import check as find

    check_json_target(json_out)
    with open_reader(store or ctx.obj) as reader:
        findings = find(reader)
    removed = 0
    if clean:
        with open_store(store or ctx.obj) as writer:
            removed = writer.collect_garbage()
    if json_out is not None:
        write_json(json_out, findings.to_dict() | ({"removed": removed} if clean else {}))
    if json_out != "-":
        print("\n".join(_finding_lines(findings)))
        if clean:
            print(f"{removed} files removed")
    raise typer.Exit(0 if findings.clean else 1)


def _finding_lines(findings: "Findings") -> list[str]:
    lines = [f"database: {text}" for text in findings.database]
    for lost in findings.lost:
        lines.append(f"object {lost.sha[:12]} is {lost.what}")
        lines += [f"  {owner}" for owner in lost.belongs_to[:_SHOWN_OWNERS]]
        if (more := len(lost.belongs_to) - _SHOWN_OWNERS) > 0:
            lines.append(f"  and {more} more")
    harmless = f"{findings.unused} unused, {findings.stale} unfinished"
    state = "all there and unharmed" if findings.clean else f"{len(findings.lost)} lost"
    return [*lines, f"{findings.objects} objects, {state} ({harmless}: harmless)"]


def export(
    ctx: typer.Context,
    run: Annotated[
        list[str], typer.Argument(help="Ids, beginnings of ids, names, or latest.", autocompletion=run_names)
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="Where to; - is standard output (jsonl only).")],
    format_: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "jsonl",
    sources: Annotated[bool, typer.Option("--sources", help="jsonl: include the candidates' source.")] = False,
    store: StoreFolder = None,
) -> None:
    """Write evaluations as JSON lines (whole verdicts) or Parquet (flat columns)."""
    from pkb.store.exporting import write_jsonl, write_parquet

    if format_ not in FORMATS:
        raise UserError(f"no format is called {format_!r}", f"one of {', '.join(FORMATS)}")
    if sources and format_ != "jsonl":
        raise UserError("--sources goes with --format jsonl only")
    with open_reader(store or ctx.obj) as reader:
        runs = list({chosen.id: chosen for chosen in map(reader.run, run)}.values())
        if format_ == "jsonl":
            count = write_jsonl(reader, runs, out=out, sources=sources)
        else:
            count = write_parquet(reader, runs, out=out)
    print(f"{count} evaluations of {len(runs)} runs written to {out}", file=sys.stderr)


def import_candidates(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Candidates named like 13_gemm_allreduce_cuda.py.")],
    name: Annotated[str, typer.Option(help="The run's name. Default: the folder's.")] = "",
    backend: Annotated[str, typer.Option(help="For files whose names state none; also a new word in names.")] = "",
    platform: Annotated[str, typer.Option(help="auto (decided when evaluated), cpu, virtual or node.")] = "auto",
    ranks: Ranks = 4,
    size: Annotated[str, typer.Option(help="auto, tiny, paper, real, odd or decode.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, bf16, fp16, fp32 or fp64.")] = "auto",
    plan: PlanName = "standard",
    timing: Timed = None,
    problems_folder: ProblemsFolder = None,
    store: StoreFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """Make a run from candidate files; its tasks wait to be evaluated. Exit status 1 if a Python file was refused."""
    from pkb.cli.output import check_json_target, write_json
    from pkb.cli.problems_option import open_registry
    from pkb.judge.settling import check_words
    from pkb.store.importing import import_folder

    check_json_target(json_out)
    like = Case("", platform, ranks, size, dtype, plan)
    check_words(like)
    known = {problem.name: problem.id for problem in open_registry(problems_folder).all()}
    with open_store(store or ctx.obj) as writer:
        # Under the name by which `pkb run --resume` finds how a run is to be carried out.
        settings = {
            "timing": timing,
            "problems_folder": path_text(problems_folder),
        }
        report = import_folder(writer, folder, problems=known, like=like, name=name, backend=backend, settings=settings)
    if json_out is not None:
        write_json(json_out, report.to_dict())
    if json_out != "-":
        print("\n".join(_import_lines(report)))
    raise typer.Exit(1 if report.refused else 0)


def _import_lines(report: "ImportReport") -> list[str]:
    lines = _some([f"{file} is {stem}" for file, stem in report.renumbered], "have another problem's number; by name")
    lines += _some([f"{file} is sample {n}" for file, n in report.resampled], "are for a problem and backend again")
    if report.ignored:
        lines.append(f"{len(report.ignored)} files ignored, which are not Python: {', '.join(report.ignored[:5])}")
    lines += [f"{file}: refused: {why}" for file, why in report.refused]
    lines.append(f"{report.run.id}: {len(report.imported)} candidates wait, {len(report.refused)} refused")
    return [*lines, f"judge them: pkb run --resume {report.run.id}"]


def _some(files: list[str], what: str) -> list[str]:
    """Half of a published folder may be renumbered: a line, not hundreds, so that what was refused is seen."""
    if not files:
        return []
    more = f", and {len(files) - _SHOWN_OWNERS} more (--json names all)" if len(files) > _SHOWN_OWNERS else ""
    return [f"{len(files)} files {what}: {', '.join(files[:_SHOWN_OWNERS])}{more}"]


def delete(
    ctx: typer.Context,
    run: Annotated[list[str], typer.Argument(help="Ids, beginnings of ids, or names.", autocompletion=run_names)],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this, only say what would go.")] = False,
    store: StoreFolder = None,
    json_out: JsonTarget = None,
) -> None:
    """Delete runs, and the files that no other run refers to."""
    from pkb.cli.output import check_json_target, write_json

    check_json_target(json_out)
    with open_reader(store or ctx.obj) as reader:
        chosen = list({found.id: found for found in map(reader.run, run)}.values())
        counts = {found.id: reader.summary(found).evaluations for found in chosen}
    if not yes:
        what = ", ".join(f"{run_id} ({count} evaluations)" for run_id, count in counts.items())
        raise UserError(f"this would delete {what} for good", "give --yes to do it")
    with open_store(store or ctx.obj) as writer:
        for found in chosen:
            writer.delete_run(found.id)
        removed = writer.collect_garbage()
    if json_out is not None:
        write_json(json_out, {"deleted": [found.id for found in chosen], "files_removed": removed})
    if json_out != "-":
        print(f"deleted {', '.join(found.id for found in chosen)}; {removed} files removed")
