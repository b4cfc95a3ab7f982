"""`pkb records`: archives of records that `make node` wrote on somebody's machine, looked at, checked and merged."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pkb.cli.command import JsonTarget, PkbCommand, PkbGroup
from pkb.cli.output import load_torch
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.analysis.machine_records import MachineRecords

app = typer.Typer(
    cls=PkbGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Records of other machines: show, merge, make their tables.",
)
Archive = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="What `make node` wrote: a .tar.gz file.")]
Archives = Annotated[list[Path], typer.Argument(metavar="ARCHIVE", help="What `make node` wrote: .tar.gz files.")]
Docs = Annotated[Path, typer.Option(metavar="DIR", help="The project's docs: records/ and the pages with tables.")]
PAGES = ("kernels.md", "references.md")


@app.command(cls=PkbCommand)
def show(archive: Archive, json_out: JsonTarget = None) -> None:
    """Say what an archive holds, and which objections there are to it. Exit status 1 if `merge` would refuse it."""
    from pkb.cli.output import check_json_target, write_json

    check_json_target(json_out)
    records, against = _checked(archive)
    from pkb.analysis.machine_checks import latest_controls
    from pkb.types.protocol.codec import encode

    manifest = records.manifest
    counts = {name: len(lines) for name, lines in records.records.items()}
    if json_out is not None:
        manifest_json = encode(manifest).decode()
        write_json(json_out, f'{{"digest": "{records.digest}", "manifest": {manifest_json}}}')
        if json_out == "-":
            raise typer.Exit(1 if against else 0)
    print(f"{manifest.machine}: {manifest.hardware}, platform {manifest.platform}, {manifest.ranks} ranks")
    print(f"taken {manifest.created_at}; driver {manifest.driver or '-'}; {_words(manifest.versions)}")
    print(f"judge {manifest.judge_sha256[:16]}: {_judge_words(records)}")
    for step in manifest.steps:
        print(f"  {_printable(step.name):18} {step.outcome:8} {step.seconds:6.0f} s  {_printable(step.detail)}")
    print(f"records: {_words(counts)}")
    for one in latest_controls(records):
        if one.timing:
            low, high = one.timing.speedup_low, one.timing.speedup_high
            print(
                f"A/A control, {_printable(one.size)}, {one.ranks} ranks: {one.timing.speedup:.3f} ({low:.3f} to {high:.3f})"
            )
    for reason in against:
        print(f"against it: {_printable(reason)}")
    raise typer.Exit(1 if against else 0)


@app.command(cls=PkbCommand)
def merge(archives: Archives, docs: Docs = Path("docs")) -> None:
    """Check archives and add them to docs/records and to the tables. Exit status 1 if one was refused.

    An archive that is there already changes nothing; another one of the same machine is refused.
    """
    from pkb.analysis.machine_records import MACHINE_NAME

    _check_docs(docs)
    refused = False
    for path in archives:
        records, reasons = _checked(path)
        assert MACHINE_NAME.fullmatch(records.manifest.machine)  # it becomes the name of a folder
        if not reasons:
            reasons = _store(records, docs / "records" / records.manifest.machine)
        for reason in reasons:
            print(f"{path.name}: refused: {_printable(reason)}")
        if not reasons:
            print(
                f"{path.name}: {records.manifest.machine}; judge: {_judge_words(records)}{_kernel_words(records, docs)}"
            )
        refused |= bool(reasons)
    _write_tables(docs)
    raise typer.Exit(1 if refused else 0)


@app.command(cls=PkbCommand)
def tables(docs: Docs = Path("docs")) -> None:
    """Make the tables of merged machines again, after a folder of records was deleted or a problem changed."""
    _check_docs(docs)
    _write_tables(docs)


def _checked(path: Path) -> "tuple[MachineRecords, list[str]]":
    if not path.is_file():
        raise UserError(f"{path} is no file", "give what `make node` wrote")
    load_torch()
    from pkb.analysis.machine_archive import read_archive
    from pkb.analysis.machine_checks import objections
    from pkb.platforms.registry import names, traits
    from pkb.problems.registry import default_registry
    from pkb.types.protocol.codec import Malformed

    try:
        records = read_archive(path)
    except Malformed as error:
        raise UserError(f"{path.name} is refused: {_printable(str(error))}") from error
    manifest = records.manifest
    against = objections(records, default_registry())
    if manifest.platform not in names() or traits(manifest.platform).shares_gpu != manifest.shared_gpu:
        against.append(f"platform {manifest.platform} with shared_gpu {manifest.shared_gpu} is none of ours")
    return records, against


def _store(records: "MachineRecords", folder: Path) -> list[str]:
    """Why it cannot be stored; empty if it now is, or was there before."""
    from pkb.analysis.machine_records import MANIFEST

    if folder.exists():
        there = folder / MANIFEST
        if there.is_file() and there.read_bytes() == records.members[MANIFEST]:
            return []
        return [f"{folder} holds other records of that name: delete it to replace them, or take new ones with --name"]
    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(parents=True)
    for name, body in records.members.items():
        (partial / name).write_bytes(body)
    partial.rename(folder)
    return []


def _check_docs(docs: Path) -> None:
    missing = [page for page in PAGES if not (docs / page).is_file()]
    if missing:
        raise UserError(f"{docs} has no {missing[0]}", "run it at the root of the project, or give --docs")


def _write_tables(docs: Path) -> None:
    load_torch()
    from pkb.analysis.machine_tables import kernel_table, markdown, reference_table, stored, with_machines
    from pkb.problems.registry import default_registry

    machines, registry = stored(docs / "records"), default_registry()
    for page, table in zip(PAGES, (kernel_table(machines, registry), reference_table(machines, registry)), strict=True):
        path = docs / page
        text = path.read_text(encoding="utf-8")
        try:
            made = with_machines(text, markdown(machines, table))
        except ValueError as error:
            raise UserError(f"{path}: {error}", "put the two lines where the table belongs") from error
        if made != text:
            path.write_text(made, encoding="utf-8")


def _judge_words(records: "MachineRecords") -> str:
    """Whether the judge that made the records is one that we know: this one, or that of the commit it names."""
    import pkb
    from pkb.analysis.machine_archive import files_of, judge_sha256

    package, said = Path(pkb.__file__).parent, records.manifest
    if judge_sha256(files_of(package)) == said.judge_sha256:
        return "known, the one installed here"
    if said.commit and judge_sha256(_files_at(package, said.commit)) == said.judge_sha256:
        return f"known, that of commit {said.commit[:12]}"
    return "unknown: neither the one installed here nor that of the commit it names"


def _kernel_words(records: "MachineRecords", docs: Path) -> str:
    """Whether the kernels of its column are ours, as they are now."""
    import hashlib

    ours = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (docs.parent / "solutions").glob("*.py")}
    judged = {(one.candidate.file, one.candidate.sha256) for one in records.verdicts("kernels.jsonl")}
    others = sorted(_printable(file) for file, sha in judged if sha not in ours)
    return f"; not the present text of solutions/: {', '.join(others)[:300]}" if others else ""


def _files_at(package: Path, commit: str) -> list[tuple[str, bytes]]:
    """The judge's files in a commit of this repository; none where git does not know it."""
    import io
    import re
    import tarfile

    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        return []
    command = ["git", "archive", "--format=tar", commit]  # of the folder it is run in
    done = subprocess.run(command, cwd=package, capture_output=True, check=False)
    if done.returncode:
        return []
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        return [(entry.name, body.read()) for entry in tar if (body := tar.extractfile(entry)) is not None]


def _words(counts: "dict[str, str] | dict[str, int]") -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _printable(text: str) -> str:
    """A stranger's text must not steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
