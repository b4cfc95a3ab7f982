"""The folder a site is written into: templates, data as scripts, tables as CSV and JSON. Appears whole or not at all."""

import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from pkb.report import words
from pkb.types.errors import UserError
from pkb.types.units import bandwidth_words
from pkb.types.words import decision_words

MARKER = ".pkb-report"
"""Lies in every site that we made: only such a folder is ever replaced."""


Cell: TypeAlias = str | float | None
"""Of a table."""


class Pages:
    def __init__(self, folder: Path, shared: Mapping[str, Any]) -> None:
        self.folder = folder
        self.shared = dict(shared)
        self.count = 0
        self.env = _environment()

    def page(self, path: str, template: str, **context: Any) -> None:
        """`root` leads from the page to the top of the site: pages are opened from disk, where `/` is the disk's own."""
        root = "../" * path.count("/")
        text = self.env.get_template(template).render(self.shared | context | {"root": root, "path": path})
        self._write(path, text)
        self.count += 1

    def data(self, name: str, value: Any) -> None:
        """A script that assigns: a page opened from disk may load scripts, but may not fetch files."""
        body = f"(window.PKB_DATA=window.PKB_DATA||{{}})[{script_json(name)}]={script_json(value)};\n"
        self._write(f"data/{name}.js", body)

    def json(self, path: str, value: Any) -> None:
        """For other programs: plain JSON, one document a file."""
        self._write(path, json.dumps(value, allow_nan=False, separators=(",", ":"), default=_members) + "\n")

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Cell]]) -> None:
        """As CSV for people and as JSON for programs, where a cell keeps its type and its text as it is."""
        rows = list(rows)
        self.json(f"json/{name}.json", [{column: row.get(column) for column in columns} for row in rows])
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([spreadsheet_safe(row.get(column)) for column in columns] for row in rows)
        self._write(f"csv/{name}.csv", stream.getvalue())

    def copy_static(self) -> None:
        for entry in (files("pkb.report") / "static").iterdir():
            (self.folder / "static").mkdir(exist_ok=True)
            (self.folder / "static" / entry.name).write_bytes(entry.read_bytes())
        self._write("static/tones.css", _tones_css())
        self._write("static/highlight.css", _highlight_css())

    def _write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # A candidate may hold a lone surrogate, which no encoding can write.
        target.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element and a script file: no `<` that could end it, no line separators."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=_members)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _members(row: Any) -> dict[str, Any]:
    if not is_dataclass(row):
        raise TypeError(f"a {type(row).__name__} is no data for a page")
    return {field.name: getattr(row, field.name) for field in fields(row)}


def spreadsheet_safe(value: Any) -> Any:
    """A name that begins with `=` would be a formula in a spreadsheet: names come from models."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    env = Environment(
        loader=PackageLoader("pkb.report"),
        autoescape=True,  # every name, message and source comes from a model
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        time=words.time_words, times=words.times_words, percent=words.percent, count=words.count_words,
        dollars=words.dollars, short=words.short_number, bytes=words.bytes_words, plain=words.plain,
        mode_words=words.mode_words, spark=words.spark, breaks=words.breaks, is_whole=words.is_whole,
    )  # fmt: skip
    env.filters["script_json"] = lambda value: Markup(script_json(value))
    env.globals.update(
        VERDICT_MODE=words.VERDICT_MODE,
        decision_words=decision_words,
        bandwidth_words=bandwidth_words,
        PATHS=words.PATH_WORDS,
        COMMUNICATION=words.COMMUNICATION_WORDS,
    )
    return env


def _finalize(value: Any) -> Any:
    """Plain text is shown as it is stored: nothing invisible, nothing that turns the line around."""
    return words.visible(value) if type(value) is str else value


HATCHES = {
    "": "none",
    "///": "repeating-linear-gradient(45deg, transparent 0 3px, var(--panel) 3px 5px)",
    "\\\\\\": "repeating-linear-gradient(-45deg, transparent 0 3px, var(--panel) 3px 5px)",
    "---": "repeating-linear-gradient(0deg, transparent 0 3px, var(--panel) 3px 5px)",
    "xxx": "repeating-linear-gradient(45deg, transparent 0 3px, var(--panel) 3px 4px), "
    "repeating-linear-gradient(-45deg, transparent 0 3px, var(--panel) 3px 4px)",
}


def _tones_css() -> str:
    def rules(which: int) -> str:
        return "".join(f"--m-{name}:{tone[which]};" for name, tone in words.MODE_TONES.items())

    dark = rules(1)
    classes = "".join(
        f".m-{name}{{--tone:var(--m-{name});--hatch:{HATCHES[tone.hatch]}}}\n"
        for name, tone in words.MODE_TONES.items()
    )
    return (
        f":root{{{rules(0)}}}\n:root[data-theme=dark]{{{dark}}}\n"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n{classes}"
    )


def _highlight_css() -> str:
    from pygments.formatters import HtmlFormatter

    def styled(style: str, scope: str) -> str:
        lines = HtmlFormatter(style=style, classprefix="h-").get_style_defs(scope).splitlines()
        # Only colours of tokens: backgrounds and line numbers are the page's own business.
        return "\n".join(line for line in lines if ".h-" in line and "linenos" not in line)

    light, dark = styled("xcode", ".code"), styled("github-dark", ":root[data-theme=dark] .code")
    auto = styled("github-dark", ":root:not([data-theme=light]) .code")
    return f"{light}\n{dark}\n@media(prefers-color-scheme:dark){{\n{auto}\n}}\n"


@contextmanager
def whole_site(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all is written, so that a failed build leaves the old site."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file", "give a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        raise UserError(f"{out} holds something that is no report of ours", "give an empty or a new folder")
    out = out.absolute()
    building = out.with_name(f".{out.name}.building-{os.getpid()}")
    old = out.with_name(f".{out.name}.old-{os.getpid()}")
    try:
        building.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot write beside {out}: {error.strerror}", "give another --out") from error
    try:
        (building / MARKER).write_text("a report written by pkb; it is replaced as a whole\n", encoding="utf-8")
        yield building
        if out.exists():
            out.rename(old)
        building.rename(out)
    finally:
        for leftover in (building, old):
            shutil.rmtree(leftover, ignore_errors=True)
