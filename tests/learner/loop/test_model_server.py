"""The model server of a loop: ready before it is used, and gone afterwards."""

import os
import signal
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from socket import socket

import pytest
from support.running import LIMIT_S, background, eventually

from otel_lightning.learner import DataError
from otel_lightning.learner.loop.server import ModelServer

SERVER = """
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[1].encode())
if os.fork() == 0:
    open(sys.argv[3], "w").write(str(os.getpid()))
    time.sleep(600)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def free_port() -> int:
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def served(folder: Path, port: int, seconds: float = 60) -> ModelServer:
    (folder / "server.py").write_text(SERVER)
    words = [sys.executable, "-I", "-S", str(folder / "server.py"), "{model}", str(port)]
    command = " ".join([*words, str(folder / "child")])
    return ModelServer(command, f"http://127.0.0.1:{port}/", seconds, folder)


def said(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


def has_text(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it has ended since
        return False


def test_server_is_ready_when_it_is_used_and_restarted_for_another_model(tmp_path: Path) -> None:
    port = free_port()
    server = served(tmp_path, port)
    server.serve(Path("first"))
    assert said(port) == "first"
    eventually(lambda: has_text(tmp_path / "child"))
    child = int((tmp_path / "child").read_text())
    server.serve(Path("second"))
    assert said(port) == "second"
    eventually(lambda: not lives(child))  # a killed process needs a moment to end
    eventually(lambda: int((tmp_path / "child").read_text() or child) != child)
    child = int((tmp_path / "child").read_text())
    server.stop()
    eventually(lambda: not lives(child))
    with pytest.raises(OSError, match="refused"):
        said(port)


def test_server_of_a_loop_that_was_killed_is_ended_by_the_next(tmp_path: Path) -> None:
    port = free_port()
    killed = served(tmp_path, port)
    killed.serve(Path("first"))  # and nobody stops it
    again = served(tmp_path, port)
    again.serve(Path("second"))
    assert said(port) == "second"
    again.stop()
    assert killed._process is not None
    assert killed._process.wait(LIMIT_S) < 0


def test_server_whose_loop_was_killed_before_it_noted_its_process_is_ended_by_the_next(
    tmp_path: Path,
) -> None:
    port = free_port()
    killed = served(tmp_path, port)
    killed.serve(Path("first"))
    (tmp_path / "server.json").unlink()
    again = served(tmp_path, port)
    again.serve(Path("second"))
    assert said(port) == "second"
    again.stop()
    assert killed._process is not None
    assert killed._process.wait(LIMIT_S) < 0


def test_server_that_cannot_start_is_told_with_what_it_said(tmp_path: Path) -> None:
    broken = ModelServer("false {model}", "http://127.0.0.1:9/", 30, tmp_path)
    with pytest.raises(DataError, match="The model server ended with code 1"):
        broken.serve(Path("m"))
    missing = ModelServer("no-such-program", "http://127.0.0.1:9/", 30, tmp_path)
    with pytest.raises(DataError, match="'no-such-program' cannot be started"):
        missing.serve(Path("m"))
    silent = ModelServer(f"{sys.executable} -c 'input()'", "http://127.0.0.1:9/", 1, tmp_path)
    with pytest.raises(DataError, match="server"):
        silent.serve(Path("m"))


def test_port_of_another_server_is_not_mistaken_for_ours(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "server.py").write_text(SERVER)
    words = [sys.executable, "-I", "-S", str(tmp_path / "server.py"), "other", str(port)]
    with background(*words, tmp_path / "child", start_new_session=True) as other:
        try:
            eventually(lambda: _up(port))
            with pytest.raises(DataError, match="answers already"):
                served(tmp_path, port).serve(Path("first"))
        finally:
            os.killpg(other.pid, signal.SIGKILL)


def _up(port: int) -> bool:
    try:
        return bool(said(port))
    except OSError:
        return False
