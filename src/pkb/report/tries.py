"""What a report is made of: every try of a run, with its verdicts step by step. One pass over the store."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pkb.analysis.outcomes import RunOutcome, run_outcomes
from pkb.analysis.samples import Sample
from pkb.store import EvaluationRow, Reader, Run, Step, Task
from pkb.types.case import Case

HEAVY = ("profile", "output_tail", "environment", "isolation", "checks", "stage_seconds")
"""Parts of a verdict that only a candidate's own page shows; ten thousand of them need not be in memory at once."""


@dataclass(frozen=True)
class Try:
    """One task with an outcome: a candidate from a file, a model's answer, or an agent's whole loop."""

    run: Run
    task: Task
    steps: tuple[Step, ...]
    """What a model said, in order; empty where no model was asked."""
    judged: tuple[EvaluationRow, ...]
    """Verdicts in the order of their steps; empty where no answer held a candidate."""
    sample: Sample
    """The last verdict, with the cost of all steps."""
    filename: str
    case: Case
    """As judged, else as asked for."""

    @property
    def slug(self) -> str:
        """Name of its page: the same whenever the same task is reported, and safe in a path whatever the task is called."""
        digest = hashlib.sha256(f"{self.run.id}\0{self.task.key}".encode()).hexdigest()[:10]
        return f"{file_safe(self.task.problem)}-{digest}"

    @property
    def last(self) -> EvaluationRow | None:
        return self.judged[-1] if self.judged else None

    @property
    def is_loop(self) -> bool:
        return self.run.kind == "agent" or len(self.judged) > 1

    @property
    def step_count(self) -> int:
        return max(len(self.steps), len(self.judged))

    def place(self, name: str) -> str:
        """`hardware`, or a field of the case, in words."""
        if name == "hardware":
            return self.last.hardware if self.last else ""
        return str(getattr(self.case, name))


def file_safe(text: str, limit: int = 60) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:limit].strip("-.") or "x"


def read_tries(reader: Reader, runs: Iterable[Run]) -> list[Try]:
    """In the order of runs and tasks. Tasks without an outcome (waiting, failed) are no tries."""
    found = []
    for run in runs:
        names = {candidate.sha: candidate.filename for candidate in reader.candidates(run.id)}
        found += [_try(reader, run, each, names=names) for each in run_outcomes(reader, run) if each.is_try]
    return found


def _try(reader: Reader, run: Run, outcome: RunOutcome, *, names: Mapping[str, str]) -> Try:
    task, last = outcome.task, outcome.last
    sample = outcome.sample(None if last is None else _light(reader.document(last.document_sha)))
    # The judge saw the file's name; the store knows one for each text, and a text may be there under several.
    judged_as = str(((sample.evaluation or {}).get("candidate") or {}).get("file") or "")
    filename = judged_as or names.get((last.candidate_sha if last else task.candidate_sha) or "", "")
    filename = filename or f"{task.problem}_{task.backend}.py"
    return Try(run, task, outcome.steps, outcome.judged, sample, filename, outcome.case)


def _light(document: Mapping[str, Any]) -> dict[str, Any]:
    light = {name: value for name, value in document.items() if name not in HEAVY}
    if isinstance(timing := light.get("timing"), dict):
        light["timing"] = {name: value for name, value in timing.items() if not name.endswith("_samples_us")}
    return light
