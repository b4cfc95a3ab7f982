"""Fetches or installs code.

What it finds: `pip install` and its like in commands, `pip.main`, `ensurepip`, `torch.hub`, downloads by `urllib` and
`requests`.

Why: a rank has no network and may write only to its own folder, so this fails at run time; and a candidate is judged
by what is in its file.

Example:

    subprocess.run([sys.executable, "-m", "pip", "install", "cupy"])

Use instead: what the platform has; `pkb doctor` lists it.
"""

import ast
import re

from pkb.candidates.constants import fold
from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_COMMAND = re.compile(r"\b(?:pip3?|uv|conda|mamba|apt|apt-get)\s+(?:pip\s+)?(?:-\S+\s+)*install\b|\bgit\s+clone\b")
_INSTALLERS = frozenset({"pip", "pip3", "uv", "conda", "mamba", "apt", "apt-get"})
_CALLS = (
    "pip.main", "pip._internal", "ensurepip", "torch.hub", "torch.utils.model_zoo", "urllib.request.urlopen",
    "urllib.request.urlretrieve", "requests.get", "requests.post", "httpx.get", "huggingface_hub",
)  # fmt: skip


def check(source: Source, report: Reporter) -> None:
    for name, _, line in source.names.references:
        if under(name, *_CALLS) and "." in name:
            report.warn(line, f"{name} fetches code or data")
    for node in source.nodes:
        if isinstance(node, ast.Call) and any(_is_command(argument) for argument in node.args):
            report.warn(node.lineno, "installs a package")


def _is_command(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        words = [fold(item) for item in node.elts]
        return "install" in words and not _INSTALLERS.isdisjoint(word for word in words if word)
    # Only as a command: a message may well tell its reader to pip install something.
    text = fold(node)
    return text is not None and _COMMAND.match(text.strip()) is not None
