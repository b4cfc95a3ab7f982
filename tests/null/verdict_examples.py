"""One evaluation per verdict, as the judge has made it: `tools/verdict_examples.py` writes tests/data/verdicts."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pkb.types.document_versions import read_evaluation
from pkb.types.profile import KernelUse, ObservedPath, Profile, RankProfile, Role, SideProfile
from pkb.types.verdict import Evaluation, SuiteRef, Timing, Verdict

FOLDER = Path(__file__).parents[1] / "data" / "verdicts"


@cache
def _kept(verdict: Verdict) -> Evaluation:
    """All of one suite: the record that the correct one is taken from is older."""
    kept = read_evaluation(json.loads((FOLDER / f"{verdict}.json").read_text()))
    return replace(kept, suite=SuiteRef(1, 1))


def example(verdict: Verdict, **changes: Any) -> Evaluation:
    return replace(_kept(verdict), **changes)


def _timing() -> Timing:
    timing = example(Verdict.CORRECT).timing
    assert timing is not None
    return timing


TIMING = _timing()
PROFILE = Profile(
    SideProfile(
        calls=3,
        kernels_per_call=3.0,
        copies_per_call=2.0,
        fills_per_call=0.0,
        copied_bytes_per_call=4096.0,
        busy_us=120.0,
        communication_us=41.0,
        compute_us=105.0,
        fused_us=0.0,
        overlap=0.63,
        overlap_note="",
        fused=(),
        top=(KernelUse("sum_tiles_bf16", "kernel", Role.COMMUNICATION, 1.0, 41.0),),
        observed_paths=(ObservedPath("sm_load_store", "sum_tiles_bf16, 1 per call and rank (line 31)"),),
        ranks=(
            RankProfile(
                0, 3.0, 2.0, 0.0, 120.0, 41.0, 105.0, 0.0, 26.0, ((0.0, 41.0, "sum_tiles_bf16", "communication"),)
            ),
        ),
    ),
    None,
    "3 calls of each side; no reference: no records",
)
"""Made by hand: the records of evaluations on a GPU that the repository keeps leave profiles out."""
