"""What the CUDA, C++ and PTX in a candidate's strings move, read with tree-sitter (`pip install 'pkb[analysis]'`).

In a child process: the grammar takes minutes on some short hostile texts, its parser cannot be interrupted, and a crash in C
must not end the judge. What is not read, for want of the package or of time, is `unknown`.
"""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from pkb.candidates.constants import UNKNOWN
from pkb.candidates.names import strip_comments
from pkb.candidates.paths.flow import CudaUnit, Flow
from pkb.candidates.paths.known import PEER_SOURCES, CallContext, CudaUse, Kind, instructions, meanings
from pkb.candidates.paths.syntax import CudaFunction, arguments_of, callee, functions, pieces, text_of

MAX_BYTES = 256 << 10  # of all texts of a candidate; beyond, the child would only run into its time limit
TIMEOUT_S = 5.0

_POINTER_ARRAY = re.compile(r"\*\s*(?:const\s+|__restrict__\s+)*(\w+)\s*\[")
_PGL_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*(?:kittens\s*::\s*)?(?:pgl|parallel_layout)\b")
_PGL_FIELD = re.compile(r"\b(?:pgl|parallel_layout)\s*<[^;{}()]*>\s*&?\s*(\w+)\s*[;,)]")
_PTX_FUNCTION = re.compile(r"\.(entry|func)\b[^\n{;]*?\b(\w+)\s*\(")
_PTX_MODULE = re.compile(r"^\s*\.version\s+\d", re.MULTILINE)
_LISTS = ("PYBIND11_MODULE", "TORCH_LIBRARY")


class CudaQuestion(NamedTuple):
    texts: tuple[str, ...]
    names: tuple[str, ...]  # attributes and short strings of live Python; `{}` stands for what is put in at run time
    handed: tuple[tuple[str, tuple[Kind | None, ...]], ...]  # functions, and what arguments of a call or launch are
    has_peers: bool  # the Python gets at other ranks' memory, or is only an extract


class CudaAnswer(NamedTuple):
    uses: list[CudaUse]
    kernels: dict[str, list[CudaUse]]
    unread: list[int]  # texts with kernels of which the grammar understood none


def available() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tree_sitter", "tree_sitter_cuda"))


