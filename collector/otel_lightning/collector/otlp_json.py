"""OTLP's JSON encoding, read into the protobuf classes.

Protobuf's own JSON reader does most of it; OTLP differs in two points: trace and span ids are hex,
not base64, and enums are numbers only. Unknown fields are ignored.

Source:
    OTLP specification 1.11, "JSON Protobuf Encoding".
"""

import base64
import binascii
from typing import Any, TypeVar

import orjson
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

ID_BYTES = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
ENUMS = ("kind", "code", "severityNumber")

M = TypeVar("M", bound=Message)


def parse_json(kind: type[M], body: bytes) -> M:
    """Read one OTLP/JSON request.

    Raises:
        ValueError: If it is not JSON, not an object, or not OTLP; the message says where.
    """
    data = orjson.loads(body)
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")  # noqa: TRY004
    try:
        return ParseDict(_to_protobuf_json(data), kind(), ignore_unknown_fields=True)
    except ParseError as error:
        raise ValueError(str(error)) from error


def _to_protobuf_json(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _to_protobuf_json(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_to_protobuf_json(item, key) for item in value]
    if key in ID_BYTES and isinstance(value, str):
        return _id(value, key)
    if key in ENUMS and isinstance(value, str):
        raise ValueError(f"{key} must be a number in OTLP/JSON, got '{value}'")
    return value


def _id(text: str, key: str) -> str:
    try:
        return base64.b64encode(binascii.unhexlify(text)).decode()
    except binascii.Error as error:
        raise ValueError(
            f"{key} must be {2 * ID_BYTES[key]} hex digits, got '{text[:40]}'"
        ) from error
