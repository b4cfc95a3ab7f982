"""The reader of CUDA text that needs no package: tokens, matched brackets, and a few shapes of C++.

It finds function definitions by `name(...) {` outside of other functions, and inside them calls, inline PTX, assignments and
accesses. It knows no types and no overloads. Every look back or ahead is bounded, so it is linear in the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pkb.candidates.paths.cuda import MAX_TEXT, Access, Asm, Bind, Call, Function, FunctionKind, Parameter, cut
from pkb.candidates.paths.text import unescape

_TOKEN = re.compile(r"\w+|\"[^\"\n]*\"?|'[^'\n]*'?|::|->|<<<|>>>|[^\s\w]")
_CLOSES = {")": "(", "]": "[", "}": "{"}
_TRAILING = frozenset({"const", "noexcept", "override", "final", "volatile", "mutable", "&"})
_NO_NAME = frozenset(
    {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignas", "alignof", "decltype", "noexcept", "asm"}
    | {"__asm__", "defined", "else", "do", "__launch_bounds__", "__attribute__", "__cluster_dims__", "static_assert"}
    | {"volatile", "__volatile__", "goto"}
)
CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast", "dynamic_cast"})
_BEFORE_UNARY = frozenset({*"(,=;{}[+-/<>?:|!^", "return"})
_NEAR = 24
"""How many tokens a look back or ahead may take."""
_MAX_FUNCTIONS = 10_000
_MAX_EVENTS = 100_000
"""Of one function; what follows is not read. A long kernel has a few thousand."""


@dataclass
class Tokens:
    """The tokens of a text, with the partner of each bracket and the commas directly inside it."""

    text: str
    masked: str
    pin: int | None = None
    """Every offset is this one: for text that a macro wrote."""

    def __post_init__(self) -> None:
        self.words: list[str] = []
        self.starts: list[int] = []
        self.partner: dict[int, int] = {}
        self.commas: dict[int, list[int]] = {}
        opened: list[int] = []
        for index, match in enumerate(_TOKEN.finditer(self.masked)):
            word = match.group()
            self.words.append(word)
            self.starts.append(match.start())
            if word in "([{" and len(word) == 1:
                opened.append(index)
            elif word in _CLOSES:
                if opened and self.words[opened[-1]] == _CLOSES[word]:
                    self.partner[index] = opened[-1]
                    self.partner[opened.pop()] = index
            elif word == "," and opened:
                self.commas.setdefault(opened[-1], []).append(index)

    def at(self, index: int) -> int:
        return self.starts[index] if self.pin is None else self.pin

    def slice(self, first: int, last: int) -> str:
        """The text of the tokens first..last-1, cut."""
        if first >= last:
            return ""
        end = self.starts[last - 1] + len(self.words[last - 1])
        return self.text[self.starts[first] : min(end, self.starts[first] + MAX_TEXT)]

    def word(self, index: int) -> str:
        return self.words[index] if 0 <= index < len(self.words) else ""


def read(text: str, masked: str, *, pin: int | None = None) -> list[Function]:
    """The functions that a text defines."""
    tokens = Tokens(text, masked, pin)
    found: list[Function] = []
    index, boundary = 0, 0
    while index < len(tokens.words) and len(found) < _MAX_FUNCTIONS:
        word = tokens.words[index]
        if word == "{":
            named = _name_before(tokens, index)
            if named is not None:
                end = tokens.partner.get(index, len(tokens.words))
                found.append(_function(tokens, named, header=boundary, body=(index + 1, end)))
                index = end
            boundary = index + 1
        elif word in ";}":
            boundary = index + 1
        index += 1
    return found


def read_body(name: str, parameters: tuple[str, ...], *, text: str, masked: str, at: int) -> Function:
    """The body of a macro as a function of its own."""
    tokens = Tokens(text, masked)
    made = _events(tokens, 0, len(tokens.words), shift=at)
    return Function(name, "macro", tuple(Parameter(each, "") for each in parameters), False, at, *made)


def _name_before(tokens: Tokens, brace: int) -> tuple[int, int] | None:
    """Where the name and the `(` of the function lie whose body this brace opens; None for a struct, a namespace, ..."""
    last = brace - 1
    for _ in range(_NEAR):
        if tokens.word(last) not in _TRAILING:
            break
        last -= 1
    opening = tokens.partner.get(last) if tokens.word(last) == ")" else None
    if opening is None:
        return None
    name = opening - 1
    if tokens.word(name) == ">":
        name = _before_template(tokens, name)
    word = tokens.word(name)
    return (name, opening) if word.isidentifier() and word not in _NO_NAME else None


def _before_template(tokens: Tokens, closing: int) -> int:
    """The token before the `<` that a `>` closes; -1 if it is not near."""
    depth = 0
    for index in range(closing, max(closing - _NEAR, -1), -1):
        depth += {">": 1, "<": -1, ">>>": 3, "<<<": -3}.get(tokens.words[index], 0)
        if depth <= 0:
            return index - 1
    return -1


def _after_template(tokens: Tokens, opening: int) -> int:
    """The token after the `>` that closes a `<`; -1 if it is none or not near."""
    depth = 0
    for index in range(opening, min(opening + _NEAR, len(tokens.words))):
        word = tokens.words[index]
        depth += {"<": 1, ">": -1, ">>>": -3}.get(word, 0)
        if word in ";{}(":
            return -1
        if depth <= 0:
            return index + 1
    return -1


def _function(tokens: Tokens, named: tuple[int, int], *, header: int, body: tuple[int, int]) -> Function:
    name, opening = named
    before = tokens.words[max(header, name - 60) : name]
    kind: FunctionKind = "kernel" if "__global__" in before else "device" if "__device__" in before else "host"
    closing = tokens.partner[opening]
    edges = [opening, *tokens.commas.get(opening, []), closing]
    parameters = tuple(parameter(tokens.slice(first + 1, last)) for first, last in pairwise(edges) if last > first + 1)
    made = _events(tokens, *body)
    return Function(tokens.words[name], kind, parameters, "*" in before, tokens.at(name), *made)


def parameter(text: str) -> Parameter:
    """`float* const* __restrict__ peers = nullptr`: the last word before `=` or `[` is the name."""
    head = re.split(r"[=\[]", text, maxsplit=1)[0]
    words = re.findall(r"\w+|[*&]", head)
    names = [word for word in words if word.isidentifier()]
    name = names[-1] if len(names) > 1 else ""
    return Parameter(name, cut(text))


Events = tuple[tuple[Call, ...], tuple[Asm, ...], tuple[Bind, ...], tuple[Access, ...], dict[str, int]]


def _events(tokens: Tokens, first: int, last: int, *, shift: int = 0) -> Events:
    calls: list[Call] = []
    asms: list[Asm] = []
    binds: list[Bind] = []
    accesses: list[Access] = []
    mentions: dict[str, int] = {}
    for index in range(first, min(last, len(tokens.words))):
        if len(calls) + len(binds) + len(accesses) > _MAX_EVENTS:
            break
        word, at = tokens.words[index], tokens.at(index) + shift
        if word in ("asm", "__asm__", "__asm"):
            opening = next((near for near in range(index + 1, index + 4) if tokens.word(near) == "("), None)
            asms += [_asm(tokens, opening, at)] if opening is not None else []
        elif word[0].isalpha() or word[0] == "_":
            mentions.setdefault(word, at)
            calls += _call(tokens, index, at)
        elif word == "=":
            binds += _bind(tokens, index, at)
        elif word == "[" and index > first:
            base = _base_before(tokens, index)
            accesses += [Access(base, at)] if base else []
        elif word == "->":
            accesses.append(Access(tokens.word(index - 1), at))
        elif word == "*" and (tokens.word(index - 1) in _BEFORE_UNARY or index == first):
            accesses += [Access(base, at) for base in _base_after(tokens, index)]
    return tuple(calls), tuple(asms), tuple(binds), tuple(accesses), mentions


def _call(tokens: Tokens, index: int, at: int) -> Iterator[Call]:
    word = tokens.words[index]
    if word in _NO_NAME or word in CASTS:
        return
    opening = index + 1
    if tokens.word(opening) == "<":
        opening = _after_template(tokens, opening)
    if tokens.word(opening) == "<<<":
        opening = next((i + 1 for i in range(opening, opening + 4 * _NEAR) if tokens.word(i) == ">>>"), -1)
    closing = tokens.partner.get(opening, -1)
    if opening < 0 or tokens.word(opening) != "(" or closing < 0:
        return
    edges = [opening, *tokens.commas.get(opening, []), closing]
    arguments = tuple(tokens.slice(first + 1, last) for first, last in pairwise(edges) if last > first + 1)
    yield Call(word, _qualifier(tokens, index), arguments[:64], at)


def _qualifier(tokens: Tokens, index: int) -> str:
    start = index
    for _ in range(6):
        if tokens.word(start - 1) not in ("::", ".", "->"):
            break
        start -= 2
        if tokens.word(start) == ">":
            start = _before_template(tokens, start)
        elif tokens.word(start) in ")]":
            start = tokens.partner.get(start, start)
        if start < 0:
            return ""
    return "".join(tokens.words[start:index])


def _asm(tokens: Tokens, opening: int, at: int) -> Asm:
    """`"template" : outputs : inputs : clobbers`, each operand a `"constraint"(expression)`."""
    end = min(tokens.partner.get(opening, len(tokens.words)), opening + 4096)
    template: list[str] = []
    operands: list[str] = []
    names: list[str] = []
    colons, name, index = 0, "", opening + 1
    while index < end:
        word = tokens.words[index]
        if word in (":", "::"):
            colons += len(word)
        elif word[0] == '"' and colons == 0:
            start = tokens.starts[index]
            template.append(unescape(tokens.text[start + 1 : start + len(word) - 1]))
        elif word == "[" and colons and tokens.word(index + 2) == "]":
            name = tokens.word(index + 1)
        elif word == "(" and 0 < colons < 3:
            operands.append(tokens.slice(index + 1, tokens.partner.get(index, index + 1)))
            names.append(name)
            name = ""
        index = tokens.partner.get(index, index) + 1 if word in "([{" else index + 1
    return Asm("".join(template), tuple(operands), tuple(names), at)


def _bind(tokens: Tokens, index: int, at: int) -> Iterator[Bind]:
    before, after = tokens.word(index - 1), tokens.word(index + 1)
    if after == "=" or before in ("=", "!", "<", ">", "+", "-", "*", "/", "|", "&", "^", "%"):
        return
    target, indexed = index - 1, False
    if before == "]" and tokens.partner.get(index - 1):
        target, indexed = tokens.partner[index - 1] - 1, True
    if not tokens.word(target).isidentifier():
        return
    start = target
    while start > 0 and target - start < 12 and tokens.words[start - 1] not in ("(", ";", "{", "}", ","):
        start -= 1
    end = index + 1
    while end < min(index + 100, len(tokens.words)) and tokens.words[end] not in (";", ",", ")", "}", "="):
        end = tokens.partner.get(end, end) + 1 if tokens.words[end] in ("(", "[", "{") else end + 1
    declared = "" if tokens.word(target - 1) in (".", "->") else tokens.slice(start, target)
    # `float* bufs[8] = {...}` declares an array, `bufs[i] = p` fills one.
    yield Bind(declared, tokens.words[target], tokens.slice(index + 1, end), indexed, at)


def _base_before(tokens: Tokens, bracket: int) -> str:
    """The pointer expression that `[` indexes."""
    end = start = bracket - 1
    word = tokens.word(start)
    for _ in range(8):
        if word not in ("]", ")"):
            break
        start = tokens.partner.get(start, start)
        if word == ")":
            return _cast_or_group(tokens, start, end)
        start -= 1
        word = tokens.word(start)
    if not word.isidentifier() or word == "return" or word == "delete":
        return ""
    while tokens.word(start - 1) in (".", "->", "::") and bracket - start < _NEAR:
        start -= 2
    return tokens.slice(max(start, 0), end + 1)


def _cast_or_group(tokens: Tokens, opening: int, end: int) -> str:
    """`(p + 4)` and `reinterpret_cast<float4*>(p)`; a function's result is not followed."""
    before = tokens.word(opening - 1)
    if before == ">":
        name = _before_template(tokens, opening - 1)
        return tokens.slice(name, end + 1) if tokens.word(name) in CASTS else ""
    return "" if before.isidentifier() and before != "return" else tokens.slice(opening, end + 1)


def _base_after(tokens: Tokens, star: int) -> Iterator[str]:
    """The operand of a unary `*`."""
    index = star + 1
    if tokens.word(index) in CASTS:
        index = _after_template(tokens, index + 1)
    if tokens.word(index) == "(":
        end = tokens.partner.get(index, index)
        while tokens.word(end + 1) == "(" or (tokens.word(end + 1).isidentifier() and tokens.word(end) == ")"):
            end = tokens.partner.get(end + 1, end + 1)  # `*(float4*)p`, `*(T*)(p + 1)`
            if end - star > _NEAR * 8:
                break
        while tokens.word(end + 1) == "[" and end - star < _NEAR * 4:  # `*(int*)table[0]`
            end = tokens.partner.get(end + 1, end + 1)
        yield tokens.slice(star + 1, end + 1)
    elif tokens.word(index).isidentifier():
        end = index
        while tokens.word(end + 1) in (".", "->", "::") and end - star < _NEAR:
            end += 2
        while tokens.word(end + 1) == "[" and end - star < _NEAR * 4:
            end = tokens.partner.get(end + 1, end + 1)
        if tokens.word(end + 1) != "(":
            yield tokens.slice(index, end + 1)
