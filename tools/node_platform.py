"""Which platform `make node` measures, and with how many ranks."""

from pkb.platforms.base import PlatformFacts
from pkb.platforms.registry import passed_over, pick, traits
from pkb.types.case import AUTO
from pkb.types.errors import UserError


def settled(asked: str) -> PlatformFacts:
    """The platform that is meant. GPUs that cannot be used are no reason to spend an hour on measuring something smaller,
    unless that is asked for by its name."""
    facts = pick(asked)
    if asked == AUTO and (why := passed_over(facts)):
        raise UserError(f"of this machine only platform {facts.name} works. {why}", f"else --platform {facts.name}")
    return facts


def usual_ranks(facts: PlatformFacts) -> int:
    """Every problem runs with 2, 4 and 8 ranks."""
    if facts.shares_device:
        return 4 if traits(facts.name).device == "cuda" else 2
    return next(ranks for ranks in (8, 4, 2) if ranks <= facts.max_ranks)
