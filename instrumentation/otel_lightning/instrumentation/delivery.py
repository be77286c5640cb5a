"""Deliver telemetry at the end of the process within a time limit, and report losses in one line.

OpenTelemetry's own exit handlers flush one signal after the other while the exporters retry. This
takes 10 to 27 seconds if no collector listens, and logs each attempt. Here all signals are flushed
in parallel until one deadline. Records that are left are counted and reported once.
"""

import atexit
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from opentelemetry import _logs, metrics, trace

from otel_lightning.instrumentation.batches import divided
from otel_lightning.instrumentation.guard import never_raise

EXIT_TIMEOUT_VARIABLE: Final = "LIGHTNING_EXIT_TIMEOUT"
"""Longest time in seconds that delivery may delay the end of the process; 4 by default."""

_DEFAULT_TIMEOUT: Final = 4.0
_LONGEST_TIMEOUT: Final = 86_400.0
_EXPORT_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.sdk._shared_internal",
)
_NO_COLLECTOR: Final = " Does a collector listen at %s? Start one with: lightning-ingest"
_IN_CONTAINER: Final = (
    " In a container localhost is the container itself: set OTEL_EXPORTER_OTLP_ENDPOINT to the "
    "name of the collector's host or service."
)
_ENDS: Final = ("SIGTERM", "SIGHUP")
"""Signals that end a process: of a supervisor, and of a terminal that closes (not on Windows)."""
_MARKS: Final = ("/.dockerenv", "/run/.containerenv")
"""Files that Docker and Podman put into each container."""
_ANSWERED: Final = re.compile(
    r"BadStatusLine|WRONG_VERSION_NUMBER|StatusCode\.(?!UNAVAILABLE|DEADLINE_EXCEEDED)|\bcode: \d"
    r"|Transient error [A-Z][A-Za-z ]* encountered"
    r"|StatusCode\.UNAVAILABLE .* Error details: not stored|ProxyError|No connection adapters"
    r"|exceeds max_request_size|CERTIFICATE_VERIFY_FAILED"
)
"""Reasons of a failed export that do not mean that no collector is there: an answer of a server, a
wrong address, a proxy. Over HTTP the exporter names a status by its phrase, without punctuation."""
_GAVE_UP: Final = "due to timeout, max retries or shutdown"
"""The end of retries: the warning of the retry before says what the reason was."""
_TOO_SLOW: Final = (
    " %s answered before, but did not take the rest in this time. Look at the load of the "
    "collector, or raise LIGHTNING_EXIT_TIMEOUT."
)
_TLS_ALERT: Final = r"BadStatusLine('\x15\x03"
"""Part of an HTTP client's error if the server answers with a TLS alert (RFC 8446, section 6)."""
_REMEDIES: Final = {
    "code: 401": "Set OTEL_EXPORTER_OTLP_HEADERS to authorization=Bearer%20TOKEN, with the token "
    "of the collector.",
    "code: 403": "The collector does not allow the host name of the endpoint: start "
    "lightning-ingest with --allowed-host NAME.",
    "code: 404": "The path is wrong: the exporter adds /v1/traces to OTEL_EXPORTER_OTLP_ENDPOINT, "
    "so leave it out there.",
    "code: 413": "A batch is larger than the receiver accepts: lower "
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE, or raise the limit of the receiver.",
    "No connection adapters": "Write http:// or https:// before the host in the endpoint.",
    "CERTIFICATE_VERIFY_FAILED": "To trust the certificate, set OTEL_EXPORTER_OTLP_CERTIFICATE to "
    "the file of its authority; over HTTP set REQUESTS_CA_BUNDLE, where that is set already.",
    "ProxyError": "The proxy of HTTP_PROXY or HTTPS_PROXY does not work: add the collector's host "
    "to NO_PROXY.",
    "error Too Many Requests": "The receiver refused the rate of the requests: raise its limit.",
    "error Service Unavailable": "The receiver is up, but stores nothing now: its log says why.",
}
"""What to do, by a part of the reason that OpenTelemetry's exporter logs, mostly over HTTP."""
_REPORTED_BY_US: Final = (
    "Transient error",
    "Failed to export",
    "Dropping ",
    "Shutdown in progress",
    "Queue full",
    "Exporter already shutdown",
)
"""Prefixes of OpenTelemetry's log messages that our own report of losses replaces."""
_logger = logging.getLogger(__name__)

before_finish: Final[list[Callable[[], None]]] = []
"""Functions to call before the last delivery."""


@dataclass(slots=True)
class _Exports:
    """Counts of one processor's records that were not delivered."""

    kind: str
    queue: Sequence[Any]
    endpoint: str
    failed: int = 0
    dropped: int = 0
    in_flight: int = 0
    delivered: int = 0

    def unsent(self) -> int:
        return self.failed + self.dropped + self.in_flight + len(self.queue)


@dataclass(slots=True)
class _State:
    watched: dict[int, _Exports] = field(default_factory=dict)
    reason: str = ""
    is_failure_logged: bool = False
    ending: bool = False


