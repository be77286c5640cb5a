"""Sending OTLP by hand."""

import http.client

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
