"""What `make node` found on somebody's machine, as typed records. Its archive comes from strangers: bytes become records here.

Every member is JSON, one message of `types/protocol/codec.py` a line, or one verdict document a line. Names, numbers and
lengths are bounded; whatever is not exactly such a record is `Malformed`, with the member and the line.
"""

import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from pkb.types.document_versions import current, read_evaluation
from pkb.types.protocol.codec import AtMost, Between, Malformed, decode, encode
from pkb.types.verdict import SCHEMA_VERSION as VERDICT_SCHEMA
from pkb.types.verdict import Evaluation

SCHEMA = 1
MIB = 1 << 20
MANIFEST = "manifest.json"
MACHINE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
SHA256 = re.compile(r"[0-9a-f]{64}")

Word = Annotated[str, AtMost(200)]
Text = Annotated[str, AtMost(1000)]
Count = Annotated[int, Between(0, 1 << 50)]
Seconds = Annotated[float, Between(0, 10**6)]
Microseconds = Annotated[float, Between(0, 10**10)]
Record = TypeVar("Record")


@dataclass(frozen=True)
class KitStep:
    """One part of the kit, as it went."""

    name: Word
    outcome: Literal["done", "failed", "stopped", "skipped"]
    seconds: Seconds
    detail: Text = ""


@dataclass(frozen=True)
class Member:
    name: Word
    sha256: Word
    bytes: Count


@dataclass(frozen=True)
class Manifest:
    """What the records are of: the machine, the judge, the moment; and the hash of every other member."""

    schema: Annotated[int, Between(SCHEMA, SCHEMA)]
    machine: Word
    created_at: Word
    platform: Word
    shared_gpu: bool
    hardware: Word
    ranks: Annotated[int, Between(1, 64)]
    driver: Word
    versions: Annotated[dict[Word, Word], AtMost(32)]
    judge_sha256: Word
    """Over every file of src/pkb."""
    commit: Word
    """Of the suite: problems, kernels, adversaries. Ends in `+` where files had been changed since; empty where unknown."""
    steps: Annotated[tuple[KitStep, ...], AtMost(32)]
    members: Annotated[tuple[Member, ...], AtMost(16)]

    def __post_init__(self) -> None:
        if not MACHINE_NAME.fullmatch(self.machine):
            raise ValueError("machine is no name of small letters, digits and hyphens")
        shas = (self.judge_sha256, *(member.sha256 for member in self.members))
        if not all(SHA256.fullmatch(sha) for sha in shas):
            raise ValueError("a hash is no SHA-256")
        shown = (self.platform, self.hardware, self.driver, self.created_at, self.commit, *self.versions.values())
        if not all(re.fullmatch(r"[\w .,:;+()/-]*", text, re.ASCII) for text in (*shown, *self.versions)):
            raise ValueError("a name holds characters that no device or version has")


@dataclass(frozen=True)
class DoctorFact:
    section: Word
    name: Word
    ok: bool
    found: Text


@dataclass(frozen=True)
class ProbeFigure:
    """As `pkb probe` measures it (docs/probe.md)."""

    kind: Literal["matrix", "memory", "link", "latency"]
    name: Word
    who: Word
    ranks: Annotated[int, Between(1, 64)]
    size: Count
    blocks: Count | None
    time_us: Microseconds
    low_us: Microseconds
    high_us: Microseconds
    rate: Annotated[float, Between(0, 10**18)] | None


@dataclass(frozen=True)
class ReferenceTime:
    """One reference by itself; without a time where it failed, and then with the reason."""

    problem: Annotated[int, Between(1, 10_000)]
    version: Annotated[int, Between(1, 10_000)]
    size: Word
    ranks: Annotated[int, Between(1, 64)]
    dtype: Word
    time_us: Microseconds | None
    low_us: Microseconds | None
    high_us: Microseconds | None
    all_ranks_peak_bytes: Count | None
    error: Text = ""


@dataclass(frozen=True)
class OutcomeOfTest:
    suite: Word
    name: Annotated[str, AtMost(400)]
    outcome: Literal["passed", "failed", "skipped"]


LINES: Mapping[str, type] = {
    "doctor.jsonl": DoctorFact,
    "probe.jsonl": ProbeFigure,
    "references.jsonl": ReferenceTime,
    "tests.jsonl": OutcomeOfTest,
    "control.jsonl": Evaluation,
    "kernels.jsonl": Evaluation,
    "kernels-nvls-off.jsonl": Evaluation,
    "frontier.jsonl": Evaluation,
}
"""Every member that an archive may have, and what one line of it is."""
MEMBER_BYTES = 32 * MIB
LINE_BYTES = MIB
MAX_LINES = 5000


@dataclass(frozen=True)
class MachineRecords:
    """One archive, read and typed. Whether it is worth believing is `machine_checks.py`'s to say."""

    manifest: Manifest
    records: Mapping[str, tuple[Any, ...]]
    members: Mapping[str, bytes]
    """As they came, the manifest's own bytes among them."""

    def of(self, member: str, kind: type[Record]) -> tuple[Record, ...]:
        if LINES[member] is not kind:
            raise TypeError(f"{member} holds no {kind.__name__}")
        return self.records.get(member, ())

    def verdicts(self, member: str) -> tuple[Evaluation, ...]:
        return self.of(member, Evaluation)

    @property
    def digest(self) -> str:
        """Names the archive: the manifest holds the hash of everything else."""
        return hashlib.sha256(self.members[MANIFEST]).hexdigest()


