"""What a store holds, as plain data: a run has tasks, a task has steps (what a model said) and evaluations (what the judge
said). One candidate, evaluated once, is a task with one evaluation at step 0."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import quote

from pkb.types.case import Case
from pkb.types.errors import UserError
from pkb.types.json_value import Json

RunKind = Literal["sweep", "generate", "agent", "import"]
RunState = Literal["open", "complete", "interrupted"]
TaskState = Literal["waiting", "claimed", "done", "failed"]
RUN_KINDS, RUN_STATES = get_args(RunKind), get_args(RunState)


@dataclass(frozen=True)
class Run:
    id: str
    """Time and two words: `20261115-101502-quiet-otter`. Sorts by time, and a prefix of it is enough to name it."""
    name: str
    kind: RunKind
    created_at: str
    """UTC, ISO 8601."""
    config: dict[str, Any]
    """The resolved configuration; never a secret."""
    state: RunState
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """One unit of work, named by everything that makes it differ from another one of the same run.

    The case may have `auto` in it: whoever evaluates decides, and the evaluation says what it was.
    """

    collection: str
    """Whose candidate: a model's name, or the folder it came from."""
    case: Case
    backend: str
    sample: int = 0

    def __post_init__(self) -> None:
        if not self.problem.partition("_")[0].isdigit():
            raise UserError(f"{self.problem!r} is no stem of a problem", "such as 13_gemm_allreduce")
        if self.case.ranks < 1 or self.sample < 0:
            raise UserError(
                f"a task with {self.case.ranks} ranks and sample {self.sample} cannot be", "ranks >= 1, sample >= 0"
            )

    @property
    def problem(self) -> str:
        """The stem: `13_gemm_allreduce`."""
        return self.case.problem

    @property
    def problem_id(self) -> int:
        return int(self.problem.partition("_")[0])

    @property
    def key(self) -> str:
        """Readable, and different whenever a field is: a slash inside a name (`openai/gpt`) is escaped."""
        case = self.case
        parts = (self.collection, case.problem, self.backend, f"s{self.sample}", case.platform, f"r{case.ranks}",
                 case.size, case.dtype, case.plan)  # fmt: skip
        return "/".join(quote(part, safe="+:@=") for part in parts)

    def to_dict(self) -> dict[str, Json]:
        return {"key": self.key, "problem_id": self.problem_id, **_flat(asdict(self))}


@dataclass(frozen=True, kw_only=True)
class Task(TaskSpec):
    run_id: str
    state: TaskState
    claimed_by: str | None
    """`host:pid:start time` of the worker that has it or had it last."""
    claimed_at: float | None
    """Seconds since 1970, as is `lease_until`."""
    lease_until: float | None
    attempts: int
    """How often it was claimed, less those that were given back unharmed."""
    error: str
    """Why it failed, when it did."""
    candidate_sha: str | None
    """The candidate to evaluate, where it was there from the start (an import, a folder); None where a model writes it."""


@dataclass(frozen=True, kw_only=True)
class CandidateFile:
    """A candidate on its way into the store, as bytes, so that its hash is the one the judge takes of the file."""

    source: bytes
    filename: str
    origin: str
    """Where it is from: a path, or the model that wrote it."""


@dataclass(frozen=True)
class Candidate:
    run_id: str
    sha: str
    filename: str
    backend: str
    problem_id: int
    origin: str


@dataclass(frozen=True)
class Step:
    """What a model said at one step of a task."""

    run_id: str
    task_key: str
    step: int
    transcript_sha: str
    candidate_sha: str | None
    """None: the answer held no candidate."""
    tokens_in: int | None
    tokens_out: int | None
    cost_usd: float | None
    seconds: float | None
    stop_reason: str
    error: str
    created_at: str


@dataclass(frozen=True)
class EvaluationRow:
    """A verdict in brief, for tables and statistics; `Reader.document(row.document_sha)` is all of it.

    The times are there for a correct candidate only: a rejected one's are a claim that nobody should average.
    """

    run_id: str
    task_key: str
    step: int
    collection: str
    case: Case
    problem_id: int
    backend: str
    sample: int
    verdict: str
    stage: str
    detail: str
    decision: str | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    reference_us: float | None
    candidate_us: float | None
    floor_us: float | None
    communication: str
    paths: tuple[str, ...]
    race_kind: str | None
    failure_kind: str | None
    failure_message: str | None
    """The first 500 characters."""
    hardware: str
    document_sha: str
    candidate_sha: str | None
    created_at: str
    tokens_in: int | None
    """This and the next three are the model's, where a model wrote the candidate."""
    tokens_out: int | None
    cost_usd: float | None
    model_seconds: float | None

    def to_dict(self) -> dict[str, Json]:
        return _flat(asdict(self)) | {"paths": list(self.paths)}


@dataclass(frozen=True)
class RunSummary:
    run: Run
    tasks: dict[str, int]
    """Tasks by state."""
    evaluations: int
    """Verdicts that are stored: of an agent's task one for each kernel that it handed in."""
    platforms: tuple[str, ...]
    hardware: tuple[str, ...]
    dead_claims: int = field(default=0)
    """Tasks whose worker is gone."""

    @property
    def shown_state(self) -> str:
        """A killed run had no time to say so: open, and all who worked on it are gone, is interrupted."""
        claimed = self.tasks.get("claimed", 0)
        return "interrupted" if self.run.state == "open" and claimed and claimed == self.dead_claims else self.run.state

    def to_dict(self) -> dict[str, Json]:
        fields = asdict(self)
        run = fields.pop("run")
        return run | {"state": self.shown_state} | fields


def _flat(fields: dict[str, Any]) -> dict[str, Json]:
    """The case's fields beside the others, as documents and tables have them."""
    return {name: value for name, value in fields.items() if name != "case"} | fields["case"]


def dumps(document: Any) -> str:
    """JSON as it is stored: compact, and without NaN, which other readers of JSON refuse."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
