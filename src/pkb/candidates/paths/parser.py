"""The reader of CUDA text that uses tree-sitter (`pip install 'pkb[analysis]'`).

It runs in a child process: the grammar needs minutes for some short hostile texts, its parser cannot be interrupted, and a
crash in C must not end the judge. A child that takes too long or dies means that the token reader answers instead, and so it
does, function by function, for what the grammar cannot make sense of.
"""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple

from pkb.candidates.paths.cuda import Access, Asm, Bind, Call, Function, FunctionKind, Parameter, cut
from pkb.candidates.paths.text import unescape
from pkb.candidates.paths.tokens import CASTS, parameter

MAX_BYTES = 256 << 10
"""All texts of a candidate together; beyond, the child would only run into its time limit."""
TIMEOUT_S = 5.0

_ALIGN = re.compile(r"__align__\s{0,4}\(\s{0,4}\d{1,6}\s{0,4}\)")


class Reading(NamedTuple):
    functions: tuple[Function, ...]
    spans: tuple[tuple[int, int], ...]
    """Where they lie in the text."""


def available() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tree_sitter", "tree_sitter_cuda"))


@lru_cache(maxsize=16)
def read_all(texts: tuple[str, ...]) -> tuple[Reading, ...] | None:
    """What it understood of each text; None if it cannot read them."""
    if not available() or not texts or sum(map(len, texts)) > MAX_BYTES:
        return None
    # -P: a tree_sitter.py that lies beside a candidate must not be imported.
    command = [sys.executable, "-P", "-m", "pkb.candidates.paths.parser"]
    try:
        sent = json.dumps(texts).encode()
        done = subprocess.run(command, input=sent, capture_output=True, timeout=TIMEOUT_S, check=False)
        answers = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return None
    return None if answers is None else tuple(_decode(answer) for answer in answers)


def main() -> int:
    """The child: texts as JSON on standard input, readings on standard output."""
    import resource

    import tree_sitter
    import tree_sitter_cuda

    resource.setrlimit(resource.RLIMIT_CPU, (int(TIMEOUT_S) + 1, int(TIMEOUT_S) + 2))  # outlives no judge
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    json.dump([_encode(_read(parser, text)) for text in json.load(sys.stdin)], sys.stdout)
    return 0


def _encode(reading: Reading) -> list[Any]:
    return [[[getattr(each, field.name) for field in fields(Function)] for each in reading.functions], reading.spans]


def _decode(answer: list[Any]) -> Reading:
    functions = tuple(
        Function(
            name, kind, tuple(Parameter(*each) for each in parameters), pointer, at,
            tuple(Call(each[0], each[1], tuple(each[2]), each[3]) for each in calls),
            tuple(Asm(each[0], tuple(each[1]), tuple(each[2]), each[3]) for each in asms),
            tuple(Bind(*each) for each in binds), tuple(Access(*each) for each in accesses), mentions,
        )
        for name, kind, parameters, pointer, at, calls, asms, binds, accesses, mentions in answer[0]
    )  # fmt: skip
    return Reading(functions, tuple((start, end) for start, end in answer[1]))


def _read(parser: Any, text: str) -> Reading:
    # Same length as the text, so that offsets agree. The grammar does not know __align__.
    data = _ALIGN.sub(lambda match: " " * len(match.group()), text).encode("ascii", "replace")
    functions: list[Function] = []
    spans: list[tuple[int, int]] = []
    for node in _walk(parser.parse(data).root_node, into=lambda each: each.type != "function_definition"):
        made = _function(node, data) if node.type == "function_definition" and not node.has_error else None
        if made is not None:
            functions.append(made)
            spans.append((node.start_byte, node.end_byte))
    return Reading(tuple(functions), tuple(spans))


