"""OTLP over HTTP: protobuf or JSON by content type; answered once the request is durable."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from http import HTTPStatus
from threading import Event
from typing import Any, Protocol
from urllib.parse import quote

from google.rpc import code_pb2
from granian._granian import RSGIProtocolClosed, RSGIProtocolError

from otel_lightning.collector.receive.accept import (
    BODY_SECONDS,
    JSON,
    PROTOBUF,
    Accepted,
    Receiver,
    Response,
    accept,
    accept_feedback,
    encode,
)
from otel_lightning.collector.receive.access import BrowserRequest
from otel_lightning.collector.receive.http.bodies import Budget, decompress
from otel_lightning.collector.receive.http.health import PATHS, health
from otel_lightning.collector.receive.http.unread_connections import UnreadConnections
from otel_lightning.collector.receive.http.wrong_path import WrongPaths, why_wrong
from otel_lightning.collector.receive.metrics import TEXT, exposition
from otel_lightning.collector.receive.refusals import (
    RETRY_AFTER_SECONDS,
    RefusedError,
    refusal_of,
    too_large,
    too_slow,
)

logger = logging.getLogger(__name__)

SIGNALS = {
    "/v1/traces": "traces",
    "/v1/logs": "logs",
    "/v1/metrics": "metrics",
    "/v1/feedback": "feedback",
}
SMALL_BYTES = 1024 * 1024  # up to here granian reads the body, and it is parsed without a thread
LARGE_BODIES = 4  # memory budget of all large bodies, as a multiple of the limit of one
UNREAD_BODIES = 4  # most bytes of a refused body to read and discard, as the same multiple
PLAIN = "text/plain; charset=utf-8"
NO_LENGTH = (
    "the request has neither Content-Length nor Transfer-Encoding, and without them no body: what "
    "follows is not read"
)
GRPC = "application/grpc"
Headers = tuple[tuple[str, str], ...]
HEADERS: dict[HTTPStatus, Headers] = {
    HTTPStatus.SERVICE_UNAVAILABLE: (("retry-after", str(RETRY_AFTER_SECONDS)),),
    HTTPStatus.METHOD_NOT_ALLOWED: (("allow", "POST"),),
    HTTPStatus.UNAUTHORIZED: (("www-authenticate", "Bearer"),),
}

Application = Callable[[Any, Any], Coroutine[Any, Any, None]]


class MountedApp(Protocol):
    """Another application on the same port, such as the page."""

    def owns(self, path: str) -> bool:
        """Return whether it answers requests for a path."""

    async def answer(self, scope: Any, protocol: Any) -> None:
        """Answer one request."""


def application(
    receiver: Receiver,
    mounted: Sequence[MountedApp],
    unread: UnreadConnections,
    leaving: Event,
) -> Application:
    """Create the RSGI application that appends requests to the spool.

    Args:
        receiver: The spool, the access check and the counters.
        mounted: Each answers the requests for its own paths; it admits clients itself.
        unread: Gets the client of each request.
        leaving: Once it is set, each answer closes its connection.
    """
    budget = Budget(LARGE_BODIES * receiver.max_body)
    wrong_port, wrong_paths = WrongPort(receiver), WrongPaths()

    def closing() -> Headers:
        return (("connection", "close"),) if leaving.is_set() else ()

    async def answer(scope: Any, protocol: Any) -> None:
        unread.note_request(scope.client)
        if scope.headers.get("content-type", "").startswith(GRPC):
            return wrong_port.answer(protocol)
        for other in mounted:
            # The page's `/` is for browsers; an exporter without a path in its URL hears 404.
            if other.owns(scope.path) and not _is_export(scope):
                return await other.answer(scope, protocol)
        is_probe = scope.path in PATHS
        if is_probe and scope.headers.get("authorization") is None:
            return _show_health(receiver, scope, protocol, closing())
        content_type = scope.headers.get("content-type", "").split(";")[0].strip().lower()
        signal = SIGNALS.get(scope.path, "")
        # Only who speaks protobuf can read it: a person with curl is answered in JSON.
        as_json = content_type != PROTOBUF or signal == "feedback"
        try:
            _admit(receiver, scope, tls=scope.scheme == "https")
            if is_probe:  # a probe needs no token, but a wrong one was refused by `_admit`
                return _show_health(receiver, scope, protocol, closing())
            if (scope.method, scope.path) == ("GET", "/metrics"):
                return _show_metrics(receiver, protocol)
            _check_target(signal, scope, content_type, wrong_paths)
            receiver.check_alarms()
            with budget.holding() as take:
                body = await _read_body(scope, protocol, receiver.max_body, take)
                encoding = scope.headers.get("content-encoding", "").strip().lower()
                accepted = await _store(receiver, signal, body, encoding, as_json=as_json)
        except RSGIProtocolClosed:
            return receiver.note_left("http", signal, scope.client)
        except Exception as error:  # noqa: BLE001  every failure has its answer
            refusal = refusal_of(error)
            _note_refused(receiver, scope, signal, refusal)
            await _discard_rest(protocol, refusal, UNREAD_BODIES * receiver.max_body)
            _refuse(protocol, refusal, closing(), as_json=as_json)
        else:
            receiver.counts.stored("http", signal, accepted.records, accepted.rejected)
            _respond(protocol, HTTPStatus.OK, accepted.response, closing(), as_json=as_json)

    return answer


def _is_export(scope: Any) -> bool:
    return bool(scope.method == "POST" and scope.path == "/")


def asked_by(scope: Any) -> BrowserRequest:
    """Return who asks, from the headers of a request."""
    headers = scope.headers
    return BrowserRequest(
        scope.method,
        headers.get("host") or scope.authority,
        headers.get("origin"),
        headers.get("sec-fetch-site"),
    )


def _admit(receiver: Receiver, scope: Any, *, tls: bool) -> None:
    request = asked_by(scope)
    receiver.guard.check_names(request.host, request.origin)
    if request.method == "POST":
        receiver.guard.check_site(request, tls=tls)
    receiver.guard.admit(scope.headers.get("authorization"))


def _not_found(scope: Any, wrong_paths: WrongPaths) -> RefusedError:
    url = f"{scope.scheme}://{asked_by(scope).host or 'HOST:PORT'}"
    problem = why_wrong(scope.path, url, tuple(SIGNALS))
    if scope.method == "POST":  # an exporter, and no browser that asks for an icon
        wrong_paths.note(scope.path, problem)
    return RefusedError(HTTPStatus.NOT_FOUND, problem)


def _check_target(signal: str, scope: Any, content_type: str, wrong_paths: WrongPaths) -> None:
    if not signal:
        raise _not_found(scope, wrong_paths)
    if scope.method != "POST":
        raise RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"'{scope.path}' takes POST, not {scope.method}."
        )
    spoken = (JSON,) if signal == "feedback" else (PROTOBUF, JSON)
    if content_type not in spoken:
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type '{content_type}' is not supported. Use {' or '.join(spoken)}.",
        )


async def _store(
    receiver: Receiver, signal: str, body: bytes, encoding: str, *, as_json: bool
) -> Accepted:
    def take() -> Accepted:
        plain = decompress(body, encoding, receiver.max_body)
        if signal == "feedback":
            return accept_feedback(receiver.spool, plain)
        return accept(receiver.spool, signal, plain, as_json=as_json)

    # Decompression and JSON take long enough to block other requests on the event loop.
    is_quick = len(body) <= SMALL_BYTES and not encoding and not as_json
    accepted = take() if is_quick else await asyncio.to_thread(take)
    await accepted.until_durable()
    return accepted


async def _read_body(scope: Any, protocol: Any, limit: int, take: Callable[[int], None]) -> bytes:
    is_chunked = scope.headers.get("transfer-encoding") is not None
    declared = scope.headers.get("content-length", "")
    # If a request has both, the chunks count and not the length.
    size = int(declared) if declared.isdigit() and not is_chunked else None
    if size is None and not is_chunked and scope.http_version.startswith("1"):
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, NO_LENGTH)
    if size is not None and size > limit:
        raise too_large(limit)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            if size is not None and size <= SMALL_BYTES:
                return bytes(await protocol())
            body = await _read_parts(protocol, limit, take, is_chunked=is_chunked)
    except TimeoutError as error:
        raise too_slow(BODY_SECONDS) from error
    # Granian takes a large body that breaks off for a whole one.
    if size is not None and len(body) != size:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, f"the body broke off after {len(body)} of {size} bytes"
        )
    return body


async def _read_parts(
    protocol: Any, limit: int, take: Callable[[int], None], *, is_chunked: bool
) -> bytes:
    parts, size, empty = [], 0, 0
    async for part in protocol:
        empty += not part
        size += len(part)
        if size > limit:
            raise too_large(limit)
        take(len(part))
        parts.append(part)
    # The last part is empty. Granian yields one more in place of an error in the chunked encoding,
    # which it hides, and of trailers. What came before would be taken for the whole body.
    if is_chunked and empty > 1:
        raise RefusedError(
            HTTPStatus.BAD_REQUEST, "the body is not valid in chunked encoding, or has trailers"
        )
    return b"".join(parts)


async def _discard_rest(protocol: Any, refusal: RefusedError, limit: int) -> None:
    """Read and discard the rest of a body, up to `limit` bytes.

    Many senders read the answer only after they have sent their whole body. A connection that is
    closed before is reset, and the answer is lost.
    """
    if refusal.status == HTTPStatus.REQUEST_TIMEOUT:  # the rest was waited for already
        return
    size = 0
    with suppress(RSGIProtocolError):  # a part of it was read, and the next one follows
        aiter(protocol)
    with suppress(StopAsyncIteration, RSGIProtocolClosed, TimeoutError):
        async with asyncio.timeout(BODY_SECONDS):
            while size <= limit:
                size += len(await anext(protocol))


def _note_refused(receiver: Receiver, scope: Any, signal: str, refusal: RefusedError) -> None:
    if scope.method == "POST":  # of an exporter, and not of a browser or a probe
        receiver.note_refused("http", signal, refusal, scope.client)


def _refuse(protocol: Any, refusal: RefusedError, headers: Headers, *, as_json: bool) -> None:
    headers = (*headers, *HEADERS.get(refusal.status, ()))
    _respond(protocol, refusal.status, refusal.message(), headers, as_json=as_json)


def _respond(
    protocol: Any,
    status: HTTPStatus,
    message: Response,
    headers: Headers,
    *,
    as_json: bool,
) -> None:
    content_type = ("content-type", JSON if as_json else PROTOBUF)
    body = encode(message, as_json=as_json)
    with suppress(RSGIProtocolClosed):  # the sender has disconnected
        protocol.response_bytes(int(status), [content_type, *headers], body)


class WrongPort:
    """Answers a gRPC exporter that uses the HTTP port; the exporter logs the right address."""

    def __init__(self, receiver: Receiver) -> None:
        self._counts = receiver.counts
        remedy = f"send gRPC to {receiver.grpc_address}, or " if receiver.grpc_address else ""
        self._sentence = (
            f"this is the port for OTLP over HTTP: {remedy}set "
            f"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        )

    def answer(self, protocol: Any) -> None:
        """Answer with the gRPC status in the headers and no body ("trailers only")."""
        if self._counts.wrong_port("http") == 1:
            logger.warning("A gRPC exporter sends to the wrong port: %s.", self._sentence)
        unimplemented = ("grpc-status", str(code_pb2.UNIMPLEMENTED))
        message = ("grpc-message", quote(self._sentence, safe=" ,:/="))
        with suppress(RSGIProtocolClosed):
            protocol.response_empty(200, [("content-type", GRPC), unimplemented, message])


def _show_health(receiver: Receiver, scope: Any, protocol: Any, headers: Headers) -> None:
    found = health(receiver, scope.path)
    sent = [("content-type", PLAIN), ("cache-control", "no-store"), *headers]
    with suppress(RSGIProtocolClosed):
        if scope.method in ("GET", "HEAD"):
            protocol.response_str(int(found.status), sent, found.text)
        else:
            allowed = ("allow", "GET, HEAD")
            protocol.response_empty(int(HTTPStatus.METHOD_NOT_ALLOWED), [*sent, allowed])


def _show_metrics(receiver: Receiver, protocol: Any) -> None:
    text = exposition(receiver.counts, receiver.gauges(), receiver.alarms.raised())
    protocol.response_str(int(HTTPStatus.OK), [("content-type", TEXT)], text)
