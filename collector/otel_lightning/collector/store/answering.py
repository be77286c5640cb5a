"""Find out whether the process that serves a store answers: no command waits without a word.

The system accepts connections also for a process that was stopped (SIGSTOP), or that waits for
memory or a disk, and DuckDB's client would wait for its answer for minutes. A statement may take
hours, so how long it takes tells nothing. Another request does, which a process that lives answers
in milliseconds.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_lightning.collector.store.errors import StoreError
from otel_lightning.collector.store.files.server_file import Server

if TYPE_CHECKING:
    from http.client import HTTPConnection

    import pyarrow as pa

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""Longest wait for an answer that takes milliseconds."""
ASK_SECONDS = 5.0
"""How often a process is asked whether it lives, while a statement takes longer."""
WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  compared, not listened on
"""Addresses of all interfaces, with the address at which this machine reaches them."""
SILENT = (
    "which has answered nothing for {:g} seconds: somebody may have stopped it (SIGSTOP), or the "
    "machine lacks memory. Let it go on with `kill -CONT {}`, or restart it."
)


class Client(NamedTuple):
    """Client certificate and key, for an ingester that requires them."""

    cert: Path
    key: Path


def check_answers(path: Path, server: Server) -> None:
    """Check that the process that serves a store answers.

    Raises:
        StoreError: If it does not: then it answers no statement either.
    """
    if is_silent(server):
        raise StoreError(f"'{path}' is served by process {server.pid}, {_silence_of(server)}")


@contextmanager
def telling_silence(server: Server | None) -> Iterator[None]:
    """Log a warning if the process answers nothing at all while the block waits for it.

    Args:
        server: The process; None if the block waits for none.
    """
    if server is None:
        yield
        return
    has_ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(server, has_ended), name="silence", daemon=True)
    watch.start()
    try:
        yield
    finally:
        has_ended.set()


def each_batch(server: Server | None, answer: "pa.RecordBatchReader") -> Iterator["pa.RecordBatch"]:
    """Yield the batches of an answer; `telling_silence` watches the wait for each of them.

    While the caller works on a batch, nobody waits.
    """
    while True:
        with telling_silence(server):
            batch = next(answer, None)
        if batch is None:
            return
        yield batch


def _watch(server: Server, has_ended: threading.Event) -> None:
    was_silent = False
    while not has_ended.wait(ASK_SECONDS):
        silent = is_silent(server)
        if has_ended.is_set():
            return
        if silent and not was_silent:
            logger.warning("This command waits for process %d, %s", server.pid, _silence_of(server))
        elif was_silent and not silent:
            logger.warning("Process %d answers again.", server.pid)
        was_silent = silent


def is_silent(server: Server) -> bool:
    """Return whether the ingester answers nothing at all, as if somebody has stopped it."""
    from http.client import HTTPException  # only who reaches a served store needs it

    try:
        with closing(connection(server, None, ANSWER_SECONDS)) as probe:
            probe.request("GET", "/healthz")
            probe.getresponse()
    except TimeoutError:
        return True
    except (OSError, HTTPException):  # it refuses us: then it lives
        return False
    return False


def reachable(server: Server) -> str:
    """Return the host and port at which this machine reaches the ingester."""
    host, _, port = server.http.rpartition(":")
    return f"{WILDCARDS.get(host, host)}:{port}"


def connection(server: Server, client: Client | None, seconds: float) -> "HTTPConnection":
    """Return a connection to the ingester, which is made with the first request.

    Args:
        server: The ingester.
        client: Client certificate, if the ingester requires one.
        seconds: Seconds to wait for each answer.
    """
    from http.client import HTTPConnection, HTTPSConnection

    if server.tls_cert is None:
        return HTTPConnection(reachable(server), timeout=seconds)
    import ssl

    # The server's own certificate is trusted directly, so neither its authority nor its host name
    # is checked. Without PARTIAL_CHAIN, OpenSSL trusts only self-signed certificates directly.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(server.tls_cert)
    if client:
        context.load_cert_chain(client.cert, client.key)
    return HTTPSConnection(reachable(server), timeout=seconds, context=context)


def _silence_of(server: Server) -> str:
    return SILENT.format(ANSWER_SECONDS, server.pid)
