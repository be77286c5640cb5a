"""HTTP requests to the ingester that serves a store, for commands that need it to do something."""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from otel_lightning.collector.store import Server, StoreError

METRICS_SECONDS = 10.0
WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  compared, not listened on
"""Addresses of all interfaces, with the address at which this machine reaches them."""


class Client(NamedTuple):
    """Client certificate and key, for an ingester that requires them."""

    cert: Path
    key: Path


def reachable(server: Server) -> str:
    """Return the host and port at which this machine reaches the ingester."""
    host, _, port = server.http.rpartition(":")
    return f"{WILDCARDS.get(host, host)}:{port}"


@contextmanager
def connected(
    server: Server, client: Client | None, seconds: float
) -> Iterator[http.client.HTTPConnection]:
    """Connect to the ingester for the block.

    Args:
        server: The ingester.
        client: Client certificate, if the ingester requires one.
        seconds: Seconds to wait for each answer.

    Raises:
        StoreError: If it does not answer.
    """
    try:
        with closing(_connection(server, client, seconds)) as connection:
            yield connection
    except (OSError, http.client.HTTPException) as error:
        hint = ""
        if server.tls_cert and not client:
            hint = " If it asks clients for a certificate, give --client-cert and --client-key."
        raise StoreError(
            f"lightning-ingest at {reachable(server)} does not answer: {error}.{hint}"
        ) from error


def metrics_of(server: Server) -> str:
    """Return the text of the ingester's `/metrics`.

    Raises:
        StoreError: If it does not answer, or asks for a client certificate.
    """
    with connected(server, None, METRICS_SECONDS) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    if answer.status != http.client.OK:
        raise StoreError(f"lightning-ingest at {reachable(server)} answers {answer.status}: {text}")
    return text


def is_silent(server: Server) -> bool:
    """Return whether the ingester answers nothing at all, as if somebody has stopped it (SIGSTOP).

    The system accepts connections for a process that is stopped. DuckDB's client would wait for
    minutes.
    """
    try:
        with closing(_connection(server, None, METRICS_SECONDS)) as connection:
            connection.request("GET", "/healthz")
            connection.getresponse()
    except TimeoutError:
        return True
    except (OSError, http.client.HTTPException):  # it refuses us: then it lives
        return False
    return False


def _connection(
    server: Server, client: Client | None, seconds: float
) -> http.client.HTTPConnection:
    if server.tls_cert is None:
        return http.client.HTTPConnection(reachable(server), timeout=seconds)
    # The server's own certificate is trusted directly, so neither its authority nor its host name
    # is checked. Without PARTIAL_CHAIN, OpenSSL trusts only self-signed certificates directly.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(server.tls_cert)
    if client:
        context.load_cert_chain(client.cert, client.key)
    return http.client.HTTPSConnection(reachable(server), timeout=seconds, context=context)
