"""Archives of strangers: what is no archive of ours, what physics or its own control speaks against, and what a merge does."""

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_archives import (
    HARDWARE,
    PROBE,
    REFERENCE,
    archive,
    bodies,
    control,
    good,
    kernel,
    listed,
    scaled,
)

from pkb.analysis import machine_archive, machine_records
from pkb.analysis.machine_archive import read_archive
from pkb.analysis.machine_checks import from_samples, objections
from pkb.analysis.machine_records import MANIFEST, parse, read_verdict, to_line
from pkb.analysis.machine_tables import kernel_table, reference_table
from pkb.judge.timing.statistics import Paired, estimate
from pkb.problems.registry import default_registry
from pkb.types.protocol.codec import Malformed
from pkb.types.timing import KindSpeedup
from pkb.types.verdict import Evaluation

DOCS = Path(__file__).parents[2] / "docs"


def against(path: Path) -> list[str]:
    return objections(read_archive(path), default_registry())


def test_a_good_archive_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = read_archive(archive(tmp_path / "a.tar.gz"))
    assert records.manifest.hardware == HARDWARE
    assert records.records == {name: tuple(lines) for name, lines in good().items()} | {
        "kernels.jsonl": (replace(kernel(), profile=None),)
    }
    assert objections(records, default_registry()) == []
    again = archive(tmp_path / "b.tar.gz")
    assert again.read_bytes() == (tmp_path / "a.tar.gz").read_bytes()


# -- what is no archive of ours ----------------------------------------------------------------------------------------


