"""What contributed machines say of our kernels and of the references: one column a machine, for pages and for the site."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pkb.analysis.machine_archive import read_folder
from pkb.analysis.machine_checks import present
from pkb.analysis.machine_records import MANIFEST, MachineRecords, OutcomeOfTest, ReferenceTime
from pkb.problems.registry import Registry
from pkb.types.errors import UserError
from pkb.types.protocol.codec import Malformed
from pkb.types.verdict import Evaluation, Verdict

BEGIN = "<!-- machines: made by `pkb records` -->"
END = "<!-- end of machines -->"
SIZES = ("tiny", "odd", "paper", "real", "decode")
SETS = (("kernels.jsonl", ""), ("kernels-nvls-off.jsonl", ", NVLS off"))
Case = tuple[int, int, int, str]
"""Problem, ranks, and size, by its place and by its name: in the order of rows."""


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class MachineColumn:
    """One line about where a column is from."""

    name: str
    hardware: str
    platform: str
    ranks: int
    software: str
    taken_at: str
    judge: str
    tests: str
    candidates: str


def stored(folder: Path) -> list[MachineRecords]:
    """All machines that were merged into this folder; each lies in one of its own, which has its name."""
    found = []
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        try:
            records = read_folder(path.parent)
        except Malformed as error:
            raise UserError(f"{path.parent}: {error}", "restore it, or delete the folder and merge again") from error
        found.append(records)
    return found


def machine(records: MachineRecords) -> MachineColumn:
    manifest, outcomes = records.manifest, records.of("tests.jsonl", OutcomeOfTest)
    counts = {word: sum(one.outcome == word for one in outcomes) for word in ("passed", "failed", "skipped")}
    others = records.verdicts("frontier.jsonl")
    right = sum(one.verdict is Verdict.CORRECT for one in others)
    return MachineColumn(
        manifest.machine, manifest.hardware, manifest.platform, manifest.ranks,
        ", ".join(filter(None, [f"driver {manifest.driver}" * bool(manifest.driver),
                                *(f"{name} {version}" for name, version in sorted(manifest.versions.items()))])),
        manifest.created_at, f"{manifest.judge_sha256[:12]}" + (f" ({manifest.commit[:12]})" if manifest.commit else ""),
        ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "not run",
        f"{right} of {len(others)} correct" if others else "not run",
    )  # fmt: skip


def kernel_table(machines: Sequence[MachineRecords], registry: Registry) -> Table | None:
    """Time of ours and speedup, case by case. NVLS switched off is a column of its own."""
    columns: dict[str, dict[Case, str]] = {}
    for records in machines:
        for member, words in SETS:
            cells = dict(_kernel_cells(records.verdicts(member), registry))
            if cells:
                columns[records.manifest.machine + words] = cells
    return _table("kernel", columns, registry)


def reference_table(machines: Sequence[MachineRecords], registry: Registry) -> Table | None:
    columns: dict[str, dict[Case, str]] = {}
    for records in machines:
        cells = {}
        for row in records.of("references.jsonl", ReferenceTime):
            if present(registry, row.problem, row.version):
                cells[_case(row.problem, row.ranks, row.size)] = (
                    "failed" if row.time_us is None else f"{_us(row.time_us)} us"
                )
        if cells:
            columns[records.manifest.machine] = cells
    return _table("problem", columns, registry)


def _kernel_cells(verdicts: Sequence[Evaluation], registry: Registry) -> Iterator[tuple[Case, str]]:
    for one in verdicts:
        if not present(registry, one.problem.id, one.problem.version):
            continue
        timing = one.timing
        cell = str(one.verdict)
        if one.verdict is Verdict.CORRECT and timing is not None:
            interval = f"{timing.speedup_low:.2f} to {timing.speedup_high:.2f}"
            cell = f"{_us(timing.candidate_us)} us, {timing.speedup:.2f} ({interval})"
            cell += "" if timing.decision == "faster" else f", {timing.decision}"
        yield _case(one.problem.id, one.ranks, one.size), cell


def _case(problem: int, ranks: int, size: str) -> Case:
    return problem, ranks, SIZES.index(size) if size in SIZES else len(SIZES), size


def _table(what: str, columns: dict[str, dict[Case, str]], registry: Registry) -> Table | None:
    cases = sorted({case for cells in columns.values() for case in cells})
    if not cases:
        return None
    rows = [
        (registry.get(case[0]).stem, case[3], str(case[1]), *(cells.get(case, "") for cells in columns.values()))
        for case in cases
    ]
    return Table((what, "size", "ranks", *columns), tuple(rows))


def _us(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


# -- Markdown ----------------------------------------------------------------------------------------------------------

MACHINE_HEAD = ("machine", "hardware", "platform", "ranks", "software", "taken", "judge", "tests", "other kernels")


def machine_table(machines: Sequence[MachineRecords]) -> Table:
    rows = [tuple(str(value) for value in vars(machine(records)).values()) for records in machines]
    return Table(MACHINE_HEAD, tuple(rows))


def markdown(machines: Sequence[MachineRecords], table: Table | None) -> str:
    """What stands between the marks of a page."""
    if table is None:
        return "\nNone yet: [how to contribute one](contribute-a-machine.md).\n\n"
    return f"\n{_markdown(table)}\n\n{_markdown(machine_table(machines))}\n\n"


def _markdown(table: Table) -> str:
    lines = [table.head, ("---",) * len(table.head), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_machines(page: str, block: str) -> str:
    """The page with this between its marks; `ValueError` where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{block}{END}{after}"
