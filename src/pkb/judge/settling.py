"""Settles a case on this machine: what `auto` means here, and whether it can run at all."""

from dataclasses import dataclass, replace

from pkb.platforms.base import PlatformFacts
from pkb.platforms.registry import check_name, create, resolve
from pkb.problems.base import DTYPES, KNOWN_SIZES, Problem
from pkb.problems.registry import Registry
from pkb.types.case import AUTO, Case
from pkb.types.errors import UserError
from pkb.types.plan import plan
from pkb.types.units import bytes_words


@dataclass(frozen=True)
class SettledCase:
    """A case that can run here, with what was found out about it."""

    case: Case
    problem: Problem
    facts: PlatformFacts


def check_words(case: Case) -> None:
    """Refuses unknown names; the registry refuses unknown problems."""
    plan(case.plan)
    check_name(case.platform)
    if case.ranks < 1:
        raise UserError(f"--ranks {case.ranks} is not a number of ranks", "give 1 or more")
    if case.size not in (AUTO, *KNOWN_SIZES):
        raise UserError(f"no size is called {case.size!r}", f"sizes are {', '.join(KNOWN_SIZES)}")
    if case.dtype not in (AUTO, *DTYPES):
        raise UserError(f"no dtype is called {case.dtype!r}", f"dtypes are {', '.join(DTYPES)}")


def settle(case: Case, registry: Registry, *, memory: bool = True) -> SettledCase:
    """Decides everything that is `auto` on this machine; `UserError` says why the case cannot run. `memory`: also checks the
    memory that is free now."""
    check_words(case)
    problem = registry.get(case.problem)
    platform = create(resolve(case.platform))
    settled = case.resolve(
        problem=problem.stem, platform=platform.name, size=platform.default_size, dtype=problem.default_dtype
    )
    facts = platform.facts()
    if (refusal := why_not(settled, problem, facts if memory else replace(facts, memory_bytes=0))) is not None:
        raise refusal
    return SettledCase(settled, problem, facts)


def why_not(case: Case, problem: Problem, facts: PlatformFacts) -> UserError | None:
    """Why this case cannot run on this platform, and what could; None if it can."""
    if case.ranks > facts.max_ranks:
        return UserError(
            f"platform {facts.name} can have at most {facts.max_ranks} ranks here, not {case.ranks}",
            f"--ranks {facts.max_ranks}",
        )
    reason = problem.why_not(case.size, case.ranks, case.dtype)
    if reason is not None:
        return UserError(reason, f"`pkb show {problem.id}` lists what it can run with")
    shared = facts.shares_device and "cuda" in facts.capabilities
    if shared and (reason := problem.why_not_on_one_gpu(case.size, case.ranks)) is not None:
        return UserError(reason, "other --ranks, another --size, or a platform with a GPU for each rank")
    needed, there = memory_estimate(case, problem) + context_bytes(case, facts), facts.memory_for(case.ranks)
    if there and needed > there:
        smaller = [name for name in problem.sizes if name in ("tiny", "paper") and name != case.size]
        return UserError(
            f"size {case.size} of problem {problem.stem} with {case.ranks} ranks needs about {bytes_words(needed)}, "
            f"and platform {facts.name} has {bytes_words(there)} for them",
            f"a smaller size ({' or '.join(smaller)}) or fewer ranks",
        )
    return None


def context_bytes(case: Case, facts: PlatformFacts) -> int:
    """GPU memory that the processes of both sides take before they hold any data. Under MPS they share a context's code."""
    if "cuda" not in facts.capabilities:
        return 0
    return 2 * case.ranks * ((128 if facts.shares_device else 512) << 20)


def memory_estimate(case: Case, problem: Problem) -> int:
    """Rough bytes for all ranks: arguments and as much for outputs, for both sides, and in float64 for the ground truth."""
    both_sides = 2.0
    truth = 8 / DTYPES[case.dtype].itemsize if problem.truth == "float64" else 1.0
    return int(2 * problem.argument_bytes(case.size, case.ranks, case.dtype) * (both_sides + truth)) * case.ranks
