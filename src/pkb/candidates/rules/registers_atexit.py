"""Leaves code behind that runs when the process ends.

What it finds: `atexit.register`, `weakref.finalize`, `threading._register_atexit`.

Why: it runs after the verdict's evidence was taken, and a cleanup that waits for its peers hangs when they are gone
already. The harness ends ranks from outside, so cleanup is not needed.

Example:

    atexit.register(free_all_buffers)

Use instead: nothing; memory goes with the process.
"""

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_REGISTERS = ("atexit.register", "weakref.finalize", "threading._register_atexit", "multiprocessing.util.Finalize")


def check(source: Source, report: Reporter) -> None:
    for name, _, line in source.names.references:
        if under(name, *_REGISTERS):
            report.warn(line, f"{name} leaves code for the end of the process")
