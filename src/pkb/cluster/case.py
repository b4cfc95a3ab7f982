"""What `auto` means for a task, decided where it is evaluated."""

from pathlib import Path

from pkb.cluster.orders import JudgeOrder
from pkb.types.errors import UserError
from pkb.types.job import Job
from pkb.types.plan import plan


def job_for(order: JudgeOrder, candidate: Path) -> Job:
    """The order as a job of the judge: everything decided, and possible on this machine. UserError says why not."""
    from pkb.platforms import registry as platforms
    from pkb.problems.registry import default_registry, load_folder

    folder = Path(order.problems_folder) if order.problems_folder else None
    problem = default_registry().plus(load_folder(folder) if folder else []).get(order.problem)
    name = platforms.resolve(order.platform)
    facts = platforms.create(name).facts()
    size = default_size(name) if order.size == "auto" else order.size
    dtype = problem.default_dtype if order.dtype == "auto" else order.dtype
    if order.ranks > facts.max_ranks:
        raise UserError(f"platform {name} can have at most {facts.max_ranks} ranks here, not {order.ranks}")
    if (why_not := problem.why_not(size, order.ranks, dtype)) is not None:
        raise UserError(why_not, f"`pkb show {problem.id}` lists what it can run with")
    return Job(
        candidate=candidate, problem=problem.stem, platform=name, ranks=order.ranks, size=size, dtype=dtype,
        plan=plan(order.plan), timing=order.timing, problems_folder=folder, call_limit_s=order.call_limit_s,
        build_limit_s=order.build_limit_s,
    )  # fmt: skip


def default_size(platform: str) -> str:
    return "tiny" if platform == "cpu" else "paper"
