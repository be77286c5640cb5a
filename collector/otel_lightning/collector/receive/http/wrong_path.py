"""Tell senders of a wrong URL what is wrong with it, and the right one.

An exporter that gets 404 drops what it sends, and logs little more than the status. Nearly always
the URL was set wrongly: an exporter adds the path of the signal to OTEL_EXPORTER_OTLP_ENDPOINT, but
takes OTEL_EXPORTER_OTLP_TRACES_ENDPOINT as it is.

Source:
    OpenTelemetry Protocol Exporter specification, "Endpoint URLs for OTLP/HTTP".
"""

import logging
import re
from collections.abc import Sequence
from threading import Lock

from otel_lightning.collector.receive.refusals import in_one_line

logger = logging.getLogger(__name__)

WORDS = {"trace": "traces", "span": "traces", "log": "logs", "metric": "metrics"}
"""Words in a path, in the singular, that tell the signal."""
NAMED = ("traces", "logs", "metrics")
"""Signals for which OpenTelemetry has variables."""
MOST_CHARACTERS = 120
"""Characters of a path that are repeated."""
MOST_LOGGED = 20
"""Wrong paths that are logged, each once: anybody can make up more."""


def why_wrong(path: str, url: str, paths: Sequence[str]) -> str:
    """Return one sentence about what is wrong with a path and what to send to instead.

    Args:
        path: The path of a request, which is none of ours.
        url: URL of this server without a path, such as `http://127.0.0.1:4318`.
        paths: The paths of the signals.
    """
    signal = _signal(path)
    if signal is None:
        return f"no such path '{_shortened(path)}'. Known: {', '.join(paths)}."
    right = f"/v1/{signal}"
    problem = _what(path, right)
    variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    return (
        f"{problem}: send {signal} to {url}{right}, which is OTEL_EXPORTER_OTLP_ENDPOINT={url} or "
        f"{variable}={url}{right}."
    )


def _signal(path: str) -> str | None:
    """Return which signal a wrong path is probably meant for; None if none is."""
    if not path.strip("/"):
        return "traces"  # most exporters send nothing else
    words = [word.removesuffix("s") for word in re.split(r"[/_.-]+", path.lower()) if word]
    signals = [WORDS[word] for word in words if word in WORDS]
    # The exporter adds its signal at the end, behind whatever was set.
    return signals[-1] if signals else None


def _what(path: str, right: str) -> str:
    if not path.strip("/"):
        return "the URL has no path"
    if sum(path.count(f"/v1/{one}") for one in NAMED) > 1:
        return f"'{_shortened(path)}' has the path of a signal twice"
    if path.endswith(right):
        return f"'{_shortened(path)}' has '{_shortened(path.removesuffix(right))}' before '{right}'"
    return f"there is no path '{_shortened(path)}'"


def _shortened(path: str) -> str:
    """Return a path for a message: short, and without control characters."""
    return in_one_line(path if len(path) <= MOST_CHARACTERS else f"{path[:MOST_CHARACTERS]}…")


class WrongPaths:
    """Logs wrong paths, each once."""

    def __init__(self) -> None:
        """Begin without any."""
        self._lock = Lock()
        self._logged: set[str] = set()

    def note(self, path: str, reason: str) -> None:
        """Log the answer to the sender, unless this path was logged before."""
        with self._lock:
            if path in self._logged or len(self._logged) >= MOST_LOGGED:
                return
            self._logged.add(path)
        logger.warning("A request was refused (404); others like it are not logged: %s", reason)
