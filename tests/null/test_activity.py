"""The analysis of device records, on records made by hand with answers worked out by hand, and on what a hostile rank sends."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pkb.candidates.paths import PathUse, cuda
from pkb.candidates.source import parse
from pkb.cli.panel import profile_words
from pkb.judge.hints import hints_for
from pkb.judge.profile import roles
from pkb.judge.profile.activity import OPENING, Record, Unclear, analyse, common, length, split_calls, union
from pkb.judge.profile.calls import records_of
from pkb.judge.profile.roles import Expected, base_name, match_kernel, role_of
from pkb.types import profile as types
from pkb.types.profile import Profile, Role, SideProfile
from pkb.types.protocol.codec import Malformed, decode, encode
from pkb.types.protocol.limits import MAX_KERNEL_NAMES, MAX_NAME, MAX_RECORDS
from pkb.types.protocol.replies import Activity, BatchReport
from pkb.types.verdict import Evidence, Verdict

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT"
SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"
BARRIER = "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)"
FLUSH = "void at::native::vectorized_elementwise_kernel<16, at::native::CUDAFunctorOnSelf_add<unsigned char>>(int)"
DTOD, PTOP = "Memcpy DtoD (Device -> Device)", "Memcpy PtoP (Device -> Device)"
MINE = Expected({"push_tiles": ("sm_load_store",)}, lines={"sm_load_store": 31}, paths=frozenset({"sm_load_store"}))


def kernel(name: str, start_us: int, us: int, stream: int = 7) -> Record:
    return Record(name, "kernel", 1000 * start_us, 1000 * us, stream)


def copy(name: str, start_us: int, us: int, *, stream: int = 7, size: int | None = None) -> Record:
    return Record(name, "memcpy", 1000 * start_us, 1000 * us, stream, size)


def side(*calls: list[Record], expected: Expected | None = None) -> SideProfile:
    return analyse({0: list(calls)}, expected or Expected())


# -- intervals ------------------------------------------------------------------------------------------------------------


def test_union_joins_what_touches_and_keeps_what_is_apart() -> None:
    assert union([(5, 9), (0, 4), (3, 5), (20, 21)]) == [(0, 9), (20, 21)]
    assert length([(0, 10), (2, 3), (8, 12)]) == 12


def test_common_counts_shared_time_once() -> None:
    # A = 0-10 and 20-30; B = 5-25 given twice: shared are 5-10 and 20-25.
    assert common([(0, 10), (20, 30)], [(5, 25), (5, 25)]) == 10
    assert common([(0, 10)], [(10, 20)]) == 0


# -- calls ----------------------------------------------------------------------------------------------------------------


def harness(at_us: int, *, stream: int = 7, openings: int = 1) -> list[Record]:
    return [
        kernel(SPIN, at_us, 50, stream), *(kernel(OPENING, at_us + 50 + n, 1, stream) for n in range(openings)),
        kernel(FLUSH, at_us + 53, 5, stream), kernel(BARRIER, at_us + 60, 3, stream),
    ]  # fmt: skip


@pytest.mark.parametrize("openings", [0, 1, 2])
def test_calls_are_told_apart_and_the_harness_is_taken_out(openings: int) -> None:
    first = [kernel(GEMM, 70, 10), kernel("push_tiles", 75, 10, stream=9)]
    # The candidate's own barrier and its own elementwise kernel at the end of a call are its own.
    second = [kernel(BARRIER, 270, 2), kernel(GEMM, 272, 10), kernel(FLUSH, 283, 5)]
    third = [kernel(FLUSH, 470, 5)]
    # A delay that is followed by something else than the harness's steps begins no call.
    before = [kernel(SPIN, -400, 300), kernel(BARRIER, -50, 2)]
    begun = [record for at_us in (400, 200, 0) for record in harness(at_us, openings=openings)]
    shuffled = [*third, *second, *first, *begun, *before]
    assert split_calls(shuffled, 3) == [first, second, third]


def test_a_spin_of_the_candidates_own_is_no_beginning() -> None:
    own = [kernel(SPIN, 70, 10, stream=9), kernel(GEMM, 80, 10)]
    assert split_calls([*harness(0), *own], 1) == [own]


def test_work_on_a_side_stream_that_starts_under_the_spin_belongs_to_the_call() -> None:
    early = kernel("push_tiles", 20, 5, stream=9)
    assert split_calls([*harness(0), early], 1) == [[early]]


def test_missing_beginnings_are_said() -> None:
    with pytest.raises(Unclear, match="2 calls were profiled and 1 beginnings found in 5 records"):
        split_calls([*harness(0), kernel(GEMM, 70, 5)], 2)


# -- numbers --------------------------------------------------------------------------------------------------------------


def test_counts_times_and_overlap_of_two_calls() -> None:
    # Communication 10-30 and 20-40 -> 30 us; compute 0-15 and 35-50 -> 30 us; shared 10-15 and 35-40 -> 10 us.
    first = [kernel(GEMM, 0, 15), kernel(NCCL, 10, 20, 9), kernel(NCCL, 20, 20, 9), kernel(GEMM, 35, 15)]
    # Communication 100-110, compute 110-120, a fill 120-121: nothing shared.
    second = [kernel(NCCL, 100, 10, 9), kernel(GEMM, 110, 10), Record("Memset (Device)", "memset", 120_000, 1000, 7)]
    result = side(first, second)
    assert (result.calls, result.kernels_per_call, result.copies_per_call, result.fills_per_call) == (2, 3.0, 0.0, 0.5)
    assert (result.busy_us, result.communication_us, result.compute_us) == (35.5, 20.0, 20.5)
    assert result.overlap == 0.25  # 10 of 40 us
    assert [(use.name, use.per_call, use.us_per_call) for use in result.top[:2]] == [
        (NCCL, 1.5, 25.0),
        (GEMM, 1.5, 20.0),
    ]
    assert [path.path for path in result.observed_paths] == ["library"]


def test_ranks_are_averaged_and_overlap_is_weighted_by_time() -> None:
    hidden = [kernel(NCCL, 0, 10, 9), kernel(GEMM, 0, 10)]
    bare = [kernel(NCCL, 0, 30, 9), kernel(GEMM, 30, 10), kernel(GEMM, 40, 10)]
    result = analyse({0: [hidden], 1: [bare]}, Expected())
    assert [rank.hidden_us for rank in result.ranks] == [10.0, 0.0]
    assert (result.kernels_per_call, result.communication_us) == (2.5, 20.0)
    assert result.overlap == 0.25, "10 of 40 us; the mean of the ranks' shares would be 0.5"


def test_the_timeline_is_the_last_call_from_its_first_record() -> None:
    result = side([kernel(GEMM, 0, 1)], [kernel(GEMM, 1000, 15), kernel(NCCL, 1010, 20, 9)])
    assert result.ranks[0].timeline == ((0.0, 15.0, GEMM, "compute"), (10.0, 20.0, NCCL, "communication"))
    many = side([kernel(GEMM, i, 1) for i in range(300)])
    assert len(many.ranks[0].timeline) == 200
    assert many.kernels_per_call == 300


def test_timelines_of_all_ranks_have_one_time_base() -> None:
    parts = {0: [[kernel(GEMM, 100, 5)]], 1: [[kernel(GEMM, 40, 5)]]}
    hour = 3_600_000_000_000
    # Rank 0 began its records 30 us before rank 1, and its call 100 us after that; rank 1's call is at 30 + 40 us.
    found = analyse(parts, Expected(), zeros_ns={0: hour, 1: hour + 30_000})
    assert [rank.begins_us for rank in found.ranks] == [30.0, 0.0]
    for odd in ({0: hour}, {0: hour, 1: 0}, {0: hour, 1: 2 * hour}):
        assert [rank.begins_us for rank in analyse(parts, Expected(), zeros_ns=odd).ranks] == [None, None], odd


def test_bytes_are_a_call_s_and_unknown_if_one_is() -> None:
    assert side([copy(PTOP, 0, 5, size=300), copy(DTOD, 5, 5, size=100)]).copied_bytes_per_call == 400.0
    assert side([copy(PTOP, 0, 5, size=300), copy(DTOD, 5, 5)]).copied_bytes_per_call is None


# -- what a record was for ------------------------------------------------------------------------------------------------


def test_copies_between_devices_are_communication_and_local_ones_only_where_the_text_copies_from_peers() -> None:
    calls = [copy(PTOP, 0, 10), copy(DTOD, 10, 10), copy("Memcpy HtoD (Pinned -> Device)", 20, 10), kernel(GEMM, 30, 5)]
    assert side(calls).communication_us == 10.0
    says_so = Expected(lines={"copy_engine": 12}, paths=frozenset({"copy_engine"}))
    shared = side(calls[1:], expected=says_so)
    assert shared.communication_us == 10.0
    assert shared.observed_paths[0].path == "copy_engine"
    assert "line 12" in shared.observed_paths[0].evidence
    assert "taken for a peer's" in shared.observed_paths[0].evidence
    assert side(calls[1:]).observed_paths == ()


def test_a_kernel_that_the_text_ties_to_peers_is_communication() -> None:
    result = side([kernel("push_tiles", 0, 10, 9), kernel(GEMM, 5, 10)], expected=MINE)
    assert result.overlap == 0.5
    assert result.observed_paths == (types.ObservedPath("sm_load_store", "push_tiles, 1 per call and rank (line 31)"),)


def test_a_kernel_that_does_both_has_no_overlap() -> None:
    both = dataclasses.replace(MINE, computing=frozenset({"push_tiles"}))
    result = side([kernel("push_tiles", 0, 10, 9), kernel(GEMM, 5, 10), kernel(NCCL, 5, 2, 3)], expected=both)
    assert result.overlap is None
    assert "at once" in result.overlap_note
    assert result.fused == ("push_tiles",)
    assert (result.fused_us, result.compute_us, result.communication_us) == (10.0, 10.0, 2.0)


@pytest.mark.parametrize(
    ("records", "expected", "why"),
    [
        ([kernel(GEMM, 0, 5)], Expected(), "no record was recognised"),
        ([kernel(NCCL, 0, 5)], Expected(), "nothing else ran"),
        # torch's own kernels read peers' tensors under names that say nothing; a barrier is not all of the communication.
        ([kernel(BARRIER, 0, 5), kernel(FLUSH, 5, 5)], MINE, "by its text it uses sm_load_store"),
    ],
)
def test_no_number_where_the_records_cannot_tell(records: list[Record], expected: Expected, why: str) -> None:
    result = side(records, expected=expected)
    assert result.overlap is None
    assert why in result.overlap_note


def test_an_empty_profile_is_unclear() -> None:
    with pytest.raises(Unclear, match="no kernel"):
        analyse({0: [[], []], 1: [[], []]}, Expected())


@pytest.mark.parametrize(
    ("name", "base"),
    [
        (SPIN, "spin_kernel"),
        (BARRIER, "barrier_kernel"),
        ("void pkb::sum<float, 4>(float*, int)", "sum"),
        ("push_tiles", "push_tiles"),
        ("void (anonymous namespace)::scale<int>(int)", "scale"),
    ],
)
def test_base_name(name: str, base: str) -> None:
    assert base_name(name) == base


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("push_tiles", "push_tiles"),
        ("void mine::push_tiles<__nv_bfloat16>(char* const*, int)", "push_tiles"),
        ("_Z10push_tilesIfEvPKPcj", "push_tiles"),
        ("push_tiles_late", "push_tiles_late"),
        ("sum_bf16", "sum_##T"),
        ("void at::native::reduce_kernel<512, 1>(int)", None),
        ("cutlass::push_tiles::Kernel<1>", None),
        ("ncclDevKernel_reduce", None),
        (GEMM, None),
    ],
)
def test_kernels_are_found_under_mangled_and_templated_names(name: str, meant: str | None) -> None:
    kernels = dict.fromkeys(("push_tiles", "push_tiles_late", "sum_##T", "reduce"), ("sm_load_store",))
    assert match_kernel(name, kernels) == meant


def test_own_kernels_come_before_names_of_libraries() -> None:
    own = Expected({"one_shot_all_reduce_kernel": ("nvls",)}, paths=frozenset({"nvls"}))
    assert role_of("one_shot_all_reduce_kernel", "kernel", own).paths == ("nvls",)
    assert role_of("one_shot_all_reduce_kernel", "kernel", Expected()).paths == ("library",)
    assert role_of("sum_rows", "kernel", Expected({"sum_rows": ()})).role is Role.COMPUTE


@pytest.mark.skipif(not cuda.available(), reason="tree-sitter is not installed: pip install 'pkb[analysis]'")
def test_a_kernel_whose_code_multiplies_matrices_is_fused() -> None:
    text = (
        "import pkb.kit as kit\n"
        'MOVE = """__global__ void move_only(char* const* p) { st_release_sys(p[0], 1); }"""\n'
        'BOTH = """__global__ void with_dot(char* const* p) { asm("wgmma.mma_async.sync"); st_release_sys(p[0], 1); }"""\n'
        "def solution(t):\n"
        "    for name, code in (('move_only', MOVE), ('with_dot', BOTH)):\n"
        "        kit.cuda(code).kernel(name)[1, 32](kit.buffers(t))\n"
        "    return t\n"
    )
    source = parse(text.encode(), path=Path("candidate.py"))
    expected = roles.expected_of(source, (PathUse("sm_load_store", 1, "st_release_sys"), PathUse("none", 0, "")))
    assert expected.computing == {"with_dot"}
    assert expected.lines["sm_load_store"] == 1
    assert expected.on_sms == {"sm_load_store"}
    assert role_of("move_only", "kernel", expected).role is Role.COMMUNICATION
    assert role_of("with_dot", "kernel", expected).role is Role.FUSED


# -- what a hostile rank may send -----------------------------------------------------------------------------------------


def claim(**changes: Any) -> bytes:
    """A rank's report of a batch with the profiler on, as it travels."""
    record = [0, "kernel", 0, 5, 7, None]
    activity = {"is": "Activity", "names": ["a", "b"], "records": [record], "left_out": 0, "began_ns": 0}
    report = BatchReport((), (), (), activity=Activity())
    return json.dumps(json.loads(encode(report)) | {"activity": activity | changes}).encode()


