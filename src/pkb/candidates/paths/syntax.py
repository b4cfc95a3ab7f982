"""The functions of CUDA text, as nodes of tree-sitter's tree.

The grammar recovers from what it does not know, so what it understood of a broken function still counts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pkb.candidates.paths.preprocess import Node, Piece, text_of, walk

CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast", "dynamic_cast"})
_NAMES = frozenset({"identifier", "field_identifier", "type_identifier", "namespace_identifier"})


@dataclass
class CudaFunction:
    name: str
    kind: Literal["kernel", "device", "host", "macro"]
    parameters: list[tuple[str, str]]
    """Name and declaration of each."""
    returns_pointer: bool
    owner: int
    """Which of the candidate's strings holds it."""
    nodes: list[tuple[Node, int]]
    """Of its body, each with its offset in the string."""
    mentions: dict[str, int]
    """Every name in the body, and where it comes first."""


class Assignment(NamedTuple):
    """`type name = value` or `name = value`; `name[i] = value` is `indexed`."""

    type: str
    name: str
    value: Node
    indexed: bool


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


def assignments(node: Node) -> Iterator[Assignment]:
    if node.type == "assignment_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and node.child_by_field_name("operator").type == "=":
            indexed = left.type == "subscript_expression"
            yield Assignment("", callee(left.child_by_field_name("argument") if indexed else left)[0], right, indexed)
    elif node.type == "declaration":
        type_node = node.child_by_field_name("type")
        written = text_of(type_node) if type_node is not None else ""
        for child in node.named_children:
            value = child.child_by_field_name("value")
            if child.type == "init_declarator" and value is not None:
                shape = text_of(child.child_by_field_name("declarator"))
                name = declared_name(f"{written} {shape}")
                yield Assignment(f"{written} {shape.rpartition(name)[0]}", name, value, "[" in shape)
    elif node.type == "call_expression":
        # `cuTensorMapEncodeTiled(&map, type, rank, address, ...)` makes the map point where the address does.
        name, arguments = callee(node.child_by_field_name("function"))[0], arguments_of(node)
        if re.match(r"cuTensorMapEncode|encode_tma|encodeTiled", name) and len(arguments) > 3:
            target = text_of(arguments[0])
            for word in re.findall(r"[A-Za-z_]\w*", target)[:1]:
                yield Assignment("", word, arguments[3], "[" in target)


def arguments_of(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return [] if listed is None else [each for each in listed.named_children if each.type != "comment"]


def accessed(node: Node) -> Node | None:
    """The pointer through which `base[i]`, `*base` or `base->x` reads or writes memory."""
    kind, marks = node.type, [child.type for child in node.children]
    through = (
        kind == "subscript_expression"
        or (kind == "pointer_expression" and marks[0] == "*")
        or (kind == "field_expression" and "->" in marks)
    )
    return node.child_by_field_name("argument") if through else None
