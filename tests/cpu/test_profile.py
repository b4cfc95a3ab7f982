"""Packing what the profiler saw, and the cpu platform, which has nothing to profile and says so."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.autograd.profiler_util import FunctionEvent

from pkb.candidates.rules import inspect_source
from pkb.candidates.source import read
from pkb.judge.decision import Decided
from pkb.judge.profile.calls import ProfiledCalls, profile_calls, records_of
from pkb.judge.profile.roles import Expected
from pkb.judge.session import evaluate
from pkb.judge.stages import prepare
from pkb.judge.worlds import World
from pkb.platforms.registry import create
from pkb.problems.registry import get
from pkb.rank import profile
from pkb.types.case import Case
from pkb.types.job import Job
from pkb.types.protocol.commands import DrawSpec
from pkb.types.protocol.limits import MAX_NAME
from pkb.types.protocol.replies import Activity
from pkb.types.verdict import Communication, Verdict

EXAMPLES = Path(__file__).parents[2] / "src" / "pkb" / "cli" / "demo_candidates"
EVENT_PARAMETERS = inspect.signature(FunctionEvent).parameters.keys()
TINY = Case("1", "cpu", 2, "tiny", "bf16", "quick")


def event(
    name: str,
    start_us: float,
    end_us: float,
    *,
    device: DeviceType = DeviceType.CUDA,
    stream: int = 7,
    size: str = "",
) -> FunctionEvent:
    """What torch's profiler hands out, made by hand. How it says what a copy moved depends on torch's version."""
    said: dict[str, Any] = {"extra_meta": {"bytes": size}, "metadata_json": f'"bytes": {size}'} if size else {}
    return FunctionEvent(
        id=1, name=name, thread=0, start_us=start_us, end_us=end_us, device_type=device, device_resource_id=stream,
        **{name: value for name, value in said.items() if name in EVENT_PARAMETERS},
    )  # fmt: skip


def test_device_records_are_packed_in_order_without_what_the_host_did() -> None:
    packed = profile.pack_records(
        [
            event("push_tiles", 120.5, 130.0, stream=9),
            event("cudaLaunchKernel", 90.0, 95.0, device=DeviceType.CPU),
            event("Memcpy DtoD (Device -> Device)", 100.0, 104.25, size="4096"),
            event("Memset (Device)", 140.0, 141.0),
            event("push_tiles", 150.0, 151.0),
            event("Stream Sync", 150.0, 190.0),
            event("cut off", 160.0, 0.0),
        ]
    )
    assert packed == Activity(
        names=("Memcpy DtoD (Device -> Device)", "push_tiles", "Memset (Device)"),
        records=(
            (0, "memcpy", 0, 4250, 7, 4096 if EVENT_PARAMETERS & {"extra_meta", "metadata_json"} else None),
            (1, "kernel", 20500, 9500, 9, None),
            (2, "memset", 40000, 1000, 7, None),
            (1, "kernel", 50000, 1000, 7, None),
        ),
        left_out=0,
    )
    assert [record.name for record in records_of(packed)][:2] == ["Memcpy DtoD (Device -> Device)", "push_tiles"]
    events = profile.DeviceEvents([event("push_tiles", 120.5, 130.0)])
    events.zero_ns = 7_000_000_000
    assert profile.pack_records(events).began_ns == 7_000_120_500


def test_the_number_of_records_and_the_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MAX_RECORDS", 3)
    packed = profile.pack_records([event("k" * 5000, 10.0 * i, 10.0 * i + 5) for i in range(5)])
    assert len(packed.records) == 3
    assert packed.left_out == 2
    assert packed.names == ("k" * MAX_NAME,)


def test_what_the_protocol_has_no_room_for_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MAX_KERNEL_NAMES", 2)
    odd = [event("negative stream", 5.0, 6.0, stream=-1), event("for ever", 6.0, 1e15)]
    packed = profile.pack_records([*(event(f"k{i}", 10.0 * i, 10.0 * i + 5) for i in range(5)), *odd])
    assert packed.names == ("k0", "k1")
    assert (len(packed.records), packed.left_out) == (2, 5)


def test_without_a_gpu_or_unasked_there_are_no_events() -> None:
    with profile.device_events(wanted=False) as events:
        torch.ones(2).add_(1)
    assert events == []
    assert profile.pack_records(events) == Activity()


def test_the_cpu_platform_says_that_it_does_not_profile() -> None:
    job = Job(EXAMPLES / "1_allreduce_symmetric.py", TINY, call_limit_s=30.0)
    evaluation = evaluate(job)
    assert evaluation.profile is None
    assert any(check.startswith("not profiled: ") for check in evaluation.checks)
    assert "profile" not in evaluation.stage_seconds


# -- the stage itself, on ranks of the cpu platform: a candidate that makes records up stands in for a profiler ------------

RECORDS = """
_STEPS = (("spin_kernel", 0, 50), ("elementwise", 52, 5), ("barrier_kernel", 60, 3), ("NAME", 70, 20), ("gemm", 80, 30))
_ROWS = [
    [number, "kernel", 1000 * (call + start), 1000 * us, 7 if number != 3 else 9, None]
    for call in (0, 200, 400) for number, (_, start, us) in enumerate(_STEPS)
]
def _forged():
    return sys.modules['pkb.types.protocol.replies'].Activity([step[0] for step in _STEPS], _ROWS, 0)
