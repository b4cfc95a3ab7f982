"""Proven races: what an analyser prints is checked before it is believed, and what is believed is shown with its lines."""

import ast
import io
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fake_ranks import spoil_value
from fake_recording import CLEAN, FakeExchange, recorder_of
from race_examples import ACCESS, CANDIDATE, FINDING, TIMELINE, analysis, printed, proof
from rich.console import Console
from verdict_examples import example

from pkb.candidates.polling import polls
from pkb.cli.panel import render
from pkb.generate.feedback import feedback
from pkb.judge.hints import NOT_PROVEN_HINT, PROOF_HINT, RACE_HINTS, hints_for
from pkb.judge.stages import race_proof
from pkb.judge.stages.race_proof import AnalyserFailed, proven_race
from pkb.report.race_picture import shown_race
from pkb.types.document_versions import read_evaluation
from pkb.types.protocol.codec import Malformed
from pkb.types.race import ANALYSIS_BYTES, OWN_ACCOUNT, PROVEN, RaceKind, RaceProof, read_analysis
from pkb.types.race_words import report_lines, timeline_lines
from pkb.types.verdict import Evaluation, Evidence, Verdict

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "verdict.schema.json").read_text())


def test_an_analysis_is_read() -> None:
    found = read_analysis(printed())
    assert (found.events, found.threads, found.why_not) == (9000, 256, "")
    assert found.findings[0].kind is RaceKind.RELAXED
    assert found.findings[0].second.line == 12
    assert [moment.order for moment in found.timeline] == [40, 41, 57, 58]


@pytest.mark.parametrize(
    "document",
    [
        b"", b"null", b"[]", b"{}", b"\xff", b"{" * 100_000, b"[" * 400_000, b" " * (ANALYSIS_BYTES + 1), printed(more=1),
        printed(findings=[FINDING] * 21), printed(timeline=TIMELINE * 11), printed(events=-1), printed(events=10**400),
        printed(broken="no"), printed(findings=[FINDING | {"kind": "stale_read"}]),
        printed(findings=[FINDING | {"kind": "odd"}]),
        printed(findings=[FINDING | {"first": ACCESS | {"rank": 64}}]), printed(findings=[FINDING | {"first": None}]),
        printed(findings=[FINDING | {"memory": "x" * 401}]),
        printed(findings=[FINDING | {"first": ACCESS | {"file": "\ud800"}}]),
    ],
)  # fmt: skip
def test_what_is_no_analysis_is_refused(document: bytes) -> None:
    with pytest.raises(Malformed):
        read_analysis(document)


def test_no_spoilt_analysis_raises_anything_else() -> None:
    dice, refused = random.Random(5), 0
    for _ in range(1500):
        document = json.loads(printed())
        spoil_value(document, dice)
        try:
            read_analysis(json.dumps(document).encode())
        except Malformed:
            refused += 1
    assert refused > 1000


# -- what becomes of it ------------------------------------------------------------------------------------------------


def proven(
    folder: Path,
    *documents: bytes | Exception,
    why_not: str = "",
    more: str = "",
    unknown_looks: bool = False,
    **options: Any,
) -> tuple[RaceProof, FakeExchange]:
    exchange = FakeExchange(why_not, unknown_looks)
    return recorder_of(folder, exchange, *documents, more=more, **options).prove(3).proof, exchange


def test_nothing_found_is_said_with_the_number_of_traces(tmp_path: Path) -> None:
    found, exchange = proven(tmp_path, CLEAN, CLEAN, CLEAN, seed=5, other_size="odd")
    assert found.in_words == "no race in 3 traces of 3 calls at tiny with 2 ranks (27000 events)"
    assert found.seeds == (5, 6, 7)
    assert exchange.candidate.told[:3] == [(0, 320), (1, 321), (0, 384)]
    assert exchange.late == [None, [1], None]
    assert exchange.alike == [False, True, False]
    assert exchange.sizes == [(), (), ("tiny", "odd", "tiny")]


