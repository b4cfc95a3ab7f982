"""What a reader sees: no violation that axe-core finds, no text of a picture cut off, no table wider than its window."""

from collections.abc import Callable
from importlib.resources import files

import pytest
from made_site import TOP, Site, Watched, one_of_each

Open = Callable[..., Watched]
CUT = """() => Array.from(document.querySelectorAll('.chart svg:not(.swatch)')).filter(svg => svg.clientWidth).flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return Array.from(svg.querySelectorAll('text')).filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1;
  }).map(text => svg.getAttribute('aria-label') + ': ' + text.textContent);
})"""
OVER = """() => Array.from(document.querySelectorAll('.chart svg:not(.swatch)')).filter(svg => svg.clientWidth).flatMap(svg => {
  const boxes = Array.from(svg.querySelectorAll('text')).map(text => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([words, a], i) => boxes.slice(i + 1).filter(([_, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  ).map(([other]) => words + ' / ' + other));
})"""
TOO_WIDE = """() => Array.from(document.querySelectorAll('.scroll')).filter(box => box.scrollWidth > box.clientWidth + 1)
  .map(box => box.getAttribute('aria-label') + ': ' + box.scrollWidth + ' px in ' + box.clientWidth)"""
AXE = """() => axe.run(document, { resultTypes: ['violations'], preload: false }).then(found => found.violations.map(one =>
  one.id + ': ' + one.nodes.slice(0, 3).map(node => node.html.slice(0, 160) + ' ' + node.failureSummary).join(' | ')))"""


@pytest.fixture(scope="module")
def axe() -> str:
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-core: pip install 'pkb[dev]'")
    return (files(package) / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation(rich: Site, open_page: Open, axe: str, width: int, dark: bool) -> None:
    page, complaints = open_page(width=width, dark=dark)
    for path in [*TOP, *one_of_each(rich)[:: 1 if width > 390 else 5]]:
        page.goto(rich.url(path))
        page.evaluate(axe)
        assert page.evaluate(AXE) == [], path
    assert not complaints


@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_of_a_picture_is_cut_or_written_over(rich: Site, open_page: Open, width: int) -> None:
    page, complaints = open_page(width=width)
    pictures = 0
    for path in [*TOP, *one_of_each(rich), "p/13_gemm_allreduce.html"]:
        page.goto(rich.url(path))
        assert page.evaluate(CUT) == [], path
        assert page.evaluate(OVER) == [], path
        pictures += page.locator(".chart svg:not(.swatch):visible").count()
    assert pictures >= 10
    assert not complaints


def test_tables_fit_a_window_of_1280(rich: Site, open_page: Open) -> None:
    page, complaints = open_page(width=1280)
    for path in [*TOP, *one_of_each(rich), "p/13_gemm_allreduce.html"]:
        page.goto(rich.url(path))
        assert page.evaluate(TOO_WIDE) == [], path
    assert not complaints


def test_all_pages_of_the_site_are_in_sight_on_a_phone(rich: Site, open_page: Open) -> None:
    page, _ = open_page(rich.url("index.html"), width=390)
    links = page.locator("nav a")
    assert links.count() == len(TOP)
    for number in range(links.count()):
        box = links.nth(number).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["height"] >= 24, "a finger has to hit it"


def test_a_name_breaks_at_its_joints(rich: Site, open_page: Open) -> None:
    page, _ = open_page(rich.url("problems.html"), width=390)
    broken = page.evaluate(
        """() => Array.from(document.querySelectorAll('td .name')).flatMap(name => {
          const range = document.createRange(), lines = [];
          for (const node of name.childNodes) if (node.nodeType === 3) {
            range.selectNodeContents(node);
            if (range.getClientRects().length > 1) lines.push(node.textContent);
          }
          return lines;
        })"""
    )
    assert broken == [], "a word without a joint stands on one line"


def test_curves_differ_by_more_than_colour(rich: Site, open_page: Open) -> None:
    page, _ = open_page(rich.url("index.html"))
    looks = page.evaluate(
        """() => Array.from(document.querySelectorAll('#curves .keys li')).map(key => {
          const line = getComputedStyle(key.querySelector('.line')), mark = key.querySelector('.mark');
          const shape = mark.getAttribute('d').replace(/[0-9.-]+/g, '') + getComputedStyle(mark).fill;
          return [line.stroke, line.strokeDasharray, shape].join();
        })"""
    )
    assert len(looks) >= 8
    assert len(set(looks)) == len(looks)
