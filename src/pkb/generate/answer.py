"""The candidate in a model's answer. What cannot be used is explained in words that a model can act on.

The rules, in order:

1. Thinking between tags (`<think>`, `<thinking>`, `<reasoning>`) is no part of the answer; one that ends inside it was cut off.
2. Code stands in fenced blocks (three or more backticks or tildes, labelled or not). A text is a candidate if it is Python and
   binds `solution` at top level, whatever its label. Of several, the last one that is complete counts.
3. Blocks are never joined. If the block that defines `solution` imports or uses what only another block defines, the answer is
   refused: one file was asked for, and where the pieces belong is a guess.
4. A block that is never closed was cut off: it is not used. An earlier complete candidate is, and `truncated` says so.
5. Without any fence, the whole text counts if it is Python and binds `solution`.
"""

import ast
import builtins
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pkb.candidates.source import bound_by, has_solution, parse
from pkb.types.errors import UserError

_FENCE = re.compile(r"^[ \t]{0,12}(?P<marks>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$")
_TAGS = "think|thinking|reasoning"
_OPEN = re.compile(rf"^[ \t]*<({_TAGS})>", re.IGNORECASE | re.MULTILINE)
_CLOSE = re.compile(rf"</({_TAGS})>[ \t]*", re.IGNORECASE)
_FILE = re.compile(r"(?<![\w./])([\w.]+)\.py\b")
_MAX_CHARACTERS = 512 * 1024
_MAX_CLOSINGS = 10
"""How many fences are tried as the end of one block: together with the limit on length a bound on work."""
ASK = "answer with one closed ```python block that holds the whole file and defines `solution` at top level"


@dataclass(frozen=True)
class Extracted:
    code: str | None
    """The candidate's text, ending in a newline; None if there is none."""
    problem: str = ""
    """Why there is none, and what to do; empty exactly when `code` is there."""
    truncated: bool = False
    """The answer was cut off: if there is code, it is an earlier complete block."""
    note: str = ""
    """What was passed over, where more than one block could have been meant."""

    def __post_init__(self) -> None:
        if (self.code is None) != bool(self.problem):
            raise ValueError("an answer has either code or a problem")


class _Block(NamedTuple):
    text: str
    label: str
    closed: bool


class _Read(NamedTuple):
    """A block after parsing: its tree, or why it is not Python."""

    block: _Block
    tree: ast.Module | None
    error: str


def extract(text: str) -> Extracted:
    """The candidate from a model's answer, by the rules above."""
    if len(text) > _MAX_CHARACTERS:
        return _refuse(f"the answer is longer than {_MAX_CHARACTERS >> 10} Ki characters; {ASK}")
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    answer, cut_in_thought = _without_thought(text)
    if not answer.strip():
        why = "the answer ended while you were still thinking" if cut_in_thought else "the answer is empty"
        return _refuse(f"{why}; think less and {ASK}" if cut_in_thought else f"{why}; {ASK}", cut_in_thought)
    blocks = _blocks(answer)
    if not blocks:
        return _bare(answer, cut_in_thought)
    read = [_read(block) for block in blocks]
    truncated = cut_in_thought or not blocks[-1].closed
    complete = [item for item in read if item.block.closed and item.tree is not None and has_solution(item.tree)]
    if not complete:
        return _refuse(_why_none(read), truncated)
    chosen = complete[-1]
    missing = _from_elsewhere(chosen, read, answer)
    if missing:
        return _refuse(f"{missing}; blocks are not joined: {ASK}", truncated)
    notes = []
    if len(complete) > 1:
        notes.append(f"{len(complete)} blocks define `solution`; the last complete one was taken")
    after = read[read.index(chosen) + 1 :]
    if any("def solution" in item.block.text for item in after):
        notes.append("a later block with `solution` is not complete and was passed over")
    return Extracted(_clean(chosen.block.text), truncated=truncated, note="; ".join(notes))


def _without_thought(text: str) -> tuple[str, bool]:
    """The text outside thinking, and whether it ended inside. A closing tag alone ends thinking that the prompt began."""
    kept: list[str] = []
    at = 0
    while True:
        opened = _OPEN.search(text, at)
        closed = _CLOSE.search(text, at)
        if closed is not None and (opened is None or closed.start() < opened.start()):
            kept, at = [], closed.end()
        elif opened is not None:
            kept.append(text[at : opened.start()])
            end = _CLOSE.search(text, opened.end())
            if end is None:
                return "".join(kept), True
            at = end.end()
        else:
            return "".join([*kept, text[at:]]), False


def _blocks(answer: str) -> list[_Block]:
    lines = answer.split("\n")
    found: list[_Block] = []
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        end = _end_of(lines, at, fence["marks"])
        indent = len(lines[at]) - len(lines[at].lstrip())
        body = [_dedent(line, indent) for line in lines[at + 1 : len(lines) if end is None else end]]
        label = fence["info"].strip().partition(" ")[0].lower()
        found.append(_Block("\n".join(body), label, end is not None))
        at = len(lines) if end is None else end + 1
    return found