def test_what_is_slow_to_record_has_two_traces_and_the_verdict_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race_proof, "ENOUGH_S", -1.0)
    found, exchange = proven(tmp_path, CLEAN, CLEAN)
    assert found.in_words == "no race in 2 traces of 3 calls at tiny with 2 ranks (18000 events)"
    assert exchange.alike == [False, True]


def test_a_finding_is_a_race_that_names_both_lines_of_the_candidate(tmp_path: Path) -> None:
    found, _ = proven(tmp_path, CLEAN, printed(), CLEAN)
    assert (found.traces, found.why_not, len(found.findings)) == (2, "", 1)
    first, second, missing = found.findings[0].first, found.findings[0].second, found.findings[0].missing
    text = CANDIDATE.splitlines()
    assert first.text == text[first.candidate_line - 1].strip() == "buffers[rank][i] = in[i];"
    assert (
        second.text
        == text[second.candidate_line - 1].strip()
        == "for (int peer = 0; peer < 2; ++peer) sum += buffers[peer][i];"
    )
    assert missing.first is not None
    assert missing.first.text == "put_relaxed(pads[1 - rank], 1);"
    decided = proven_race(found)
    assert (decided.verdict, decided.evidence.race_kind) == (Verdict.RACE, RaceKind.RELAXED)
    assert f"line {first.candidate_line} (all_reduce.cu:6) by rank 0" in decided.detail


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ((CLEAN, printed(truncated=True), CLEAN), "a log was full"),
        ((b'{"broken": true}', CLEAN, CLEAN), "a log is broken"),
        ((printed(broken=True), printed(), printed()), "a log is broken"),
        ((CLEAN, printed(events=0), CLEAN), "nothing was recorded"),
        ((CLEAN, printed(calls=2), CLEAN), "a log holds 2 whole calls of 3"),
        ((CLEAN, b"{"), "malformed"),
        ((CLEAN, CLEAN, AnalyserFailed("status -9")), "the analyser failed: status -9"),
        ((printed(findings=[FINDING | {"second": ACCESS | {"rank": 2}}]), CLEAN, CLEAN), "a rank that does not exist"),
    ],
)
def test_what_proves_nothing_accuses_nobody(tmp_path: Path, documents: Any, says: str) -> None:
    found, _ = proven(tmp_path, *documents)
    assert says in found.why_not
    assert not found.findings
    if found.traces:  # what was shown stays shown
        many = f"{found.traces} {'trace' if found.traces == 1 else 'traces'}"
        assert found.in_words.startswith(f"no race in {many} of 3 calls")
        assert f"; trace {found.traces + 1} of 3 proves nothing: " in found.in_words
    else:
        assert "neither proven nor excluded" in found.in_words


def test_flags_of_operators_that_python_waits_for_are_no_race(tmp_path: Path) -> None:
    operators = FINDING | {
        "first": ACCESS | {"what": "torch.copy_"},
        "second": ACCESS | {"what": "torch.add", "rank": 1},
    }
    document = printed(findings=[operators])
    assert proven(tmp_path, document)[0].findings
    waits = "while int(flags.min()) < epoch:\n    pass\n"
    for only in ({"more": waits}, {"unknown_looks": True}):  # its flags are known; it cannot wait for any
        assert proven(tmp_path, document, **only)[0].findings  # type: ignore[arg-type]
    for unseen in ("flags = buffer.numpy()\n", "c_int.from_address(flags.data_ptr())\n", "import threading\n"):
        assert not proven(tmp_path, document, CLEAN, CLEAN, more=unseen + waits)[0].findings
    found, _ = proven(tmp_path, document, CLEAN, CLEAN, more=waits, unknown_looks=True)
    assert (found.traces, found.findings, found.timeline) == (3, (), ())
    assert "left out" in found.in_words
    mixed = FINDING | {"second": operators["second"]}
    both = printed(findings=[operators, mixed])
    assert len(proven(tmp_path, both, more=waits, unknown_looks=True)[0].findings) == 1


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("total = sum(float(part[0]) for part in parts)", False),
        ("if int(flags[0]) == epoch:\n    go()", False),
        ("for peer in range(8):\n    total += float(parts[peer])", False),
        ("found = any(peer == rank for peer in ranks)", False),
        ("while flags[0] != epoch:\n    pass", True),
        ("for _ in range(10**9):\n    if flags[0] == epoch:\n        break", True),
        ("def meet():\n    for _ in endless:\n        if look():\n            return", True),
        ("def meet():\n    if int(flags[0]) < epoch:\n        meet()", True),
        ("class Flag:\n    def wait(self):\n        return self.flag.item() or self.wait()", True),
        ("any(int(flags[0]) == epoch for _ in endless)", True),
        ("next(1 for _ in endless if flags[0].item() == epoch)", True),
        ("for _ in iter(lambda: int(flags[0]), epoch):\n    pass", True),
    ],
)
def test_who_may_wait_for_memory_is_read_from_its_text(text: str, may: bool) -> None:
    assert polls(ast.parse(text)) is may


