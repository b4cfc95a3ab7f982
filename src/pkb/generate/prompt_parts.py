"""The parts of a prompt: Markdown files that are jinja2 templates, the package's own or a user's in their place.

A user's folder holds files of the same names; what is missing there is the package's. An empty file leaves the part out.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pkb.types.errors import UserError

BUILT_IN = Path(__file__).parent / "parts"


BACKENDS: Mapping[str, str] = {
    "cuda": "CUDA C++ on symmetric memory",
    "cuda-kit": "CUDA C++ on symmetric memory with the kit's headers",
    "triton": "Triton on symmetric memory",
    "cute": "CuTe DSL on symmetric memory",
    "parallelkittens": "ParallelKittens (ThunderKittens across GPUs)",
    "nvshmem": "NVSHMEM",
    "nccl-device": "CUDA C++ with NCCL's device API",
}
"""Programming models, as a prompt says them."""

SYSTEM = "system"
MODEL = "model"
EXAMPLE = "example"
ORDER = ("task", "problem", "reference", "hardware", "rules", MODEL, EXAMPLE, "precision", "output")
"""The parts of the user message. `model` is `model-<backend>`; `example` is there once for each worked example."""

_WHAT = {
    "system": "the system message",
    "task": "what is asked, how it is judged, what is forbidden",
    "problem": "the statement, taxonomy, groups and arguments of the problem",
    "reference": "the reference that the candidate replaces",
    "hardware": "the machine, its figures, and what a call needs at least",
    "rules": "what holds for every programming model",
    "example": "one worked example; there once for each",
    "precision": "dtypes and tolerances",
    "output": "the form of the answer",
}


class PartFile(NamedTuple):
    name: str
    """File name without `.md`."""
    what: str


class PartText(NamedTuple):
    name: str
    text: str


def part_files() -> list[PartFile]:
    """All parts that come with the package, in the order of a prompt."""
    names: list[PartFile] = []
    for part in (SYSTEM, *ORDER):
        if part == MODEL:
            names += [PartFile(f"model-{name}", f"programming model {title}") for name, title in BACKENDS.items()]
        else:
            names.append(PartFile(part, _WHAT[part]))
    return names


class Parts:
    """Templates by name, from the package or from a user's folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._sources = {name: (BUILT_IN / f"{name}.md").read_text(encoding="utf-8") for name, _ in part_files()}
        self.changed: tuple[str, ...] = ()
        """Parts that the user's folder replaces."""
        if folder is not None:
            own = _read_folder(folder, known=set(self._sources))
            self.changed = tuple(sorted(own))
            self._sources |= own

    @property
    def version(self) -> str:
        """Names the texts of all parts: the same for every prompt made from them, and another when one changes."""
        digest = hashlib.sha256()
        for name, source in sorted(self._sources.items()):
            digest.update(f"{name}\0{source}\0".encode())
        return digest.hexdigest()[:12]

    def source(self, name: str) -> str:
        return self._sources[name]

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """The part with its names filled in. A name that is not there is an error, never an empty place."""
        try:
            import jinja2
        except ImportError as error:
            raise UserError("prompts need jinja2", "pip install 'pkb[generate]'") from error
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False,
            keep_trailing_newline=True,
        )  # fmt: skip
        origin = f"{name}.md" + (" of your folder" if name in self.changed else "")
        try:
            text: str = environment.from_string(self._sources[name]).render(context)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(
                f"{origin}, line {error.lineno}: {error.message}",
                "text with {{ or {% stands between {% raw %} and {% endraw %}",
            ) from error
        except jinja2.UndefinedError as error:
            raise UserError(f"{origin}: {error.message}", "its first line lists the names that it may use") from error
        return text.strip()


def copy_parts(folder: Path) -> list[Path]:
    """Writes the package's parts to a folder, for a user to change. Never overwrites."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = [name for name, _ in part_files() if (folder / f"{name}.md").exists()]
        if there:
            raise UserError(f"{folder / there[0]}.md exists", "give another folder, or move your changes away")
        written = []
        for name, _ in part_files():
            path = folder / f"{name}.md"
            path.write_bytes((BUILT_IN / f"{name}.md").read_bytes())
            written.append(path)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}", "choose another place") from error
    return written


def _read_folder(folder: Path, *, known: set[str]) -> dict[str, str]:
    if not folder.is_dir():
        what = "is not a directory" if folder.exists() else "does not exist"
        raise UserError(f"the folder of parts {folder} {what}", "`pkb prompt --copy-parts DIR` makes one")
    own: dict[str, str] = {}
    for path in sorted(folder.glob("*.md")):
        if path.stem not in known:  # a misspelt name would silently change nothing
            raise UserError(f"{path} is no part of a prompt", f"parts are {', '.join(sorted(known))}")
        try:
            own[path.stem] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}", "a part is UTF-8 text") from error
    if not own:
        raise UserError(f"{folder} holds no parts", "`pkb prompt --list-parts` names them; they end in .md")
    return own
