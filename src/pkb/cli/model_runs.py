"""Begins, resumes and reports the runs of `pkb generate` and `pkb agent`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import typer

from pkb.cli.output import announced, check_json_target
from pkb.cli.runs_option import open_store
from pkb.types.errors import UserError

if TYPE_CHECKING:
    from pkb.analysis.outcomes import RunOutcome
    from pkb.generate.settings import Settings
    from pkb.problems.base import Problem
    from pkb.store import Run, Store
    from pkb.types.json_value import Json

Kind = Literal["generate", "agent"]


def begin_or_resume(
    folder: Path | None,
    *,
    resume: str | None,
    kind: Kind,
    problems: str | None,
    model: str | None,
    fields: dict[str, Any],
    prices: Path | None,
    samples: int,
    name: str,
    evaluate: bool,
    out: Path | None,
    json_out: str | None,
) -> NoReturn:
    """Works on the run and ends the command with its exit status."""
    check_json_target(json_out)
    if resume is not None:
        load_inspect()
        from pkb.generate.session import open_run

        with open_store(folder) as store:
            run, settings = open_run(store, resume, kind=kind)
            _work(store, run, settings, evaluate=evaluate, out=out, json_out=json_out)
    if problems is None or model is None:
        raise UserError("which problems, and which model?", f"pkb {kind} 1-8 --model openai/MODEL, or --resume RUN")
    if samples < 1:
        raise UserError(f"--samples {samples} requests nothing", "give 1 or more")
    load_inspect()
    from pkb.generate.models import open_model
    from pkb.generate.prices import price_of
    from pkb.generate.settings import Settings

    settings = Settings(model=model, price=price_of(model, prices) if prices else None, **fields)
    chosen = settings.registry().select(problems)
    if evaluate:
        settings = _settle(settings, chosen)
    tasks = settings.tasks(chosen, samples=samples)
    settings.prompt(chosen[0], tasks[0])  # wrong words for backend, hardware or parts are told before a run exists
    open_model(model, temperature=None, max_tokens=None, retries=0)  # and so is a missing key
    with open_store(folder) as store:
        config = settings.to_dict() | {"problems": [problem.stem for problem in chosen], "samples": samples}
        run = store.create_run(kind, name=name, config=config, tasks=tasks)
        _work(store, run, settings, evaluate=evaluate, out=out, json_out=json_out)


def load_inspect() -> None:
    """inspect-ai and torch take seconds to import."""
    if "inspect_ai" not in sys.modules:
        with announced("loading inspect-ai and torch"):
            from pkb.generate.models import need_inspect

            need_inspect()


def _settle(settings: "Settings", chosen: list["Problem"]) -> "Settings":
    """The platform by name, and every case checked: no answer is paid for that cannot be judged."""
    from pkb.judge.settling import why_not
    from pkb.platforms.registry import pick

    facts = pick(settings.case.platform)
    settings = replace(settings, case=replace(settings.case, platform=facts.name))
    for problem, task in zip(chosen, settings.tasks(chosen, samples=1), strict=True):
        if (refusal := why_not(task.case, problem, facts)) is not None:
            raise refusal
    return settings


def _work(
    store: "Store", run: "Run", settings: "Settings", *, evaluate: bool, out: Path | None, json_out: str | None
) -> NoReturn:
    from pkb.cli.output import show_progress, write_json
    from pkb.generate.session import work_on

    print(f"run {run.id} in {store.root}", file=sys.stderr, flush=True)
    try:
        with show_progress() as progress:
            found = work_on(store, run, settings, evaluate=evaluate, progress=progress)
    except KeyboardInterrupt:
        print(f"interrupted; go on with: pkb {run.kind} --resume {where(store, run)}", file=sys.stderr)
        raise typer.Exit(130) from None
    if out is not None:
        _write(store, found, out)
    if json_out is not None:
        write_json(json_out, {"run": run.id, "store": str(store.root), "tasks": [_document(one) for one in found]})
    if json_out != "-":
        for one in found:
            print(line(one))
        print("\n".join(_summary(store, run, found)))
    waiting = sum(one.task.state in ("waiting", "claimed") for one in found)
    if waiting:
        print(f"{waiting} wait to be judged: pkb {run.kind} --resume {where(store, run)}", file=sys.stderr)
    if failed := sum(one.task.state == "failed" for one in found):
        print(f"{failed} without a verdict; again: pkb {run.kind} --resume {where(store, run)}", file=sys.stderr)
    raise typer.Exit(1 if failed else 0)


def where(store: "Store", run: "Run") -> str:
    """As commands take it."""
    return f"{run.id} --store {store.root}"


def _summary(store: "Store", run: "Run", found: list["RunOutcome"]) -> list[str]:
    from pkb.analysis.outcomes import counts
    from pkb.cli.counts_words import outcomes_words, spent_words

    counted = counts(found)
    told = "; ".join(filter(None, (outcomes_words(counted.outcomes), spent_words(counted.spent))))
    return [
        f"{counted.tasks} task{'s' * (counted.tasks != 1)}: {told}",
        f"scores:       pkb score {where(store, run)}",
        f"conversation: pkb runs transcript {where(store, run)}",
    ]


def _document(outcome: "RunOutcome") -> "dict[str, Json]":
    return {
        "task": outcome.task.to_dict(),
        "evaluation": None if outcome.last is None else outcome.last.to_dict(),
        "outcome": outcome.word,
        "problem": _problem(outcome),
    } | outcome.spent.to_dict()


def _problem(outcome: "RunOutcome") -> str:
    """Why there is no verdict, or why the task failed."""
    return outcome.task.error or ("" if outcome.judged else outcome.reason or f"the task is {outcome.task.state}")


def line(outcome: "RunOutcome") -> str:
    """`13_gemm_allreduce s0  correct  1.23x (1.10 to 1.36) faster  custom  1 answer, 5210 tokens in, 940 out`."""
    from pkb.cli.counts_words import spent_words, word_words

    task, row = outcome.task, outcome.last
    words = [f"{task.problem} s{task.sample}"]
    if row is None:
        words.append(word_words(outcome.word))
    else:
        words.append(word_words(row.verdict))
        if row.speedup is not None:
            words.append(f"{row.speedup:.2f}x ({row.speedup_low:.2f} to {row.speedup_high:.2f}) {row.decision}")
        elif row.verdict != "correct":
            words.append(" ".join(row.detail.split())[:200])
        words += [f"communication {row.communication}"] if row.communication == "unknown" else [row.communication]
    if problem := _problem(outcome):
        words.append(" ".join(problem.split())[:200])
    words.append(spent_words(outcome.spent) or "0 answers")
    return "  ".join(words)


def _write(store: "Store", found: list["RunOutcome"], folder: Path) -> None:
    """The candidates that the verdicts are about; `pkb eval` and `pkb runs import` understand the names."""
    try:
        for one in found:
            if one.last is None or one.last.candidate_sha is None:
                continue
            place = folder / f"sample{one.task.sample}" if one.task.sample else folder
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"{one.task.problem}_{one.task.backend}.py"
            path.write_bytes(store.objects.get(one.last.candidate_sha))
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}", "choose another place") from error
