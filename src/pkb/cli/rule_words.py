"""How a problem's outputs are compared, for `pkb show`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkb.problems.base import Problem


def describe_comparison(problem: "Problem") -> list[str]:
    """One sentence for each output or mutated argument that has a rule of its own, and what they are compared with."""
    from pkb.problems.compare import rule_words

    truth = (
        "outputs are compared with the reference computed on arguments widened to float64"
        if problem.truth == "float64"
        else "outputs are compared with the reference in its own dtype"
    )
    sentences = [truth]
    if isinstance(problem.compare, tuple):
        sentences += [f"output {index}: {rule_words(rule)}" for index, rule in enumerate(problem.compare)]
    else:
        sentences.append(f"every output: {rule_words(problem.compare)}")
    sentences += [f"argument {name}, changed in place: {rule_words(rule)}" for name, rule in problem.mutates.items()]
    sentences.append("all other arguments must be unchanged" if problem.mutates else "arguments must be unchanged")
    if problem.returns_input:
        sentences.append("an output may be an argument itself")
    return sentences
