"""CUDA text as nodes of tree-sitter's tree: parsed without its comments, macros written out, and the functions in it.

The grammar recovers from what it does not know, so what it understood of a broken function still counts.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pkb.candidates.names import strip_comments

Node = Any
"""tree_sitter.Node: the package is an extra."""
# The grammar knows neither __align__ nor, between the functions of a file, a macro without a semicolon.
_ALIGN = re.compile(r"__align__\s*\(\s*\d+\s*\)")
CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast", "dynamic_cast"})
_NAMES = frozenset({"identifier", "field_identifier", "type_identifier", "namespace_identifier"})


class Piece(NamedTuple):
    """A parsed text, and where it lies in the candidate's string."""

    root: Node
    shift: int = 0
    pin: int | None = None  # every offset is this one: for text that a macro wrote
    macro: bool = False  # it is the body of a macro, as a function

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
                expanded = written
                for each, value in zip(parameters, use.split(","), strict=False):
                    expanded = re.sub(rf"(?:\s*##\s*)?\b{each}\b(?:\s*##\s*)?", lambda _: value.strip(), expanded)  # noqa: B023
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


@dataclass
class CudaFunction:
    name: str
    kind: Literal["kernel", "device", "host", "macro"]
    parameters: list[tuple[str, str]]  # name and declaration
    returns_pointer: bool
    owner: int  # which of the candidate's strings holds it
    nodes: list[tuple[Node, int]]  # of its body, each with its offset in the string
    mentions: dict[str, int]  # every name in the body, and where it comes first


def functions(piece: Piece, owner: int) -> Iterator[CudaFunction]:
    for node in walk(piece.root, into=lambda each: each.type != "function_definition"):
        body, declarator = node.child_by_field_name("body"), node.child_by_field_name("declarator")
        while declarator is not None and declarator.type != "function_declarator":
            inner = declarator.child_by_field_name("declarator")
            declarator = inner if inner is not None else next(iter(declarator.named_children), None)
        if node.type != "function_definition" or body is None or declarator is None:
            continue
        named = declarator.child_by_field_name("declarator")
        listed = [text_of(each) for each in declarator.child_by_field_name("parameters").named_children]
        before = node.text[: named.start_byte - node.start_byte].decode()
        nodes = [(each, piece.at(each.start_byte)) for each in walk(body)]
        yield CudaFunction(
            name=callee(named)[0],
            kind="kernel" if "__global__" in before else "device" if "__device__" in before
            else "macro" if piece.macro else "host",
            parameters=[(declared_name(each), each) for each in listed],
            returns_pointer="*" in before,
            owner=owner,
            nodes=nodes,
            mentions={text_of(each): at for each, at in reversed(nodes) if each.type in _NAMES},
        )  # fmt: skip


def declared_name(text: str) -> str:
    """`float* const* __restrict__ peers = nullptr`: the last word before `=` or `[`, if there is a type before it."""
    names = [word for word in re.findall(r"\w+", re.split(r"[=\[]", text, maxsplit=1)[0]) if word.isidentifier()]
    return names[-1] if len(names) > 1 else ""


def callee(node: Node) -> tuple[str, str]:
    """The last part of a name, without template arguments, and what qualifies it: `st` of `pkb::Multimem<T>::st`."""
    while node.type in ("template_function", "template_method", "dependent_name"):
        node = node.child_by_field_name("name") or node.named_children[-1]
    inner = node.child_by_field_name("field" if node.type == "field_expression" else "name")
    if inner is None:
        return text_of(node), ""
    name, more = callee(inner)
    return name, "".join(node.text[: inner.start_byte - node.start_byte].decode().split()) + more


def inline_asm(node: Node) -> tuple[str, dict[str, Node]]:
    """The template, and its operands by number, and by `[name]` where they have one."""
    template = ""
    operands: dict[str, Node] = {}
    for child in node.named_children:
        if child.type in ("string_literal", "concatenated_string"):
            strings = [text_of(part)[1:-1] for part in walk(child) if part.type == "string_literal"]
            template += re.sub(r"\\.", "  ", "".join(strings))  # "\n\t" is white space for the assembler
        elif child.type in ("gnu_asm_output_operand_list", "gnu_asm_input_operand_list"):
            for operand in child.named_children:
                value, symbol = operand.child_by_field_name("value"), operand.child_by_field_name("symbol")
                operands[str(sum(key.isdigit() for key in operands))] = value
                operands |= {text_of(symbol): value} if symbol is not None else {}
    return template, operands


def assignments(node: Node) -> Iterator[tuple[str, str, Node, bool]]:
    """Type, name and value of `type name = value` or `name = value`, and whether it is `name[i] = value`."""
    if node.type == "assignment_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and node.child_by_field_name("operator").type == "=":
            indexed = left.type == "subscript_expression"
            yield "", callee(left.child_by_field_name("argument") if indexed else left)[0], right, indexed
    elif node.type == "declaration":
        type_node = node.child_by_field_name("type")
        written = text_of(type_node) if type_node is not None else ""
        for child in node.named_children:
            value = child.child_by_field_name("value")
            if child.type == "init_declarator" and value is not None:
                shape = text_of(child.child_by_field_name("declarator"))
                name = declared_name(f"{written} {shape}")
                yield f"{written} {shape.rpartition(name)[0]}", name, value, "[" in shape
    elif node.type == "call_expression":
        # `cuTensorMapEncodeTiled(&map, type, rank, address, ...)` makes the map point where the address does.
        name, arguments = callee(node.child_by_field_name("function"))[0], arguments_of(node)
        if re.match(r"cuTensorMapEncode|encode_tma|encodeTiled", name) and len(arguments) > 3:
            target = text_of(arguments[0])
            for word in re.findall(r"[A-Za-z_]\w*", target)[:1]:
                yield "", word, arguments[3], "[" in target


def arguments_of(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [each for each in listed.named_children if each.type != "comment"]


def accessed(node: Node) -> Node | None:
    """The pointer through which `base[i]`, `*base` or `base->x` reads or writes memory."""
    marks = [child.type for child in node.children]
    indirect = {
        "subscript_expression": True,
        "pointer_expression": marks[:1] == ["*"],
        "field_expression": "->" in marks,
    }
    return node.child_by_field_name("argument") if indirect.get(node.type) else None
