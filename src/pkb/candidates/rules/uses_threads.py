"""Runs code on threads of its own.

What it finds: `threading.Thread`, `threading.Timer`, `_thread`, `concurrent.futures`, `asyncio.to_thread`. Locks are
not meant.

Why: work on another thread can go on after `solution` has returned and so outside the measured time, and a wait on it
can hang where a traceback does not show it. A helper thread can be honest, so it is a warning; the race stage and the
host wall clock decide.

Example:

    threading.Thread(target=finish_later, args=(out,)).start()
    return out

Use instead: CUDA streams and events, joined before `solution` returns.
"""

from pkb.candidates.names import under
from pkb.candidates.rules import Reporter
from pkb.candidates.source import Source

_STARTS = (
    "threading.Thread", "threading.Timer", "_thread.start_new_thread", "_thread.start_joinable_thread",
    "concurrent.futures", "asyncio.to_thread", "multiprocessing.pool.ThreadPool", "multiprocessing.dummy",
)  # fmt: skip


def check(source: Source, report: Reporter) -> None:
    for name, _, line in source.names.references:
        if under(name, *_STARTS) and name != "concurrent.futures":
            report.warn(line, f"{name} runs code beside the call")
