"""An agent: it hands in kernels, is told what the judge found, and tries again until its steps or its budget are used up.

At the end the best kernel is judged once more, unless it was the last one judged and no other was timed: being the best of
many measurements is partly luck, and a fresh verdict has none of it. That verdict is the last of the task, and the one that
scores count.
"""

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, execute_tools
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool

from pkb.generate.answer import extract
from pkb.generate.attempt import Attempt
from pkb.generate.judging import JudgeFailed
from pkb.generate.models import converse
from pkb.generate.tools import MAX_OUTPUT_BYTES, SUBMIT, agent_tools
from pkb.generate.work import CODE, PROBLEM, VERDICT, Work, current_model
from pkb.types.errors import UserError

MAX_EMPTY_ANSWERS = 3


def instructions(steps: int) -> str:
    """What an agent is told on top of the prompt."""
    return f"""\
# This session

You have at most {steps} answers. Hand in a kernel with the tool `{SUBMIT}` (the whole file; one an answer), in place of the
code block that is asked for above; an answer that is just a code block counts too. You are told what the judge found. First
become correct, then faster: the best correct kernel is kept, so a failed attempt costs you nothing but an answer.
`read_problem` and `read_kit_docs` are there to look things up. When you have nothing to improve, answer in plain words
without code or tools; that ends the session.
"""


def agent_solver(work: Work) -> Solver:
    @solver(name="agent")
    def agent() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            if work.journal.fatal is not None:
                return state
            item = work.item(state)
            attempt = Attempt(work, item)
            try:
                await _converse(state, attempt)
            except UserError as error:
                work.journal.fatal = error
            except JudgeFailed as error:
                work.journal.failed(item.task, str(error))
                raise
            return state

        return solve

    return agent()


async def _converse(state: TaskState, attempt: Attempt) -> None:
    work, item = attempt.work, attempt.item
    tools = agent_tools(item.prompt, attempt.submit)
    messages = attempt.history() or [*state.messages, ChatMessageUser(content=instructions(work.settings.steps))]
    while True:
        ended = ""
        if isinstance(messages[-1], ChatMessageAssistant):
            ended = await _respond(messages, attempt, tools)
        state.messages = messages
        if ended or (ended := attempt.why_stop()):
            break
        work.progress(f"{item.name}: asking for answer {attempt.step + 2} of at most {work.settings.steps}")
        reply = await converse(
            current_model(), messages, tools=tools, time_limit_s=work.settings.time_limit_s, price=work.settings.price
        )
        if reply.output is None:
            work.progress(f"{item.name}: {reply.error}")
            work.journal.failed(item.task, reply.error)
            state.store.set(PROBLEM, reply.error)
            return
        messages.append(reply.output.message)
        state.output = reply.output
        attempt.heard(messages, reply)
    work.progress(f"{item.name}: ended: {ended}")
    state.metadata["ended"] = ended
    await _finish(state, attempt)


async def _respond(messages: list[ChatMessage], attempt: Attempt, tools: list[Tool]) -> str:
    """Does what the last answer asks for and appends what came of it. Says why the session ends, if it does."""
    answer = messages[-1]
    assert isinstance(answer, ChatMessageAssistant)
    if answer.tool_calls:
        attempt.empty_answers = 0
        done = await execute_tools(messages, tools, max_output=MAX_OUTPUT_BYTES)
        messages += done.messages
        return ""
    found = extract(answer.text)
    if found.code is not None:
        attempt.empty_answers = 0
        messages.append(ChatMessageUser(content=await attempt.submit(found.code)))
        return ""
    attempt.empty_answers += 1
    if attempt.best is not None and not found.truncated:
        return "the model had nothing to add"
    if attempt.empty_answers >= MAX_EMPTY_ANSWERS:
        return f"{attempt.empty_answers} answers in a row without a kernel"
    messages.append(ChatMessageUser(content=f"{found.problem}, or call `{SUBMIT}`\n\n{attempt.standing()}"))
    return ""


async def _finish(state: TaskState, attempt: Attempt) -> None:
    work, item, best = attempt.work, attempt.item, attempt.best
    last = attempt.judged[-1] if attempt.judged else None
    if best is not None and attempt.needs_a_fresh_verdict:
        again = await work.judge(item, best.code, what=f"judging the best kernel (answer {best.step + 1}) once more")
        if again.verdict != "harness_error":
            work.journal.judged(item.task, attempt.step + 1, again, code=best.code, done=True)
            state.store.set(CODE, best.code)
            state.store.set(VERDICT, dict(again.fields))
            return
    work.journal.finished(item.task)
    kept = best or last
    if kept is not None:
        state.store.set(CODE, kept.code)
        state.store.set(VERDICT, dict(kept.document.fields))
    else:
        state.store.set(PROBLEM, "no kernel was handed in")
