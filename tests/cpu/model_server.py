"""A server that speaks OpenAI's chat protocol and says what a test tells it to: a real one, on a port of this machine.

`script[stem]` lists what comes back for the requests that name the problem, one after the other; the last is repeated.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SERVICE = "pkbtest"
MODEL = f"openai-api/{SERVICE}/kernel-writer"
KEY_VARIABLE = "PKBTEST_API_KEY"
FAKE_KEY = "sk-pkbtest-0123456789abcdefghijklmnop"


@dataclass(frozen=True)
class Say:
    text: str
    finish: str = "stop"


@dataclass(frozen=True)
class Call:
    """Of a tool."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Refuse:
    status: int
    message: str = "no"


@dataclass(frozen=True)
class Sleep:
    """Says nothing until the server closes."""


Script = Mapping[str, Sequence[Say | Call | Refuse | Sleep]]


@dataclass
class ModelServer:
    script: Script
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies, in the order in which they came."""
    stems: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, stem: str) -> int:
        return self.stems.count(stem)

    def next_for(self, body: dict[str, Any], key: str) -> Say | Call | Refuse | Sleep:
        text = json.dumps(body["messages"])
        # The problem is named first; a worked example may name another one later.
        stem = min((name for name in self.script if name in text), key=text.index)
        with self.lock:
            turn = self.asked(stem)
            self.requests.append(body)
            self.stems.append(stem)
            self.keys.add(key)
        return self.script[stem][min(turn, len(self.script[stem]) - 1)]


@contextmanager
def serve(script: Script) -> Iterator[ModelServer]:
    model = ModelServer(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = model.next_for(body, self.headers.get("Authorization", ""))
            if isinstance(said, Sleep):
                model.closing.wait(120)
                return
            if isinstance(said, Refuse):
                self._send(said.status, {"error": {"message": said.message, "type": "test"}})
            else:
                self._send(200, _completion(said))

        def _send(self, status: int, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("Retry-After", "0.1")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, daemon=True).start()
    model.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield model
    finally:
        model.closing.set()
        http.shutdown()
        http.server_close()


def _completion(said: Say | Call) -> dict[str, Any]:
    if isinstance(said, Say):
        message: dict[str, Any] = {"role": "assistant", "content": said.text}
        finish = said.finish
    else:
        call = {
            "id": "call_1", "type": "function",
            "function": {"name": said.name, "arguments": json.dumps(dict(said.arguments))},
        }  # fmt: skip
        message, finish = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    return {
        "id": "answer", "object": "chat.completion", "created": 0, "model": "kernel-writer",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
    }  # fmt: skip
