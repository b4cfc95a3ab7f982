"""CUDA text before it is parsed: comments, directives and what `#if 0` hides are blanked in place, so that offsets stay
those of the file; macros become functions of their own.

Runs in the child process that `cuda` starts, so hostile text costs at most that child's time limit.
"""

import re
from typing import NamedTuple

from pkb.candidates.names import strip_comments

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
_DEFINE = re.compile(r"[ \t]*(\w+)(?:\(([^)]*)\))?")
_NEVER, _ALWAYS = ("0", "false"), ("1", "true")


class Piece(NamedTuple):
    """Text to parse, and where it lies in the candidate's string."""

    text: str
    shift: int = 0
    pin: int | None = None
    """Every offset is this one: for text that a macro wrote."""
    macro: bool = False
    """It is the body of a macro, as a function."""

    def at(self, offset: int) -> int:
        return offset + self.shift if self.pin is None else self.pin


class _Macro(NamedTuple):
    name: str
    parameters: list[str]
    body: str
    at: int

    def expand(self, arguments: list[str]) -> str:
        body = self.body
        for name, value in zip(self.parameters, arguments, strict=False):
            body = re.sub(rf"(?:\s*##\s*)?\b{name}\b(?:\s*##\s*)?", lambda _: value, body)  # noqa: B023
        return body


def pieces(text: str) -> list[Piece]:
    """The text itself, then what its macros stand for.

    A macro that defines functions is written out for each `MACRO(f32)`; any other is a function of that name with its
    parameters, which calls of it then call.
    """
    code, macros = _directives(strip_comments(text))
    made: list[Piece] = []
    for macro in macros:
        if "{" in macro.body and re.search("__global__|__device__", macro.body):
            uses = re.compile(rf"\b{macro.name}[ \t]*\(([^()]*)\);?")
            written = [macro.expand([each.strip() for each in use.split(",")]) for use in uses.findall(code)]
            made += [Piece(each, pin=macro.at) for each in written]
            code = uses.sub(_blank, code)
        else:
            head = f"void {macro.name}({', '.join(f'auto {each}' for each in macro.parameters)}) {{ "
            made.append(Piece(f"{head}{macro.body}; }}", macro.at - len(head), macro=True))
    return [Piece(code), *made]


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _directives(text: str) -> tuple[str, list[_Macro]]:
    """Only the conditions `0` and `1` are known: of any other, both branches count."""
    kept: list[str] = []
    macros: list[_Macro] = []
    opened: list[tuple[bool, bool]] = []  # is the branch dead; is every later one
    done = 0

    def keep(end: int) -> None:
        dead = any(hidden for hidden, _ in opened)
        kept.append(re.sub(r"[^\n]", " ", text[done:end]) if dead else text[done:end])

    for match in _DIRECTIVE.finditer(text):
        keep(match.start())
        kept.append(_blank(match))
        done = match.end()
        word, rest = match.group(1), match.group(2)
        if word in ("if", "ifdef", "ifndef"):
            known = rest.strip() if word == "if" else ""
            opened.append((known in _NEVER, known in _ALWAYS))
        elif word in ("elif", "else", "endif") and opened:
            taken = opened.pop()[1]
            if word != "endif":
                opened.append((taken or (word == "elif" and rest.strip() in _NEVER), taken))
        elif word == "define" and not any(hidden for hidden, _ in opened) and (named := _DEFINE.match(rest)):
            names = [each.strip() for each in (named.group(2) or "").split(",")]
            body = rest[named.end() :].replace("\\\n", " \n")
            if body.strip():
                parameters = [each for each in names if each.isidentifier()]
                macros.append(_Macro(named.group(1), parameters, body, match.start(2) + named.end()))
    keep(len(text))
    return "".join(kept), macros