def test_ranks_that_cannot_record_say_why(tmp_path: Path) -> None:
    found, exchange = proven(tmp_path, why_not="no compiler")
    assert found.why_not == "no compiler"
    assert exchange.late == []


# -- what people see ---------------------------------------------------------------------------------------------------


def verdict(found: RaceProof, **changes: Any) -> Evaluation:
    decided = proven_race(found)
    return example(
        Verdict.RACE, detail=decided.detail, race_kind=RaceKind.RELAXED, race_proof=found, mismatch=None, **changes
    )


def panel(evaluation: Evaluation) -> str:
    out = io.StringIO()
    Console(file=out, width=80, highlight=False, markup=False).print(render(evaluation))
    return out.getvalue()


def test_the_panel_shows_both_accesses_and_the_timelines(tmp_path: Path) -> None:
    found, _ = proven(tmp_path, printed(), CLEAN, CLEAN)
    text = panel(verdict(found))
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "race of kind relaxed_where_release_acquire_is_needed", "[1] write at line 10 (all_reduce.cu:6): plain store",
        "buffers[rank][i] = in[i];", "rank 1, kernel all_reduce, block 3, thread 17, call 1", "missing: the store of the flag",
        "after [1]: st.relaxed.sys at line 12 (all_reduce.cu:8)", "| write :6 [1]", "| read :12 [2]",
        "nothing orders [1] and [2]",
    ):  # fmt: skip
        assert part in text, text


def test_the_feedback_says_the_same() -> None:
    said = feedback(verdict(proof()))
    assert "[1] write at all_reduce.cu:6: plain store" in said
    assert "| read :12 [2]" in said


def test_the_report_has_every_finding() -> None:
    second = FINDING | {"kind": "buffer_reused_too_early", "count": 1}
    lines = report_lines(proof(findings=[FINDING, second]))
    assert sum(line.startswith(("1. ", "2. ")) for line in lines) == 2
    assert lines[-1] == OWN_ACCOUNT
    assert "1 more: pkb eval --race-report" in panel(verdict(proof(findings=[FINDING, second])))


def test_names_of_a_log_paint_nothing() -> None:
    evil = ACCESS | {"kernel": "\x1b[2Jcorrect", "file": "</text><script>", "what": "\u202e"}
    found = proof(findings=[FINDING | {"first": evil}], timeline=[TIMELINE[0] | {"what": "\x1b[31m", "file": "<b>"}])
    assert "\x1b" not in panel(verdict(found)) + "\n".join(report_lines(found)) + feedback(verdict(found))
    shown = shown_race(verdict(found).to_dict())
    assert shown is not None
    assert shown.picture is not None
    assert "<b>" not in "".join(shown.picture.pictures)


