"""The worked examples of prompts, judged on a GPU by themselves: a prompt says of them that the judge called them correct."""

import pytest

from pkb.generate.prompt_examples import EXAMPLES, Example, examples
from pkb.judge.session import evaluate
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.verdict import Communication, Verdict

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "example",
    [item for backend in EXAMPLES for item in examples(backend)],
    ids=lambda item: f"{item.backend}-{item.stem}",
)
def test_examples_are_judged_on_a_gpu(example: Example) -> None:
    job = Job(example.path, Case(str(example.problem_id), "virtual", 4, "paper", "bf16", "quick"), timing=False)
    found = evaluate(job)
    assert found.verdict is Verdict.CORRECT, found.detail
    assert found.communication is Communication.CUSTOM