"""
TAMPER = "\nimport sys\nsys.modules['pkb.rank.server'].pack_records = lambda events: FORGED\n"


def profiled(folder: Path, extra: str) -> ProfiledCalls:
    path = folder / "candidate.py"
    path.write_text((EXAMPLES / "1_allreduce_symmetric.py").read_text() + extra)
    job = Job(path, TINY, call_limit_s=30.0)
    platform = create("cpu")
    build = prepare.build(job, inspect_source(read(path)), platform.facts())
    with World(job, platform, get(1), ranks=2, build=build.folder, backend="torch") as world:
        world.open()
        return profile_calls(
            world.exchange,
            DrawSpec("1", "tiny", "bf16"),
            expected=Expected({"push": ("tma",)}),
            progress=lambda text: None,
        )


def test_a_side_without_records_is_left_out_and_the_other_described(tmp_path: Path) -> None:
    observed = profiled(tmp_path, RECORDS.replace("NAME", "push") + TAMPER.replace("FORGED", "_forged()"))
    assert observed.profile is not None
    assert observed.profile.reference is None
    assert "no reference: 3 calls were profiled and 0 beginnings found in 0 records" in observed.profile.note
    candidate = observed.profile.candidate
    assert candidate is not None
    # A call: communication 70-90, compute 80-110, so half of the communication is hidden.
    assert (candidate.calls, candidate.kernels_per_call, candidate.communication_us) == (3, 2.0, 20.0)
    assert candidate.overlap == 0.5
    assert [path.path for path in candidate.observed_paths] == ["tma"]
    assert observed.communication is not Communication.LIBRARY


def test_a_library_kernel_among_the_records_is_said(tmp_path: Path) -> None:
    observed = profiled(tmp_path, RECORDS.replace("NAME", "ncclDevKernel_X") + TAMPER.replace("FORGED", "_forged()"))
    assert observed.communication is Communication.LIBRARY


def test_a_report_of_wrong_types_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Decided) as raised:
        profiled(tmp_path, TAMPER.replace("FORGED", "{'names': 5}"))
    assert raised.value.verdict is Verdict.REJECTED


def test_a_candidate_that_fails_under_the_profiler_is_not_judged_by_it(tmp_path: Path) -> None:
    observed = profiled(tmp_path, TAMPER.replace("FORGED", "1 / 0"))
    assert observed.profile is None
    assert observed.broken, "its ranks are of no use for another size"
    assert observed.check.startswith("not profiled: the candidate's ranks failed under the profiler: error")
