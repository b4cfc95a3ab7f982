"""An order as a job of the judge."""

from pathlib import Path

from pkb.cluster.orders import JudgeOrder
from pkb.types.case import Case
from pkb.types.job import Job


def job_for(order: JudgeOrder, candidate: Path) -> Job:
    """Everything decided, and possible on this machine. UserError says why not."""
    from pkb.judge.settling import settle
    from pkb.problems.registry import default_registry, load_folder

    folder = Path(order.problems_folder) if order.problems_folder else None
    registry = default_registry().plus(load_folder(folder) if folder else [])
    case = Case(order.problem, order.platform, order.ranks, order.size, order.dtype, order.plan)
    return Job(
        candidate=candidate, case=settle(case, registry).case, timing=order.timing, problems_folder=folder,
        call_limit_s=order.call_limit_s, build_limit_s=order.build_limit_s,
    )  # fmt: skip
