"""Which kit a candidate had: verdicts hold it, since the text of a kernel alone does not say what ran."""

import hashlib
from functools import cache
from pathlib import Path

from pkb.types.bare_code import bare_cuda, bare_python

FOLDER = Path(__file__).parent
PYTHON = ("arguments", "cuda", "driver", "exchange", "nvls", "pads", "pipeline", "staging", "streams", "triton_kit")
"""What takes part in a call. Who finds compilers and words their errors does not."""


@cache
def fingerprint() -> str:
    """Of the headers for kernels and of the Python that launches them, without comments, docstrings and line breaks. Nor does
    it see where blocks of Python end: the records have digests of that kind."""
    parts = [f"{path.name}\0{bare_cuda(path.read_text())}" for path in sorted((FOLDER / "device").glob("*.cuh"))]
    parts += [f"{name}\0{bare_python((FOLDER / f'{name}.py').read_text(), blocks=False)}" for name in PYTHON]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
