"""CUDA, C++ and PTX in a candidate's strings: which functions there are, which of them run, and with what."""

import ast
import re
from collections.abc import Iterator
from typing import Literal as Choice

from pkb.candidates.names import UNKNOWN, Literal, fold, is_code
from pkb.candidates.paths import parser, ptx, tokens
from pkb.candidates.paths.cuda import Function
from pkb.candidates.paths.flow import Context, Flow, Unit, Use, join
from pkb.candidates.paths.held import Kernel, Value
from pkb.candidates.paths.known import PEER_SOURCES
from pkb.candidates.paths.live import Scope
from pkb.candidates.paths.python import has_peer_source
from pkb.candidates.paths.text import Code, clean, mask
from pkb.candidates.paths.use import Found, Kind
from pkb.candidates.paths.values import Values
from pkb.candidates.source import Source, has_solution

Reader = Choice["parser", "tokens"]

_POINTER_ARRAY = re.compile(r"\*\s{0,4}(?:const\s{1,4}|__restrict__\s{1,4}){0,2}(\w{1,80})\s{0,4}\[")
_PGL_ALIAS = re.compile(r"\busing\s{1,8}(\w{1,80})\s{0,8}=\s{0,8}(?:kittens\s{0,4}::\s{0,4})?(?:pgl|parallel_layout)\b")
_PGL_FIELD = re.compile(r"\b(?:pgl|parallel_layout)\s{0,4}<[^;{}()]{0,200}>\s{0,8}&?\s{0,4}(\w{1,80})\s{0,4}[;,)]")
_PTX_FUNCTION = re.compile(r"\.(entry|func)\b[^\n{;]{0,200}?\b(\w{1,120})\s{0,8}\(")
_PTX_MODULE = re.compile(r"^\s{0,40}\.version\s{1,8}\d", re.MULTILINE)
_KINDS: dict[str, Kind] = {
    "peer": "peer",
    "address": "peer",
    "peers": "table",
    "table": "table",
    "multicast": "multicast",
    "local": "local",
}


