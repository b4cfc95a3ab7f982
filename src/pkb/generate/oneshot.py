"""One question, one answer: the solver. The scorer has the answer's candidate judged."""

import json

from inspect_ai.model import ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver

from pkb.generate.models import answer_from, converse
from pkb.generate.work import CODE, PROBLEM, Work, current_model
from pkb.types.errors import UserError

STEP = 0


def one_shot_solver(work: Work) -> Solver:
    """Sends the prompt once, unless the journal has an answer already: that one was paid for."""

    @solver(name="one_shot")
    def one_shot() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            task = work.item(state).task
            recorded = [step for step in work.journal.steps(task) if step.step == STEP]
            if recorded:
                _leave(state, work, code=work.journal.code(recorded[0]), problem=recorded[0].error)
            elif work.journal.fatal is None:
                await _ask(state, work)
            return state

        return solve

    return one_shot()


async def _ask(state: TaskState, work: Work) -> None:
    item, settings = work.item(state), work.settings
    work.progress(f"{item.name}: asking")
    try:
        reply = await converse(
            current_model(), state.messages, time_limit_s=settings.time_limit_s, price=settings.price
        )
    except UserError as error:
        work.journal.fatal = error
        return
    answer = answer_from(reply, model=settings.model, prompt=item.prompt)
    if reply.output is None:
        # The task fails, which `--resume` tries again: it says nothing about the model.
        work.progress(f"{item.name}: {reply.error}")
        work.journal.failed(item.task, reply.error)
        state.output = ModelOutput(model=settings.model, error=reply.error)
        state.store.set(PROBLEM, reply.error)
        return
    state.output = reply.output
    state.messages.append(reply.output.message)
    work.journal.answered(
        item.task, STEP, reply, transcript=json.loads(answer.transcript), code=answer.code, problem=answer.problem
    )
    _leave(state, work, code=answer.code, problem=answer.problem)


def _leave(state: TaskState, work: Work, *, code: str | None, problem: str) -> None:
    """For the scorer. An answer without a candidate is an outcome: that task is done."""
    item = work.item(state)
    state.store.set(CODE, code)
    state.store.set(PROBLEM, problem)
    if code is None:
        work.progress(f"{item.name}: no candidate: {problem}")
        work.journal.finished(item.task)
