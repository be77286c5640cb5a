"""Answers to requests that are not stored, as an HTTP status and a gRPC code.

Only 503 with a short Retry-After (gRPC: UNAVAILABLE with RetryInfo) makes every common exporter
retry: some drop a request after 429 or 500. So every fault on our side is answered with 503. Every
other status tells the sender that a retry of the same request will fail again.

Source:
    OTLP specification 1.11, "Failures" and "Throttling".
"""

import logging
from http import HTTPStatus

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_lightning.collector.spool.spool import SpoolError

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 1
LONGEST = 1000  # characters of a message: gRPC sends it in trailers, which are limited to 8 KiB
INVALID: int = code_pb2.INVALID_ARGUMENT
CODES: dict[HTTPStatus, int] = {
    HTTPStatus.UNAUTHORIZED: code_pb2.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: code_pb2.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: code_pb2.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED: code_pb2.UNIMPLEMENTED,
    HTTPStatus.REQUEST_TIMEOUT: code_pb2.DEADLINE_EXCEEDED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: code_pb2.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: code_pb2.UNAVAILABLE,
}


class RefusedError(Exception):
    """A request that is not stored; `status` is the HTTP status of the answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message[:LONGEST])
        self.status = status

    @property
    def code(self) -> int:
        """The number of the gRPC code for the same reason."""
        return CODES.get(self.status, INVALID)

    @property
    def is_temporary(self) -> bool:
        """Whether the sender should retry."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE

    def message(self) -> Status:
        """Return the body that OTLP requires in the answer to a failure."""
        status = Status(code=self.code, message=str(self))
        if self.is_temporary:
            delay = AnyMessage()
            delay.Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_SECONDS)))
            status.details.append(delay)
        return status


def unavailable(reason: object) -> RefusedError:
    """Return the refusal after which every exporter retries."""
    text = str(reason).removesuffix(".")
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"not stored: {text}. Try again.")


def refusal_of(error: Exception) -> RefusedError:
    """Return the answer to any error; unexpected errors are logged."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, SpoolError):
        return unavailable(error)
    if isinstance(error, TimeoutError):
        return unavailable("the disk does not answer")
    logger.error("A request could not be received", exc_info=error)
    return unavailable("lightning-ingest failed; its log says how")


def too_large(limit: int) -> RefusedError:
    """Return the refusal of a body over the limit, before or after decompression."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request is larger than {limit} bytes. Send smaller batches, "
        f"or start lightning-ingest with a larger --max-body.",
    )


def too_slow(seconds: float) -> RefusedError:
    """Return the refusal of a body that does not arrive in time."""
    return RefusedError(
        HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {seconds:g} seconds"
    )


def in_one_line(text: str) -> str:
    """Return a text that a sender chose in part, without control characters."""
    return "".join(one if one.isprintable() else "?" for one in text)
