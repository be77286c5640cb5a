"""HTTP requests to the ingester that serves a store, for commands that need it to do something."""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager

from otel_lightning.collector.files.reason import reason
from otel_lightning.collector.store.answering import (
    ANSWER_SECONDS,
    Client,
    connection,
    reachable,
)
from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.files.server_file import Server


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
        with closing(connection(server, client, seconds)) as opened:
            yield opened
    except (OSError, http.client.HTTPException) as error:
        hint = ""
        if server.tls_cert and not client:
            hint = " If it asks clients for a certificate, give --client-cert and --client-key."
        raise StoreError(
            f"lightning-ingest at {reachable(server)} does not answer: {reason(error)}.{hint}"
        ) from error


def asks_for_token(server: Server) -> bool:
    """Return whether senders need a token; False if the ingester asks for a certificate first."""
    try:
        with connected(server, None, ANSWER_SECONDS) as opened:
            opened.request("GET", "/metrics")
            return opened.getresponse().status == http.client.UNAUTHORIZED
    except StoreError:
        return False


def metrics_of(server: Server) -> str:
    """Return the text of the ingester's `/metrics`.

    Raises:
        StoreError: If it does not answer, or asks for a client certificate.
    """
    with connected(server, None, ANSWER_SECONDS) as opened:
        opened.request("GET", "/metrics", headers={"Authorization": f"Bearer {server.token}"})
        answer = opened.getresponse()
        text = answer.read().decode(errors="replace")
    if answer.status != http.client.OK:
        raise StoreError(f"lightning-ingest at {reachable(server)} answers {answer.status}: {text}")
    return text