def read(body: bytes) -> Activity:
    found = decode(body, (BatchReport,)).activity
    assert found is not None
    return found


def test_a_report_is_read() -> None:
    got = read(claim(records=[[1, "memcpy", 3, 5, 7, 64], [0, "kernel", 0, 5, 7, None]]))
    assert records_of(got) == [Record("b", "memcpy", 3, 5, 7, 64), Record("a", "kernel", 0, 5, 7, None)]
    assert got.left_out == 0
    assert records_of(Activity()) == [], "a rank without a GPU has none"


@pytest.mark.parametrize(
    "changes",
    [
        {"names": "ab"}, {"names": [1]}, {"records": {}}, {"records": [5]}, {"records": [[0, "kernel", 0, 5, 7]]},
        {"left_out": "many"}, {"left_out": True}, {"left_out": -9}, {"names": ["x" * (MAX_NAME + 1)]},
        {"began_ns": -1}, {"began_ns": 1 << 63}, {"began_ns": 0.5},
        {"names": ["x"] * (MAX_KERNEL_NAMES + 1)}, {"records": [[0, "kernel", 0, 5, 7, None]] * (MAX_RECORDS + 1)},
    ],
)  # fmt: skip
def test_a_report_of_the_wrong_form_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=r"\.activity"):
        read(claim(**changes))


