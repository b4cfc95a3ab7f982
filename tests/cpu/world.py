"""A pool of ranks for tests: W processes in one gloo group, kept alive so that a test costs a message and no start.

    world = World(4)
    world.call(function, 1, 2)      # [function(rank, 4, 1, 2) for every rank], each run in its own process

Functions must be importable by name (module level). A rank that raises, dies or hangs becomes one `RankError` that
says which rank it was; a group whose ranks no longer agree on where they are is replaced before the next call.
"""

import contextlib
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

GRACE_S = 3.0
"""How long the other ranks may go on once one has failed: by then they wait for it in a collective."""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["torch", "torch.distributed"])  # imported once, not once a rank


class RankError(Exception):
    """What went wrong on which ranks. `failures` maps a rank to the first line of its error."""

    def __init__(self, failures: dict[int, str], details: str = "") -> None:
        self.failures = failures
        text = "; ".join(f"rank {rank}: {failure}" for rank, failure in sorted(failures.items()))
        super().__init__(f"{text}\n{details}" if details else text)


def world_group() -> "ProcessGroup":
    """The group of all ranks, which is there in every call of a rank."""
    import torch.distributed as dist

    assert dist.group.WORLD is not None
    return dist.group.WORLD


def _serve(rank: int, size: int, store: str, pipe: Connection) -> None:
    """The life of a rank: join the group, then answer calls until the pipe closes."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    # torch 2.13 renames collectives; the references keep the names that older versions know too.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=120)
    )
    with contextlib.suppress(EOFError):
        while True:
            search_path, call = pickle.loads(pipe.recv_bytes())
            sys.path[:] = search_path  # a test module imported since this rank started must be found here too
            try:
                function, args = pickle.loads(call)
                answer = pickle.dumps((function(rank, size, *args), None, None))
            except Exception as error:
                answer = pickle.dumps((None, f"{type(error).__name__}: {error}", traceback.format_exc()))
            pipe.send_bytes(answer)
    dist.destroy_process_group()


class World:
    """W ranks on this machine's CPU."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._ranks: list[Any] = []
        self._pipes: list[Connection] = []
        self._start()

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pkb-world-")
        store = str(Path(self._folder.name, "store"))
        for rank in range(self.size):
            mine, theirs = _processes.Pipe()
            process = _processes.Process(target=_serve, args=(rank, self.size, store, theirs), daemon=True)
            process.start()
            theirs.close()  # or a dead rank's pipe would never read as closed
            self._ranks.append(process)
            self._pipes.append(mine)

    def call(self, function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
        """The results of function(rank, world_size, *args), by rank."""
        if not self._ranks:
            self._start()
        # Plain pickle: multiprocessing's own would send tensors as handles of memory that dies with its rank.
        message = pickle.dumps((sys.path, pickle.dumps((function, args))))
        answers: dict[int, tuple[Any, str | None, str | None]] = {}
        for rank, pipe in enumerate(self._pipes):
            try:
                pipe.send_bytes(message)
            except OSError:
                answers[rank] = (None, "died before the call", None)
        deadline = time.monotonic() + timeout
        while len(answers) < self.size and (left := deadline - time.monotonic()) > 0:
            waiting = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in answers}
            for rank in [waiting[pipe] for pipe in wait(list(waiting), left)]:  # type: ignore[index]
                answers[rank] = self._answer_of(rank)
                if answers[rank][1]:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        failures = {rank: failure for rank, (_, failure, _) in answers.items() if failure}
        if not failures and len(answers) == self.size:
            return [answers[rank][0] for rank in range(self.size)]
        if len(failures) < self.size or any(detail is None for _, _, detail in answers.values()):
            self.close()  # some rank is stuck, dead or a step ahead of the others
        stuck = set(range(self.size)) - set(answers)
        failures |= {rank: "no answer, stuck or waiting for another rank" for rank in stuck}
        raise RankError(failures, next((detail for _, _, detail in answers.values() if detail), ""))

    def _answer_of(self, rank: int) -> tuple[Any, str | None, str | None]:
        try:
            return pickle.loads(self._pipes[rank].recv_bytes())
        except (EOFError, OSError):
            self._ranks[rank].join(GRACE_S)
            return None, f"died with exit code {self._ranks[rank].exitcode}", None

    def close(self) -> None:
        """Ends all ranks, by force where closing their pipe is not enough. A later call starts new ones."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._ranks:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        self._ranks, self._pipes = [], []
        self._folder.cleanup()