def tar_of(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for entry, body in entries:
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return path


def linked(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, "/etc/passwd"
    return entry


@pytest.mark.parametrize(
    "name", ["../kernels.jsonl", "/etc/cron.d/x", "a/kernels.jsonl", "./kernels.jsonl", "x.py", ""]
)
def test_a_member_of_another_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Malformed, match=r"no member is called|no archive"):
        read_archive(tar_of(tmp_path / "a", (tarfile.TarInfo(name), b"x")))


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_only_plain_files_are_read(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a"
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(linked("kernels.jsonl", kind))
    with pytest.raises(Malformed, match=r"no plain file|no archive"):
        read_archive(path)


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    twice = [(tarfile.TarInfo("kernels.jsonl"), b"") for _ in range(2)]
    with pytest.raises(Malformed, match=r"twice"):
        read_archive(tar_of(tmp_path / "a", *twice))


def test_a_bomb_does_not_go_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One large member, many allowed ones, and a header that claims gigabytes: each stops at its own bound."""
    monkeypatch.setattr(machine_archive, "MEMBER_BYTES", 1 << 20)
    monkeypatch.setattr(machine_archive, "UNPACKED_BYTES", 4 << 20)
    zeros = tar_of(tmp_path / "member", (tarfile.TarInfo("kernels.jsonl"), bytes(2 << 20)))
    with pytest.raises(Malformed, match=r"more than 1 MiB"):
        read_archive(zeros)
    header = tarfile.TarInfo("././@PaxHeader")
    header.type = tarfile.XHDTYPE
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        header.type = kind
        with pytest.raises(Malformed, match=r"more than 4 MiB come out"):
            read_archive(tar_of(tmp_path / "header", (header, bytes(16 << 20))))
    endless = tmp_path / "zeros"
    endless.write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(Malformed):
        read_archive(endless)
    monkeypatch.setattr(machine_archive, "ARCHIVE_BYTES", 100)
    with pytest.raises(Malformed, match=r"the archive has more"):
        read_archive(archive(tmp_path / "large"))


@pytest.mark.parametrize("cut", [0, 1, 20, 300, 2000])
def test_a_file_cut_short_or_of_noise_is_refused(tmp_path: Path, cut: int) -> None:
    whole = archive(tmp_path / "a").read_bytes()
    (tmp_path / "cut").write_bytes(whole[:cut])
    with pytest.raises(Malformed):
        read_archive(tmp_path / "cut")
    (tmp_path / "noise").write_bytes(bytes(range(256)) * (cut + 1))
    with pytest.raises(Malformed):
        read_archive(tmp_path / "noise")


def test_a_wrong_hash_or_list_is_refused() -> None:
    members = listed(bodies(good()))
    with pytest.raises(Malformed, match=r"references.jsonl is not what the manifest says"):
        parse({**members, "references.jsonl": members["references.jsonl"] * 2})
    with pytest.raises(Malformed, match=r"other members than are there: probe.jsonl"):
        parse({name: body for name, body in members.items() if name != "probe.jsonl"})
    with pytest.raises(Malformed, match=r"no manifest.json"):
        parse(bodies(good()))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2}, {"schema": True}, {"machine": "../../etc"}, {"machine": "A"}, {"machine": ""}, {"ranks": 0},
        {"hardware": "<script>"}, {"hardware": "a | b"}, {"driver": "x" * 300}, {"judge_sha256": "abc"}, {"extra": 1},
        {"versions": {f"v{i}": "1" for i in range(40)}}, {"created_at": "a\nb"}, {"steps": [{"is": "Step"}]},
    ],
)  # fmt: skip
def test_a_manifest_of_another_schema_is_refused(change: dict[str, Any]) -> None:
    members = listed({})
    members[MANIFEST] = json.dumps(json.loads(members[MANIFEST]) | change).encode()
    with pytest.raises(Malformed, match=r"manifest.json"):
        parse(members)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"null", b"{" * 5000, b'{"schema": 3}', b'{"schema": "2"}', b'{"schema": NaN}', b"\xff", b"1" * 5000,
        b'{"schema": 2, "verdict": "correct"}',
    ],
)  # fmt: skip
def test_what_is_no_verdict_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        read_verdict(line)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "splendid"), (("ranks",), "8"), (("ranks",), True), (("detail",), 5), (("detail",), "x" * 30_000),
        (("timing", "candidate_us"), "fast"), (("timing", "candidate_us"), 1e400), (("timing", "speedup_low"), None),
        (("timing", "candidate_us"), 10**400), (("ranks",), 10**400),
        (("timing", "reference_samples_us"), [[1.0, "x"]]), (("timing", "reference_samples_us"), 5), (("timing",), []),
        (("problem", "id"), 1.5), (("problem",), None), (("environment",), {"a": 1}), (("unheard_of",), 1),
        (("paths",), ["x"] * 20_000), (("timing", "roofline", "ideal_us"), []), (("candidate", "file"), {}),
    ],
)  # fmt: skip
def test_a_verdict_of_other_types_is_refused(path: tuple[str, ...], value: Any) -> None:
    document = json.loads(to_line(kernel()))
    inner = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    with pytest.raises(Malformed):
        read_verdict(json.dumps(document).encode())


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(machine_records.LINES)))
def test_noise_is_malformed_and_nothing_else(noise: bytes, member: str) -> None:
    with pytest.raises(Malformed):
        parse(listed({member: b"x" + noise + b"\n"}))


def test_every_kept_verdict_of_ours_is_accepted() -> None:
    """A strict reader must not refuse what the judge itself writes."""
    lines = (DOCS / "records" / "kernels.jsonl").read_bytes().splitlines()
    examples = [path.read_bytes() for path in (DOCS.parent / "tests" / "data" / "verdicts").glob("*.json")]
    for line in [*lines, *examples]:
        assert isinstance(read_verdict(line), Evaluation)


# -- what speaks against a good one ------------------------------------------------------------------------------------


def test_a_control_off_one_is_refused(tmp_path: Path) -> None:
    for low, high in ((1.01, 1.05), (0.9, 0.99)):
        reasons = against(archive(tmp_path / "a", control=[control(low, high)]))
        assert len(reasons) == 1
        assert "the reference against itself" in reasons[0]
    assert not against(archive(tmp_path / "a", control=[control(1.01, 1.05), control()])), "the last one counts"
    assert "no A/A control" in against(archive(tmp_path / "a", control=[]))[0]
    untimed = replace(control(), timing=None)
    assert "not timed" in against(archive(tmp_path / "a", control=[untimed]))[0]
    assert not against(archive(tmp_path / "a", control=[], kernels=[], frontier=[], references=[])), (
        "nothing to control"
    )


def test_a_time_below_the_floor_is_refused(tmp_path: Path) -> None:
    """All-gather of 8 x 128 MiB among 8 ranks that share a GPU: HBM alone needs hundreds of microseconds."""
    fast = kernel()
    assert fast.timing is not None
    timing = scaled(fast.timing, fast.timing.reference_us / 20.0)
    reasons = against(archive(tmp_path / "a", kernels=[replace(fast, timing=timing)]))
    assert ["20.00 us is below the physical floor" in reason for reason in reasons] == [True]
    reasons = against(archive(tmp_path / "a", references=[replace(REFERENCE, time_us=20.0)]))
    assert ["20.00 us is below the physical floor" in reason for reason in reasons] == [True]
    assert against(archive(tmp_path / "a", references=[replace(REFERENCE, time_us=0.0)]))
    assert "a H200 has" in against(archive(tmp_path / "a", probe=[replace(PROBE, rate=1e15)]))[0]


def test_times_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    honest = kernel()
    assert honest.timing is not None
    samples = honest.timing.reference_samples_us
    changes: list[dict[str, Any]] = [
        {"speedup": 9.0}, {"speedup_low": 5.0, "speedup_high": 4.0}, {"reference_us": 0.0}, {"candidate_us": -1.0},
        {"speedup": 2.2, "speedup_high": 9.0}, {"speedup_low": 2.3, "speedup_high": 2.4},
        {"reference_samples_us": (), "candidate_samples_us": ()}, {"candidate_samples_us": samples},
        {"candidate_samples_us": honest.timing.candidate_samples_us[1:]}, {"sample_kinds": (("a",),)},
        {"candidate_samples_us": tuple((0.0,) * len(calls) for calls in samples)},
        {"window_speedup_low": 1.5},  # of a judge that quotes no ratio of the two times
    ]  # fmt: skip
    for change in changes:
        timing = replace(honest.timing, **change)
        assert "contradict" in against(archive(tmp_path / "a", kernels=[replace(honest, timing=timing)]))[-1], change


CALL = st.tuples(st.floats(1.0, 1e6), st.floats(1.0, 1e6), st.sampled_from(["a", "b"]))


@settings(max_examples=50, deadline=None)
@given(rounds=st.lists(st.lists(CALL, min_size=1, max_size=5), min_size=1, max_size=5), weight=st.floats(0.1, 3.0))
def test_the_speedup_is_recomputed_as_the_judge_computes_it(
    rounds: list[list[tuple[float, float, str]]], weight: float
) -> None:
    """Analysis imports no judge, so the formulas are there twice."""
    theirs, ours = (tuple(tuple(float(call[side]) for call in calls) for calls in rounds) for side in (0, 1))
    kinds = tuple(tuple(kind for _, _, kind in calls) for calls in rounds)
    one_kind = Paired(theirs, ours)
    honest = kernel().timing
    assert honest is not None
    timing = replace(honest, reference_samples_us=theirs, candidate_samples_us=ours)
    wanted = (estimate(one_kind, resamples=2).ratio.value, *one_kind.typical_us())
    assert from_samples(timing) == pytest.approx(wanted, rel=1e-9)
    shares = {"a": 1.0, "b": weight}
    paired = Paired(theirs, ours, kinds, shares)
    found = estimate(paired, resamples=2)
    if found.by_kind:  # else the judge names no kinds
        by_kind = {kind: KindSpeedup(shares[kind], 0.0, 0.0, *found.by_kind[kind]) for kind in found.by_kind}
        timing = replace(timing, sample_kinds=kinds, speedup_by_kind=by_kind)
        assert from_samples(timing) == pytest.approx((found.ratio.value, *paired.typical_us()), rel=1e-9)


def test_a_verdict_of_another_machine_is_refused(tmp_path: Path) -> None:
    assert "not the manifest's machine" in against(archive(tmp_path / "a", kernels=[kernel(hardware="NVIDIA B200")]))[0]
    assert "not the manifest's machine" in against(archive(tmp_path / "a", kernels=[kernel(platform="node")]))[0]


def test_a_case_that_no_problem_has_is_refused_and_an_old_version_not_shown(tmp_path: Path) -> None:
    assert "has no size" in against(archive(tmp_path / "a", kernels=[kernel(size="huge")]))[0]
    old = replace(kernel(), problem=replace(kernel().problem, version=99))
    path = archive(tmp_path / "a", kernels=[old], references=[replace(REFERENCE, version=99)])
    assert not against(path)
    records = [read_archive(path)]
    assert kernel_table(records, default_registry()) is None
    assert reference_table(records, default_registry()) is None
