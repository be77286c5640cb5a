"""Run each attempt as a task of a Ray cluster."""

import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from otel_lightning.collector.show.conversation import text_or_json
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.arms import flag_variables
from otel_lightning.learner.rollout_runner.attempts import (
    Attempt,
    about,
    as_line,
    command,
    environment,
)
from otel_lightning.learner.rollout_runner.engine.executors import ExecutorSettings
from otel_lightning.learner.rollout_runner.launcher.output_files import tail
from otel_lightning.learner.rollout_runner.launcher.processes import (
    INTERRUPTED,
    Ended,
    Processes,
    Spec,
)

FILE, FLAGS = "{lightning-task-file}", "{lightning-flag-file}"
"""Texts in a command that become paths on the machine that runs it."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
OUTPUT_CHARACTERS = 1_000_000
WARN_AFTER_SECONDS = 10.0
"""Wait for a cluster without a CPU after which the runner says what it waits for."""
CONNECT_SECONDS = 10.0
"""Longest wait for a connection to the cluster. Ray itself tries for some minutes."""


def run_once(message: Mapping[str, Any]) -> dict[str, Any]:
    """Run one attempt on whichever machine this is, as the launcher runs it.

    Args:
        message: The attempt, as `RayExecutor` sends it; `flags` is the text of the arm's flag file.

    Returns:
        `ended`, and the ends of both outputs.
    """
    with tempfile.TemporaryDirectory(prefix="lightning-") as temporary:
        folder = Path(temporary)
        file = folder / "task.json"
        file.write_text(message["task"], encoding="utf-8", errors="replace")
        stdin = folder / "stdin"
        stdin.write_text(message["stdin"], encoding="utf-8", errors="replace")
        flags, served = folder / "flags.json", {}
        if message["flags"] is not None:
            flags.write_text(message["flags"], encoding="utf-8")
            served = flag_variables(flags)
        words = [
            word.replace(FILE, str(file)).replace(FLAGS, str(flags)) for word in message["command"]
        ]
        spec = Spec(
            message["name"],
            words,
            folder,
            environment={**message["environment"], "LIGHTNING_TASK_FILE": str(file), **served},
            stdin=stdin,
            timeout=message["timeout"],
            grace=message["grace"],
            max_output=message["max_output"],
        )
        # The same launcher as without Ray, so that timeouts and leftovers are handled alike
        # everywhere.
        with Processes() as processes:
            processes.start(spec)
            while True:
                for ended in processes.ended(1.0):
                    return {
                        "ended": asdict(ended),
                        "out": tail(spec.stdout, OUTPUT_CHARACTERS),
                        "err": tail(spec.stderr, OUTPUT_CHARACTERS),
                    }


class RayExecutor:
    """Runs each attempt as a Ray task. Ray chooses the machine; the journal stays here."""

    def __init__(self, settings: ExecutorSettings) -> None:
        """Connect to the cluster.

        Raises:
            DataError: If Ray is not installed, there is no cluster, or other machines could not
                reach the receiver.
        """
        self._ray = _connected()
        self._job, self._journal = settings.job, settings.journal
        self._telemetry = settings.telemetry
        # The text of a flag file travels with each attempt: other machines have no such file.
        self._flags = {arm: file.read_text("utf-8") for arm, file in settings.flags.items()}
        self._check_receiver()
        # Never twice without our knowledge: the journal decides about further attempts.
        self._task = self._ray.remote(max_retries=0)(run_once)
        self._running: dict[Any, tuple[Attempt, int]] = {}
        self._quiet_since, self._has_warned = time.monotonic(), False

    def check(self, attempt: Attempt) -> None:
        """Refuse a task that does not fit into the command.

        Raises:
            DataError: If it does not.
        """
        self._message(attempt)

    def start(self, attempt: Attempt) -> None:
        """Give an attempt to the cluster."""
        now = time.time_ns()
        details = about(self._journal.folder.name, self._job, attempt)
        self._journal.note_started(attempt.rollout_id, now, details)
        self._running[self._task.remote(self._message(attempt))] = (attempt, now)

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield how attempts ended."""
        if not self._running:
            time.sleep(seconds)
            return
        finished, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        self._warn_if_none_can_run(is_quiet=not finished)
        for reference in finished:
            attempt, started = self._running.pop(reference)
            yield self._noted(attempt, started, reference)

    def stop(self) -> None:
        """Cancel all tasks; a launcher whose task is gone ends its agent."""
        for reference in self._running:
            self._ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()

    def _warn_if_none_can_run(self, *, is_quiet: bool) -> None:
        """Say once if no machine of the cluster has a CPU, so that no attempt can start.

        It is no error: a cluster that scales by itself begins without one.
        """
        now = time.monotonic()
        if not is_quiet:
            self._quiet_since, self._has_warned = now, False
        elif now - self._quiet_since > WARN_AFTER_SECONDS and not self._has_warned:
            self._quiet_since = now
            if self._ray.cluster_resources().get("CPU", 0) < 1:
                self._has_warned = True
                sys.stderr.write(
                    "Waiting for the Ray cluster: none of its machines has a CPU, so no attempt "
                    "can start. Add a machine with: ray start --address=ADDRESS. Ctrl-C twice ends "
                    "the run; the same command goes on later.\n"
                )

    def _noted(self, attempt: Attempt, started: int, reference: Any) -> Ended:
        name = attempt.rollout_id
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            ended = Ended(name, INTERRUPTED, started, time.time_ns())
        except self._ray.exceptions.RayError as error:
            reason_of_ray = f"Ray lost it: {type(error).__name__}"
            ended = Ended(name, "lost", started, time.time_ns(), reason=reason_of_ray)
        else:
            for suffix in ("out", "err"):
                file = self._journal.outputs / f"{name}.{suffix}"
                file.write_text(answer[suffix], encoding="utf-8", errors="replace")
            # The clock of this machine counts for the start: those of the cluster may differ.
            ended = replace(Ended(**answer["ended"]), started=started)
        self._journal.note_ended(ended)
        return ended

    def _message(self, attempt: Attempt) -> dict[str, Any]:
        job, task = self._job, attempt.planned.task
        as_json = as_line(task)
        stdin = {"json": as_json, "none": ""}.get(job.stdin, text_or_json(task.input) + "\n")
        flags = self._flags.get(attempt.planned.arm or "")
        files = {"file": Path(FILE), "flags": None if flags is None else Path(FLAGS)}
        return {
            "name": attempt.rollout_id,
            "command": command(job.command, attempt, files),
            "environment": {**self._telemetry, **environment(job, attempt)},
            "task": as_json,
            "flags": flags,
            "stdin": stdin,
            "timeout": job.timeout,
            "grace": job.grace,
            "max_output": job.max_output,
        }

    def _check_receiver(self) -> None:
        host = urlsplit(self._telemetry["OTEL_EXPORTER_OTLP_ENDPOINT"]).hostname
        machines = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        if host in LOOPBACK and len(machines) > 1:
            raise DataError(
                f"The cluster has {len(machines)} machines, and only this one reaches the "
                f"receiver at {host}. Give --endpoint an address that all of them reach."
            )


def _connected() -> Any:
    try:
        import ray
    except ImportError as error:
        raise DataError(
            "--ray needs the package 'ray'. Install it with: pip install 'otel-lightning[ray]' "
            "(in a checkout: pip install -e '.[ray]')"
        ) from error
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    # A ValueError is an address that Ray cannot read.
    except (OSError, RuntimeError, ValueError) as error:
        # What Ray says of a search without an address names an option that is not ours.
        named = "" if address == "auto" else f" at RAY_ADDRESS={address} ({error})"
        raise DataError(
            f"There is no Ray cluster to connect to{named}. Start one with: ray start --head, or "
            "name one in the variable RAY_ADDRESS."
        ) from error
    return ray


def _check_reachable(address: str) -> None:
    """Connect to a cluster's `host:port`: Ray would try for minutes if nobody answers.

    Raises:
        OSError: If nobody answers.
    """
    host, _, port = address.rpartition(":")
    # Other forms of an address, such as `auto` and `ray://host:port`, are Ray's affair.
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