_state = _State()


def limit_exit_time(undo: ExitStack) -> None:
    """Replace the exit handlers of OpenTelemetry's providers by ours.

    Args:
        undo: Receives the callbacks that revert this.
    """
    watch()
    # Exit handlers run in the reverse order of their registration, so this one runs before those of
    # libraries that were imported earlier.
    atexit.register(finish)
    undo.callback(atexit.unregister, finish)
    for name in _EXPORT_LOGGERS:
        logger = logging.getLogger(name)
        logger.addFilter(_keep)
        undo.callback(logger.removeFilter, _keep)
    for name in _ENDS:
        _finish_on(getattr(signal, name, None), undo)


def watch() -> None:
    """Count the records that the providers' processors lose, and unregister their exit handlers.

    Call it again after another provider was set up.
    """
    for provider, kind in _providers():
        for name in ("_atexit_handler", "_at_exit_handler"):
            if handler := getattr(provider, name, None):
                atexit.unregister(handler)
        for batch in _batches(provider):
            # A guard for each: an exporter whose methods cannot be replaced is not counted.
            if id(batch) not in _state.watched and (exports := _counted(batch, kind)) is not None:
                _state.watched[id(batch)] = exports


@never_raise
def finish() -> None:
    """Deliver queued records until the deadline, shut down, and log the losses in one line."""
    watch()
    _state.ending = True
    for end in before_finish:
        never_raise(end)()
    _all_at_once("shutdown")
    _log_losses()


@never_raise
def flush() -> None:
    """Deliver queued records until the deadline, without shutting down."""
    _all_at_once("force_flush")


def _all_at_once(method: str) -> None:
    deadline = time.monotonic() + _timeout()
    threads = [
        # Daemon threads: an exporter that hangs beyond the deadline does not keep the process
        # alive.
        threading.Thread(target=never_raise(getattr(provider, method)), daemon=True)
        for provider, _ in _providers()
        if hasattr(provider, method)
    ]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:
        # From Python 3.12 on, no thread can be started at exit.
        if method == "shutdown":
            _shut_down_without_threads(deadline)
        return
    for thread in threads:
        # One deadline for all signals together.
        thread.join(max(0.0, deadline - time.monotonic()))


def _shut_down_without_threads(deadline: float) -> None:
    """Let the processors' own threads deliver in parallel, which run already."""
    batches = [batch for provider, _ in _providers() for batch in _batches(provider)]
    for batch in batches:
        # The first half of the SDK's `shutdown`; the second half waits for 30 seconds.
        batch._shutdown = True  # noqa: SLF001
        batch._worker_awaken.set()  # noqa: SLF001
    for batch in batches:
        batch._worker_thread.join(max(0.0, deadline - time.monotonic()))  # noqa: SLF001
        if not batch._worker_thread.is_alive():  # noqa: SLF001
            never_raise(batch._exporter.shutdown)()  # noqa: SLF001
    for provider, kind in _providers():
        if hasattr(provider, "shutdown"):
            left_ms = max(1.0, 1000 * (deadline - time.monotonic()))
            options = {"timeout_millis": left_ms} if kind == "metric" else {}
            never_raise(provider.shutdown)(**options)


