"""Files that were named for an earlier version of the list of problems."""

from pathlib import Path

import pytest

from pkb.cli.run_sweep import refusal_lines
from pkb.cluster.planning import plan_candidates
from pkb.problems.registry import default_registry
from pkb.store.importing import ProblemGone, read_name
from pkb.types.case import Case
from pkb.types.old_names import GONE, SINCE_RENAMED, current_name

PROBLEMS = {problem.name: problem.id for problem in default_registry().all()}
LIKE = Case("", "cpu", 2, "tiny", "bf16", "quick")


@pytest.mark.parametrize(
    ("stem", "problem"),
    [
        ("11_gemm_allgather_AT_cuda", 11),
        ("12_gemm_allgather_cuda", 12),
        ("14_gemm_allgather_cuda", 14),
        ("gemm_allgather_cuda", 14),
        ("14_gemm_allscatter_cuda", 14),
        ("gemm_allscatter_triton", 14),
        ("18_rms_norm_cuda", 18),
        ("18_tp_rms_norm_cuda", 18),
        ("34_ulysses_all_to_all_tensor_primitive_cuda", 33),
        ("88_conv2d_boundary_exchange_cuda", 87),
        ("47_fsdp_step_e2e_cuda", 47),
        ("48_fsdp_step_e2e_cuda", 47),
    ],
)
def test_a_name_of_any_version_is_understood(stem: str, problem: int) -> None:
    assert read_name(stem, problems=PROBLEMS).problem_id == problem


def test_renamed_problems_exist() -> None:
    assert set(SINCE_RENAMED.values()) <= set(PROBLEMS)
    assert not GONE & set(PROBLEMS)
    assert all(PROBLEMS[name] == number for (number, _), name in SINCE_RENAMED.items())
    assert current_name("allreduce", 1) == "allreduce"


def test_a_problem_that_is_gone_is_no_unknown_name() -> None:
    with pytest.raises(ProblemGone):
        read_name("47_fsdp_adamw_sharded_cuda", problems=PROBLEMS)


def test_one_line_for_all_numbers_and_the_refused_apart(tmp_path: Path) -> None:
    for name in (
        "1_allreduce_cuda", "34_ulysses_all_to_all_tensor_primitive_cuda", "88_conv2d_boundary_exchange_cuda",
        "47_fsdp_adamw_sharded_cuda", "5_nothing_of_ours_cuda",
    ):  # fmt: skip
        (tmp_path / f"{name}.py").write_text("def solution(): ...\n")
    plan = plan_candidates([tmp_path], problems=PROBLEMS, like=LIKE)
    assert len(plan.tasks) == 3
    assert [Path(file).name for file in plan.gone] == ["47_fsdp_adamw_sharded_cuda.py"]
    numbers, gone = plan.notes
    assert numbers.startswith("2 files have another number")
    assert gone.startswith("1 files are for problems that are no longer in the list")
    (headline, line) = refusal_lines(plan.refused)
    assert headline == "REFUSED, 1 files that will not be judged:"
    assert "5_nothing_of_ours_cuda.py" in line
    assert refusal_lines(()) == []
