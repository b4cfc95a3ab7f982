"""Makes CUDA text ready for reading: what is no code (comments, `#if 0`, directives, the inside of strings) is blanked in
place, so that offsets stay those of the file; macros are taken out and, where they define functions, expanded."""

import re
from dataclasses import dataclass
from functools import cached_property

from pkb.candidates.names import strip_comments

_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_NOT_NEWLINE = re.compile(r"[^\n]")
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[ \t]*(.*)")
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]{0,400})\))?(.*)", re.DOTALL)
_NEVER = re.compile(r"\bif[ \t]{0,8}(?:constexpr[ \t]{0,8})?\([ \t]{0,8}(?:false|0)[ \t]{0,8}\)\s{0,80}\{")
_MAX_EXPANSIONS = 64
_MAX_EXPANDED = 128 << 10


@dataclass(frozen=True)
class Macro:
    name: str
    parameters: tuple[str, ...]
    body: str
    at: int
    """Where its body begins."""

    def expand(self, arguments: list[str]) -> str:
        body = self.body
        for name, value in zip(self.parameters, arguments, strict=False):
            body = re.sub(rf"(?:\s*##\s*)?\b{re.escape(name)}\b(?:\s*##\s*)?", lambda _: value, body)  # noqa: B023
        return body


@dataclass(frozen=True)
class Code:
    """One text, cleaned."""

    text: str
    """Without comments, dead regions and directives."""
    macros: tuple[Macro, ...]

    @cached_property
    def masked(self) -> str:
        return mask(self.text)

    @cached_property
    def expansions(self) -> list[tuple[str, int]]:
        """Functions that macros define, written out: `KERNEL(f32)` outside of any function, with the macro's place."""
        found: list[tuple[str, int]] = []
        size = 0
        for macro in self.macros:
            if "{" not in macro.body or not re.search(r"__global__|__device__", macro.body):
                continue
            for match in re.finditer(rf"\b{macro.name}\(([^()]{{0,200}})\)", self.masked):
                text = macro.expand([argument.strip() for argument in match.group(1).split(",")])
                size += len(text)
                if len(found) == _MAX_EXPANSIONS or size > _MAX_EXPANDED:
                    return found
                found.append((text, macro.at))
        return found


def clean(text: str) -> Code:
    live, macros = _directives(strip_comments(text))
    return Code(_without_never(live), tuple(macros))


def mask(text: str) -> str:
    """The text with the inside of strings blanked: a brace or a name in a string is no code."""
    return _STRING.sub(lambda match: match.group()[0] + " " * (len(match.group()) - 2) + match.group()[-1], text)


def unescape(string: str) -> str:
    """`\\n\\t` in a C string is white space for the assembler; same length."""
    return re.sub(r"\\.", "  ", string)


def _blank(text: str) -> str:
    return _NOT_NEWLINE.sub(" ", text)


class _Conditions:
    """The open `#if`s. Only `0` and `1` are known: of any other condition both branches count."""

    def __init__(self) -> None:
        self._open: list[tuple[bool, bool]] = []  # is the branch hidden; is every later one
        self._hidden = 0

    @property
    def dead(self) -> bool:
        return self._hidden > 0

    def step(self, word: str, condition: str) -> None:
        if word in ("if", "ifdef", "ifndef"):
            known = condition if word == "if" else ""
            self._push(known in ("0", "false"), known in ("1", "true"))
        elif self._open:
            hidden, taken = self._open.pop()
            self._hidden -= hidden
            if word != "endif":
                self._push(taken or (word == "elif" and condition in ("0", "false")), taken)

    def _push(self, hidden: bool, taken: bool) -> None:
        self._open.append((hidden, taken))
        self._hidden += hidden


def _directives(text: str) -> tuple[str, list[Macro]]:
    """Blanks what `#if 0` hides, and the directives themselves; collects the macros."""
    out: list[str] = []
    macros: list[Macro] = []
    conditions = _Conditions()
    directive: list[str] = []  # the lines of the one that is being read
    offset = 0
    for line in text.split("\n"):
        if directive or line.lstrip().startswith("#"):
            directive.append(line)
            out.append(" " * len(line))
            if not line.endswith("\\"):
                whole = "\n".join(directive)
                match = _CONDITION.match(whole)
                macro = None if match or conditions.dead else _macro(whole, offset + len(line) - len(whole))
                if match:
                    conditions.step(match.group(1), match.group(2).strip())
                elif macro is not None:
                    macros.append(macro)
                directive = []
        else:
            out.append(" " * len(line) if conditions.dead else line)
        offset += len(line) + 1
    return "\n".join(out), macros


def _macro(text: str, at: int) -> Macro | None:
    match = _DEFINE.match(text)
    if match is None or not match.group(3).strip():
        return None
    parameters = tuple(name.strip() for name in (match.group(2) or "").split(",") if name.strip().isidentifier())
    return Macro(match.group(1), parameters, match.group(3).replace("\\\n", " \n"), at + match.start(3))


def _without_never(text: str) -> str:
    """Blanks the body of `if (false) { ... }`."""
    if not _NEVER.search(text):
        return text
    masked = mask(text)
    closing = _closing_braces(masked)
    pieces: list[str] = []
    done = 0
    for match in _NEVER.finditer(masked):
        end = closing.get(match.end() - 1)  # never closed: nothing is dead for certain
        if end is not None and match.start() >= done:
            pieces += [text[done : match.end()], _blank(text[match.end() : end])]
            done = end
    return "".join(pieces) + text[done:]


def _closing_braces(masked: str) -> dict[int, int]:
    found: dict[int, int] = {}
    opened: list[int] = []
    for match in re.finditer(r"[{}]", masked):
        if match.group() == "{":
            opened.append(match.start())
        elif opened:
            found[opened.pop()] = match.start()
    return found