@pytest.mark.parametrize(
    "row",
    [
        [2, "kernel", 0, 5, 7, None], [-1, "kernel", 0, 5, 7, None], [0, "magic", 0, 5, 7, None],
        [0, ["kernel"], 0, 5, 7, None], [0, "kernel", -1, 5, 7, None], [0, "kernel", 0, 1 << 80, 7, None],
        [0, "kernel", 0.5, 5, 7, None], [0, "kernel", 0, True, 7, None], [0, "kernel", 0, 5, "7", None],
        [0, "kernel", 0, 5, 7, -4],
    ],
)  # fmt: skip
def test_a_record_of_odd_values_is_refused(row: list[Any]) -> None:
    """What a profiler may get wrong by itself, the rank leaves out (`pack_records`); so nobody sends this by accident."""
    with pytest.raises(Malformed, match=r"\.activity"):
        read(claim(records=[row]))


# -- what people read -----------------------------------------------------------------------------------------------------


def test_words_of_the_panel() -> None:
    serial = side([kernel("push_tiles", 0, 40, 9), kernel(GEMM, 30, 40), copy(DTOD, 80, 5)], expected=MINE)
    words = "per call: 2 kernels, 1 copy; communication 40 us, 25 % of it hidden under compute"
    assert profile_words(serial) == words
    assert profile_words(side([kernel(GEMM, 0, 5)])) == "per call: 1 kernel; no communication recognised among them"