def _end_of(lines: list[str], start: int, marks: str) -> int | None:
    """The line that closes a block.

    Markdown says the first fence of the same kind without a label. But a CUDA string may hold such a line, and then what stands
    before it ends inside that string: so the first end that leaves Python counts, and the first of all if none does.
    """
    ends = []
    for number in range(start + 1, len(lines)):
        fence = _FENCE.match(lines[number])
        if fence and fence["marks"][0] == marks[0] and len(fence["marks"]) >= len(marks) and not fence["info"].strip():
            ends.append(number)
            if len(ends) == _MAX_CLOSINGS:
                break
    if not ends:
        return None
    indent = len(lines[start]) - len(lines[start].lstrip())
    for end in ends:
        text = "\n".join(_dedent(line, indent) for line in lines[start + 1 : end])
        read = _read(_Block(text, "", True))
        if read.tree is not None:
            return end
        if "unterminated triple-quoted" not in read.error:
            break
    return ends[0]


def _dedent(line: str, indent: int) -> str:
    """A block in a list is indented as a whole; code that is indented less stays as it is."""
    return line[indent:] if not line[:indent].strip() else line


def _read(block: _Block) -> _Read:
    if not block.text.strip():
        return _Read(block, None, "it is empty")
    try:
        source = parse(block.text.encode("utf-8", "replace"), path=Path("answer"))
    except UserError as error:  # a declared encoding other than UTF-8
        return _Read(block, None, error.message)
    if source.syntax_error is not None:
        return _Read(block, None, f"line {source.syntax_line}: {source.syntax_error.message}")
    return _Read(block, source.tree, "")


def _bare(answer: str, cut_in_thought: bool) -> Extracted:
    read = _read(_Block(answer.strip("\n"), "", True))
    if read.tree is not None and has_solution(read.tree):
        return Extracted(_clean(read.block.text), truncated=cut_in_thought, note="the code stood in no block")
    if re.search(r"^(async )?def solution\b", answer, re.MULTILINE):
        return _refuse(
            f"`solution` stands in no code block, and the text is not Python ({read.error}); {ASK}", cut_in_thought
        )
    return _refuse(f"the answer holds no code block; {ASK}", cut_in_thought)


def _why_none(read: list[_Read]) -> str:
    """The most useful reason why no block is a candidate: a cut one, then one that was meant, then any."""
    last = read[-1]
    if not last.block.closed:
        lines = last.block.text.rstrip().count("\n") + 1
        return (
            f"the last code block is not closed: the answer was cut off after {lines} lines of code. Write less before "
            f"the code, or a shorter file; {ASK}"
        )
    meant = [item for item in read if re.search(r"\bdef solution\b", item.block.text)]
    for item in reversed(meant):
        if item.tree is None:
            return f"the block that defines `solution` is not Python: {item.error}; {ASK}"
    if meant:
        return f"`solution` is defined inside a class or another function; {ASK}"
    python = [item for item in read if item.tree is not None and item.block.label not in ("text", "bash", "sh", "json")]
    if python:
        names = sorted({name for item in python for name in _top_names(item.tree) if not name.startswith("_")})
        defined = f"it defines {', '.join(names[:8])}" if names else "it defines nothing"
        return f"no block defines `solution` ({defined}); {ASK}"
    first = next((item for item in read if item.block.label in ("python", "py", "python3")), None)
    if first is not None:
        return f"the Python block is not Python: {first.error}; {ASK}"
    labels = sorted({item.block.label or "no label" for item in read})
    return (
        f"there is no Python block (found: {', '.join(labels)}); put kernels into strings of the Python file and {ASK}"
    )


def _from_elsewhere(chosen: _Read, read: list[_Read], answer: str) -> str:
    """What the chosen block takes from another one, in a sentence; empty if it stands alone."""
    assert chosen.tree is not None
    others = [item.tree for item in read if item is not chosen and item.tree is not None]
    theirs = {name for tree in others for name in _top_names(tree)}
    nodes = list(ast.walk(chosen.tree))
    files = set(_FILE.findall(answer))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.names and all(alias.name in theirs for alias in node.names):
            module = "." * node.level + (node.module or "")
            return f"line {node.lineno} imports {node.names[0].name} from {module}, which is another block"
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in files:
                    return f"line {node.lineno} imports {alias.name}, which is another file of the answer"
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in nodes):
        return ""
    missing = sorted((_used(nodes) & theirs) - _bound(nodes) - set(dir(builtins)))
    return f"`{missing[0]}` is used but only defined in another block" if missing else ""


def _top_names(tree: ast.Module | None) -> set[str]:
    """Names that the statements of a module bind, imports left aside: those anybody may repeat."""
    body = [] if tree is None else [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]
    return {name for statement in body for name in bound_by(statement)}


def _used(nodes: list[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _bound(nodes: list[ast.AST]) -> set[str]:
    """Names that anything in the block binds, in any scope: a name that is not here is a NameError for certain."""
    names = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
    return names


def _clean(text: str) -> str:
    return text.strip("\n") + "\n"


def _refuse(problem: str, truncated: bool = False) -> Extracted:
    return Extracted(None, problem, truncated=truncated)
