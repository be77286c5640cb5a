"""The receiver's counters, and `/metrics` in Prometheus's text format."""

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from otel_lightning.collector.alarms import KINDS, Alarm

TEXT = "text/plain; version=0.0.4; charset=utf-8"
COUNTERS = {
    "requests": "Export requests, whatever became of them.",
    "accepted_records": "Spans and log records that are durable.",
    "rejected_records": "Spans and log records in accepted requests that cannot be stored.",
    "refused_requests": "Export requests that were not stored, by HTTP status.",
    "unfinished_requests": "Export requests that broke off before they were whole.",
    "dropped_metric_points": "Data points of OTLP metrics: they are not stored.",
    "unread_connections": "Connections to the HTTP port of which no request could be read.",
    "wrong_port": "Clients that used the port of the other protocol, by the port that they used.",
}
GAUGES = {
    "spool_backlog_bytes": "Durable bytes that the loader has not stored yet.",
    "loader_lag_seconds": "Age of the oldest durable request that is not stored and derived yet.",
    "derive_lag_seconds": "Age of the oldest stored request that is not derived yet.",
    "worker_restarts": "Deriving processes that died and were replaced since the start.",
    "thread_failures": "Errors in background threads, which went on, since the start.",
    "derive_retries": "How often the same traces were given up since they were derived last.",
    "ids_to_read": "Stored rows whose ids are still read after a start; nothing is stored before.",
    "former_end_seconds": "Unix time at which the process before ended, if not asked to; else 0.",
    "requests_read_again": "Requests of former processes that were stored since the start.",
    "dropped_log_lines": "Log lines that were dropped since the start: they could not be written.",
    "repeated_ids": "Spans not stored since the start, because other spans have their ids.",
}

WRONG_PORT = r'(?m)^lightning_wrong_port_total\{port="(\w+)"\} (\d+)$'
ALARM = r'(?m)^lightning_alarm\{alarm="(\w+)"\} 1$'
UNREAD = r"(?m)^lightning_unread_connections_total (\d+)$"
IDS_TO_READ = r"(?m)^lightning_ids_to_read (\d+)$"
READ_AGAIN = r"(?m)^lightning_requests_read_again (\d+)$"
REFUSED = r'(?m)^lightning_refused_requests_total\{status="(\d+)".*\} (\d+)$'
REQUESTS = r"(?m)^lightning_requests_total\{.*\} (\d+)$"
"""Lines of `/metrics`."""

Labels = tuple[tuple[str, str], ...]


class Counts:
    """Counters of all transports, by name and labels; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()

    def stored(self, transport: str, signal: str, accepted: int, rejected: int) -> None:
        """Count a request that was answered with success."""
        with self._lock:
            self._counts["requests", _labels(signal=signal, transport=transport)] += 1
            if signal == "metrics":
                self._counts["dropped_metric_points", ()] += rejected
            else:
                self._counts["accepted_records", _labels(signal=signal)] += accepted
                self._counts["rejected_records", _labels(signal=signal)] += rejected

    def refused(self, transport: str, signal: str, status: HTTPStatus) -> int:
        """Count a request that was answered with a failure; return how many had this status."""
        labels = _labels(status=str(int(status)), transport=transport)
        with self._lock:
            self._counts["requests", _labels(signal=signal, transport=transport)] += 1
            self._counts["refused_requests", labels] += 1
            return self._counts["refused_requests", labels]

    def left(self, transport: str, signal: str) -> int:
        """Count a request that broke off before it was whole; return how many did."""
        labels = _labels(transport=transport)
        with self._lock:
            self._counts["requests", _labels(signal=signal, transport=transport)] += 1
            self._counts["unfinished_requests", labels] += 1
            return self._counts["unfinished_requests", labels]

    def unread_connection(self) -> int:
        """Count a connection of which no request could be read; return how many there were."""
        with self._lock:
            self._counts["unread_connections", ()] += 1
            return self._counts["unread_connections", ()]

    def wrong_port(self, port: str) -> int:
        """Count a client that speaks the other port's protocol; return how many there were.

        Args:
            port: "grpc" or "http": the port that was used.
        """
        with self._lock:
            self._counts["wrong_port", labels := _labels(port=port)] += 1
            return self._counts["wrong_port", labels]

    def __getitem__(self, name: str) -> dict[Labels, int]:
        """Return the values of one counter by its labels."""
        with self._lock:
            return {labels: n for (one, labels), n in self._counts.items() if one == name}


def exposition(counts: Counts, gauges: Mapping[str, float], alarms: Iterable[Alarm]) -> str:
    """Write counters, gauges and alarms in Prometheus's text format.

    Args:
        counts: The counters.
        gauges: A value for each name in `GAUGES`.
        alarms: The alarms that are raised now.
    """
    lines: list[str] = []
    for name, meaning in COUNTERS.items():
        lines += _metric(f"lightning_{name}_total", "counter", meaning, counts[name])
    for name, meaning in GAUGES.items():
        lines += _metric(f"lightning_{name}", "gauge", meaning, {(): gauges[name]})
    raised = {alarm.name for alarm in alarms}
    # Silent alarms are written as 0, so that each alarm always has a series.
    states = {_labels(alarm=name): int(name in raised) for name in KINDS}
    lines += _metric("lightning_alarm", "gauge", "1 while the alarm is raised, else 0.", states)
    return "\n".join(lines) + "\n"


def wrong_ports(text: str) -> dict[str, int]:
    """Read from `/metrics` how many clients used the port of the other protocol, by port."""
    return {port: int(n) for port, n in re.findall(WRONG_PORT, text)}


def refused_requests(text: str) -> dict[int, int]:
    """Read from `/metrics` how many export requests were refused, by HTTP status."""
    refused: Counter[int] = Counter()
    for status, n in re.findall(REFUSED, text):
        refused[int(status)] += int(n)
    return dict(refused)


def raised_alarms(text: str) -> set[str]:
    """Read from `/metrics` which alarms are raised."""
    return set(re.findall(ALARM, text))


def ids_to_read(text: str) -> int:
    """Read from `/metrics` of how many stored rows the ids are still read."""
    return sum(int(n) for n in re.findall(IDS_TO_READ, text))


def requests_read_again(text: str) -> int:
    """Read from `/metrics` how many requests of former processes were stored since the start."""
    return sum(int(n) for n in re.findall(READ_AGAIN, text))


def unread_connections(text: str) -> int:
    """Read from `/metrics` of how many connections no request could be read."""
    return sum(int(n) for n in re.findall(UNREAD, text))


def request_count(text: str) -> int:
    """Read from `/metrics` how many export requests came."""
    return sum(int(n) for n in re.findall(REQUESTS, text))


def _metric(name: str, kind: str, meaning: str, values: Mapping[Labels, float]) -> list[str]:
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    for labels, value in sorted(values.items()):
        inside = ",".join(f'{key}="{text}"' for key, text in labels)
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return lines


def _labels(**labels: str) -> Labels:
    return tuple(labels.items())
