"""What traces have shown is kept however a later one ends, and one more is of a candidate's first calls."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from fake_recording import CLEAN, FakeExchange, recorder_of
from race_examples import printed

from pkb.judge.crew.crew import Crew
from pkb.judge.crew.failure import CrewFailure, CrewFailureKind
from pkb.judge.exchange import Exchange
from pkb.judge.stages.race_proof import Proved
from pkb.types.protocol.commands import Load

FAILURE = CrewFailure(CrewFailureKind.RAISED, [0], "something went wrong", role="candidate")


def test_a_trace_that_ends_badly_takes_nothing_from_those_before(tmp_path: Path) -> None:
    recorder = recorder_of(tmp_path, exchange := FakeExchange("", False), CLEAN, CLEAN)
    exchange.calls, exchange.fails = 30, {2: FAILURE}
    proved = recorder.prove(3)
    assert proved.ended == (FAILURE, 30)
    assert proved.proof.in_words == (
        "no race in 2 traces of 3 calls at tiny with 2 ranks (18000 events); "
        "trace 3 of 3 did not end well: error on ranks [0]: something went wrong"
    )
    recorder = recorder_of(tmp_path, exchange := FakeExchange("", False))
    exchange.fails = {0: FAILURE}
    assert recorder.prove(3).proof.in_words.startswith(
        "races neither proven nor excluded: trace 1 of 3 did not end well"
    )


def test_first_calls_are_one_more_trace_of_another_side(tmp_path: Path) -> None:
    found, ended, first_ended = with_first_calls(tmp_path, fails={})
    assert (found.traces, found.first_calls, found.findings, ended, first_ended) == (2, True, (), None, None)
    assert found.in_words.endswith("(18000 events), one of which covers its first calls")
    found, *_ = with_first_calls(tmp_path, fails={}, said=printed())
    assert (found.traces, found.first_calls, len(found.findings)) == (2, True, 1)
    found, *_ = with_first_calls(tmp_path, fails={}, said=printed(truncated=True))
    assert found.in_words.endswith(
        "(9000 events); its first calls prove nothing: a log was full before the calls were over"
    )
    found, ended, first_ended = with_first_calls(tmp_path, fails={0: FAILURE})
    assert (found.traces, found.first_calls, ended, first_ended) == (1, False, None, (FAILURE, 3))


def test_first_calls_are_recorded_however_the_others_ended(tmp_path: Path) -> None:
    found, ended, first_ended = with_first_calls(tmp_path, fails={}, others={0: FAILURE})
    assert (found.traces, found.first_calls, first_ended) == (1, True, None)
    assert ended is not None
    assert "; trace 1 of 1 did not end well: " in found.in_words


def with_first_calls(
    folder: Path,
    *,
    fails: Mapping[int, CrewFailure],
    said: bytes = CLEAN,
    others: Mapping[int, CrewFailure] = MappingProxyType({}),
) -> Proved:
    exchange, fresh = FakeExchange("", False), FakeExchange("", False)
    exchange.fails, fresh.fails = others, fails

    @contextlib.contextmanager
    def another(load: Callable[[Crew, Load], None]) -> Iterator[Exchange]:
        load(cast(Crew, fresh.candidate), Load("/candidate.py"))
        yield cast(Exchange, fresh)

    documents = [said] if others else [CLEAN, said]
    proved = recorder_of(folder, exchange, *documents, seed=5).prove(1, another=another)
    assert proved.proof.seeds == (5, 6)
    assert fresh.candidate.told == [(0, 384), (1, 385)]  # with the order to load, and not once more
    return proved
