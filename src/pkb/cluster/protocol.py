"""What the whole published protocol asks of models, before it is asked: how many answers, how many tokens, at what price.

Each model answers every problem `samples` times (the first is the single shot, all of them the best of k) and once more as an
agent of `steps` answers, which is sent all that was said before with every step.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pkb.generate.prices import Price

CHARACTERS_A_TOKEN = 3.5
"""Of code and prose mixed; tokenisers differ by a fifth."""
ANSWER_TOKENS = 12_000
"""Of one answer, thoughts included: published answers have 300 to 600 lines, and models think at least as long again."""
FEEDBACK_TOKENS = 800
"""What an agent is told about a verdict."""


@dataclass(frozen=True)
class CostEstimate:
    model: str
    answers: int
    verdicts: int
    """At most: one for each answer, an agent's best is judged once more, and of several samples each may become the best."""
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    """None without prices."""

    @property
    def words(self) -> str:
        money = "no prices given" if self.cost_usd is None else f"about {self.cost_usd:,.2f} US dollars"
        millions = f"{self.tokens_in / 1e6:.1f} million tokens in, {self.tokens_out / 1e6:.1f} out"
        return f"{self.model}: {self.answers} answers, at most {self.verdicts} verdicts, {millions}, {money}"


def estimate(
    model: str,
    prompts: Sequence[int],
    *,
    samples: int,
    steps: int,
    price: Price | None,
    answer_tokens: int = ANSWER_TOKENS,
) -> CostEstimate:
    """`prompts`: characters of each problem's. An upper bound for agents, most of which stop early, and without what a
    provider's cache saves."""
    inputs = outputs = answers = 0
    for characters in prompts:
        first = round(characters / CHARACTERS_A_TOKEN)
        inputs += samples * first
        # Step i sends the prompt and i answers with what was said about them.
        inputs += steps * first + (answer_tokens + FEEDBACK_TOKENS) * steps * (steps - 1) // 2
        outputs += (samples + steps) * answer_tokens
        answers += samples + steps
    cost = None if price is None else price.cost_usd(tokens_in=inputs, tokens_out=outputs)
    again = len(prompts) * (samples * (samples > 1) + (steps > 0))
    return CostEstimate(model, answers, answers + again, inputs, outputs, cost)


def total(estimates: Sequence[CostEstimate]) -> CostEstimate:
    costs = [one.cost_usd for one in estimates]
    return CostEstimate(
        "all models",
        sum(one.answers for one in estimates),
        sum(one.verdicts for one in estimates),
        sum(one.tokens_in for one in estimates),
        sum(one.tokens_out for one in estimates),
        None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def judge_words(verdicts: int, earlier: Iterable[Mapping[str, Any]]) -> str:
    """How long the judge will take, by verdicts that this machine has reached before."""
    took = [sum((document.get("stage_seconds") or {}).values()) for document in earlier]
    if not took:
        return f"judging: up to {verdicts} verdicts; how long one takes here is not known yet, none is stored"
    each = statistics.fmean(took)
    hours = verdicts * each / 3600
    return f"judging: up to {verdicts} verdicts, {hours:.1f} hours one by one, by the {each:.1f} s of {len(took)} stored ones"
