"""SELECTs over HTTP for commands of this user on this machine: `POST /v1/sql`, rows as JSON.

The client needs the writer token of the server file, which only the store's owner can read, and has
to be on this machine, as for SQL over DuckDB's own protocol. That token may do anything there;
here it may only read.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from granian._granian import RSGIProtocolClosed

from otel_lightning.collector.ingester_client.sql import PATH
from otel_lightning.collector.receive.accept import JSON, Receiver
from otel_lightning.collector.receive.access import AccessGuard, is_loopback
from otel_lightning.collector.receive.http.application import asked_by
from otel_lightning.collector.receive.http.disconnects import while_client_waits
from otel_lightning.collector.receive.refusals import RefusedError, refusal_of, too_large
from otel_lightning.collector.store import StoreError, is_select
from otel_lightning.collector.store.clients.cancellation import Cancellation

PLAIN = "text/plain; charset=utf-8"

THREADS = 8
"""Statements that run at once; others wait. Receiving uses other threads, which are soon free."""

Ask = Callable[[str, Cancellation], list[dict[str, Any]]]


class SqlRoute:
    """Answers the requests for `/v1/sql`."""

    def __init__(self, receiver: Receiver, token: str, ask: Ask) -> None:
        """Answer for one receiver.

        Args:
            receiver: The check of host names, and the limit of a body.
            token: The writer token of the server file.
            ask: Runs a SELECT and returns its rows, unless it is cancelled.
        """
        self._receiver, self._ask = receiver, ask
        self._guard = AccessGuard((token,))
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sql")

    def owns(self, path: str) -> bool:
        """Return whether a path is this one."""
        return path == PATH

    async def answer(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""
        try:
            self._admit(scope)
            text = bytes(await protocol()).decode("utf-8", "replace")
            # DuckDB runs in a thread: the event loop has senders to answer.
            cancellation = Cancellation()
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._threads, self._rows, text, cancellation)
            status, body = HTTPStatus.OK, await while_client_waits(protocol, work, cancellation)
        except RSGIProtocolClosed:
            return
        except StoreError as error:
            status, body = HTTPStatus.BAD_REQUEST, str(error)
        except Exception as error:  # noqa: BLE001  every failure has its answer
            refusal = refusal_of(error)
            status, body = refusal.status, str(refusal)
        content_type = JSON if status == HTTPStatus.OK else PLAIN
        with suppress(RSGIProtocolClosed):
            protocol.response_str(int(status), [("content-type", content_type)], body)

    def _admit(self, scope: Any) -> None:
        request = asked_by(scope)
        self._receiver.guard.check_names(request.host, request.origin)
        self._receiver.guard.check_site(request, tls=scope.scheme == "https")
        host, _, _ = scope.client.rpartition(":")
        if not is_loopback(host.strip("[]")):
            raise RefusedError(HTTPStatus.FORBIDDEN, "only this machine may ask for rows here")
        self._guard.admit(scope.headers.get("authorization"))
        if scope.method != "POST":
            raise RefusedError(
                HTTPStatus.METHOD_NOT_ALLOWED, f"'{PATH}' takes POST, not {scope.method}."
            )
        size = scope.headers.get("content-length", "")
        if not size.isdigit() or int(size) > self._receiver.max_body:
            raise too_large(self._receiver.max_body)

    def _rows(self, select: str, cancellation: Cancellation) -> str:
        if not is_select(select):
            raise StoreError("Only one SELECT at a time is answered here.")
        return json.dumps(self._ask(select, cancellation), default=str)
