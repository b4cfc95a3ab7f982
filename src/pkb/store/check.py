"""Is everything that the rows speak of there, and unharmed?"""

from dataclasses import asdict, dataclass

from pkb.store.objects import ObjectLost
from pkb.store.reader import Reader
from pkb.store.schema import OBJECT_COLUMNS
from pkb.types.json_value import Json


@dataclass(frozen=True)
class LostObject:
    sha: str
    what: str
    """`missing`, or `damaged` and how."""
    belongs_to: tuple[str, ...]
    """In words: which evaluation, step, task or candidate of which run."""


@dataclass(frozen=True)
class Findings:
    database: tuple[str, ...]
    """What SQLite itself says is wrong."""
    lost: tuple[LostObject, ...]
    objects: int
    """How many objects the rows refer to."""
    unused: int
    """Objects that no row refers to: a writer was killed between the two, or a run was deleted. Harmless."""
    stale: int
    """Temporary files of killed writers. Harmless."""

    @property
    def clean(self) -> bool:
        return not self.database and not self.lost

    def to_dict(self) -> dict[str, Json]:
        return {"clean": self.clean} | asdict(self)


def check(reader: Reader) -> Findings:
    """Reads and hashes every object once."""
    execute = reader.connection.execute
    said = [row[0] for row in execute("PRAGMA integrity_check").fetchall()]
    said += [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in execute("PRAGMA foreign_key_check")]
    owners: dict[str, list[str]] = {}
    for table, column, owner in OBJECT_COLUMNS:
        step = ", step" if table in ("steps", "evaluations") else ""
        rows = execute(f"SELECT {column}, run_id, {owner}{step} FROM {table} WHERE {column} IS NOT NULL")
        for row in rows.fetchall():
            what = f"{table[:-1]} {row[2]}" + (f" step {row[3]}" if step else "")
            owners.setdefault(row[0], []).append(f"{what} of run {row[1]} ({column})")
    lost = []
    for sha, whose in sorted(owners.items()):
        try:
            reader.objects.get(sha)
        except ObjectLost as error:
            lost.append(LostObject(sha, error.what, tuple(whose)))
    # Counted after the rows were read: an object that a writer has just put may count as unused, never as lost.
    unused = sum(sha not in owners for sha in reader.objects.names())
    return Findings(
        tuple(text for text in said if text != "ok"), tuple(lost), len(owners), unused,
        len(reader.objects.stale(older_than_s=0)),
    )  # fmt: skip
