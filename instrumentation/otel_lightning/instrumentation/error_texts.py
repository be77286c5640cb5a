"""Withhold the texts of errors where content is switched off.

A model server quotes the prompt in its errors, and a failed `parse` quotes the answer.
OpenTelemetry writes an error to the span of the model call, and to each span around it that the
error passes.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from opentelemetry.trace import Status

from otel_lightning.instrumentation import privacy
from otel_lightning.instrumentation.genai import attributes_of, is_genai, write_late

_TEXTS: Final = ("error.message", "exception.message", "exception.stacktrace")
_MOST_REMEMBERED: Final = 100
_SHORTEST: Final = 8
"""Characters of the shortest text that is remembered: shorter ones occur in any text."""

_remembered: deque[str] = deque(maxlen=_MOST_REMEMBERED)
"""Texts of the last errors of GenAI spans: other spans must not have them either."""


def withhold(span: Any) -> None:
    """Remove the texts of errors from a span that has ended, if content is switched off.

    All are removed from a GenAI span. From other spans only those that quote the error of a GenAI
    span: the agent's own errors stay.

    Args:
        span: A span of the SDK that was not exported yet.
    """
    holders = (span, *(event for event in span.events if event.name == "exception"))
    present = [
        (holder, name, str(text))
        for holder in holders
        for name, text in tuple(attributes_of(holder).items())
        if name in _TEXTS
    ]
    status = span.status.description
    if not (present or status) or privacy.content_allowed():
        return
    is_own = is_genai(attributes_of(span))
    if is_own:
        _remember(text for _, name, text in present if name != "exception.stacktrace")
        # OpenTelemetry writes the type of the exception before its text.
        _remember([(status or "").partition(": ")[2] or status or ""])
    for holder, name, text in present:
        if is_own or _quotes_error(text):
            write_late(holder, {name: privacy.WITHHELD_CONTENT})
    if status and (is_own or _quotes_error(status)):
        span._status = Status(span.status.status_code, privacy.WITHHELD_CONTENT)  # noqa: SLF001


def _remember(texts: Iterable[str]) -> None:
    for text in texts:
        if len(text) >= _SHORTEST and text not in _remembered:
            _remembered.append(text)


def _quotes_error(text: str) -> bool:
    return any(one in text for one in tuple(_remembered))
