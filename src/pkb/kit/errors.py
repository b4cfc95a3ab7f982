"""What goes wrong while building: the compiler's own words, and the one line of them that matters."""

import re
from collections.abc import Iterable

# One pattern per dialect, tried on each line of the log in turn; the first line that matches any is the first error.
_ERROR_LINES = (
    re.compile(r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic |fatal )?error\b"),  # nvcc and NVRTC
    re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:[Ff]atal )?[Ee]rror\b"),  # g++, clang, as
    re.compile(r"^ptxas (?P<file>\S+), line (?P<line>\d+); (?:error|fatal)\b"),  # a line of the PTX, not of the source
    re.compile(r"^(?:nvcc|ptxas|nvlink|cicc|nvrtc|g\+\+|c\+\+|cc1plus)\b.*?\b(?:fatal|error)\b"),
    re.compile(r"undefined reference to|cannot find -l|multiple definition of"),  # the linker
)
_PTX_DIALECT = 2
_LOG_LIMIT = 30_000
"""Characters kept of a log: one wrong include can yield megabytes, and the first error is what counts."""


def find_first_error(log: str, own_files: Iterable[str] = ()) -> tuple[str, int | None]:
    """The first error line of a compiler log, and its line number if that is one of the candidate's `own_files`."""
    own = set(own_files)
    for text in log.splitlines():
        for dialect, pattern in enumerate(_ERROR_LINES):
            match = pattern.search(text)
            if match is None:
                continue
            groups = match.groupdict()
            is_own = dialect != _PTX_DIALECT and (not own or groups.get("file") in own)
            return text.strip(), int(groups["line"]) if groups.get("line") and is_own else None
    lines = [text.strip() for text in log.splitlines() if text.strip()]
    return (lines[0] if lines else "the compiler failed and said nothing"), None


class CompileError(Exception):
    """The source does not compile. `log` is all the compiler said, `first_error` the line to mend, `line` where it
    is.
    """

    def __init__(self, log: str, *, name: str, own_files: Iterable[str] = ()) -> None:
        self.log = log if len(log) <= _LOG_LIMIT else log[:_LOG_LIMIT] + "\n[the rest is left out]"
        self.name = name
        self.first_error, self.line = find_first_error(self.log, own_files)
        super().__init__(f"{name}: {self.first_error}")

    def __str__(self) -> str:
        return f"{self.name}: {self.first_error}\n{self.log}"


class OptionRefused(CompileError):
    """A compiler option that is not on the list of `pkb.kit.options`."""

    def __init__(self, option: str, *, name: str) -> None:
        self.option = option[:200]
        super().__init__(
            f"error: the compiler option {self.option!r} is not among those that candidates may use", name=name
        )


class NoKernel(KeyError):
    """A module has no kernel of that name. `kit.cuda` raises the bare KeyError: records of times are tied to its text."""

    def __str__(self) -> str:
        return str(self.args[0])  # as it was written: a KeyError shows its message with quotes and escapes


class CompilerMissing(RuntimeError):
    """This machine has no compiler for that: never the candidate's fault."""


class BuildTimeout(RuntimeError):
    """Another process held the build for too long, or the compiler ran past its limit."""