class Embedded:
    """All code strings of a candidate that its live Python can use."""

    def __init__(self, source: Source, values: Values, *, reader: Reader | None) -> None:
        self._source = source
        self._values = values
        self._reader: Reader = reader or ("parser" if parser.available() else "tokens")
        self._texts: list[Literal] = []
        self._plain: list[int] = []  # texts without functions: assembler, or a piece of code
        self._exported: dict[str, str] = {}
        unit = Unit()
        everything: list[str] = []
        literals = [*_live_literals(source, values)]
        codes = [clean(literal.text) for literal in literals]
        readings = parser.read_all(tuple(code.text for code in codes)) if self._reader == "parser" else None
        for owner, (literal, code) in enumerate(zip(literals, codes, strict=True)):
            self._texts.append(literal)
            everything.append(code.masked)
            functions = self._functions(code, readings[owner] if readings is not None else None)
            for function in functions:
                unit.functions.setdefault(function.name, []).append((function, owner))
                self._exported |= _exports(function, code.text)
            if not functions:
                self._plain.append(owner)
            unit.kit |= "pkb.cuh" in literal.text or "pkb::" in code.masked
            unit.kittens |= "kittens" in literal.text
            unit.fields |= _fields(code.masked)
        extract = source.tree is None or not has_solution(source.tree)
        unit.open_tables = extract or has_peer_source(values) or any(PEER_SOURCES.search(text) for text in everything)
        self._unit = unit
        self.flow = Flow(unit)
        self._bound, self._named, self._dynamic = self._calls_from_python()

    def _functions(self, code: Code, reading: parser.Reading | None) -> list[Function]:
        """The token reader answers for what the parser did not read."""
        if _PTX_MODULE.search(code.masked):
            return []
        functions = [*reading.functions] if reading is not None else []
        text, masked = code.text, _without(code.masked, reading.spans if reading is not None else ())
        functions = [*functions, *tokens.read(text, masked)]
        for macro in code.macros:
            functions.append(
                tokens.read_body(macro.name, macro.parameters, text=macro.body, masked=mask(macro.body), at=macro.at)
            )
        for expanded, at in code.expansions:
            functions += tokens.read(expanded, mask(expanded), pin=at)
        return functions

    # --- from Python into the code -----------------------------------------------------------------------------------

    def _calls_from_python(self) -> tuple[dict[str, list[Kind | None]], set[str], bool]:
        """What Python hands to each function; which functions it names; whether it asks for a kernel by a computed name."""
        bound: dict[str, list[Kind | None]] = {}
        named: set[str] = set()
        dynamic = False
        for scope in self._values.scopes:
            for node in scope.nodes:
                if isinstance(node, ast.Attribute):
                    named.add(self._exported.get(node.attr, node.attr))
                elif isinstance(node, ast.Constant | ast.JoinedStr):
                    named |= self._matching(fold(node) or "")
                if isinstance(node, ast.Call):
                    dynamic |= _asks_for_computed_name(node, self._values)
                    for name, arguments in self._handed(scope, node):
                        _merge(bound.setdefault(name, []), arguments)
        return bound, named & self._unit.functions.keys(), dynamic

    def _matching(self, text: str) -> set[str]:
        """The functions that a string may name; `{}` stands for what is put in at run time."""
        if not text or len(text) > 200 or text == UNKNOWN:
            return set()
        if UNKNOWN not in text:
            name = self._exported.get(text, text)
            return {name} if name in self._unit.functions else set()
        first, _, last = text.partition(UNKNOWN)[0], None, text.rpartition(UNKNOWN)[2]
        if not re.fullmatch(r"\w*", first + last) or not first + last:
            return set()
        return {name for name in self._unit.functions if name.startswith(first) and name.endswith(last)}

    def _handed(self, scope: Scope, node: ast.Call) -> Iterator[tuple[str, list[Value]]]:
        arguments = self._values.arguments(scope, node)
        if isinstance(node.func, ast.Subscript):
            value = self._values.of(scope, node.func.value)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "launch":
            value, arguments = self._values.of(scope, node.func.value), arguments[2:]
        else:
            value = self._values.of(scope, node.func)
            if isinstance(node.func, ast.Attribute):
                name = self._exported.get(node.func.attr, node.func.attr)
                if name in self._unit.functions:
                    yield name, arguments
        if isinstance(value, Kernel):
            if isinstance(node.func, ast.Name) and len(node.args) >= 3 and isinstance(node.args[2], ast.Tuple):
                arguments = [
                    self._values.of(scope, each) for each in node.args[2].elts
                ]  # cupy: kernel(grid, block, args)
            for name in self._matching(value.name):
                yield name, arguments

    def _roots(self) -> list[str]:
        functions = self._unit.functions
        kernels = [name for name, made in functions.items() if any(function.kind == "kernel" for function, _ in made)]
        roots = [name for name in functions if name in self._named or name in ("PYBIND11_MODULE", "TORCH_LIBRARY")]
        if self._dynamic:
            roots += kernels
        if not roots:  # nobody names any: an extract, or names that only a run knows
            hosts = [name for name, made in functions.items() if any(function.kind == "host" for function, _ in made)]
            roots = kernels + hosts or [name for name, made in functions.items() if made[0][0].kind != "macro"]
        return list(dict.fromkeys(roots))

    def _is_kernel(self, name: str) -> bool:
        return any(function.kind == "kernel" for function, _ in self._unit.functions[name])

    def _context(self, name: str) -> tuple[Context, bool]:
        """Bound by Python: what it is handed is known, so the rest is this rank's own."""
        return tuple(self._bound.get(name, ())), name in self._bound

    # --- the answers -------------------------------------------------------------------------------------------------

    def uses(self) -> list[Found]:
        found: set[Use] = set()
        exported = set(self._exported.values())
        lists = ("PYBIND11_MODULE", "TORCH_LIBRARY")
        for name in sorted(
            self._roots(), key=lambda name: (name not in self._bound, self._is_kernel(name), name in lists)
        ):
            if name in lists and exported & self._bound.keys():
                continue  # it only lists what Python calls, and that is followed from the calls
            context, resolved = self._context(name)
            if name in self.flow.contexts and not resolved:
                continue  # launched by code that was followed: a string of the same name says nothing new
            found |= self.flow.run(name, context, resolved=resolved)
        return [*(self._found(use) for use in sorted(found, key=lambda use: (use.owner, use.at))), *self._assembler()]

    def kernels(self) -> dict[str, list[Found]]:
        """What each kernel does; asked after `uses`, so that launches from C++ are known too."""
        answer: dict[str, list[Found]] = {}
        for name, made in self._unit.functions.items():
            if any(function.kind == "kernel" for function, _ in made):
                contexts = self.flow.contexts.get(name) or {self._context(name)}
                found = {
                    use for context, resolved in contexts for use in self.flow.run(name, context, resolved=resolved)
                }
                answer[name] = [self._found(use) for use in sorted(found, key=lambda use: use.at)]
        for owner in self._plain:
            text = self._texts[owner].code
            starts = [(match.start(), match) for match in _PTX_FUNCTION.finditer(text)]
            for index, (start, match) in enumerate(starts):
                end = starts[index + 1][0] if index + 1 < len(starts) else len(text)
                if match.group(1) == "entry":
                    answer[match.group(2)] = [*self._of_assembler(owner, start, end)]
        return answer

    def _found(self, use: Use) -> Found:
        literal = self._texts[use.owner]
        return Found(use.path, literal.line_of(use.at), literal.code_at(use.at), use.weak)

    def _assembler(self) -> Iterator[Found]:
        for owner in self._plain:
            yield from self._of_assembler(owner, 0, len(self._texts[owner].code))

    def _of_assembler(self, owner: int, start: int, end: int) -> Iterator[Found]:
        for each in ptx.instructions(self._texts[owner].code[start:end]):
            for path, weak in ptx.meanings(each, lambda _: None, resolved=False):
                yield self._found(Use(path, weak, owner, start + each.at))


