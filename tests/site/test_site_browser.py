"""The site in a browser, opened from disk as a reader opens it."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_site import TOP, Site, Watched, one_of_each, pages_of, verdicts, write_site
from synthetic import write_many

Open = Callable[..., Watched]


@pytest.mark.timeout(300)
def test_every_page_opens_without_complaint(rich: Site, open_page: Open) -> None:
    page, complaints = open_page()
    for path in pages_of(rich):
        page.goto(rich.url(path))
        assert page.locator("h1").count() == 1, path
        assert page.title() != "owned", path
        assert not complaints, f"{path}: {complaints}"


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_sideways_scrolling(rich: Site, open_page: Open, dark: bool) -> None:
    page, complaints = open_page(width=360, dark=dark)
    for path in [*TOP, *one_of_each(rich)]:
        page.goto(rich.url(path))
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{path} is {over} px too wide"
    assert not complaints


def background(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_dark_and_light(rich: Site, open_page: Open) -> None:
    light, dark = (open_page(rich.url("index.html"), dark=dark).page for dark in (False, True))
    assert background(light) != background(dark), "the system's wish counts"
    light.locator("#theme").click()
    assert background(light) == background(dark)
    light.goto(rich.url("problems.html"))
    assert background(light) == background(dark), "the choice stays"
    light.keyboard.press("t")
    assert background(light) != background(dark)


def test_keyboard_on_the_leaderboard(rich: Site, open_page: Open) -> None:
    page, complaints = open_page(rich.url("index.html"))
    rows = page.locator("[data-panel=single] tr[data-href]:visible")
    everybody = rows.count()
    page.keyboard.press("/")
    page.keyboard.type("beta")
    assert rows.count() == 1 < everybody
    page.keyboard.press("Escape")
    assert rows.count() == everybody
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator("tr.current").get_attribute("id") == rows.first.get_attribute("id")
    name = rows.first.locator(".name").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/verdicts\.html#"))
    named = page.locator(".verdict-table tbody td:nth-child(2)").all_inner_texts()
    assert named
    assert all(text.startswith(name) for text in named)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/c/[^/]+\.html"))
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    assert not complaints


def test_tabs_show_the_three_readings(rich: Site, open_page: Open) -> None:
    page, complaints = open_page(rich.url("index.html"))
    for name, words in (("best", "best of 2"), ("agent", "agent"), ("single", "mean of 2 tries")):
        page.locator(f"[data-tab={name}]").click()
        assert (
            page.locator("[data-panel=single]:visible, [data-panel=best]:visible, [data-panel=agent]:visible").count()
            == 1
        )
        assert words in page.locator(f"[data-panel={name}]").inner_text()
    page.locator("[data-tab=agent]").click()
    again = open_page(page.url).page
    assert again.locator("[data-panel=agent]").is_visible(), "a tab can be linked"
    assert again.locator("[data-panel=single]").is_hidden()
    row = again.locator("[data-panel=best] tr[data-href]").first.get_attribute("id")
    aimed = open_page(rich.url(f"index.html#{row}")).page
    assert aimed.locator(f"[id='{row}']").is_visible(), "a row can be linked, whatever tab it is on"
    assert not complaints


def test_filters_of_the_verdicts(rich: Site, open_page: Open) -> None:
    rows = verdicts(rich)
    page, complaints = open_page(rich.url("verdicts.html"))
    count = page.locator(".said-count")
    assert count.inner_text().endswith(f"of {len(rows)}")
    wrong = [row for row in rows if row["verdict"] == "wrong"]
    page.locator("[data-filter=verdict]").select_option("wrong")
    assert f"of {len(wrong)} " in count.inner_text()
    assert {text.lower() for text in page.locator(".verdict-table .pill").all_inner_texts()} == {"wrong"}
    both = [row for row in wrong if row["collection"] == "maker/beta-2"]
    page.locator("[data-filter=contender]").select_option("maker/beta-2")
    assert page.locator(".verdict-table tbody tr").count() == len(both)
    linked = open_page(page.url).page
    assert linked.locator(".verdict-table tbody tr").count() == len(both), "a filter can be linked"
    page.locator(".verdict-table input[type=search]").fill("no such word anywhere")
    assert "No verdict fits" in page.locator(".verdict-table tbody").inner_text()
    assert not complaints


def test_sorting_and_paging_and_links_to_rows(rich: Site, open_page: Open) -> None:
    rows = verdicts(rich)
    page, complaints = open_page(rich.url("verdicts.html"))
    page.locator("th", has_text="Speedup").click()
    shown = [
        float(text.split("×")[0]) for text in page.locator("tbody td:nth-child(4)").all_inner_texts() if "×" in text
    ]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(max(float(row["speedup"]) for row in rows if row["speedup"]), abs=0.006)
    assert page.locator("tbody tr").count() == 50
    page.locator(".pager button", has_text="Next").click()
    assert page.locator("tbody tr").count() == len(rows) - 50
    slug = Path(rows[-1]["page"]).stem
    aimed = open_page(rich.url(f"verdicts.html#row-{slug}")).page
    assert aimed.locator("tr.aimed").get_attribute("id") == f"row-{slug}"
    assert aimed.locator("tr.aimed").is_visible()
    assert not complaints


def test_problems_can_be_searched(rich: Site, open_page: Open) -> None:
    page, complaints = open_page(rich.url("problems.html"))
    rows = page.locator("tr[data-href]:visible")
    page.keyboard.press("/")
    page.keyboard.type("ring_attention")
    assert 0 < rows.count() < 10
    page.keyboard.press("Escape")
    page.locator("#attempted").check()
    assert rows.count() == 12
    assert not complaints


def test_two_can_be_compared(rich: Site, open_page: Open) -> None:
    page, complaints = open_page(rich.url("compare.html"))
    page.locator("#first").select_option(label="maker/beta-2")
    page.locator("#second").select_option(label="maker/alpha-1 · shots")
    summary = page.locator(".summary")
    page.wait_for_function("document.querySelector('.summary')?.textContent.startsWith('maker/alpha-1')")
    assert "p = " in summary.inner_text()
    rows = page.locator("#comparison tbody tr").count()
    assert rows == 12
    better = int(page.locator(".tile b").first.inner_text())
    page.locator("#swap").click()
    page.wait_for_function("document.querySelector('.summary')?.textContent.startsWith('maker/beta-2')")
    assert int(page.locator(".tile b").nth(1).inner_text()) == better, "what is better one way is worse the other way"
    page.locator("#tries").select_option("2")
    page.wait_for_function("document.querySelector('.summary')?.textContent.includes('best of 2')")
    target = page.locator("#pair-csv").get_attribute("href")
    assert (rich.folder / target).is_file()
    assert not complaints


def test_a_trace_is_handed_to_perfetto(rich: Site, open_page: Open) -> None:
    """By its protocol: a page that is asked PING answers PONG when it is ready, and gets the trace."""
    row = next(row for row in verdicts(rich) if row["collection"] == "mine · paper" and row["verdict"] == "correct")
    page, _ = open_page()
    fake = """<script>window.got = null; addEventListener('message', event => {
      if (event.data === 'PING') event.source.postMessage('PONG', '*');
      else window.got = JSON.parse(new TextDecoder().decode(event.data.perfetto.buffer)); });</script>"""
    page.context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(content_type="text/html", body=fake))
    page.goto(rich.url(row["page"]))
    with page.context.expect_page() as opened:
        page.locator("[data-perfetto]").click()
    opened.value.wait_for_function("window.got !== null")
    assert opened.value.evaluate("got.traceEvents.length") > 8


def test_a_source_line_can_be_linked(rich: Site, open_page: Open) -> None:
    row = next(row for row in verdicts(rich) if row["verdict"] == "correct")
    page, complaints = open_page(rich.url(f"{row['page']}#L19"))
    assert "get_buffer" in page.locator("#L19").inner_text()
    assert page.locator("#L19 .used-by").count() == 1
    assert not complaints


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_verdicts_open_in_three_seconds(tmp_path: Path, open_page: Open) -> None:
    store = tmp_path / "store"
    site = write_site(store, [write_many(store, 10_000)], tmp_path / "site")
    for path, ready in (
        ("index.html", "[data-panel=single] tr[data-href]"),
        ("verdicts.html", ".verdict-table tbody tr"),
        ("problems.html", "tr[data-href]"),
        ("p/01_allreduce.html", ".verdict-table tbody tr"),
    ):
        page, complaints = open_page()
        began = time.monotonic()
        page.goto(site.url(path))
        page.locator(ready).first.wait_for(timeout=10_000)
        took = time.monotonic() - began
        assert took < 3, f"{path} took {took:.1f} s"
        assert not complaints
    page, _ = open_page(site.url("verdicts.html"))
    began = time.monotonic()
    page.locator(".verdict-table input[type=search]").fill("deadlock model-3")
    shown = page.locator(".verdict-table tbody tr").count()
    assert time.monotonic() - began < 1
    wanted = [row for row in verdicts(site) if row["verdict"] == "deadlock" and row["collection"] == "model-3"]
    assert shown == min(50, len(wanted)) > 0
    loaded = [
        "index.html",
        *(f"static/{name}" for name in ("style.css", "tones.css", "theme.js", "pkb.js")),
    ]
    assert sum((site.folder / path).stat().st_size for path in loaded) < 300_000
