"""A site for the tests of this folder, and what a browser says about its pages."""

from pathlib import Path
from typing import Any, NamedTuple

from pkb.problems.registry import default_registry
from pkb.report.site import Options, build
from pkb.store import Reader


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
