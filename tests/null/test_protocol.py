"""The protocol: every message comes back as it was sent, and nothing gets past a bound."""

import dataclasses
import enum
import json
import math
import types
import typing
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkb.types.failure import Cause
from pkb.types.protocol import codec, commands, replies
from pkb.types.protocol.codec import AtMost, Between, Malformed, decode, encode
from pkb.types.protocol.commands import (
    CANDIDATE_COMMANDS,
    ORACLE_COMMANDS,
    Command,
    DrawArguments,
    DrawSpec,
    FetchOutput,
    RunBatch,
    Schedule,
)
from pkb.types.protocol.limits import MAX_DEPTH, MAX_ELEMENTS, MAX_NAME, clean, is_library
from pkb.types.protocol.replies import (
    Activity,
    ArgumentsReply,
    BatchReport,
    Comparison,
    Done,
    ErrorReport,
    OutputReply,
    Reply,
    facts,
)
from pkb.types.protocol.settings import SideSettings
from pkb.types.protocol.trees import DictNode, ListNode, Node, TensorNode, ValueNode, check_size

COMMANDS: tuple[type[Command[Reply]], ...] = tuple(dict.fromkeys((*CANDIDATE_COMMANDS, *ORACLE_COMMANDS, SideSettings)))
REPLIES = tuple(dict.fromkeys(kind for command in COMMANDS for kind in (*command.replies, ErrorReport)))
SMALL = 3
"""Entries and characters that are drawn at most, wherever more are allowed."""


def values(hint: Any) -> st.SearchStrategy[Any]:
    """What the annotation of a field allows, by reading it here once more, without the codec."""
    bounds: list[object] = []
    if typing.get_origin(hint) is Annotated:
        hint, *bounds = typing.get_args(hint)
    most = min([SMALL, *(bound.count for bound in bounds if isinstance(bound, AtMost))])
    low, high = next(((b.low, b.high) for b in bounds if isinstance(b, Between)), (-(2**63), 2**63))
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return st.none()
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(low, high)
    if hint is float:
        return st.floats(low, high, allow_nan=False, allow_infinity=False)
    if hint is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=most)
    if origin is Literal:
        return st.sampled_from(parts)
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return st.sampled_from(hint)
    if hint == Node:
        return NODES
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, parts))
    if origin is tuple and parts[-1] is Ellipsis:
        return st.lists(values(parts[0]), max_size=most).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, parts))
    if origin is dict:
        return st.dictionaries(values(parts[0]), values(parts[1]), max_size=most)
    return messages(hint)


def messages(cls: type) -> st.SearchStrategy[Any]:
    if cls is TensorNode:
        shapes = st.lists(st.integers(0, 9)).map(tuple).filter(lambda shape: math.prod(shape) <= MAX_ELEMENTS)
        return st.builds(TensorNode, st.sampled_from(("float32", "bool")), shapes, SIZES, SIZES)
    if cls is Activity:
        rows = st.tuples(
            st.integers(0, 1), st.sampled_from(("kernel", "memcpy")), SIZES, SIZES, SIZES, st.none() | SIZES
        )
        return st.builds(Activity, st.just(("a", "b")), st.lists(rows, max_size=SMALL).map(tuple), SIZES)
    hints = typing.get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{field.name: values(hints[field.name]) for field in dataclasses.fields(cls)})


SIZES = st.integers(0, 2**39)
LEAVES = messages(TensorNode) | messages(ValueNode)
NODES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=SMALL).map(lambda items: ListNode(tuple(items)))
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=SMALL).map(
            lambda items: DictNode(tuple(items), tuple(items.values()))
        )
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("cls", [*COMMANDS, *REPLIES], ids=lambda cls: cls.__name__)
def test_every_message_comes_back(cls: type[object]) -> None:
    @given(messages(cls))
    @settings(max_examples=25, deadline=None)
    def comes_back(message: object) -> None:
        body = encode(message)
        back: object = decode(body, (cls,))
        assert back == message
        assert encode(back) == body, "and does not grow"

    comes_back()


def test_every_command_knows_its_replies_and_their_sizes() -> None:
    for cls in COMMANDS:
        assert cls.replies
        assert all(issubclass(kind, Reply) for kind in cls.replies)
    limits = FetchOutput(3).reply_limits()
    assert set(limits) == {OutputReply, replies.BadOutput, ErrorReport}
    assert limits[replies.BadOutput] == 4096


# -- bounds ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    flag: bool = True
    number: Annotated[int, Between(-2, 5)] = 0
    wide: int = 0
    real: float = 0.0
    share: Annotated[float, Between(0, 1)] = 0.0
    text: Annotated[str, AtMost(4)] = ""
    choice: Literal["a", "b"] = "a"
    several: Annotated[tuple[int, ...], AtMost(2)] = ()
    pair: tuple[int, bool] = (0, True)
    table: Annotated[dict[Annotated[str, AtMost(2)], int], AtMost(1)] = dataclasses.field(default_factory=dict)
    either: int | Annotated[str, AtMost(2)] | None = None