def to_line(record: object) -> bytes:
    """A record as its member holds it. Of a verdict the profile is left out, which is large and asked for by no table."""
    if isinstance(record, Evaluation):
        document = record.to_dict() | {"profile": None}
        return json.dumps(document, allow_nan=False, default=str).encode() + b"\n"
    return encode(record) + b"\n"


def parse(members: Mapping[str, bytes]) -> MachineRecords:
    """Typed records of what was read from an archive or a folder; `Malformed` says what is wrong with it."""
    if MANIFEST not in members:
        raise Malformed(f"there is no {MANIFEST}")
    manifest = _read(MANIFEST, Manifest, members[MANIFEST])
    listed = {member.name: member for member in manifest.members}
    if len(listed) != len(manifest.members) or listed.keys() != members.keys() - {MANIFEST}:
        odd = sorted(listed.keys() ^ (members.keys() - {MANIFEST}))
        raise Malformed(f"the manifest lists other members than are there: {', '.join(odd)[:200] or 'one twice'}")
    for name, body in members.items():
        if name != MANIFEST and listed[name].sha256 != hashlib.sha256(body).hexdigest():
            raise Malformed(f"{name} is not what the manifest says: another SHA-256")
    records = {name: _lines(name, body) for name, body in members.items() if name != MANIFEST}
    return MachineRecords(manifest, records, dict(members))


def _lines(name: str, body: bytes) -> tuple[Any, ...]:
    if name not in LINES:
        raise Malformed(f"no member is called {name[:60]!r}")
    kind, lines = LINES[name], body.split(b"\n")
    if lines.pop() != b"":
        raise Malformed(f"{name} does not end with a line")
    if len(lines) > MAX_LINES or any(len(line) > LINE_BYTES for line in lines):
        raise Malformed(f"{name} has more than {MAX_LINES} lines, or one of more than {LINE_BYTES} bytes")
    return tuple(_read(f"{name}, line {number}", kind, line) for number, line in enumerate(lines, 1))


def read_line(member: str, line: bytes) -> Any:
    """One record of a member."""
    return _read(member, LINES[member], line)


def _read(where: str, kind: type[Record], line: bytes) -> Record:
    try:
        return typing.cast(Record, read_verdict(line)) if kind is Evaluation else decode(line, [kind])
    except Malformed as error:
        raise error.within(where) from None


# -- verdicts ----------------------------------------------------------------------------------------------------------

MAX_TEXT = 20_000
MAX_ENTRIES = 10_000
LARGEST = 1 << 63


def read_verdict(line: bytes) -> Evaluation:
    """A verdict document of a stranger: every value has the type that its class says, and the parts fit together."""
    try:
        document = json.loads(line, parse_constant=_no_number)
        if not isinstance(document, dict) or not 1 <= document.get("schema", 1) <= VERDICT_SCHEMA:
            raise Malformed("no verdict of a version that is known here")
        document = current(document)
        _conform(Evaluation, document)
        return read_evaluation(document)
    except Malformed:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Malformed(f"no verdict: {str(error)[:100]}") from None


def _no_number(name: str) -> typing.NoReturn:
    raise Malformed(f"{name} is no number")


def _conform(hint: Any, value: Any) -> None:
    """Raises unless the value is what JSON makes of one of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if is_dataclass(hint):
        kinds = typing.get_type_hints(hint)
        known = {field.name for field in fields(hint)}
        if not isinstance(value, dict) or not value.keys() <= known:
            raise Malformed(f"not the members of a {getattr(hint, '__name__', hint)}")
        for name, item in value.items():
            try:
                _conform(kinds[name], item)
            except Malformed as error:
                raise error.within(f".{name}") from None
    elif origin in (typing.Union, types.UnionType):
        if not any(_fits(one, value) for one in arguments):
            _conform(arguments[0], value)
    elif origin in (tuple, dict):
        entries = _entries(value, list if origin is tuple else dict)
        kinds_of = arguments[:1] * len(entries) if arguments[-1] is Ellipsis else arguments
        if origin is dict:
            kinds_of = arguments[1:] * len(entries)
            for name in value:
                _conform(arguments[0], name)
        if len(kinds_of) != len(entries):
            raise Malformed(f"{len(entries)} entries, {len(kinds_of)} are expected")
        for kind, item in zip(kinds_of, entries, strict=True):
            _conform(kind, item)
    elif origin is typing.Literal:
        if value not in arguments:
            raise Malformed(f"none of {', '.join(map(str, arguments))}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        hint(value)
    elif type(value) is int and abs(value) > LARGEST:
        raise Malformed("a number that is too large")
    elif hint is float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise Malformed("no finite number")
    elif type(value) is not hint:  # a bool is no integer, and None has a type of its own
        raise Malformed(f"a {type(value).__name__} where a {getattr(hint, '__name__', hint)} is expected")
    elif hint is str and len(value) > MAX_TEXT:
        raise Malformed(f"more than {MAX_TEXT} characters")


def _fits(hint: Any, value: Any) -> bool:
    try:
        _conform(hint, value)
    except ValueError:
        return False
    return True


def _entries(value: Any, kind: type[list[Any]] | type[dict[Any, Any]]) -> list[Any]:
    if not isinstance(value, kind) or len(value) > MAX_ENTRIES:
        raise Malformed(f"no {kind.__name__} of at most {MAX_ENTRIES} entries")
    return list(value.values()) if isinstance(value, dict) else list(value)
