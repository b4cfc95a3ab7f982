"""A site for the tests of this folder, and what a browser says about its pages."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

from pkb.problems.registry import default_registry
from pkb.report.site import Options, build
from pkb.store import Reader

TOP = ("index.html", "problems.html", "verdicts.html", "failures.html", "agents.html", "compare.html", "published.html")


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
