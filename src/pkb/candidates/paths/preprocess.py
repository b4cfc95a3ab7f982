"""CUDA text as pieces to parse: the text without its comments, and what its macros stand for.

Runs in the child process that `cuda` starts, so hostile text costs at most that child's time limit.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pkb.candidates.names import strip_comments

Node = Any
"""tree_sitter.Node: the package is an extra."""
# The grammar knows neither __align__ nor, between the functions of a file, a macro without a semicolon.
_ALIGN = re.compile(r"__align__\s*\(\s*\d+\s*\)")


class Piece(NamedTuple):
    """A parsed text, and where it lies in the candidate's string."""

    root: Node
    shift: int = 0
    pin: int | None = None
    """Every offset is this one: for text that a macro wrote."""
    macro: bool = False
    """It is the body of a macro, as a function."""

    def at(self, offset: int) -> int:
        return offset + self.shift if self.pin is None else self.pin


def pieces(parser: Any, text: str) -> Iterator[Piece]:
    """The text itself, then its macros.

    One that defines functions is written out for each `MACRO(f32)`; any other is a function of that name with its
    parameters, which calls of it then call.
    """
    code = _ALIGN.sub(_blank, strip_comments(text)).encode("ascii", "replace").decode()  # a byte a character
    made: list[Piece] = []
    for node in walk(_parse(parser, code)):
        body = node.child_by_field_name("value") if node.type in ("preproc_def", "preproc_function_def") else None
        if body is None:
            continue
        name, written = text_of(node.child_by_field_name("name")), text_of(body).replace("\\\n", " \n")
        listed = node.child_by_field_name("parameters")
        parameters = [text_of(each) for each in listed.named_children if each.is_named] if listed is not None else []
        if "{" in written and re.search("__global__|__device__", written):
            uses = re.compile(rf"(?<!define )\b{name}[ \t]*\(([^()]*)\);?")
            for use in uses.findall(code):
                expanded = _expand(
                    written, dict(zip(parameters, (each.strip() for each in use.split(",")), strict=False))
                )
                made.append(Piece(_parse(parser, expanded), pin=body.start_byte))
            code = uses.sub(_blank, code)
        else:
            head = f"void {name}({', '.join(f'auto {each}' for each in parameters)}) {{ "
            made.append(Piece(_parse(parser, f"{head}{written}; }}"), body.start_byte - len(head), macro=True))
    yield from (Piece(_parse(parser, code)), *made)


def _parse(parser: Any, text: str) -> Node:
    return parser.parse(text.encode()).root_node


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _expand(body: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        body = re.sub(rf"(?:\s*##\s*)?\b{name}\b(?:\s*##\s*)?", lambda _: value, body)  # noqa: B023
    return body


def text_of(node: Node) -> str:
    return node.text.decode()


def walk(root: Node, *, into: Callable[[Node], bool] = lambda _: True) -> Iterator[Node]:
    """All nodes below, without recursion; what `if (false)` and `#if 0` hold is left out."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if into(node):
            waiting += reversed(_live(node))


def _live(node: Node) -> list[Node]:
    condition = node.child_by_field_name("condition") if node.type.startswith(("if_", "preproc_")) else None
    known = text_of(condition).strip("() \n") if condition is not None else ""
    body, alternative = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
    if known in ("false", "0"):  # a statement's body is its field, a directive's its other children
        return [child for child in node.children if child == alternative or (body is not None and child != body)]
    return [child for child in node.children if known not in ("true", "1") or child != alternative]
