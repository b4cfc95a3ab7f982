"""The log of a sweep's questions in inspect's format, made from what the store has: `inspect view` shows it like any other.

`pkb generate` and `pkb agent` run inside an evaluation of inspect's, which writes its own; `pkb run --model` asks question by
question, perhaps on many machines, and its log is written when it stops.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatMessage, ModelOutput
from inspect_ai.scorer import Score
from pydantic import TypeAdapter

from pkb.analysis.outcomes import NO_ANSWER, RunOutcome, run_outcomes
from pkb.store import LOGS, Reader, Run

_MESSAGES: TypeAdapter[list[ChatMessage]] = TypeAdapter(list[ChatMessage])


def write_log(reader: Reader, run: Run) -> Path | None:
    """One file a model, replaced as the run grows; the folder. None where no model was asked."""
    by_model: dict[str, list[RunOutcome]] = {}
    for outcome in run_outcomes(reader, run):
        if outcome.steps:
            by_model.setdefault(outcome.task.collection, []).append(outcome)
    folder = reader.root / LOGS / run.id
    for number, (model, outcomes) in enumerate(by_model.items()):
        samples = [_sample(outcome, reader.transcript(outcome.steps[-1].transcript_sha)) for outcome in outcomes]
        spec = EvalSpec(
            created=run.created_at, task="oneshot", model=model, config=EvalConfig(), run_id=run.id,
            dataset=EvalDataset(name=run.name or run.id, samples=len(samples)), task_id=f"{run.id}-{number}",
        )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        write_eval_log(EvalLog(eval=spec, status="success", samples=samples), folder / f"{run.id}_{number}.eval")
    return folder if by_model else None


def _sample(outcome: RunOutcome, transcript: Mapping[str, Any]) -> EvalSample:
    task, last = outcome.task, outcome.last
    messages = _MESSAGES.validate_python(transcript.get("messages") or [])
    output = ModelOutput.model_validate(transcript.get("output") or {"error": str(transcript.get("error") or "")})
    sample = EvalSample(
        id=f"{task.problem}-s{task.sample}", epoch=1, input=messages, target="",
        messages=[*messages, *([output.message] if output.choices else [])], output=output,
        metadata={"task": task.key, "verdict": outcome.word},
    )  # fmt: skip
    if last is not None or outcome.word == NO_ANSWER:
        value = {
            "correct": int(outcome.word == "correct"),
            "faster": int(last is not None and last.decision == "faster"),
        }
        sample.scores = {"verdict": Score(value=value, explanation=outcome.reason)}
    return sample
