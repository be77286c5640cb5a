"""Export requests to measure with: agents' traces of 12 spans, every id, time and text fresh.

Nothing can be told apart by its place: a store can neither drop a repeated span nor compress the
runs away. Requests are made once and then patched, so that sending costs little beside receiving.
"""

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import cache

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SPANS = 512
SPANS_A_TRACE = 12
TRACE, SPAN, TIME = b"\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8", b"\xb1\xb2\xb3\xb4", b"\xc1\xc2\xc3\x74"
TEXT = re.compile(rb"@x+")
VOCABULARY, PROSE_BYTES = 20_000, 8_000_000


def agent_request(first: int) -> bytes:
    """Return spans of agents: one run, five calls with messages, four tools, retrieval, reward."""
    return _request(first, _agent_attributes)


def small_request(first: int) -> bytes:
    """Return spans of a web service: short and without texts."""
    return _request(first, lambda number: {"http.route": "/items", "http.status_code": number % 5})


def requests(template: Callable[[int], bytes], seed: int) -> Iterator[bytes]:
    """Yield requests without end, none of them like another."""
    chance = random.Random(seed)  # noqa: S311 - text, not a secret
    templates, prose = _templates(template), _prose(PROSE_BYTES)
    while True:
        trace, span = chance.randbytes(len(TRACE)), chance.randbytes(len(SPAN))
        now = (time.time_ns() >> 32).to_bytes(4, "little")
        for body in templates:
            ids = body.replace(TRACE, trace).replace(SPAN, span).replace(TIME, now)
            yield TEXT.sub(lambda found: _excerpt(chance, prose, len(found[0])), ids)


@cache
def _templates(template: Callable[[int], bytes]) -> list[bytes]:
    return [template(part * SPANS) for part in range(3)]  # 3 * 512 spans are whole traces


def _request(first: int, attributes: Callable[[int], dict[str, object]]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key in ("service.name", "service.version", "telemetry.sdk.language", "host.name"):
        resource.resource.attributes.add(key=key).value.string_value = f"bench {key}"
    scope = resource.scope_spans.add()
    scope.scope.name = "bench"
    scope.spans.extend(_span(n, attributes(n)) for n in range(first, first + SPANS))
    return request.SerializeToString()


def _span(number: int, attributes: dict[str, object]) -> Span:
    trace, position = divmod(number, SPANS_A_TRACE)
    high = int.from_bytes(TIME, "little") << 32
    root = SPAN + (trace * SPANS_A_TRACE).to_bytes(4)
    span = Span(
        trace_id=TRACE + trace.to_bytes(8),
        span_id=SPAN + number.to_bytes(4),
        parent_span_id=root if position else b"",
        name=str(attributes.get("gen_ai.operation.name", "GET /items")),
        start_time_unix_nano=high + number * 1_000_000,
        end_time_unix_nano=high + number * 1_000_000 + 250_000,
    )
    for key, value in attributes.items():
        field = {int: "int_value", float: "double_value"}.get(type(value), "string_value")
        setattr(span.attributes.add(key=key).value, field, value)
    return span


def _agent_attributes(number: int) -> dict[str, object]:
    trace, position = divmod(number, SPANS_A_TRACE)
    if position == 0:
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": f"c-{trace}"}
    if position <= 5:
        return _call(number)
    if position <= 9:
        return {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.arguments": json.dumps({"q": _text(60)}),
            "gen_ai.tool.call.result": json.dumps({"hits": _text(220)}),
        }
    name = "retrieval" if position == 10 else "reward"
    return {"gen_ai.operation.name": name, "lightning.reward": (trace % 11) / 10}


def _call(number: int) -> dict[str, object]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "qwen3-8b",
        "gen_ai.response.model": "qwen3-8b-2507",
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.max_tokens": 1024,
        "gen_ai.response.id": f"chatcmpl-{number}",
        "gen_ai.usage.input_tokens": 380 + number % 5,
        "gen_ai.usage.output_tokens": 110 + number % 5,
        "gen_ai.input.messages": _message("user", 1_500),
        "gen_ai.output.messages": _message("assistant", 450),
    }


def _message(role: str, size: int) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": _text(size)}]}])


def _text(size: int) -> str:
    return "@" + "x" * (size - 1)


def _excerpt(chance: random.Random, prose: bytes, size: int) -> bytes:
    start = chance.randrange(len(prose) - size)
    return prose[start : start + size]


@cache
def _prose(size: int) -> bytes:
    """Made-up words as rare as words are, so that it compresses as prose does."""
    chance = random.Random(size)  # noqa: S311 - text, not a secret
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(VOCABULARY)]
    rarity = [(rank + 1) ** -1.25 for rank in range(VOCABULARY)]
    return " ".join(chance.choices(words, rarity, k=size // 5)).encode()[:size]
