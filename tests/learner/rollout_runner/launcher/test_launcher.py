"""The launcher with agents that behave badly."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.running import LIMIT_S, background, eventually

from otel_lightning.learner.rollout_runner.launcher.processes import (
    Ended,
    LauncherDiedError,
    Processes,
    Spec,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path / "journal.jsonl") as found:
        yield found


def ended(processes: Processes, spec: Spec) -> Ended:
    processes.start(spec)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for one in processes.ended(0.5):
            return one
    pytest.fail("it did not end")


def shell(folder: Path, script: str, **more: Any) -> Spec:
    return Spec("one", ["sh", "-c", script], folder, **more)


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


def test_exit_codes_signals_and_output_are_told(processes: Processes, tmp_path: Path) -> None:
    one = ended(processes, shell(tmp_path, "echo hi; echo no >&2; exit 3"))
    assert (one.status, one.exit_code, one.signal) == ("exited", 3, None)
    assert (tmp_path / "one.out").read_text() == "hi\n"
    assert (tmp_path / "one.err").read_text() == "no\n"
    killed = ended(processes, shell(tmp_path, "kill -SEGV $$"))
    assert (killed.exit_code, killed.signal) == (None, signal.SIGSEGV)


def test_program_that_is_not_there_is_told(processes: Processes, tmp_path: Path) -> None:
    one = ended(processes, Spec("one", ["/no/such/program"], tmp_path))
    assert one.status == "not_started"
    assert "No such file" in (one.reason or "")


def test_agent_that_never_reads_its_2_mb_task_ends(processes: Processes, tmp_path: Path) -> None:
    task = tmp_path / "task.json"
    task.write_text("x" * 2_000_000)
    assert ended(processes, shell(tmp_path, "exit 0", stdin=task)).exit_code == 0


def test_agent_that_prints_without_end_is_ended(processes: Processes, tmp_path: Path) -> None:
    spec = shell(tmp_path, "while :; do head -c 1000000 /dev/zero; done", max_output=3_000_000)
    assert ended(processes, spec).status == "output"


def test_agent_expects_signals_as_any_program(processes: Processes, tmp_path: Path) -> None:
    """Python ignores SIGPIPE: an agent that did so too would write into closed pipes for ever."""
    one = ended(processes, shell(tmp_path, "kill -PIPE $$; echo alive"))
    assert (one.signal, (tmp_path / "one.out").read_text()) == (signal.SIGPIPE, "")


def test_program_is_looked_for_in_the_path_of_the_agent(
    processes: Processes, tmp_path: Path
) -> None:
    folders = [tmp_path / "first", tmp_path / "second", tmp_path / "third"]
    for folder in folders:
        folder.mkdir()
        program = folder / "agent-of-test"
        program.write_text(f"#!/bin/sh\necho {folder.name}\n")
        program.chmod(0o644 if folder.name == "first" else 0o755)
    environment = {"PATH": ":".join(map(str, folders))}
    one = ended(processes, Spec("one", ["agent-of-test"], tmp_path, environment=environment))
    assert (one.exit_code, (tmp_path / "one.out").read_text()) == (0, "second\n")
    none = ended(processes, Spec("none", ["agent-of-test"], tmp_path))
    assert none.status == "not_started"
    assert "agent-of-test" in (none.reason or "")


@linux
def test_agent_gets_no_open_file_of_the_runner(tmp_path: Path) -> None:
    """Else it would hold the lock of the run, and the next start would wait for it."""
    with (
        (tmp_path / "lock").open("ab") as lock,
        Processes(tmp_path / "journal.jsonl", [lock.fileno()]) as processes,
    ):
        held = {path.resolve() for path in Path(f"/proc/{processes._process.pid}/fd").iterdir()}
        assert tmp_path / "lock" in held
        one = ended(processes, shell(tmp_path, "for f in /proc/$$/fd/*; do realpath $f; done"))
    assert one.exit_code == 0
    files = set((tmp_path / "one.out").read_text().splitlines())
    assert str(tmp_path / "one.err") in files
    assert not files & {str(tmp_path / "lock"), str(tmp_path / "journal.jsonl")}


@linux
def test_children_that_an_agent_leaves_are_found_in_any_session_and_killed(
    processes: Processes, tmp_path: Path
) -> None:
    script = f"""
        sleep 600 & echo $! >> {tmp_path}/pids
        setsid sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 600' &
        while [ "$(wc -l < {tmp_path}/pids)" -lt 2 ]; do :; done
        echo done"""
    environment = {"LIGHTNING_ROLLOUT_ID": "one"}
    one = ended(processes, shell(tmp_path, script, environment=environment, timeout=60))
    assert (one.status, one.exit_code, one.left) == ("exited", 0, 2)
    eventually(lambda: not any(map(is_alive, pids(tmp_path))))


@linux
def test_agent_and_grandchild_that_ignore_sigterm_are_killed(
    processes: Processes, tmp_path: Path
) -> None:
    script = f"""
        trap '' TERM
        (trap '' TERM; sh -c 'echo $PPID $$ >> {tmp_path}/pids; while :; do sleep 0.1; done') &
        while :; do sleep 0.1; done"""
    one = ended(processes, shell(tmp_path, script, timeout=5, grace=0.2))
    assert (one.status, one.signal) == ("timeout", signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, pids(tmp_path))))


RUNNER = """
import signal, sys
from pathlib import Path
from otel_lightning.learner.rollout_runner.launcher.processes import Processes, Spec
folder, script = Path(sys.argv[1]), sys.argv[2]
Processes(folder / "journal.jsonl").start(Spec("one", ["sh", "-c", script], folder, grace=0.2))
signal.pause()
"""


@linux
def test_nothing_is_left_when_the_runner_is_killed(tmp_path: Path) -> None:
    script = f"trap '' TERM; echo $$ >> {tmp_path}/pids; while :; do sleep 0.1; done"
    with background(sys.executable, "-c", RUNNER, tmp_path, script):  # and then it is killed
        eventually((tmp_path / "pids").exists)
    eventually(lambda: not any(map(is_alive, pids(tmp_path))))
    eventually(lambda: '"interrupted"' in (tmp_path / "journal.jsonl").read_text())


def test_killed_launcher_is_noticed() -> None:
    with Processes() as processes:
        processes._process.kill()
        with pytest.raises(LauncherDiedError):
            list(processes.ended(LIMIT_S))
