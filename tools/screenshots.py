"""Pictures of every kind of page of a report, wide and narrow, light and dark: to look at before a change of the site is done.

    python tools/screenshots.py OUT --site SITE   # a folder that `pkb report` wrote; OUT gets NAME-1280-light.png and so on
    make screenshots                              # of a made-up site that has everything a page can show: out/screenshots

It needs the browser chromium and playwright (pip install 'pkb[dev]'). Of the many pages of problems and candidates it takes one
for each verdict; `--all` takes them all.
"""

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = (1280, 390)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TALLEST = 6000
"""A picture of a source of thousands of lines shows nothing more at its end."""


def pages(site: Path, *, every: bool) -> Iterator[Path]:
    yield from sorted(site.glob("*.html"))
    if every:
        yield from sorted([*site.glob("p/*.html"), *site.glob("c/*.html")])
        return
    with (site / "csv" / "verdicts.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tried = {row["name"]: row for row in rows if row["verdict"] == "correct"} or {row["name"]: row for row in rows}
    untried = [path for path in sorted(site.glob("p/*.html")) if path.stem not in {row["name"] for row in rows}]
    yield from [site / "p" / f"{name}.html" for name in sorted(tried)[:2]]
    yield from untried[:1]
    by_kind: dict[tuple[str, bool], Path] = {}
    for row in rows:
        path = site / row["page"]
        richness = path.stat().st_size  # of several, the page that has the most to show
        kind = (row["verdict"], row["step"] != "")
        if kind not in by_kind or richness > by_kind[kind].stat().st_size:
            by_kind[kind] = path
    yield from sorted(by_kind.values())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--site", type=Path, help="a report; without it, one is made up")
    options.add_argument("--all", action="store_true", help="every page of a problem and of a candidate")
    args = options.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("screenshots: there is no chromium (Debian, Ubuntu: apt install chromium)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        site = args.site
        if site is None:
            subprocess.run([sys.executable, ROOT / "tests" / "site" / "made_site.py", scratch], check=True)
            site = Path(scratch, "site")
        chosen = list(pages(site.resolve(), every=args.all))
        args.out.mkdir(parents=True, exist_ok=True)
        take(chromium, site.resolve(), chosen, args.out)
    print(f"{args.out}: {len(chosen)} pages, {len(WIDTHS) * len(THEMES)} pictures each")
    return 0


def take(chromium: str, site: Path, chosen: list[Path], out: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for width in WIDTHS:
            for theme in THEMES:
                context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
                page = context.new_page()
                for path in chosen:
                    page.goto(path.as_uri())
                    height = page.evaluate("document.documentElement.scrollHeight")
                    name = "-".join(path.relative_to(site).with_suffix("").parts)
                    page.screenshot(
                        path=out / f"{name}-{width}-{theme}.png",
                        clip={"x": 0, "y": 0, "width": width, "height": min(TALLEST, height)},
                        full_page=True,
                    )
                context.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