def _walk(root: Any, *, into: Any = lambda _: True) -> Iterator[Any]:
    """All nodes below, without recursion: nesting is as deep as the candidate likes."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if into(node) or node is root:
            waiting.extend(reversed(node.children))


def _text(node: Any, data: bytes) -> str:
    return cut(data[node.start_byte : min(node.end_byte, node.start_byte + 512)].decode())


def _function(node: Any, data: bytes) -> Function | None:
    body, declarator = node.child_by_field_name("body"), node.child_by_field_name("declarator")
    pointer = False
    for _ in range(8):
        if declarator is None or declarator.type == "function_declarator":
            break
        pointer |= declarator.type == "pointer_declarator"
        inner = declarator.child_by_field_name("declarator")
        declarator = inner if inner is not None else next(iter(declarator.named_children), None)
    named = declarator.child_by_field_name("declarator") if declarator is not None else None
    listed = declarator.child_by_field_name("parameters") if declarator is not None else None
    if body is None or named is None or listed is None:
        return None
    name = _last_name(_text(named, data))
    before = data[node.start_byte : named.start_byte].decode()
    kind: FunctionKind = "kernel" if "__global__" in before else "device" if "__device__" in before else "host"
    parameters: list[Parameter] = [parameter(_text(child, data)) for child in listed.named_children]
    calls: list[Call] = []
    asms: list[Asm] = []
    binds: list[Bind] = []
    accesses: list[Access] = []
    mentions: dict[str, int] = {}
    for each in _walk(body):
        kind_of_node = each.type
        if kind_of_node in ("identifier", "field_identifier", "type_identifier", "namespace_identifier"):
            mentions.setdefault(_text(each, data), each.start_byte)
        elif kind_of_node == "call_expression":
            calls += _call(each, data)
        elif kind_of_node == "gnu_asm_expression":
            asms.append(_asm(each, data))
        elif kind_of_node in ("declaration", "assignment_expression"):
            binds += _binds(each, data)
        elif kind_of_node in ("subscript_expression", "pointer_expression", "field_expression"):
            accesses += _access(each, data)
    return Function(
        name, kind, tuple(parameters), pointer or "*" in before, named.start_byte,
        tuple(calls), tuple(asms), tuple(binds), tuple(accesses), mentions,
    )  # fmt: skip


def _last_name(text: str) -> str:
    text = text.split("<", 1)[0] if not text.startswith("operator") else text
    return text.rpartition("::")[2].rpartition(".")[2].rpartition("->")[2].strip().removeprefix("template ").strip()


def _call(node: Any, data: bytes) -> Iterator[Call]:
    function, listed = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or listed is None:
        return
    written = "".join(_text(function, data).split())
    head = written
    if written.endswith(">"):  # template arguments of the call itself: the last `<` on the outside
        depth = 0
        for index in range(len(written) - 1, -1, -1):
            depth += {">": 1, "<": -1}.get(written[index], 0)
            if depth == 0:
                head = written[:index]
                break
    cuts = [head.rfind(mark) + len(mark) for mark in ("::", "->", ".") if mark in head]
    start = max(cuts, default=0)
    name = head[start:]
    if name in CASTS or not name.isidentifier():
        return
    arguments = tuple(_text(child, data) for child in listed.named_children[:64])
    yield Call(name, head[:start], arguments, node.start_byte)


def _asm(node: Any, data: bytes) -> Asm:
    template: list[str] = []
    operands: list[str] = []
    names: list[str] = []
    for child in node.named_children:
        if child.type in ("string_literal", "concatenated_string"):
            template += [_string(part, data) for part in _walk(child) if part.type == "string_literal"]
        elif child.type in ("gnu_asm_output_operand_list", "gnu_asm_input_operand_list"):
            for operand in child.named_children:
                value, symbol = operand.child_by_field_name("value"), operand.child_by_field_name("symbol")
                operands.append(_text(value, data) if value is not None else "")
                names.append(_text(symbol, data) if symbol is not None else "")
    return Asm("".join(template), tuple(operands), tuple(names), node.start_byte)


def _string(node: Any, data: bytes) -> str:
    """Not cut: one string of PTX may be long."""
    return unescape(data[node.start_byte + 1 : node.end_byte - 1].decode())


def _binds(node: Any, data: bytes) -> Iterator[Bind]:
    if node.type == "assignment_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        operator = node.child_by_field_name("operator")
        if left is None or right is None or (operator is not None and operator.type != "="):
            return
        indexed = left.type == "subscript_expression"
        target = left.child_by_field_name("argument") if indexed else left
        name = _last_name(_text(target, data)) if target is not None else ""
        if name.isidentifier():
            yield Bind("", name, _text(right, data), indexed, node.start_byte)
        return
    type_node = node.child_by_field_name("type")
    written = _text(type_node, data) if type_node is not None else ""
    for child in node.named_children:
        if child.type != "init_declarator":
            continue
        declarator, value = child.child_by_field_name("declarator"), child.child_by_field_name("value")
        if declarator is None or value is None:
            continue
        shape = _text(declarator, data)
        made = parameter(f"{written} {shape}")
        if made.name:
            yield Bind(
                f"{written} {shape.rpartition(made.name)[0]}",
                made.name,
                _text(value, data),
                "[" in shape,
                child.start_byte,
            )


def _access(node: Any, data: bytes) -> Iterator[Access]:
    if node.type == "field_expression":
        arrow = any(child.type == "->" for child in node.children)
        base = node.child_by_field_name("argument") if arrow else None
    elif node.type == "pointer_expression":
        base = node.child_by_field_name("argument") if node.children and node.children[0].type == "*" else None
    else:
        base = node.child_by_field_name("argument")
    if base is not None and not (base.type == "call_expression" and not _is_cast(base, data)):
        yield Access(_text(base, data), node.start_byte)


def _is_cast(node: Any, data: bytes) -> bool:
    function = node.child_by_field_name("function")
    return function is not None and _last_name(_text(function, data)) in CASTS


if __name__ == "__main__":
    sys.exit(main())
