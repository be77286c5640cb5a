"""A client that sends what no SDK would."""

import http.client
import ssl
from typing import Any, NamedTuple

from google.rpc.status_pb2 import Status

from otel_lightning.collector.store import open_store
from support.running import LIMIT_S

PROTOBUF, JSON = "application/x-protobuf", "application/json"


class Reply(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "")

    def reason(self) -> str:
        """The message of a google.rpc.Status in protobuf."""
        return str(Status.FromString(self.body).message)


def send(
    address: str,
    body: bytes = b"",
    *,
    path: str = "/v1/traces",
    method: str = "POST",
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Reply:
    """Send one request; `Content_Type="…"` sets a header, an empty value leaves it out."""
    if tls:
        connection = http.client.HTTPSConnection(address, timeout=LIMIT_S, context=tls)
    else:
        connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
    named = {"Content-Type": PROTOBUF} | {k.replace("_", "-"): v for k, v in headers.items()}
    try:
        connection.request(method, path, body, {k: v for k, v in named.items() if v})
        answer = connection.getresponse()
        received = {key.lower(): value for key, value in answer.getheaders()}
        return Reply(answer.status, received, answer.read())
    finally:
        connection.close()


def metric(address: str, name: str) -> float:
    """The sum of a metric's values at /metrics."""
    lines = send(address, path="/metrics", method="GET").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def column(store: Any, sql: str) -> list[Any]:
    """The only column of an answer."""
    with open_store(store, read_only=True) as opened:
        return [next(iter(row.values())) for row in opened.query(sql).to_pylist()]