def _live_literals(source: Source, values: Values) -> Iterator[Literal]:
    """Code strings in live Python; of those that a name is given to at module level, only where the name is used."""
    loaded = {
        node.id
        for scope in values.scopes
        for node in scope.nodes
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
    }
    strict = source.tree is not None and has_solution(source.tree)
    dead_lines: set[int] = set()
    live_lines = {
        getattr(node, "lineno", 0)
        for scope in values.scopes
        for node in scope.nodes
        if isinstance(node, ast.Constant | ast.JoinedStr)
    }
    in_triton = {
        getattr(part, "lineno", 0)
        for scope in values.scopes
        for node in scope.nodes
        if isinstance(node, ast.Call) and (source.names.dotted(node.func) or "").endswith("inline_asm_elementwise")
        for part in ast.walk(node)
        if isinstance(part, ast.Constant)
    }
    for node in values.scopes[0].nodes if values.scopes else ():
        if isinstance(node, ast.Assign) and strict:
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if names and not any(name in loaded for name in names):
                dead_lines |= {
                    getattr(part, "lineno", 0) for part in ast.walk(node.value) if isinstance(part, ast.Constant)
                }
    for literal in source.names.literals:
        lines = range(literal.line, literal.last_line + 1)
        used = any(line in live_lines for line in lines[:64]) and literal.line not in dead_lines
        if is_code(literal.text) and used and literal.line not in in_triton:
            yield literal


def _exports(function: Function, text: str) -> dict[str, str]:
    """`m.def("python_name", &function)`: by which name Python knows it."""
    found: dict[str, str] = {}
    for call in function.calls:
        if call.name in ("def", "impl") and len(call.arguments) >= 2:
            shown, target = call.arguments[0].strip(), re.findall(r"[A-Za-z_]\w*", call.arguments[1])
            if shown.startswith('"') and target:
                found[shown.strip('"').split("(")[0].rpartition("::")[2]] = target[-1]
    return found


def _fields(masked: str) -> dict[str, Kind]:
    """Members and arrays that hold pointers to every rank's memory, by their declaration."""
    names = set(_POINTER_ARRAY.findall(masked)) | set(_PGL_FIELD.findall(masked))
    for alias in set(_PGL_ALIAS.findall(masked)[:32]):
        names |= set(re.findall(rf"\b{alias}\s{{1,8}}&?(\w{{1,80}})\s{{0,4}}[;,)]", masked))
    return dict.fromkeys(names, "table")


def _without(masked: str, spans: tuple[tuple[int, int], ...]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            pieces += [masked[done:start], re.sub(r"[^\n]", " ", masked[start:end])]
            done = end
    return "".join(pieces) + masked[done:]


def _merge(into: list[Kind | None], values: list[Value]) -> None:
    kinds = [_KINDS.get(value) if isinstance(value, str) else None for value in values]
    into += [None] * (len(kinds) - len(into))
    for index, kind in enumerate(kinds):
        into[index] = join((into[index], kind))


def _asks_for_computed_name(node: ast.Call, values: Values) -> bool:
    asks = isinstance(node.func, ast.Attribute) and node.func.attr in ("kernel", "get_function", "get_kernel")
    if not asks or not node.args:
        return False
    text = fold(node.args[0])
    return text is None or text == UNKNOWN
