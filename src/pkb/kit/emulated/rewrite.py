"""CUDA C++ as C++ for g++: launches, shared memory and inline assembly become calls of the emulator.

The text has been through a preprocessor that expanded the candidate's own macros and left all foreign includes alone, so what
is read here is the candidate's, with its line numbers.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from pkb.kit.emulated import ptx
from pkb.kit.emulated.text import characters, closing, quoted_spans, split

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"][^\n]*$', re.M)
_MARK = "#pragma emu_include "
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\s*(?:volatile\b|__volatile__\b)?\s*\(")
_KEYWORDS = {
    "__device__": "", "__host__": "", "__global__": "", "__constant__": "", "__managed__": "", "__grid_constant__": "",
    "__forceinline__": "inline", "__noinline__": "__attribute__((noinline))",
}  # fmt: skip
_KEYWORD = re.compile("|".join(rf"\b{word}\b" for word in _KEYWORDS))
_BOUNDS = re.compile(r"\b(?:__launch_bounds__|__cluster_dims__|__maxnreg__)\s*\(")
_ALIGNED = re.compile(
    r"(?:\b__align__\s*|\balignas\s*)\(([^()]*(?:\([^()]*\)[^()]*)*)\)|__attribute__\s*\(\(\s*aligned\s*\(([^()]*)\)\s*\)\)"
)


_RECORDERS_OWN = re.compile(r"\b(?:__tsan_|emu_record|EMU_UNSEEN)\w*")
_UNSEEN = re.compile(r"\b(?:__)?no_sanitize(?:_thread)?(?:__)?\b(?:\s*\([^()]*\))?")


class NotEmulated(Exception):
    """Something that the emulator has no model of; its name is the message."""


@dataclass(frozen=True)
class KernelText:
    name: str
    qualified: str
    template: bool
    extern_c: bool
    cluster: str = ""
    """What stands in its __cluster_dims__."""


@dataclass(frozen=True)
class Rewritten:
    text: str
    kernels: list[KernelText] = field(default_factory=list)


def hide_includes(source: str, *, own: frozenset[str]) -> str:
    """Includes of others than `own` headers as pragmas, which a preprocessor lets through."""

    def hide(found: re.Match[str]) -> str:
        return found[0] if found[2] in own else f"{_MARK}{found[1]}{found[2]}{'>' if found[1] == '<' else found[1]}"

    return _INCLUDE.sub(hide, source)


def rewrite(preprocessed: str) -> Rewritten:
    text = re.sub(r'^# (\d+) "([^"]*)".*$', r'#line \1 "\2"', preprocessed, flags=re.M)
    text = re.sub(rf"^[ \t]*{re.escape(_MARK)}", "#include ", text, flags=re.M)
    if found := _RECORDERS_OWN.search(text):
        raise NotEmulated(f"{found[0]} is a name of the recorder of memory accesses")
    text = _UNSEEN.sub("unused", text)  # an attribute: such a function's accesses would not be recorded
    kernels = list(_kernels(text))
    text = _replace_asm(text)
    text = _shared(text)
    text = _launches(text, {kernel.name for kernel in kernels})
    text = _strip(text)
    return Rewritten(text, kernels)


def _same_lines(before: str, after: str) -> str:
    """With as many line ends as before, so that what follows keeps its numbers."""
    return after.replace("\n", " ") + "\n" * before.count("\n")


# --- scopes ---


class _Scopes:
    """Which braces are open at a place: names of namespaces, `extern "C"`, or something else."""

    def __init__(self, text: str) -> None:
        self._starts: list[int] = [0]
        self._stacks: list[tuple[str, ...]] = [()]
        stack: list[str] = []
        last = 0
        for at, character, _ in characters(text):
            if character == "{":
                before = text[last:at]
                stack.append(self._kind(before))
            elif character == "}" and stack:
                stack.pop()
            if character in "{};":
                last = at + 1
            if character in "{}":
                self._starts.append(at)
                self._stacks.append(tuple(stack))

    @staticmethod
    def _kind(before: str) -> str:
        before = re.sub(r"^#.*$", "", before, flags=re.M)
        if found := re.search(r"\bnamespace\s*([\w:]*)\s*$", before):
            return f"namespace {found[1]}"
        return "extern C" if re.search(r'extern\s*"C"\s*$', before) else "other"

    def at(self, place: int) -> tuple[str, ...]:
        return self._stacks[bisect_right(self._starts, place) - 1]


def _kernels(text: str) -> Iterator[KernelText]:
    scopes = _Scopes(text)
    seen = set()
    for found in re.finditer(r"\b__global__\b", text):
        at = found.end()
        while True:
            start = text.find("(", at)
            if start < 0:
                return
            name = re.search(r"([\w]+)\s*$", text[found.end() : start])
            if name is None:
                break
            if name[1] in ("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__"):
                at = closing(text, start + 1) + 1
                continue
            stack = scopes.at(found.start())
            before = re.split(r"[;{}]", text[max(0, found.start() - 2000) : found.start()])[-1]
            spaces = [kind.split()[1] for kind in stack if kind.startswith("namespace ") and len(kind.split()) > 1]
            qualified = "::".join([*spaces, name[1]])
            end = closing(text, start + 1)
            if qualified not in seen and text[end + 1 : end + 200].lstrip().startswith("{") and "other" not in stack:
                seen.add(qualified)
                extern_c = bool(re.search(r'extern\s*"C"', before)) or "extern C" in stack
                template = re.search(r"\btemplate\s*<(.*)", before, re.S)
                dims = re.search(r"\b__cluster_dims__\s*\(", head := f"{before}{text[found.start() : start]}")
                cluster = head[dims.end() : closing(head, dims.end())] if dims else ""
                if template and set(re.findall(r"[A-Za-z_]\w*", cluster)) & set(re.findall(r"\w+", template[1])):
                    raise NotEmulated(f"__cluster_dims__({cluster}) of kernel {name[1]}, which depends on its template")
                yield KernelText(name[1], qualified, bool(template), extern_c, cluster)
            break


# --- inline assembly ---


def _replace_asm(text: str) -> str:
    parts, done = [], 0
    for found in _ASM.finditer(text):
        if found.start() < done:
            continue
        end = closing(text, found.end())
        whole = text[found.start() : end + 1]
        parts += [text[done : found.start()], _same_lines(whole, ptx.to_cpp(text[found.end() : end]))]
        done = end + 1
    return "".join([*parts, text[done:]])


# --- shared memory ---


def _shared(text: str) -> str:
    scopes = _Scopes(text)
    parts, done, number = [], 0, 0
    outside: dict[str, str] = {}
    for found in re.finditer(r"\b__shared__\b", text):
        if found.start() < done:
            continue
        start = max(text.rfind(mark, 0, found.start()) for mark in ";{}") + 1
        start = max(start, done, _after_directive(text, found.start()))
        start += len(text[start:]) - len(text[start:].lstrip())
        end = next(at for at, character, depth in characters(text, found.end()) if character == ";" and depth == 0)
        whole = text[start : end + 1]
        number += 1
        inside = "other" in scopes.at(found.start())
        parts += [
            text[done:start],
            _same_lines(whole, _declaration(whole[:-1], number, outside if not inside else None)),
        ]
        done = end + 1
    text = "".join([*parts, text[done:]])
    for name, expression in outside.items():
        text = re.sub(rf"\b{name}\b", expression, text)
    return text


def _after_directive(text: str, before: int) -> int:
    """The end of the last line of a preprocessor before a place."""
    found = 0
    for line in re.finditer(r"^#.*$", text[max(0, before - 4000) : before], re.M):
        found = max(0, before - 4000) + line.end() + 1
    return found


def _declaration(statement: str, number: int, outside: dict[str, str] | None) -> str:
    aligned = [match[1] or match[2] for match in _ALIGNED.finditer(statement)]
    rest = _ALIGNED.sub(" ", statement)
    dynamic = re.search(r"\bextern\b", rest) is not None
    rest = re.sub(r"\b(?:extern|static|__shared__)\b", " ", rest)
    rest = _KEYWORD.sub(" ", rest).strip()
    first, *others = split(rest, ",", angles=True)
    match = re.fullmatch(r"(.*?)(\w+)\s*((?:\[[^\]]*\]\s*)*)", first, re.S)
    if match is None or not match[1].strip():
        raise NotEmulated(f"shared memory declared as {statement.strip()[:80]!r}")
    kind = match[1]
    if dynamic:
        place = f"reinterpret_cast<{kind.strip()}*>(emu_shared())"
        if outside is not None:
            outside[match[2]] = f"({place})"
            return " "
        # Of one name and two types: as wrong for g++ as it is for nvcc.
        return f"extern {kind.strip()} emu_dynamic_{match[2]}[]; {kind.strip()}* {match[2]} = {place};"
    if outside is not None:
        raise NotEmulated("shared memory outside of a function")
    code = ""
    for n, declarator in enumerate([f"{match[2]}{match[3]}", *others]):
        found = re.fullmatch(r"\s*([*\s]*)(\w+)\s*((?:\[[^\]]*\]\s*)*)", declarator, re.S)
        if found is None:
            raise NotEmulated(f"shared memory declared as {statement.strip()[:80]!r}")
        name, alias = found[2], f"emu_t{number}_{n}_{found[2]}"
        align = f"({aligned[0]})" if aligned else f"(alignof({alias}) < 16 ? 16 : alignof({alias}))"
        code += (
            f"typedef {kind} {found[1]}{alias}{found[3]}; {alias}& {name} = *static_cast<{alias}*>(emu_shared_static("
            f"__PRETTY_FUNCTION__, {100 * number + n}, sizeof({alias}), {align})); "
        )
    return code


# --- launches ---


def _named(expression: str, names: set[str]) -> str:
    """The one kernel that an expression speaks of, or nothing."""
    found = {word for word in re.findall(r"\w+", expression) if word in names}
    return found.pop() if len(found) == 1 else ""


def _attributes(text: str, names: set[str]) -> str:
    """Calls of cudaFuncSetAttribute and cudaLaunchKernelEx say which kernel they mean."""
    parts, done = [], 0
    for found in re.finditer(r"\b(?:::)?(cudaFuncSetAttribute|cudaLaunchKernelEx)\s*\(", text):
        given = split(text[found.end() : closing(text, found.end())], ",", angles=True)
        call, which = ("emu_func_set_attribute", 0) if found[1] == "cudaFuncSetAttribute" else ("emu_launch_ex", 1)
        parts += [text[done : found.start()], f'{call}("{_named(given[which], names) if which < len(given) else ""}", ']
        done = found.end()
    return "".join([*parts, text[done:]])


def _launches(text: str, names: set[str]) -> str:
    text = _attributes(text, names)
    quoted = quoted_spans(text)
    starts = [start for start, _ in quoted]
    parts, done, at = [], 0, 0
    while (at := text.find("<<<", at)) >= 0:
        near = bisect_right(starts, at) - 1
        if near >= 0 and quoted[near][1] > at:
            at += 3
            continue
        begin = _callee_start(text, at)
        end = next(
            (place for place, _, depth in characters(text, at + 3) if depth == 0 and text.startswith(">>>", place)), -1
        )
        opening = re.compile(r"\s*\(").match(text, end + 3) if end >= 0 else None
        if begin == at or opening is None:
            at += 3
            continue
        last = closing(text, opening.end())
        callee, configuration = text[begin:at].strip(), text[at + 3 : end]
        arguments = text[opening.end() : last].strip()
        shown = re.sub(r"\s+", " ", callee).replace('"', "'")[:80]
        call = f'"{shown}", "{_named(callee, names)}", [=](auto... emu_a) {{ {callee}(emu_a...); }}'
        new = f"::emu::Launch({configuration})({call}{', ' + arguments if arguments else ''})"
        parts += [text[done:begin], _same_lines(text[begin : last + 1], new)]
        done = at = last + 1
    return "".join([*parts, text[done:]])


def _callee_start(text: str, end: int) -> int:
    """Where `ns::kernel<T, 4>` begins that ends before `end`."""
    at = end
    while at and text[at - 1].isspace():
        at -= 1
    if at and text[at - 1] == ">":
        depth = 0
        while at:
            at -= 1
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if depth == 0:
                break
        while at and text[at - 1].isspace():
            at -= 1
    while at and (text[at - 1].isalnum() or text[at - 1] in "_:"):
        at -= 1
    return at


def _strip(text: str) -> str:
    parts, done = [], 0
    for found in _BOUNDS.finditer(text):
        if found.start() < done:
            continue
        end = closing(text, found.end())
        parts += [text[done : found.start()], _same_lines(text[found.start() : end + 1], " ")]
        done = end + 1
    text = "".join([*parts, text[done:]])
    text = re.sub(r"\b__align__\s*\(", "alignas(", text)
    text = re.sub(r"(?<![\w.:>])clock\s*\(\s*\)", "emu_clock()", text)
    return _KEYWORD.sub(lambda found: _KEYWORDS[found[0]], text)
