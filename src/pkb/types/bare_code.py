"""Code without what does not count: digests of it change only with what it does."""

import ast
import io
import itertools
import re
import textwrap
import tokenize

_CUDA_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def bare_python(source: str, *, blocks: bool = True) -> str:
    """Source without comments, docstrings and white space, and with braces where blocks begin and end: what is left changes
    only with the code, on any Python, and whenever a line moves into a block or out of it. Without `blocks`, no braces."""
    source = textwrap.dedent(source)
    try:
        tree = ast.parse(source)
    except SyntaxError:  # of a lambda, which has its line and no more
        return "".join(source.split())
    lines = source.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    cut: list[tuple[int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        begin = starts[min(token.start[0], len(starts)) - 1] + token.start[1]
        if token.type == tokenize.COMMENT:
            cut.append((begin, begin + len(token.string), ""))
        elif blocks and token.type in (tokenize.INDENT, tokenize.DEDENT):
            cut.append((begin, begin, "{" if token.type == tokenize.INDENT else "}"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            # The parser counts bytes in a line, not characters.
            begin, end = (
                starts[row - 1] + len(lines[row - 1].encode()[:column].decode())
                for row, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
            )
            cut.append((begin, end, ""))
    kept, at = [], 0
    for begin, end, instead in sorted(cut, key=lambda one: one[:2]):
        if begin >= at:
            kept += [source[at:begin], instead]
            at = end
    return "".join("".join([*kept, source[at:]]).split())


def bare_cuda(source: str) -> str:
    """The same of CUDA or C++; what looks like a comment inside a string goes too."""
    return "".join(_CUDA_COMMENT.sub(" ", source).split())
