"""What the prebuild process reports to the judge, as it is printed and read."""

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Built:
    name: str
    kind: str
    line: int
    """Of the call in the candidate."""
    seconds: float
    cached: bool
    file: str
    """Its name in the folder of builds."""
    headers: str = ""
    """Of a torch extension: `ours` (see `pkb.kit.slim`) or `torch's own`; `kittens` and a digest where those went into it."""


@dataclass(frozen=True)
class Skipped:
    line: int
    why: str


@dataclass(frozen=True)
class BuildError:
    name: str
    kind: str
    line: int
    first_error: str
    log: str


@dataclass(frozen=True)
class RefusedOption:
    """A compiler option that is not on the list, with the build that asks for it."""

    name: str
    line: int
    option: str


@dataclass
class Prebuilt:
    built: list[Built] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    error: BuildError | None = None
    rejected: RefusedOption | None = None
    walls: dict[str, str] = field(default_factory=dict)
    """Layer: `on...` or `off: why`, of the last build; empty when all was found."""
    unavailable: str | None = None
    """Why this machine cannot build it."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Prebuilt":
        """Raises ValueError where the text is no JSON."""
        said = json.loads(text)
        return Prebuilt(
            built=[Built(**item) for item in said["built"]],
            skipped=[Skipped(**item) for item in said["skipped"]],
            error=BuildError(**said["error"]) if said["error"] else None,
            rejected=RefusedOption(**said["rejected"]) if said["rejected"] else None,
            walls=said["walls"],
            unavailable=said["unavailable"],
        )
