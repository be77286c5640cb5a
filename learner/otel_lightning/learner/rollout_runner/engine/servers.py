"""A server that is there already, and is asked over HTTP.

It runs many rollouts in one process, so no variable can name the rollout. A request carries it in
the headers `traceparent` and `baggage`, which an instrumented server takes over by itself.
"""

import http.client
import json
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlsplit

from otel_lightning.collector.files.reason import reason
from otel_lightning.instrumentation import attributes
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.rollout_runner.arms import version_of
from otel_lightning.learner.rollout_runner.attempts import (
    Attempt,
    about,
    agent_fields,
)
from otel_lightning.learner.rollout_runner.engine.executors import ExecutorSettings
from otel_lightning.learner.rollout_runner.launcher.processes import INTERRUPTED, Ended
from otel_lightning.learner.rollout_runner.plan import Arms

SERVER_ERRORS = 500
MAX_ANSWER_BYTES = 64 * 2**20


class TooLateError(Exception):
    """An answer did not come in time."""


class LostError(Exception):
    """Nobody answered; the agent did not decide that."""


class FailedError(Exception):
    """The agent answered that it failed."""


class UrlExecutor:
    """Posts each task to a server from a thread, and keeps the journal as the launcher does."""

    def __init__(self, settings: ExecutorSettings) -> None:
        """Take the settings; the job's `url` is the server's. The server has its own telemetry.

        Raises:
            DataError: If it is no URL.
        """
        job = settings.job
        self._url = urlsplit(job.url or "")
        if self._url.scheme not in ("http", "https") or not self._url.netloc:
            raise DataError(f"'{job.url}' is no URL. Write one such as http://127.0.0.1:9000/run.")
        self._job, self._journal = job, settings.journal
        self._results: queue.Queue[Ended] = queue.Queue()
        self._running: dict[str, int] = {}
        self._lock = threading.Lock()

    def check(self, attempt: Attempt) -> None:
        """Do nothing: every task fits into a request."""

    def start(self, attempt: Attempt) -> None:
        """Start an attempt in a thread."""
        now = time.time_ns()
        rollout_id = attempt.rollout_id
        details = about(self._journal.folder.name, self._job, attempt)
        self._journal.note_started(rollout_id, now, details)
        self._running[rollout_id] = now
        # Daemon threads: a request that hangs must not keep the process alive after the run.
        threading.Thread(target=self._attempt, args=(attempt, now), daemon=True).start()

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield how attempts ended."""
        with suppress(queue.Empty):
            yield self._results.get(timeout=seconds)
        while not self._results.empty():
            yield self._results.get()

    def stop(self) -> None:
        """Record all running attempts as interrupted; later answers are ignored."""
        with self._lock:
            for name, started in list(self._running.items()):
                self._end(Ended(name, INTERRUPTED, started, time.time_ns()), "")

    def close(self) -> None:
        """Do nothing."""

    def _attempt(self, attempt: Attempt, started: int) -> None:
        name = attempt.rollout_id
        status, exit_code, reason, output = "exited", 0, None, ""
        try:
            output = self._ask(attempt)
        except TooLateError:
            status = "timeout"
        except FailedError as error:
            exit_code, reason = 1, str(error)
        except LostError as error:
            status, reason = "lost", str(error)
        code = exit_code if status == "exited" else None
        ended = Ended(name, status, started, time.time_ns(), exit_code=code, reason=reason)
        # The lock decides whether an answer or `stop` comes first; only the first one is written.
        with self._lock:
            self._end(ended, output)

    def _end(self, ended: Ended, output: str) -> None:
        if self._running.pop(ended.rollout_id, None) is None:
            return  # it was interrupted
        file = self._journal.outputs / f"{ended.rollout_id}.out"
        file.write_text(output, encoding="utf-8", errors="replace")
        self._journal.note_ended(ended)
        self._results.put(ended)

    def _ask(self, attempt: Attempt) -> str:
        """Post a task; the answer's body is the agent's output.

        Raises:
            TooLateError: If there is none in time.
            LostError: If nobody answers.
            FailedError: If the agent says that it failed.
        """
        url, limit = self._url, self._job.timeout
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=limit)
        body = json.dumps(agent_fields(attempt.planned.task), ensure_ascii=False).encode(
            "utf-8", "replace"
        )
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        deadline = time.monotonic() + limit
        try:
            request_headers = headers(attempt, self._job.arms, self._journal.folder.name)
            connection.request("POST", path, body, request_headers)
            answer = connection.getresponse()
            text = _read_body(answer, deadline).decode("utf-8", "replace")
        except TimeoutError as error:
            raise TooLateError from error
        except (OSError, http.client.HTTPException) as error:
            raise LostError(f"{url.netloc} does not answer: {reason(error)}") from error
        finally:
            connection.close()
        message = f"HTTP {answer.status} {answer.reason}: {' '.join(text.split())[:200]}"
        # A 5xx is a fault of the server, such as an overload: the attempt is lost and tried again.
        # A 4xx is the agent's own answer: it failed.
        if answer.status >= SERVER_ERRORS:
            raise LostError(message)
        if answer.status != http.client.OK:
            raise FailedError(message)
        return text


def headers(attempt: Attempt, arms: Arms | None, run_id: str) -> dict[str, str]:
    """Return the headers that name the rollout to an instrumented server, and the arm to serve.

    Source:
        W3C Trace Context and W3C Baggage.
    """
    planned = attempt.planned
    carried = {attributes.ROLLOUT_ID: attempt.rollout_id, attributes.TASK_ID: planned.task.task_id}
    if arms and planned.arm is not None:
        arm_request = {
            "key": arms.key,
            "arm": planned.arm,
            "propensity": 1 / len(arms.names),
            "version": version_of(run_id),
        }
        carried[attributes.ASKED_ARM] = json.dumps(arm_request)
    return {
        "Content-Type": "application/json",
        # Version 00, a new trace id, a span id, and 01 for "sampled".
        "traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01",
        "baggage": ",".join(f"{name}={quote(value, safe='')}" for name, value in carried.items()),
        "Lightning-Seed": str(planned.seed),
        "Lightning-Sample": str(planned.sample),
    }


def _read_body(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    parts, size = [], 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        # The connection's timeout is for each read. A server that sends a byte now and then needs
        # this one.
        if time.monotonic() > deadline:
            raise TooLateError
        if size > MAX_ANSWER_BYTES:
            raise FailedError("it answered more than 64 MiB")
    return b"".join(parts)
