"""Why a request is not stored, in the words of HTTP and of gRPC.

Only 503 with a short Retry-After (gRPC: UNAVAILABLE with RetryInfo) makes every exporter in use try
again: some drop what was answered with 429 or 500. So every trouble of ours is answered that way,
and everything else tells the sender that the same request will never do.

Source:
    OTLP specification 1.11, "Failures" and "Throttling".
"""

import logging
from http import HTTPStatus

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_lightning.collector.spool import SpoolError

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 1
LONGEST = 1000  # characters: gRPC carries a message in its trailers, which are 8 KiB
CODES = {
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED: grpc.StatusCode.UNIMPLEMENTED,
    HTTPStatus.REQUEST_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


class RefusedError(Exception):
    """A request that must not be stored; `status` is the HTTP status that says why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message[:LONGEST])
        self.status = status

    @property
    def code(self) -> grpc.StatusCode:
        """The same in gRPC."""
        return CODES.get(self.status, grpc.StatusCode.INVALID_ARGUMENT)

    @property
    def is_temporary(self) -> bool:
        """Whether the sender should try again."""
        return self.status == HTTPStatus.SERVICE_UNAVAILABLE

    def message(self) -> Status:
        """The body that OTLP asks for with every failure."""
        status = Status(code=self.code.value[0], message=str(self))
        if self.is_temporary:
            delay = AnyMessage()
            delay.Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_SECONDS)))
            status.details.append(delay)
        return status


def unavailable(reason: object) -> RefusedError:
    """The answer after which every exporter tries again."""
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"not stored: {reason}. Try again.")


def refusal_of(error: Exception) -> RefusedError:
    """Turn whatever went wrong into an answer; what should not happen is logged."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, SpoolError):
        return unavailable(error)
    if isinstance(error, TimeoutError):
        return unavailable("the disk does not answer")
    logger.error("A request could not be received", exc_info=error)
    return unavailable("lightning-ingest failed; its log says how")


def too_large(limit: int) -> RefusedError:
    """The answer to a body over the limit, before or after decompression."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the request is larger than {limit} bytes. Send smaller batches, "
        f"or start lightning-ingest with a larger --max-body.",
    )
