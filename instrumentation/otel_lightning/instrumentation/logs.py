"""Redact log records: some instrumentations emit events that carry messages."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from opentelemetry import _logs
from opentelemetry.sdk._logs import LogRecordProcessor, ReadWriteLogRecord

from otel_lightning.instrumentation import privacy
from otel_lightning.instrumentation.guard import never_raise


def redact_logs(undo: ExitStack) -> None:
    """Redact the log records of this process before any exporter sees them, if that is configured.

    Args:
        undo: Receives the callback that reverts this.
    """
    redact = privacy.safe_redactor()
    holder = getattr(_logs.get_logger_provider(), "_multi_log_record_processor", None)
    if redact is None or holder is None:
        return
    processor = _Redaction(redact)
    # First, since the others export the record.
    holder._log_record_processors = (processor, *holder._log_record_processors)  # noqa: SLF001
    undo.callback(processor.shutdown)


class _Redaction(LogRecordProcessor):
    def __init__(self, redact: Callable[[Any], Any]) -> None:
        self._redact = redact
        self._running = True

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        if self._running:
            _redact(log_record.log_record, self._redact)

    def shutdown(self) -> None:
        self._running = False

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        del timeout_millis
        return True


@never_raise
def _redact(record: Any, redact: Callable[[Any], Any]) -> None:
    record.body = redact(record.body)
    for name, value in dict(record.attributes or {}).items():
        if (redacted := redact(value)) != value:
            record.attributes[name] = redacted
