"""`pkb roofline` and the bounds of `pkb show`: what people and scripts get, without a GPU."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from verdict_examples import TIMING, example

from pkb.cli.main import app
from pkb.cli.panel_timing import limit_words
from pkb.types.verdict import Verdict

FIELDS = {
    "id", "name", "size", "ranks", "dtype", "hardware", "ceilings", "flops", "hbm_bytes", "link_sent_bytes",
    "link_received_bytes", "phases", "compute_us", "hbm_us", "link_us", "switch_us", "floor_us", "bound_us",
    "unoverlapped_us", "overlap_gain", "binds",
}  # fmt: skip


def pkb(*words: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == status, result.output
    return result


def rows(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(pkb("roofline", *words).stdout)
    return found


def test_all_problems_by_default() -> None:
    found = rows("all", "--hardware", "h100x8", "--json")
    assert [row["id"] for row in found] == list(range(1, 88))
    assert all(set(row) >= FIELDS for row in found)
    assert {(row["size"], row["ranks"], row["ceilings"]) for row in found} == {("paper", 4, "ideal")}
    assert rows("--json") == found == rows("--json", "-")


def test_options_reach_the_bounds(tmp_path: Path) -> None:
    (plain,), (derated,) = rows("2", "--json"), rows("allgather", "--json", "--link-efficiency", "0.5")
    assert derated["bound_us"] == pytest.approx(2 * plain["bound_us"])
    (reachable,) = rows("2", "--json", "--ceilings", "reachable")
    assert reachable["bound_us"] == pytest.approx(plain["bound_us"] * 450 / 370)
    (blackwell,) = rows("2", "--json", "--hardware", "b200x8", "--ranks", "8", "--dtype", "fp32", "--size", "tiny")
    assert (blackwell["hardware"], blackwell["ranks"], blackwell["dtype"]) == ("b200x8", 8, "fp32")
    assert blackwell["bound_us"] == pytest.approx(7 * 64 * 32 * 4 / 900e9 * 1e6)
    out = tmp_path / "rows.json"
    table = pkb("roofline", "1-3,13", "--json", str(out)).stdout
    assert [row["id"] for row in json.loads(out.read_text())] == [1, 2, 3, 13]
    assert "gemm_allreduce" in table
    assert "4 problems, size paper, 4 ranks, h100x8, ideal ceilings" in table


def test_what_cannot_run_is_said_and_left_out() -> None:
    result = pkb("roofline", "all", "--ranks", "3", "--json")
    found = json.loads(result.stdout)
    assert 0 < len(found) < 87
    assert result.stderr.count("left out: ") == 87 - len(found)
    assert "error" in pkb("roofline", "1", "--dtype", "bf16", "--ranks", "7", status=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hardware", "h900"], "h100x8"),
        (["--ceilings", "high"], "ideal, reachable"),
        (["--size", "huge"], "huge"),
        (["--dtype", "fp5"], "fp5"),
        (["--ranks", "0"], "--ranks"),
        (["--ranks", "9"], "joins 8 GPUs"),
        (["--link-efficiency", "0"], "--link-efficiency"),
        (["--link-efficiency", "1.2"], "--link-efficiency"),
        (["--plot", "x.bmp"], ".png"),
        (["--plot", "/no/such/x.png"], "/no/such"),
        (["--json", "/no/such/x.json"], "/no/such"),
        (["--results", "/no/such.json"], "/no/such.json"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage(words: list[str], said: str) -> None:
    result = pkb("roofline", *words, status=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_plot(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"roof.{ending}"
    pkb("roofline", "1-16", "--plot", str(picture))
    start = picture.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == "png" else b"<svg" in picture.read_bytes()[:2000]
    assert picture.stat().st_size > 20_000


def test_plot_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'pkb[plot]'" in pkb("roofline", "1", "--plot", str(tmp_path / "a.png"), status=2).stderr


def test_results_of_stored_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "good.json").write_text(example(Verdict.CORRECT).to_json())
    (tmp_path / "bad.json").write_text(example(Verdict.WRONG).to_json())
    untimed = example(Verdict.REJECTED)
    old = json.loads(example(Verdict.CORRECT).to_json())
    del old["timing"]["roofline"]
    many = [json.loads(untimed.to_json()), old]
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps(verdict) for verdict in many))
    words = ("--results", str(tmp_path / "good.json"), str(tmp_path / "bad.json"), str(tmp_path / "lines.jsonl"))
    result = pkb("roofline", *words, "--json")
    stored, computed = json.loads(result.stdout)
    assert TIMING.roofline is not None
    kept = (stored["candidate_utilisation"], stored["ideal_us"])
    assert kept == (TIMING.roofline.candidate_utilisation, TIMING.roofline.ideal_us), "as stored"
    assert computed["hardware"] == "h200-shared", "found by the device of a verdict without a roofline"
    assert computed["candidate_utilisation"] == pytest.approx(computed["ideal_us"] / TIMING.candidate_us)
    assert "wrong, not timed" in result.stderr
    assert "rejected" in result.stderr
    # Another machine may be asked for, and the table says the same.
    (other, _) = rows(*words, "--json", "--hardware", "h100x8")
    assert other["hardware"] == "h100x8"
    assert other["reference_utilisation"] == pytest.approx(other["ideal_us"] / TIMING.reference_us)
    assert "92.27 us = 9.42 %" in pkb("roofline", *words).stdout
    (tmp_path / "no.json").write_text('{"a": 1}')
    assert "is no verdict" in pkb("roofline", "--results", str(tmp_path / "no.json"), status=2).stderr
    (tmp_path / "no.json").write_text("{")
    assert "is no JSON" in pkb("roofline", "--results", str(tmp_path / "no.json"), status=2).stderr


def test_show_prints_bounds() -> None:
    text = " ".join(pkb("show", "1").stdout.split())
    assert re.search(r"5\.825 us on h100x8, [0-9.]+ us without overlap \(link-bound; latency [0-9.]+ us\)", text)
    document = json.loads(pkb("show", "1", "--json", "--hardware", "b200x8").stdout)
    bounds = document["cases"]["paper"]["bounds"]
    assert bounds["ideal"]["bound_us"] == pytest.approx(1.25 * 2**21 / 900e9 * 1e6)
    assert bounds["reachable"]["bound_us"] > bounds["ideal"]["bound_us"]
    assert "h900" in pkb("show", "1", "--hardware", "h900", status=2).stderr


def test_the_panel_says_how_near() -> None:
    said = limit_words(TIMING.roofline, platform="virtual")
    assert said.startswith(
        "8.693 us (compute-bound; latency 2.3 us; h200-shared datasheet): reference 5.5 %, candidate 9.42 %"
    )
    assert "pkb probe" in limit_words(None, platform="cpu")
    assert "%" not in limit_words(TIMING.roofline, platform="virtual", believed=False)
