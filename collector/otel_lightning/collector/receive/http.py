"""OTLP over HTTP: protobuf or JSON by content type, answered when durable."""

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from google.protobuf.message import Message
from granian.constants import Interfaces
from granian.server.embed import Server

from otel_lightning.collector.receive.answers import (
    JSON,
    MAX_BODY_BYTES,
    PROTOBUF,
    RETRY_AFTER_SECONDS,
    RefusedError,
    accept,
    decompress,
    encode,
    status_message,
    too_large,
    unavailable,
)
from otel_lightning.collector.spool import Spool, SpoolError

SIGNALS = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics"}

Application = Callable[[Any, Any], Coroutine[Any, Any, None]]


def server(spool: Spool, host: str, port: int) -> Server:
    """Make the HTTP server; `await serve()` runs it."""
    return Server(
        application(spool),
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        websockets=False,
        log_enabled=False,
    )


def application(spool: Spool) -> Application:
    """The RSGI application that puts requests on the spool."""

    async def answer(scope: Any, protocol: Any) -> None:
        content_type = scope.headers.get("content-type", "").split(";")[0].strip().lower()
        as_json = content_type == JSON
        try:
            response = await _receive(spool, scope, protocol, content_type)
        except RefusedError as refusal:
            _refuse(protocol, refusal, as_json=as_json)
        else:
            _respond(protocol, HTTPStatus.OK, response, as_json=as_json)

    return answer


async def _receive(spool: Spool, scope: Any, protocol: Any, content_type: str) -> Message:
    signal = SIGNALS.get(scope.path)
    if signal is None:
        paths = ", ".join(SIGNALS)
        raise RefusedError(HTTPStatus.NOT_FOUND, f"no such path '{scope.path}'. Known: {paths}.")
    if scope.method != "POST":
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{scope.method} is not POST")
    if content_type not in (PROTOBUF, JSON):
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type '{content_type}' is not supported. Use {PROTOBUF} or {JSON}.",
        )
    body = await _body(scope, protocol)
    encoding = scope.headers.get("content-encoding", "").strip().lower()
    if encoding:
        body = await asyncio.to_thread(decompress, body, encoding)
    accepted = accept(spool, signal, body, as_json=content_type == JSON)
    try:
        await asyncio.wrap_future(accepted.durable)
    except SpoolError as error:
        raise unavailable(error) from error
    return accepted.response


async def _body(scope: Any, protocol: Any) -> bytes:
    declared = scope.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise too_large(MAX_BODY_BYTES)
    parts, size = [], 0
    async for part in protocol:
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise too_large(MAX_BODY_BYTES)
        parts.append(part)
    return b"".join(parts)


def _refuse(protocol: Any, refusal: RefusedError, *, as_json: bool) -> None:
    headers = []
    if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append(("retry-after", str(RETRY_AFTER_SECONDS)))
    body = status_message(_GRPC_CODES.get(refusal.status, 3), str(refusal))
    _respond(protocol, refusal.status, body, as_json=as_json, headers=headers)


def _respond(
    protocol: Any,
    status: HTTPStatus,
    message: Message,
    *,
    as_json: bool,
    headers: list[tuple[str, str]] | None = None,
) -> None:
    content_type = ("content-type", JSON if as_json else PROTOBUF)
    body = encode(message, as_json=as_json)
    protocol.response_bytes(int(status), [content_type, *(headers or [])], body)


_GRPC_CODES = {
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.METHOD_NOT_ALLOWED: 12,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
}
