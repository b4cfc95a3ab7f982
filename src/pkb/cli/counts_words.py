"""Counts and costs of a run in words, the same in every command."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkb.analysis.outcomes import Spent


def outcomes_words(outcomes: Mapping[str, int]) -> str:
    """`2 correct, 1 wrong, 3 no answer`."""
    return ", ".join(f"{count} {word_words(word)}" for word, count in outcomes.items())


def word_words(word: str) -> str:
    return word.replace("_", " ")


def spent_words(spent: "Spent") -> str:
    """`6 answers, 21895 tokens in, 9975 out, 0.0475 USD`; empty where no model was asked."""
    if not spent.answers:
        return ""
    words = [f"{spent.answers} answer{'s' * (spent.answers != 1)}", *tokens_words(spent.tokens_in, spent.tokens_out)]
    if spent.cost_usd is not None:
        words.append(cost_words(spent.cost_usd))
    return ", ".join(words)


def tokens_words(tokens_in: int | None, tokens_out: int | None) -> list[str]:
    words = [] if tokens_in is None else [f"{tokens_in} tokens in"]
    if tokens_out is not None:
        words.append(f"{tokens_out} out" if words else f"{tokens_out} tokens out")
    return words


def cost_words(usd: float) -> str:
    """Small sums with as many digits as they need: two agents at 0.004 and 0.0049 USD do not cost the same."""
    return f"{usd:.2f} USD" if usd >= 1 else f"{usd:.4f} USD"
