"""Inline assembly as C++: a reader of PTX statements that knows qualifiers in any order.

What it does not know becomes a call that stops the kernel with the instruction's name when it is executed, so that a way
through the kernel that is never taken costs nothing, and one that is taken is never guessed.
"""

import re
from collections.abc import Sequence

from pkb.kit.emulated.ptx_instructions import PLAIN, WRITERS, fidelity
from pkb.kit.emulated.ptx_statement import TYPES, Statement, Unknown, register_name
from pkb.kit.emulated.text import STRING, closing, split


def to_cpp(inside: str) -> str:
    """What replaces `asm volatile(inside)`: an expression."""
    pieces = split(inside, ":")
    template = "".join(STRING.findall(pieces[0])).replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
    operands = [operand for piece in pieces[1:3] for operand in _operands(piece)]
    names = {name: str(n) for n, name in enumerate(re.findall(r"\[(\w+)\]\s*\"", "".join(pieces[1:3])))}
    template = re.sub(r"%\[(\w+)\]", lambda m: "%" + names.get(m[1], "99"), template)
    template = template.replace("%=", "")  # a number for labels: each text is a scope of its own here
    template = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.S)
    if not template.strip():
        return "((void)0)"
    body = "".join(_cpp(line, operands) for line in _statements(template))
    return f"([&]() {{ {body} }}())"


def _operands(piece: str) -> list[str]:
    """`"=r"(v.x), "l"(p)` as `(v.x)` and `(p)`."""
    found, at = [], 0
    while (start := piece.find("(", at)) >= 0:
        at = closing(piece, start + 1) + 1
        found.append(piece[start:at])
    return found


def _statements(template: str) -> list[str]:
    """Instructions, declarations and labels. Braces of a block are dropped, those of a vector stay."""
    flat = re.sub(r"\s+", " ", template).strip()
    found = []
    for part in flat.split(";"):
        text = part.strip()
        while True:  # a closing brace may follow a label
            text = text.lstrip("{} ")
            label = re.match(r"([$\w]+):(?!:)\s*", text)
            if label is None:
                break
            found.append(label[0].strip())
            text = text[label.end() :]
        if text:
            found.append(text)
    return found


def _cpp(text: str, operands: Sequence[str]) -> str:
    """An instruction with its guard, a declaration of registers, or a label."""
    if text.endswith(":"):
        return f"{register_name(text[:-1])}: ; "
    if text.startswith(".reg"):
        return _registers(text)
    guard = ""
    if found := re.match(r"@(!?)([%\w]+)\s+", text):
        guard = f"if ({found[1]}({Statement('', operands).value(found[2])})) "
        text = text[found.end() :]
    statement = Statement(text, operands)
    arguments = [part.strip() for part in split(statement.rest, ",")] if statement.rest.strip() else []
    try:
        code = WRITERS[statement.name](statement, arguments)
    except (Unknown, KeyError, ValueError, IndexError, StopIteration):
        return f"{guard}{{ {_stop(text)} }} "
    if statement.name in PLAIN:
        return f"{guard}{{ {code} }} "
    at = f'static constexpr EmuAt emu_at{{"{statement.full}", __FILE__, __LINE__}};'
    seen = f"static bool emu_seen = (emu_used(&emu_at, {fidelity(statement.name)}), true); (void)emu_seen;"
    return f"{guard}{{ {at} {seen} {code} }} "


def _stop(text: str) -> str:
    """With its operands: of `mov.u32 %0, %%laneid` they alone say what is not known."""
    shown = re.sub(r"[\"\\\\]", "'", text[:100])
    return f'emu_unsupported_at("{shown}", __FILE__, __LINE__);'


def _registers(text: str) -> str:
    found = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text)
    if found is None or found[1] not in TYPES:
        return f"{_stop(text)} "
    names = []
    for name in found[2].split(","):
        if many := re.fullmatch(r"\s*([%\w]+)<(\d+)>\s*", name):
            names += [f"{register_name(many[1])}{n}{{}}" for n in range(int(many[2]))]
        else:
            names.append(f"{register_name(name.strip())}{{}}")
    return f"{TYPES[found[1]]} {', '.join(names)}; "
