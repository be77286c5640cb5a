"""Sending OTLP by hand, and asking what arrived."""

import http.client
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import open_store
from support.running import LIMIT_S


def post(address: str, body: bytes, path: str = "/v1/traces", timeout: float = LIMIT_S) -> int:
    """Send one protobuf request over HTTP and return the status of the answer."""
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def column(store: Path, sql: str) -> list[Any]:
    """Return the only column of an answer, with the ingester running or not."""
    with open_store(store, read_only=True) as opened:
        return [next(iter(row.values())) for row in opened.query(sql).to_pylist()]
