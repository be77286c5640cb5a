"""A contract: the private names of granian that we override or call are still there.

`OneSocketServer` overrides methods of granian that no release promises to keep. If this test fails
after an upgrade, read granian's `server/embed.py` and `server/common.py` before raising the upper
bound in `pyproject.toml`.
"""

import asyncio
import inspect
import os
import re
import socket
import tomllib
from pathlib import Path
from typing import Any, Generic

import pytest
from granian._granian import RSGIProtocolClosed, RSGIProtocolError, SocketHolder
from granian.server.embed import AsyncWorker, Server

from otel_lightning.collector.receive.http import server as http_server
from otel_lightning.collector.receive.http.server import OneSocketServer

ROOT = Path(__file__).parents[4]
OVERRIDDEN = {
    "_init_shared_socket": ["self"],
    "_spawn_worker": ["self", "idx", "target", "callback_loader"],
    "_respawn_workers": ["self", "workers", "spawn_target", "target_loader", "delay"],
    "shutdown": ["self", "exit_code"],
}


def own_methods() -> set[str]:
    return {name for name, value in vars(OneSocketServer).items() if inspect.isfunction(value)}


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_what_we_override_has_the_arguments_that_we_know(name: str) -> None:
    theirs = getattr(Server, name)
    assert list(inspect.signature(theirs).parameters) == OVERRIDDEN[name]
    assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(
        getattr(OneSocketServer, name)
    )


def test_nothing_else_is_overridden_by_chance() -> None:
    assert {n for n in own_methods() if hasattr(Server, n)} == set(OVERRIDDEN)


def test_granian_still_calls_what_we_override() -> None:
    kinds = [kind for kind in Server.__mro__ if kind not in (Generic, object)]
    source = "".join(map(inspect.getsource, kinds))
    for name in OVERRIDDEN:
        assert re.search(rf"self\.{name}\(", source), f"granian no longer calls {name}"
    assert "self._shd" in source, "workers no longer take the socket from _shd"
    assert "self.backlog" in source


def test_a_worker_can_be_ended_as_we_do() -> None:
    for name in ("start", "terminate", "join"):
        assert callable(getattr(AsyncWorker, name))


def test_a_socket_can_be_handed_over() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        holder: Any = http_server.SOCKET_HOLDER(os.dup(listening.fileno()), False, 10)  # noqa: FBT003
        assert isinstance(holder, SocketHolder)
        assert isinstance(holder.get_fd(), int)


def test_a_server_has_the_state_that_we_use() -> None:
    async def make() -> Server:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            return http_server.server(lambda _leaving: _answer, bound, None, 10)

    made = asyncio.run(make())
    assert made.wrks == []
    assert made.backpressure == 10
    for name in ("reload", "stop", "serve"):
        assert callable(getattr(made, name))


async def _answer(_scope: object, _protocol: object) -> None: ...


def test_the_errors_that_we_catch_exist() -> None:
    assert issubclass(RSGIProtocolClosed, Exception)
    assert issubclass(RSGIProtocolError, Exception)


@pytest.mark.parametrize("package", ["granian", "ptars"])
def test_what_may_move_has_an_upper_bound(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    collector = project["optional-dependencies"]["collector"]
    assert "<" in next(one for one in collector if one.startswith(package))
    pinned = (ROOT / "constraints.txt").read_text()
    assert re.search(rf"^{package}==", pinned, re.MULTILINE)
