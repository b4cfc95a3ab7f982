"""Failures that say nothing about a candidate, because it needs what this platform does not have."""

from dataclasses import replace

from pkb.candidates.paths.known import DIRECT
from pkb.judge.decision import Decided
from pkb.platforms.base import PlatformFacts
from pkb.types.failure import FailureKind
from pkb.types.verdict import Verdict

MULTICAST_PATH = "nvls"
_WORDS = ("multicast", "multimem")


def without_multicast(decided: Decided, paths: tuple[str, ...], facts: PlatformFacts, *, text: str = "") -> Decided:
    """A candidate whose text uses in-switch multicast, on a platform without it: where it faults on the device, or says in an
    exception that it misses it, it is unsupported. One that has another way, and is right or wrong by it, is judged.

    Where paths are not known, because the parser of CUDA is not installed, the instruction's name in the text stands for them.
    A candidate gains nothing by claiming it: what is unsupported is not right.
    """
    failure = decided.evidence.failure
    uses = MULTICAST_PATH in paths or (not DIRECT & set(paths) and "multimem." in text)
    if not uses or "multicast" in facts.capabilities or failure is None:
        return decided
    said = failure.kind is FailureKind.EXCEPTION and any(word in failure.message.lower() for word in _WORDS)
    if failure.kind is not FailureKind.DEVICE_FAULT and not said:
        return decided
    words = f"uses in-switch multicast, which the {facts.name} platform does not have"
    evidence = replace(decided.evidence, failure=replace(failure, kind=FailureKind.LACKING))
    return Decided(Verdict.UNSUPPORTED, decided.stage, words, evidence)
