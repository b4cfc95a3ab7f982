"""A site for the tests of this folder, and what a browser says about its pages.

`python tests/site/made_site.py FOLDER` writes one with everything a page can show to FOLDER/site, for tools/screenshots.py.
"""

import csv
import sys
from pathlib import Path
from typing import Any, NamedTuple

from pkb.problems.registry import default_registry
from pkb.report.site import Options, build
from pkb.store import Reader

TOP = (
    "index.html",
    "problems.html",
    "verdicts.html",
    "failures.html",
    "agents.html",
    "compare.html",
    "published.html",
    "frontier.html",
)


class Site(NamedTuple):
    folder: Path
    store: Path
    runs: list[str]

    def url(self, path: str) -> str:
        return f"file://{self.folder}/{path}"


def write_site(store: Path, runs: list[str], out: Path, **options: Any) -> Site:
    with Reader(store) as reader:
        build(
            reader, [reader.run(name) for name in runs], out=out, registry=default_registry(), tell=lambda what: None,
            options=Options(**options),
        )  # fmt: skip
    return Site(out, store, runs)


class Watched(NamedTuple):
    page: Any
    complaints: list[str]
    """Console errors, exceptions, and requests that would leave the machine."""


def pages_of(site: Site) -> list[str]:
    return [
        *TOP,
        *(str(path.relative_to(site.folder)) for kind in "pc" for path in sorted((site.folder / kind).glob("*.html"))),
    ]


def verdicts(site: Site) -> list[dict[str, str]]:
    return list(csv.DictReader((site.folder / "csv/verdicts.csv").open(newline="", encoding="utf-8")))


def one_of_each(site: Site) -> list[str]:
    """A candidate's page for every verdict, an agent's, the hostile one, and a problem with times."""
    rows = verdicts(site)
    by_verdict = {row["verdict"]: row["page"] for row in rows if row["collection"].startswith("mine")}
    others = [next(row["page"] for row in rows if word in row["collection"]) for word in ("loop", "<")]
    return [*by_verdict.values(), *others, "p/01_allreduce.html", "p/87_conv2d_boundary_exchange.html"]


def write_everything(folder: Path) -> Site:
    """Everything a page can show, with figures and with published kernels."""
    from frontier_records import write_frontier
    from synthetic import write_rich

    write_frontier(folder / "records")
    runs = write_rich(folder / "store")
    return write_site(folder / "store", runs, folder / "site", figures=True, records=folder / "records")


if __name__ == "__main__":
    write_everything(Path(sys.argv[1]))