def test_many_ranks_leave_room_for_the_two_that_race() -> None:
    others = [
        {"rank": rank, "order": 10 + rank, "what": "barrier", "file": "a.cu", "line": 1, "detail": ""}
        for rank in range(8)
    ]
    lines = timeline_lines(proof(timeline=[*others, *TIMELINE]))
    assert max(map(len, lines)) <= 76
    assert "rank 0" in lines[0]
    assert "rank 1" in lines[0]
    assert lines[-2].strip() == "(6 of other ranks left out)"


def test_a_first_access_without_a_number_of_its_own_stands_before_what_follows_it() -> None:
    late = [TIMELINE[1], TIMELINE[2], TIMELINE[0] | {"order": 58}, TIMELINE[3]]
    lines = timeline_lines(proof(timeline=late))
    assert [line.strip().split()[0] for line in lines[1:5]] == ["|", "41", "57", "58"]
    assert "[1]" in lines[1]
    assert "[2]" in lines[4]
    unknown = FINDING | {"missing": {"text": "", "first": None, "second": None}}
    assert "[1]" in timeline_lines(proof(timeline=late, findings=[unknown]))[3]


def test_the_site_draws_both_lanes_and_the_missing_order() -> None:
    shown = shown_race(verdict(proof()).to_dict())
    assert shown is not None
    assert shown.picture is not None
    wide = str(shown.picture.pictures[0])
    assert wide.count("race-access") == 2
    assert wide.count("race-sync") == 2
    assert wide.count('class="line race-missing"') == 1
    assert shown.rows[1][0] == "[2] read: plain load"
    assert shown_race(example(Verdict.CRASH).to_dict()) is None
    assert shown_race({"race_proof": {"findings": "many"}}) is None


def test_a_verdict_with_a_proof_is_a_document() -> None:
    evaluation = verdict(proof())
    document = json.loads(evaluation.to_json())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert read_evaluation(document) == evaluation


def test_every_kind_has_words_and_a_hint() -> None:
    assert set(RACE_HINTS) == set(RaceKind)
    kinds = SCHEMA["$defs"]["race_finding"]["properties"]["kind"]["enum"]
    assert set(kinds) == set(PROVEN)
    for kind in PROVEN:
        said = hints_for(Verdict.RACE, Evidence(race_kind=kind), platform="cpu", backend="cuda")
        assert said == [RACE_HINTS[kind]]
    on_gpu = hints_for(Verdict.RACE, Evidence(race_kind=RaceKind.STALE_READ), platform="virtual", backend="cuda")
    assert on_gpu[-1] == PROOF_HINT


def test_a_wrong_result_with_a_race_is_explained_by_it() -> None:
    mismatch = example(Verdict.WRONG).mismatch
    evidence = Evidence(mismatch=mismatch, race_proof=proof())
    said = hints_for(Verdict.WRONG, evidence, platform="cpu", backend="cuda")
    assert said[0].startswith("its recorded calls contain a race: the write at all_reduce.cu:6 by rank 0")
    assert RACE_HINTS[RaceKind.RELAXED] in said
    without = hints_for(Verdict.WRONG, replace(evidence, race_proof=None), platform="cpu", backend="cuda")
    assert RACE_HINTS[RaceKind.RELAXED] not in without


def test_bounds_are_those_of_the_schema() -> None:
    assert analysis()["findings"]
    properties = SCHEMA["$defs"]["race_proof"]["properties"]
    assert (properties["findings"]["maxItems"], properties["timeline"]["maxItems"]) == (20, 40)


@pytest.mark.parametrize(("document", "said"), [(CLEAN, True), (printed(), False), (b"{}", False)])
def test_a_provoked_race_without_a_proven_one_may_be_something_else(
    tmp_path: Path, document: bytes, said: bool
) -> None:
    found, _ = proven(tmp_path, document, CLEAN, CLEAN)
    evidence = Evidence(race_kind=RaceKind.STALE_READ, race_proof=found)
    hints = hints_for(Verdict.RACE, evidence, platform="cpu", backend="cuda")
    assert (NOT_PROVEN_HINT in hints) is said
    assert NOT_PROVEN_HINT not in hints_for(Verdict.WRONG, evidence, platform="cpu", backend="cuda")