ALLOWED: dict[str, list[Any]] = {
    "flag": [True, False],
    "number": [-2, 5],
    "wide": [2**63, -(2**63)],
    "real": [1, -2.5, 1e300],
    "share": [0, 1, 0.5],
    "text": ["", "abcd", "äöüß", "😀"],
    "choice": ["b"],
    "several": [[], [1, 2]],
    "pair": [[3, False]],
    "table": [{}, {"ab": 1}],
    "either": [None, 7, "ab"],
}
REFUSED: dict[str, list[Any]] = {
    "flag": [0, 1, None, "true", []],
    "number": [-3, 6, 10**400, 1.0, True, None, "1", [1]],
    "wide": [2**63 + 1, -(2**63) - 1, 1e3],
    "real": [math.nan, math.inf, -math.inf, 10**400, True, "1", None],
    "share": [-0.001, 1.001, 2],
    "text": ["abcde", 5, None, ["a"], "\ud800", "a\udfff"],
    "choice": ["c", "", 0, ["a"], None, {"a": 1}],
    "several": [[1, 2, 3], {"0": 1}, "12", None, [True], [1.5], [[1]]],
    "pair": [[3], [3, False, 1], [False, 3], {}, None],
    "table": [{"a": 1, "b": 2}, {"abc": 1}, {"a": "1"}, [], None],
    "either": ["abc", True, 1.5, [], {}],
}


def probe(**changes: Any) -> Probe:
    """Read from JSON, as the other end might write it."""
    return decode(json.dumps(json.loads(encode(Probe())) | changes).encode(), (Probe,))


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_field_may_hold(name: str) -> None:
    for value in ALLOWED[name]:
        found = getattr(probe(**{name: value}), name)
        assert found == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_field_may_hold(name: str) -> None:
    for value in REFUSED[name]:
        with pytest.raises(Malformed):
            probe(**{name: value})


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"17", b"null", b'"Probe"', b"{}", b'{"is": "Other"}', b'{"is": null}', b'{"is": ["Probe"]}',
        b'{"is": "Probe"}', b"\xff", "{}".encode("utf-16"), b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"NaN",
        b"[" + b"{}," * 50_000 + b"{}]",
    ],
    ids=lambda body: str(body[:20]),
)  # fmt: skip
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(body, (Probe,))


def test_members_are_exactly_the_fields() -> None:
    whole = json.loads(encode(Probe()))
    with pytest.raises(Malformed, match="has no member 'more'"):
        decode(json.dumps(whole | {"more": 1}).encode(), (Probe,))
    for name in ALLOWED:
        with pytest.raises(Malformed, match=f"lacks member '{name}'"):
            decode(json.dumps({k: v for k, v in whole.items() if k != name}).encode(), (Probe,))


def test_an_error_says_where_and_quotes_little() -> None:
    body = json.dumps({"is": "OutputReply", "slot": 1, "tree": {"is": "ListNode", "items": [{"is": "x" * 10_000}]}})
    with pytest.raises(Malformed) as caught:
        decode(body.encode(), (OutputReply,))
    assert str(caught.value).startswith(".tree.items[0]: unexpected 'xxx")
    assert len(str(caught.value)) < 200


def test_a_class_without_bounds_is_a_mistake_of_ours() -> None:
    for hint in (str, tuple[int, ...], dict[str, int], Annotated[tuple[str, ...], AtMost(3)], Any, list, Literal[1]):
        with pytest.raises(TypeError):
            codec._decoder(hint)
    with pytest.raises(TypeError, match="told apart"):
        codec._decoder(Annotated[str, AtMost(1)] | Literal["a"])


def test_what_is_no_message_is_not_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Probe(real=math.nan))
    with pytest.raises(TypeError):
        encode(Probe(text=object()))  # type: ignore[arg-type]


# -- trees and how parts fit together ----------------------------------------------------------------------------------


def test_trees_are_bounded_in_parts_levels_and_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Node = ValueNode(1)
    for _ in range(MAX_DEPTH - 1):
        deep = ListNode((deep,))
    check_size(deep)
    with pytest.raises(ValueError, match="levels"):
        check_size(ListNode((deep,)))
    with pytest.raises(ValueError, match="parts"):
        OutputReply(0, ListNode((ListNode((ValueNode(0),) * 5000), ListNode((ValueNode(0),) * 5000))))
    with pytest.raises(ValueError, match="elements"):
        TensorNode("float32", (1 << 30, 1 << 30), 0, 0)
    with pytest.raises(ValueError, match="keys"):
        DictNode(("a",), ())
    with pytest.raises(ValueError, match="without a name"):
        Activity(("a",), ((1, "kernel", 0, 1, 7, None),))


def report(**changes: Any) -> BatchReport:
    empty = BatchReport(((0, 1, 1),) * 2, (("d",),) * 2, (1.0,) * 2)
    return replace(empty, **changes)


