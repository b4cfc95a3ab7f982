"""What `pkb check` says: the candidate was read and built, not run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pkb.types.json_value import Json
from pkb.types.verdict import Failure, Verdict


@dataclass(frozen=True)
class CheckReport:
    ok: bool
    verdict: Verdict | None
    """Why not, as `pkb eval` would say it; None when nothing speaks against the candidate so far."""
    detail: str
    paths: tuple[str, ...] = ()
    """Communication paths that the source seems to use: a guess from text until it runs."""
    backend: str = ""
    built: Sequence[tuple[str, str, float]] = ()
    """What was compiled: name, kind (such as `cuda`, `cpp`, `triton`) and seconds."""
    machine_code: Sequence[str] = ()
    """What the compiled kernels show of communication, from their disassembly, or why it could not be read."""
    skipped: Sequence[str] = ()
    """What could not be built on this machine, and why: no mark against the candidate."""
    failure: Failure | None = None
    hints: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.ok == (self.verdict is not None):
            raise ValueError("a check is either ok or has a verdict that says why not")

    @property
    def exit_status(self) -> int:
        return 0 if self.verdict is None else self.verdict.exit_status

    def to_dict(self) -> dict[str, Json]:
        fields = asdict(self)
        fields["built"] = [{"name": name, "kind": kind, "seconds": seconds} for name, kind, seconds in self.built]
        return fields
