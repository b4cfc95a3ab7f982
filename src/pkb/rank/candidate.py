"""The candidate's side of a rank: loads the file, runs it on arguments it is handed, gives the outputs away.

Neither the references nor the input generators can be read from here, and no seed ever enters this process.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from pkb.rank.emulate import aliases
from pkb.rank.execute import aliases as output_aliases
from pkb.rank.isolation import reach
from pkb.rank.isolation.lockdown import lock_down
from pkb.rank.observe import Observer
from pkb.rank.server import Rank
from pkb.rank.symmetric import memory as symmetric
from pkb.rank.symmetric import watch as symmetric_watch
from pkb.rank.trees import BadTree, describe, digest, unpack
from pkb.types.failure import Cause


class CandidateRank(Rank):
    def open(self) -> None:
        config = self.config
        # First of all, while the process has one thread: the walls do not hold threads that are already running.
        self.isolation: dict[str, str] = self._lock_down() if config.options["isolate"] else {}
        super().open()
        if config.device == "cuda":
            self.device.open_barrier()  # type: ignore[attr-defined]
            symmetric_watch.watch()
            self.activity, self.poison = symmetric_watch.ACTIVITY, symmetric_watch.poison
        else:
            shared = config.folder / "symmetric"
            shared.mkdir(exist_ok=True)
            symmetric.install(shared)
            self.activity, self.poison = symmetric.ACTIVITY, symmetric.poison
        self.activity.on_wait = self.status.wait
        self.observer = Observer(self.activity)
        self.solution: Any = None

    def handle(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any] | None:
        match message["do"]:
            case "open":
                return self._open(message)
            case "load":
                return self._load(message)
            case "arguments":
                values = unpack(message["tree"], fds[0], device=self.device.torch_device, group=self.group)
                self.arguments[message["slot"]] = values
                return {}
            case "run":
                return self._run(message)
            case "output":
                return self._output(message["slot"])
            case "poison":
                self.poison()
                self.device.synchronize()
                return {}
            case "wake":
                self.wake()
                return {}
            case "drop":
                self.drop(keep_memory=bool(message.get("keep_memory")))
                return {}
        raise ValueError(f"unknown command {message['do']!r}")

    def _open(self, message: dict[str, Any]) -> dict[str, Any]:
        self.make_groups(message["name"], message["layout"])
        self.mutates = tuple(message["mutates"])
        self.returns_input = bool(message["returns_input"])
        return {"facts": self.device.facts()}

    def _lock_down(self) -> dict[str, str]:
        """No problem module, no other candidate and no file of the user's can be read, nothing outside the folder written."""
        options = self.config.options
        readable = [*reach.default_readable(), *(Path(path) for path in options["readable"])]
        return lock_down(
            readable=readable,
            writable=[self.config.folder, *(Path(path) for path in options["writable"])],
            forbidden=[reach.own_package(), *reach.SECRETS],
            max_file_bytes=options["max_file_bytes"],
        )

    def _load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import the candidate: from here on nothing in this process is to be trusted."""
        path = Path(message["path"])
        sys.path.insert(0, str(reach.own_package() / "kit" / "upstream"))
        aliases.install(self.config.platform, rank=self.config.rank, source=path.read_text(encoding="utf-8"))
        spec = importlib.util.spec_from_file_location("candidate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        self.status.step("importing the candidate")
        spec.loader.exec_module(module)
        self.solution = getattr(module, "solution", None)
        if not callable(self.solution):
            return {"reply": "error", "type": "MissingSolution", "message": "", "trace": "", "cause": Cause.NO_SOLUTION}
        return {"isolation": self.isolation}

    def _run(self, message: dict[str, Any]) -> dict[str, Any]:
        before = (
            {slot: digest(self._unchanged(slot)) for slot in message["schedule"]["slots"]} if message["inspect"] else {}
        )
        with self.observer.watching(profile=bool(message.get("profile"))) as seen:
            answer = self.run(self.solution, message)
        answer["observed"] = seen.summary()
        if message["inspect"]:
            answer["changed"] = {slot: self._changed(slot, was) for slot, was in before.items()}
            answer["aliases"] = {slot: self._aliases(slot) for slot in before}
        return answer

    def _unchanged(self, slot: int) -> dict[str, Any]:
        return {name: value for name, value in self.arguments[slot].items() if name not in self.mutates}

    def _changed(self, slot: int, before: list[str]) -> bool:
        return digest(self._unchanged(slot)) != before

    def _aliases(self, slot: int) -> list[str]:
        """Arguments whose memory the result shares; an odd result has none here and is refused when it is fetched."""
        if self.returns_input:
            return []
        try:
            return output_aliases(self.batch.outputs[slot]["returned"], self.arguments[slot])
        except BadTree:
            return []

    def _output(self, slot: int) -> dict[str, Any] | None:
        try:
            describe(self.batch.outputs[slot])
        except BadTree as error:
            return {"reply": "bad_output", "slot": slot, "message": str(error)}
        self.send_output(slot)
        return None