def _timeout() -> float:
    text = os.environ.get(EXIT_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else _DEFAULT_TIMEOUT
        return min(max(0.0, seconds), _LONGEST_TIMEOUT)
    except ValueError:
        _logger.warning(
            "%s=%r is not a number of seconds; %s s are used.",
            EXIT_TIMEOUT_VARIABLE,
            text,
            _DEFAULT_TIMEOUT,
        )
        return _DEFAULT_TIMEOUT


def _providers() -> Iterator[tuple[Any, str]]:
    yield trace.get_tracer_provider(), "span"
    yield _logs.get_logger_provider(), "log record"
    yield metrics.get_meter_provider(), "metric"


def _batches(provider: Any) -> Iterator[Any]:
    for holder, names in (
        ("_active_span_processor", "_span_processors"),
        ("_multi_log_record_processor", "_log_record_processors"),
    ):
        for processor in getattr(getattr(provider, holder, None), names, ()):
            # Only batching processors have a queue. A simple one exports at once and loses nothing
            # at exit.
            if batch := getattr(processor, "_batch_processor", None):
                yield batch


@never_raise
def _counted(batch: Any, kind: str) -> _Exports:
    exporter = batch._exporter  # noqa: SLF001
    # The SDK has no public queue length, and OTLP exporters no public endpoint.
    endpoint = getattr(exporter, "_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT")
    exports = _Exports(kind, batch._queue, str(endpoint))  # noqa: SLF001
    export = exporter.export

    def count(records: Sequence[Any]) -> Any:
        # Counted while they are sent: if the deadline comes in between, these are lost too.
        exports.in_flight += len(records)
        results = [count_part(part) for part in divided(records)]
        failed = (result for result in results if getattr(result, "name", "") != "SUCCESS")
        return next(failed, results[0])

    def count_part(records: Sequence[Any]) -> Any:
        delivered = False
        try:
            result = export(records)
            delivered = getattr(result, "name", "") == "SUCCESS"
        finally:
            exports.in_flight -= len(records)
            if delivered:
                exports.delivered += len(records)
            else:
                exports.failed += len(records)
                _log_first_failure()
        return result

    def count_dropped(number: int, *reason: Any) -> None:
        exports.dropped += number
        drop(number, *reason)

    # On the instance: other exporters of the same class are not counted.
    exporter.export = count
    drop = batch._metrics.drop_items  # noqa: SLF001
    batch._metrics.drop_items = count_dropped  # noqa: SLF001
    return exports


def _keep(record: logging.LogRecord) -> bool:
    """Return whether a record is still logged; remember the last reason of a failed export."""
    # `msg` is the format, without its arguments, so the beginning is always the same.
    if not str(record.msg).startswith(_REPORTED_BY_US):
        return True
    if record.levelno >= logging.WARNING and not str(record.msg).startswith("Shutdown"):
        if _state.reason and _GAVE_UP in str(record.msg):
            return False
        _state.reason = record.getMessage()
    return False


def _log_first_failure() -> None:
    """Log the first lost batch while the process runs; all losses are reported again at exit."""
    if not _state.is_failure_logged and not _state.ending:
        _state.is_failure_logged = True
        _logger.warning(
            "Telemetry cannot be delivered; the agent continues, and the losses are counted. %s",
            _last_reason(),
        )


def _log_losses() -> None:
    lost: dict[str, int] = {}
    places: dict[str, None] = {}
    delivered = 0
    for exports in _state.watched.values():
        if count := exports.unsent():
            lost[exports.kind] = lost.get(exports.kind, 0) + count
            places[exports.endpoint] = None
            delivered += exports.delivered
    named = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in lost.items()]
    if named:
        _logger.warning(
            "Lost %s: not delivered within the %s s that %s allows at exit.%s%s",
            " and ".join(named),
            _timeout(),
            EXIT_TIMEOUT_VARIABLE,
            f" {reason}" if (reason := _last_reason()) else "",
            _remedy(places, has_answered=delivered > 0),
        )


def _remedy(places: Collection[str], *, has_answered: bool) -> str:
    """Return what to do about the losses, if the last reason does not say it."""
    if _ANSWERED.search(_state.reason):
        return ""
    if has_answered and not _state.reason:
        return _TOO_SLOW % " and ".join(places)
    return _no_collector(places)


def _no_collector(places: Collection[str]) -> str:
    """Return the question whether a collector listens at some endpoints."""
    question = str(_NO_COLLECTOR % " and ".join(places))
    is_local = any("localhost" in place or "127.0.0.1" in place for place in places)
    if is_local and ("KUBERNETES_SERVICE_HOST" in os.environ or any(map(os.path.exists, _MARKS))):
        return _IN_CONTAINER + question
    return question


def _last_reason() -> str:
    """Return the last reason of a failed export as a sentence, with its remedy if it is known."""
    if "WRONG_VERSION_NUMBER" in _state.reason:
        return "That port speaks no TLS: write http:// instead of https:// in the endpoint."
    if _TLS_ALERT in _state.reason:
        return "That port speaks TLS: write https:// instead of http:// in the endpoint."
    if "BadStatusLine" in _state.reason:
        return (
            "That port speaks gRPC: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or send to the port for "
            "HTTP, which is 4318 by default."
        )
    reason = _state.reason.strip()
    sentence = f"{reason}." if reason and not reason.endswith(".") else reason
    remedies = (remedy for status, remedy in _REMEDIES.items() if status in reason)
    return " ".join([sentence, *remedies])


def _finish_on(number: signal.Signals | None, undo: ExitStack) -> None:
    """Deliver before a signal ends the process, unless the agent or `nohup` handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    # Python allows handlers in the main thread only.
    if number is None or not is_main or signal.getsignal(number) is not signal.SIG_DFL:
        return

    def finish_and_die(_number: int, _frame: FrameType | None) -> None:
        # In a thread: the signal may have interrupted code that holds a lock, such as a span's,
        # for which delivery would wait forever.
        delivery = threading.Thread(target=finish, daemon=True)
        delivery.start()
        delivery.join(_timeout() + 1)
        signal.signal(number, signal.SIG_DFL)
        # Again with the default handler, so that the parent sees death by the signal and not an
        # exit code.
        os.kill(os.getpid(), number)

    signal.signal(number, finish_and_die)

    def give_back() -> None:
        # The agent may have set its own handler since.
        if signal.getsignal(number) is finish_and_die:
            signal.signal(number, signal.SIG_DFL)

    undo.callback(give_back)


def _forget_losses_of_parent() -> None:
    """Reset the counts in a forked child: the parent reports its own losses."""
    for exports in _state.watched.values():
        exports.failed = exports.dropped = exports.in_flight = exports.delivered = 0
    _state.is_failure_logged, _state.reason = False, ""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_losses_of_parent)
