"""One hand-made evaluation per verdict, with every field that this verdict can carry."""

from typing import Any

from pkb.types.profile import KernelUse, ObservedPath, Profile, RankProfile, Role, SideProfile
from pkb.types.verdict import (
    Communication,
    Evaluation,
    Failure,
    Mismatch,
    RankState,
    Roofline,
    Stage,
    Timing,
    Verdict,
)

MISMATCH = Mismatch(
    case="size tiny, 4 ranks, trial 3",
    ranks=(1, 2, 3),
    rank=2,
    output="output 0",
    what="values differ",
    pattern="looks like the data of the call before",
    error_ratio=41.7,
    first_index=(16, 5),
    first_got=0.25,
    first_expected=-1.5,
    differing_fraction=0.25,
    regions=(("rows 0-15", 0.0), ("rows 16-31", 1.0)),
)
TIMING = Timing(
    reference_us=812.5,
    candidate_us=406.25,
    speedup=2.0,
    speedup_low=1.91,
    speedup_high=2.08,
    decision="faster",
    calls=70,
    rounds=7,
    reference_p10_us=800.0,
    reference_p90_us=840.0,
    candidate_p10_us=401.0,
    candidate_p90_us=433.0,
    floor_us=101.5625,
    reference_wall_us=130.0,
    candidate_wall_us=95.0,
    clock_agreement="the judge's clock saw 1.02 times the reported time",
    first_call_us=91234.0,
    reference_samples_us=((810.0, 815.0), (812.5,)),
    candidate_samples_us=((406.0, 407.0), (406.25,)),
    roofline=Roofline(
        hardware="h200-shared",
        origin="datasheet",
        binds="hbm",
        ideal_us=162.5,
        reachable_us=176.6,
        unoverlapped_us=240.0,
        latency_us=2.3,
        reference_utilisation=0.2,
        candidate_utilisation=0.4,
    ),
    reference_alg_gbps=10.3,
    candidate_alg_gbps=20.6,
    reference_bus_gbps=15.5,
    candidate_bus_gbps=31.0,
)
CANDIDATE = SideProfile(
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
    observed_paths=(ObservedPath("sm_load_store", "sum_tiles_bf16, 1 a call and rank (line 31)"),),
    ranks=(
        RankProfile(0, 3.0, 2.0, 0.0, 120.0, 41.0, 105.0, 0.0, 26.0, ((0.0, 41.0, "sum_tiles_bf16", "communication"),)),
    ),
)
PROFILE = Profile(CANDIDATE, None, "3 calls of each side; no reference: no records")
STATES = (
    RankState(0, "finished"),
    RankState(
        1,
        "waiting",
        "symmetric-memory wait_signal",
        ("  candidate.py:41 in solution: hdl.wait_signal(0)", "  launch()"),
    ),
    RankState(2, "running", "the device is busy", ("  candidate.py:38 in solution: kernel[grid](x)",)),
    RankState(3, "gone"),
)

SPECIFIC: dict[Verdict, dict[str, Any]] = {
    Verdict.CORRECT: dict(
        stage=Stage.DONE, detail="all ranks right in 9 calls", timing=TIMING, profile=PROFILE,
        communication=Communication.CUSTOM, paths=("SM load/store", "copy engine"),
        hints=("the reduction reads every peer twice",),
        stage_seconds={"inspect": 0.1, "build": 1.6, "correctness": 3.25},
    ),
    Verdict.WRONG: dict(
        stage=Stage.CORRECTNESS, detail="output 0 differs on ranks 1-3", mismatch=MISMATCH, failing_ranks=(1, 2, 3),
    ),
    Verdict.RACE: dict(
        stage=Stage.RACES, detail="right alone, wrong when calls are queued back to back", mismatch=MISMATCH,
        race_kind="buffer reuse", failing_ranks=(2,),
    ),
    Verdict.DEADLOCK: dict(
        stage=Stage.CORRECTNESS, detail="no answer after 60 s", rank_states=STATES, failing_ranks=(1, 2),
    ),
    Verdict.COMPILE_ERROR: dict(
        stage=Stage.BUILD, detail="nvcc failed",
        failure=Failure("nvcc", 'candidate.cu(12): error: identifier "blockIdy" is undefined', None, "trace line"),
    ),
    Verdict.LOAD_ERROR: dict(
        stage=Stage.START, detail="the file does not load", failure=Failure("ImportError", "No module named 'cupy'", 0),
    ),
    Verdict.RUNTIME_ERROR: dict(
        stage=Stage.CORRECTNESS, detail="rank 1 raised",
        failure=Failure("RuntimeError", "shape [3] is no good", 1, "\n".join(f"frame {n}" for n in range(30))),
        failing_ranks=(1,),
    ),
    Verdict.CRASH: dict(
        stage=Stage.CORRECTNESS, detail="rank 3 died", failure=Failure("SIGSEGV", "segmentation fault", 3),
        output_tail="last words\n",
    ),
    Verdict.REJECTED: dict(
        stage=Stage.TIMING, detail="the reported times cannot be", timing=TIMING,
        failure=Failure("clock-agreement", "reported 2 us where the judge's clock saw 900 us"),
    ),
    Verdict.UNSUPPORTED: dict(stage=Stage.START, detail="needs multicast, which virtual does not have"),
    Verdict.HARNESS_ERROR: dict(
        stage=Stage.START, detail="the oracle did not start", failure=Failure("OSError", "no space left", None),
    ),
}  # fmt: skip


def example(verdict: Verdict, **changes: Any) -> Evaluation:
    fields: dict[str, Any] = dict(
        verdict=verdict,
        problem={"id": 13, "name": "gemm_allreduce", "version": 1},
        candidate={"path": "mine/13_gemm_allreduce.py", "sha256": "00ff"},
        platform="virtual",
        hardware="1x NVIDIA H200",
        ranks=4,
        size="paper",
        dtype="bf16",
        plan="standard",
        checks=("5 trials at size paper", "no second world size: problem runs with 4 ranks only"),
        isolation={"network": "on", "landlock": "off: kernel too old"},
        environment={"torch": "2.13.0"},
        started_at="2026-11-15T12:00:00Z",
    )
    return Evaluation(**(fields | SPECIFIC[verdict] | changes))
