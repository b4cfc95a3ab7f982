"""Sockets of other programs, before and after they are covered."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import error_of, in_namespaces

from pkb.rank.isolation import sockets
from pkb.rank.isolation.report import probe_isolation
from pkb.rank.isolation.sockets import bound_sockets, cover_sockets


@contextlib.contextmanager
def listening(*paths: Path) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            service = stack.enter_context(socket.socket(socket.AF_UNIX))
            service.bind(str(path))
            service.listen()
        yield


def call(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as talk:
        talk.connect(str(path))


def test_only_services_of_the_platform_can_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if probe_isolation().get("private mounts") != "on":
        pytest.skip("needs a mount namespace")
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    names = ("agents/agent.1", "needed/name of two words", "mps/control")
    agent, beside, service = (tmp_path / name for name in names)
    (tmp_path / "needed").mkdir()
    (tmp_path / "needed" / "library.py").write_text("here")
    with listening(agent, beside, service):
        found = bound_sockets()
        assert {agent, beside, service} <= set(found)

        def rank() -> tuple[str, list[int], str, list[str]]:
            words = cover_sockets(found, services=[tmp_path / "mps"], needed=[tmp_path / "needed"])
            errors = [error_of(lambda path=path: call(path)) for path in (agent, beside, service)]  # type: ignore[misc]
            left = [path.name for path in (tmp_path / "agents").iterdir()]
            return words, errors, (tmp_path / "needed" / "library.py").read_text(), left

        _, (words, errors, text, left) = in_namespaces(rank)
        assert words == "on"
        assert errors == [2, 111, 0], "no such file, connection refused, reached"
        assert text == "here"
        assert not left, "whatever is made in that folder later is covered too"
        call(agent)  # for everybody else all is as before
        call(beside)


def test_what_this_user_may_not_look_at_leaves_nothing_else_uncovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc/net/unix shows everybody's sockets: those of a mail server, say, lie where an ordinary user may not look."""
    private, agents, covered = tmp_path / "a-mail-server", tmp_path / "agents", list[Path]()
    for folder in (private, agents):
        folder.mkdir()
    see = Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        if path.is_relative_to(private):
            raise PermissionError(13, "Permission denied")
        return see(path, **how)

    monkeypatch.setattr(sockets, "cover", covered.append)
    monkeypatch.setattr(Path, "stat", stat)
    found = [private / "queue" / "pickup", agents / "agent.1"]
    assert cover_sockets(found, services=[], needed=[]) == "on"
    assert covered == [agents]


def test_a_mount_that_is_refused_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sockets, "cover", refused)
    assert cover_sockets([tmp_path / "agent.1"], services=[], needed=[]) == "off: Operation not permitted"