@lru_cache(maxsize=16)
def ask(question: CudaQuestion) -> CudaAnswer | str:
    """The answer, or why there is none."""
    if not available():
        return "tree-sitter is not installed: pip install 'pkb[analysis]'"
    if sum(map(len, question.texts)) > MAX_BYTES:
        return f"more than {MAX_BYTES >> 10} KiB of code"
    # -P: a tree_sitter.py that lies beside a candidate must not be imported.
    command = [sys.executable, "-P", "-m", "pkb.candidates.paths.cuda"]
    sent = json.dumps(question).encode()
    try:
        done = subprocess.run(command, input=sent, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"reading it takes more than {TIMEOUT_S:g} s"
    except OSError as error:
        return f"the parser cannot be started: {error}"
    if done.returncode != 0:
        return "the parser failed on it"
    uses, kernels, unread = json.loads(done.stdout)
    named = {name: [CudaUse(*use) for use in found] for name, found in kernels.items()}
    return CudaAnswer([CudaUse(*use) for use in uses], named, unread)


def main() -> int:
    """The child: a question as JSON on standard input, the answer on standard output."""
    import resource

    import tree_sitter
    import tree_sitter_cuda

    resource.setrlimit(resource.RLIMIT_CPU, (int(TIMEOUT_S) + 1, int(TIMEOUT_S) + 2))  # outlives no judge
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    question = CudaQuestion(*json.load(sys.stdin))
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    json.dump(_Analysis(question, parser).answer(), sys.stdout)
    return 0


class _Analysis:
    def __init__(self, question: CudaQuestion, parser: Any) -> None:
        self._question = question
        self._unit = unit = CudaUnit(open_tables=question.has_peers)
        self._assembler: list[int] = []  # texts without functions: PTX, or a piece of code
        self._exported: dict[str, str] = {}  # by the name that Python knows
        self._unread: list[int] = []
        for owner, text in enumerate(question.texts):
            code = strip_comments(text)
            parsed = () if _PTX_MODULE.search(code) else pieces(parser, text)
            found = [each for piece in parsed for each in functions(piece, owner)]
            for function in found:
                unit.functions.setdefault(function.name, []).append(function)
                self._exported |= _exports(function)
            if not found:
                self._assembler.append(owner)
            if "__global__" in code and all(each.kind != "kernel" for each in found):
                self._unread.append(owner)
            unit.headers |= {"kit"} if "pkb.cuh" in text or "pkb::" in text else set()
            unit.headers |= {"kittens"} if "kittens" in text else set()
            unit.open_tables |= PEER_SOURCES.search(code) is not None
            unit.fields |= _tables(code)
        self._flow = Flow(unit)
        self._named = {name for text in question.names for name in self._matching(text)}
        self._handed = [
            (name, CallContext(tuple(kinds), resolved=True))
            for text, kinds in question.handed
            for name in self._matching(text)
        ]
        if any(text == UNKNOWN for text, _ in question.handed):  # a kernel by a name that only a run knows
            self._named |= {name for name in unit.functions if self._is(name, "kernel")}

    def _matching(self, text: str) -> set[str]:
        """The functions that a string of Python may name."""
        if UNKNOWN not in text:
            return {self._exported.get(text, text)} & self._unit.functions.keys()
        first, last = text.partition(UNKNOWN)[0], text.rpartition(UNKNOWN)[2]
        if not re.fullmatch(r"\w+", first + last):
            return set()
        return {name for name in self._unit.functions if name.startswith(first) and name.endswith(last)}

    def answer(self) -> CudaAnswer:
        found: set[CudaUse] = set()
        for name, context in self._handed:
            found |= self._flow.run(name, context)
        for name in sorted(self._roots(), key=lambda name: (self._is(name, "kernel"), name)):
            if name not in self._flow.contexts:  # else followed from a call: its name in a string says nothing new
                found |= self._flow.run(name, CallContext())
        uses = sorted(found, key=lambda use: (use.owner, use.at))
        for owner in self._assembler:
            uses += self._of_assembler(owner, 0, len(self._question.texts[owner]))
        return CudaAnswer(uses, self._kernels(), self._unread)

    def _roots(self) -> list[str]:
        every = list(self._unit.functions)
        # A list of exports says nothing where Python is seen to call what it exports.
        lists = () if {*self._exported.values()} & {name for name, _ in self._handed} else _LISTS
        roots = [name for name in every if name in self._named or name in lists]
        kernels, hosts = ([name for name in every if self._is(name, kind)] for kind in ("kernel", "host"))
        # Nobody names any: an extract, or names that only a run knows.
        return roots or kernels + hosts or [name for name in every if not self._is(name, "macro")]

    def _is(self, name: str, kind: str) -> bool:
        return any(function.kind == kind for function in self._unit.functions[name])

    def _kernels(self) -> dict[str, list[CudaUse]]:
        """What each kernel does; asked after the roots, so that every call of it is known."""
        answer: dict[str, list[CudaUse]] = {}
        for name in self._unit.functions:
            if self._is(name, "kernel"):
                contexts = [*self._flow.contexts.get(name, [CallContext()])]
                found = {use for context in contexts for use in self._flow.run(name, context)}
                answer[name] = sorted(found, key=lambda use: use.at)
        for owner in self._assembler:
            starts = [*_PTX_FUNCTION.finditer(self._question.texts[owner]), None]
            for match, after in pairwise(starts):
                if match is not None and match.group(1) == "entry":
                    end = after.start() if after is not None else len(self._question.texts[owner])
                    answer[match.group(2)] = [*self._of_assembler(owner, match.start(), end)]
        return answer

    def _of_assembler(self, owner: int, start: int, end: int) -> Iterator[CudaUse]:
        for each in instructions(strip_comments(self._question.texts[owner])[start:end]):
            for path, weak in meanings(each, lambda _: None, resolved=False):
                yield CudaUse(path, weak, owner, start + each.at)


def _exports(function: CudaFunction) -> dict[str, str]:
    """`m.def("python_name", &function)`: by which name Python knows it."""
    found: dict[str, str] = {}
    for node, _ in function.nodes:
        if node.type == "call_expression" and callee(node.child_by_field_name("function"))[0] in ("def", "impl"):
            shown, target, *_ = [*(text_of(argument) for argument in arguments_of(node)), "", ""]
            names = re.findall(r"[A-Za-z_]\w*", target)
            if shown.startswith('"') and names:
                found[shown.strip('"').split("(")[0].rpartition("::")[2]] = names[-1]
    return found


def _tables(code: str) -> dict[str, Kind]:
    """Members and arrays that hold pointers to every rank's memory, by their declaration."""
    names = {*_POINTER_ARRAY.findall(code), *_PGL_FIELD.findall(code)}
    for alias in {*_PGL_ALIAS.findall(code)}:
        names |= {*re.findall(rf"\b{alias}\s+&?(\w+)\s*[;,)]", code)}
    return dict.fromkeys(names, "table")


if __name__ == "__main__":
    sys.exit(main())
