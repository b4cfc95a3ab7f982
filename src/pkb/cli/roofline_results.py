"""Stored verdicts held against the roofline: how close to the roofline reference and candidate came."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pkb.platforms.registry import traits
from pkb.types.errors import UserError
from pkb.types.json_value import Json
from pkb.types.timing import Roofline
from pkb.types.units import bandwidth_words, time_words

if TYPE_CHECKING:
    from pkb.problems.registry import Registry
    from pkb.types.hardware import Hardware


FULL_WIDTH = 150


@dataclass(frozen=True)
class ResultRow:
    id: int
    name: str
    size: str
    ranks: int
    dtype: str
    platform: str
    file: str
    reference_us: float
    candidate_us: float
    limit: Roofline
    alg_gbps: float | None
    bus_gbps: float | None
    """The candidate's; None where no data moves, and in verdicts of older versions."""

    def to_dict(self) -> dict[str, Json]:
        """The limit's fields beside the others."""
        row = asdict(self)
        limit = row.pop("limit")
        return row | limit


def read_rows(files: list[Path], *, registry: "Registry", hardware: "Hardware | None") -> "list[ResultRow]":
    """A row for each timed verdict of the files; why another has none goes to standard error."""
    rows = []
    for path in files:
        for number, verdict in enumerate(_documents(path)):
            where = str(path) if number == 0 else f"{path}, document {number + 1}"
            row = _row(verdict, where=where, registry=registry, hardware=hardware)
            if isinstance(row, str):
                print(f"left out: {where}: {row}", file=sys.stderr)
            else:
                rows.append(row)
    if not rows:
        raise UserError("none of the files holds a time that can be held against a limit", "reasons are above")
    return rows


def _documents(path: Path) -> list[Any]:
    """One verdict, a list of them, or one a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    try:
        document = json.loads(text)
        return document if isinstance(document, list) else [document]
    except json.JSONDecodeError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is no JSON: {error}", "give files that `pkb eval --json FILE` wrote") from error


def _row(verdict: Any, *, where: str, registry: "Registry", hardware: "Hardware | None") -> "ResultRow | str":
    """The row, or why there is none."""
    from pkb.roofline.hardware import for_device
    from pkb.roofline.utilisation import utilisation

    try:
        name, size, ranks, dtype = verdict["problem"]["name"], verdict["size"], verdict["ranks"], verdict["dtype"]
        platform, device, timing = verdict["platform"], verdict["hardware"], verdict["timing"]
        times = None if timing is None else (timing["reference_us"], timing["candidate_us"])
        label = verdict["verdict"]
    except (KeyError, TypeError) as error:
        raise UserError(f"{where} is no verdict: {error}", "give files that `pkb eval --json FILE` wrote") from error
    if times is None:
        return f"{label}, not timed"
    if label != "correct":
        return f"{label}: its times were not validated"
    stored = timing.get("roofline")
    if hardware is None and stored is not None:
        try:
            limit = Roofline(**stored)
        except TypeError:
            return "another version of pkb worked out its limit: give --hardware to work it out again"
    else:
        problem = registry.get(name)
        if (why_not := problem.why_not(size, ranks, dtype)) is not None:
            return why_not
        machine = hardware or for_device(device, shared_gpu=traits(platform).shares_device)
        found = utilisation(
            problem, reference_us=times[0], candidate_us=times[1],
            hardware=machine, size=size, ranks=ranks, dtype=dtype,
        )  # fmt: skip
        if found is None:
            return f"no limit is known for {device or platform}: give --hardware, or measure it with `pkb probe`"
        limit = found
    return ResultRow(
        id=verdict["problem"]["id"], name=name, size=size, ranks=ranks, dtype=dtype, platform=platform, file=where,
        reference_us=times[0], candidate_us=times[1], limit=limit, alg_gbps=timing.get("candidate_alg_gbps"),
        bus_gbps=timing.get("candidate_bus_gbps"),
    )  # fmt: skip


def results_table(rows: list[ResultRow], width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [_cells(row, full=width >= FULL_WIDTH) for row in rows]
    for title in cells[0]:
        left = title in ("problem", "case", "hardware", "binds")
        table.add_column(title, justify="left" if left else "right", no_wrap=True)
    for cell in cells:
        table.add_row(*cell.values())
    return Group(
        table, Text(f"{len(rows)} timed verdicts; limit: perfect overlap at the hardware's ideal rates", style="dim")
    )


def _cells(row: ResultRow, *, full: bool) -> dict[str, str]:
    case = {
        "case": f"{row.size}, {row.ranks} ranks, {row.dtype}",
        "hardware": f"{row.limit.hardware} {row.limit.origin}",
    }
    more = {"achievable": time_words(row.limit.reachable_us), "latency": time_words(row.limit.latency_us)}
    return {
        "id": str(row.id),
        "problem": row.name,
        **(case if full else {}),
        "binds": row.limit.binds,
        "limit": time_words(row.limit.ideal_us),
        **(more if full else {}),
        "reference": f"{time_words(row.reference_us)} = {_percent(row.limit.reference_utilisation)}",
        "candidate": f"{time_words(row.candidate_us)} = {_percent(row.limit.candidate_utilisation)}",
        **({"its algBW, busBW": bandwidth_words(row.alg_gbps, row.bus_gbps) or "-"} if full else {}),
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.3g} %"