def test_one_hint_from_the_profile() -> None:
    def hints(own: SideProfile, theirs: SideProfile) -> list[str]:
        evidence = Evidence(profile=Profile(own, theirs, ""))
        return hints_for(Verdict.CORRECT, evidence, platform="node", backend="cuda")

    reference = side([kernel(GEMM, 0, 40), kernel(NCCL, 40, 40)])
    serial = side([kernel(GEMM, 0, 40), kernel("push_tiles", 40, 40)], expected=MINE)
    hidden = side([kernel(GEMM, 0, 40), kernel("push_tiles", 20, 30, 9)], expected=MINE)
    busy = side([kernel(GEMM, 10 * i, 5) for i in range(9)], expected=MINE)
    small = side([kernel(GEMM, 0, 400), kernel("push_tiles", 400, 4)], expected=MINE)
    assert len(hints(serial, reference)) == 1
    assert "one after the other" in hints(serial, reference)[0]
    assert hints(hidden, reference) == []
    assert hints(small, reference) == [], "a hundredth of the time is not worth a hint"
    assert len(hints(busy, reference)) == 1
    assert "9 kernels and copies, the reference 2" in hints(busy, reference)[0]


SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "verdict.schema.json").read_text())


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("profile", types.Profile), ("side_profile", types.SideProfile), ("kernel_use", types.KernelUse),
        ("observed_path", types.ObservedPath), ("rank_profile", types.RankProfile),
    ],
)  # fmt: skip
def test_schema_names_exactly_the_fields(name: str, type_: type) -> None:
    part = SCHEMA["$defs"][name]
    fields = {field.name for field in dataclasses.fields(type_)}
    assert set(part["properties"]) == set(part["required"]) == fields
    assert part["additionalProperties"] is False
    if "role" in fields:
        assert set(part["properties"]["role"]["enum"]) == set(Role)