def test_a_report_answers_what_was_asked() -> None:
    run = RunBatch(Schedule((4, 5), aligned=True, digests=True))
    assert run.why_not(report()) == ""
    for changes in (
        {"calls": ()}, {"calls": ((0, 1, 1),)}, {"digests": ()}, {"host_us": (1.0,) * 3}, {"changed": (False,)},
        {"aliases": ((),)}, {"activity": Activity()},
    ):  # fmt: skip
        assert run.why_not(report(**changes)), changes
    queued = RunBatch(Schedule((4, 5), digests=True), inspect=True, records=True)
    looked = {"changed": (False,) * 2, "aliases": ((),) * 2, "borrowed": (False,) * 2}
    good = BatchReport((), (("d",),) * 2, (), activity=Activity(), **cast(Any, looked))
    assert queued.why_not(good) == ""
    assert queued.why_not(replace(good, digests=())), "queued calls are committed to as well"
    assert queued.why_not(replace(good, borrowed=())), "whose memory a result is in must be said"
    assert queued.why_not(replace(good, activity=None)) == "records of the device missing"


def test_an_answer_is_that_of_the_call_asked_for() -> None:
    tree = ValueNode(0)
    assert FetchOutput(3).why_not(OutputReply(3, tree)) == ""
    assert FetchOutput(3).why_not(OutputReply(4, tree))
    assert FetchOutput(3).why_not(replies.BadOutput(2, ""))
    draw = DrawArguments(DrawSpec("1", "tiny", "bf16"), 7, keep=False, key="00" * 32)
    assert draw.why_not(ArgumentsReply(7, tree)) == ""
    assert draw.why_not(ArgumentsReply(6, tree))


def test_the_size_of_a_report_grows_with_what_is_asked() -> None:
    def most(run: Command[BatchReport]) -> int:
        return run.reply_limits()[BatchReport]

    slots = tuple(range(25))
    empty, queued = most(RunBatch(Schedule(()))), most(RunBatch(Schedule(slots)))
    assert empty < queued < 32 << 10
    assert (
        queued
        < most(RunBatch(Schedule(slots), inspect=True))
        < most(RunBatch(Schedule(slots, aligned=True, digests=True)))
    )
    assert most(RunBatch(Schedule(tuple(range(4000)), digests=True), records=True)) == BatchReport.most_bytes
    assert RunBatch(Schedule(slots)).reply_limits()[ErrorReport] == ErrorReport.most_bytes


def test_the_largest_honest_reports_fit() -> None:
    """By their own bounds: what a rank of ours may say must not be refused for its size."""
    error = ErrorReport("T" * MAX_NAME, "é" * 4000, "\n" * 8000, 10**6, Cause.LACKS_INLINE_ASSEMBLY, 2**62)
    assert len(encode(error)) <= ErrorReport.most_bytes
    known = facts({f"{number:03}" + "n" * 500: "v" * 500 for number in range(64)})
    assert len(encode(replies.Ready(known, {}))) <= replies.Ready.most_bytes
    calls = 25
    timed = RunBatch(Schedule(tuple(range(calls)), aligned=True, digests=True))
    full = BatchReport(((2**53,) * 3,) * calls, (("f" * 46,) * 1200,) * calls, (12345.678901234,) * calls)
    assert len(encode(full)) <= timed.reply_limits()[BatchReport]
    rows = tuple((n % 2000, "memcpy", 10**9 + n, 10**7, 1000, 1 << 30) for n in range(6000))
    activity = Activity(tuple(f"{n:04}" + "k" * 196 for n in range(2000)), rows)  # type: ignore[arg-type]
    profiled = RunBatch(Schedule((0, 1, 2), aligned=True), records=True)
    assert len(encode(BatchReport((), (), (), activity=activity))) <= profiled.reply_limits()[BatchReport]
    assert len(encode(Comparison(0.5, None, ("f" * 46,) * 10_000))) <= Comparison.most_bytes


def test_words_that_fit_and_marks() -> None:
    assert clean("a\ud800b" * 5, 4) == "a?ba"
    assert facts({"k" * 300: 5}) == {"k" * MAX_NAME: "5"}
    assert is_library("ncclDevKernel_AllReduce")
    assert is_library("void ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs)")
    assert is_library("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    assert not is_library("push_tiles")
    assert not is_library("nccl_all_reduce_kernel(ncclDevComm, ncclWindow_vidmem*, float*)")
    assert not is_library("void push<ncclCoopCta>(ncclWindow_vidmem*, ncclDevComm, int*)")
    assert not is_library("(anonymous namespace)::push(ncclDevComm)")
    assert is_library("void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float*, float const*, unsigned long)")
    assert not is_library("void nvshmemi_init_array_kernel<unsigned long>(unsigned long*, int, unsigned long)")
    assert not is_library("all_gather_nvshmem")
    assert is_library("_Z25fcollect_on_stream_kernelIcEviPT_PKS0_m")
    assert not is_library("my_broadcast_on_stream_kernel(float*)")
    assert encode(Done()) == b'{"is":"Done"}'
    assert 2 * ArgumentsReply.most_bytes <= commands.COMMAND_BYTES
