"""The judge's service: whatever its processes do, every order ends with one event, and nothing is left running."""

import json
import queue
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from leftovers import templates_of, until
from sweeping import CHEAP, REAL, running_below_us

from pkb.judge.service import client as client_module
from pkb.judge.service.client import JudgeClient
from pkb.judge.service.messages import CancelOrder, Garbled, JudgeEvent, JudgeOrder, decode_event, decode_request
from pkb.platforms.device_lock import hold
from pkb.types.case import Case
from pkb.types.document import VerdictDocument

ORDER = JudgeOrder(
    id="1", kind="evaluate", source=CHEAP["rejected"].encode(), filename="1_allreduce_torch.py",
    case=Case("1", "cpu", 2, "tiny", "bf16", "quick"), cores=(0,),
)  # fmt: skip


class Listening:
    def __init__(self) -> None:
        self.events: queue.Queue[JudgeEvent] = queue.Queue()
        self.client = JudgeClient(self.events.put)

    def until(self, what: str, *, within_s: float = 60) -> JudgeEvent:
        give_up = time.monotonic() + within_s
        while True:
            event = self.events.get(timeout=max(0.1, give_up - time.monotonic()))
            if event.what == what:
                return event
            assert not event.is_last, event

    def last(self) -> JudgeEvent:
        while not (event := self.events.get(timeout=60)).is_last:
            pass
        return event


@pytest.fixture
def judge() -> Iterator[Listening]:
    before = {int(line.split()[0]) for line in running_below_us()}
    listening = Listening()
    yield listening
    listening.client.close()
    assert until(lambda: not running_below_us(before), within_s=10), running_below_us(before)


def test_messages_survive_the_wire() -> None:
    order = replace(ORDER, source=b"\xff\x00\n'", cores=(0, 1))
    assert decode_request(order.encode()) == order
    assert decode_request(CancelOrder("7").encode()) == CancelOrder("7")
    event = JudgeEvent("7", "done", "text", "fix", VerdictDocument({"verdict": "correct"}))
    assert decode_event(event.encode()) == event


def test_what_is_no_message_is_garbled_and_nothing_else() -> None:
    dice = random.Random(5)
    lines = [
        ORDER.encode(),
        JudgeEvent("7", "stage", "build").encode(),
        b"[]",
        b"{}",
        b"1",
        b'{"order": {}}',
        b"[" * 5000,
    ]
    lines += [json.dumps({"id": 1, "what": "danced", "text": "", "fix": "", "document": None}).encode()]
    for _ in range(2000):
        line = bytearray(dice.choice(lines))
        for _ in range(dice.randint(0, 4)):
            line[dice.randrange(len(line))] = dice.randrange(256)
        for decode in (decode_event, decode_request):
            try:
                decode(bytes(line[: dice.randint(0, len(line))]))
            except Garbled:
                continue


def test_an_order_is_judged_refused_or_lost_and_the_next_one_goes_on(judge: Listening) -> None:
    judge.client.send(ORDER)
    document = judge.until("done").document
    assert document is not None
    assert document.verdict == "rejected"
    judge.client.send(replace(ORDER, id="2", case=replace(ORDER.case, ranks=5)))
    refused = judge.until("refused")
    assert "does not run with 5 ranks" in refused.text
    assert "pkb show" in refused.fix
    judge.client.send(replace(ORDER, id="3", source=REAL.encode()))
    judge.until("began")
    psutil.Process(judge.client.pid).kill()
    assert judge.last().what == "lost"
    judge.client.send(replace(ORDER, id="4"))
    assert judge.until("done").id == "4"


def test_waiting_for_the_device_is_progress_and_costs_no_time(
    judge: Listening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PKB_LOCK_DIR", str(tmp_path))
    limit_s = 5.0
    with hold(["cpu"], wait_s=5):
        judge.client.send(replace(ORDER, alone=True, limit_s=limit_s))
        assert "waiting for cpu" in judge.until("stage").text
        time.sleep(limit_s + 1)
    assert judge.until("done").document is not None


def test_an_order_with_a_queue_of_its_own_does_not_wait_for_whoever_holds_the_device(
    judge: Listening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PKB_LOCK_DIR", str(tmp_path))
    with hold(["cpu"], wait_s=5):
        judge.client.send(replace(ORDER, alone=True, lock_folder=str(tmp_path / "own")))
        assert judge.until("done").document is not None


def test_an_order_can_be_cancelled_and_leaves_nothing(judge: Listening) -> None:
    judge.client.send(replace(ORDER, source=REAL.encode()))
    judge.until("began")
    judge.client.cancel("of nobody")
    judge.client.cancel(ORDER.id)
    assert judge.last().what == "cancelled"
    server = psutil.Process(judge.client.pid)
    assert until(lambda: set(server.children()) <= set(templates_of(server.pid)), within_s=10)
    judge.client.send(replace(ORDER, id="2"))
    assert judge.until("done").id == "2"


SERVERS = {
    "ends": "",
    "garbage": "print('all is well', flush=True); time.sleep(60)",
    "half a line": "sys.stdout.write('{\"id\"'); sys.stdout.flush()",
    "flood": "sys.stdout.write('x' * (2 << 20)); sys.stdout.flush(); time.sleep(60)",
}


@pytest.mark.parametrize("how", SERVERS)
def test_a_server_that_talks_nonsense_loses_its_orders(
    judge: Listening, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(client_module, "MAX_LINE_BYTES", 1 << 20)
    program = f"import sys, time; sys.stdin.readline(); {SERVERS[how]}"
    monkeypatch.setattr(client_module, "COMMAND", (sys.executable, "-c", program))
    for number in ("1", "2"):
        judge.client.send(replace(ORDER, id=number))
        assert (judge.last().what, judge.client.pid) == ("lost", None)


CHILDREN = {
    "garbage": "os.write(pipe, b'all is well\\n'); time.sleep(60)",
    "flood": "\n        os.write(pipe, b'x' * 100_000)",
}


@pytest.mark.parametrize("how", CHILDREN)
def test_a_child_that_talks_nonsense_costs_its_own_order_only(
    judge: Listening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    program = tmp_path / "server.py"
    program.write_text(f"""import os, time
from pkb.judge.service import server
honest = server.be_child

def be_child(order, *, server, pipe, errors):
    if order.id != "1":
        honest(order, server=server, pipe=pipe, errors=errors)
    while True: {CHILDREN[how]}

server.be_child, server.MAX_LINE_BYTES = be_child, 1 << 20
server.main()
""")
    monkeypatch.setattr(client_module, "COMMAND", (sys.executable, str(program)))
    judge.client.send(ORDER)
    judge.client.send(replace(ORDER, id="2"))
    ends = {event.id: event.what for event in (judge.last(), judge.last())}
    assert ends == {"1": "broken", "2": "done"}
