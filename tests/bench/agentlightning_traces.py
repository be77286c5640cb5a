"""The traces of `make bench-transitions`, as agentlightning's tracer writes them.

Five calls with 2 KB of messages, four tools, a retrieval and a reward, in the layout of the
recordings in `tests/data/agentlightning`.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

SPANS_A_TRACE = 12
START, STEP = 1_800_000_000, 0.001
WORDS = [f"word{number}" for number in range(5_000)]
SCHEMA = '{"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}'
RANDOM = random.Random(1)  # noqa: S311 - text, not a secret


def words(size: int) -> str:
    return " ".join(RANDOM.choices(WORDS, k=size // 8))


def trace(number: int) -> list[dict[str, Any]]:
    """One trace as agentlightning's span model takes it."""
    kinds = ["agent", *["call"] * 5, *["tool"] * 4, "retrieval", "reward"]
    root = f"{number * SPANS_A_TRACE + 1:016x}"
    spans = []
    for place, kind in enumerate(kinds):
        begun = START + (number * SPANS_A_TRACE + place) * STEP
        spans.append(
            {
                "name": NAMES.get(kind, kind),
                "trace_id": f"{number + 1:032x}",
                "span_id": f"{number * SPANS_A_TRACE + place + 1:016x}",
                "parent_id": root if place else None,
                "start_time": begun,
                "end_time": begun + (STEP * SPANS_A_TRACE if kind == "agent" else STEP / 2),
                "attributes": ATTRIBUTES[kind](number * SPANS_A_TRACE + place),
            }
        )
    return spans


def call(number: int) -> dict[str, Any]:
    """The attributes of a call behind two tools, as tests/data/agentlightning has them recorded."""
    tools = [
        {"id": f"call-{number}-{i}", "name": name, "arguments": json.dumps({"q": words(40)})}
        for i, name in enumerate(("search", "order"))
    ]
    prompt: list[dict[str, Any]] = [
        {"role": "system", "content": words(250)},
        {"role": "user", "content": words(250)},
        {"role": "assistant", "tool_calls": tools},
        *({"role": "tool", "content": words(450), "tool_call_id": tool["id"]} for tool in tools),
    ]
    answer = {"finish_reason": "stop", "role": "assistant", "content": words(450)}
    return flat(
        {
            "request": {
                "type": "chat",
                "model": "qwen3-8b",
                "streaming": "false",
                "functions": [
                    {"name": tool["name"], "description": "A tool.", "parameters": SCHEMA}
                    for tool in tools
                ],
            },
            "system": "OpenAI",
            "prompt": prompt,
            "completion": [answer],
            "response": {"id": f"chatcmpl-{number}", "model": "qwen3-8b"},
            "openai": {"system_fingerprint": "fp"},
            "usage": {"total_tokens": 490, "prompt_tokens": 380, "completion_tokens": 110},
        },
        "gen_ai",
    )


def flat(value: Any, key: str) -> dict[str, Any]:
    """Write nested values as attributes: `gen_ai.prompt.0.role`."""
    if not isinstance(value, dict | list):
        return {key: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for name, part in parts for k, v in flat(part, f"{key}.{name}").items()}


NAMES = {
    "call": "openai.chat.completion",
    "tool": "search.tool",
    "reward": "agentlightning.annotation",
}
ATTRIBUTES: dict[str, Callable[[int], dict[str, Any]]] = {
    "agent": lambda _: {"agentops.span.kind": "agent", "operation.name": "support"},
    "call": call,
    "tool": lambda _: {"agentops.span.kind": "tool", "tool.name": "search", "q": words(60)},
    "retrieval": lambda _: {"hits": words(220)},
    "reward": lambda number: {
        "agentlightning.reward.0.name": "primary",
        "agentlightning.reward.0.value": (number % 11) / 10,
    },
}


def otlp(spans: list[dict[str, Any]]) -> Iterator[Span]:
    for made in spans:
        sent = Span(
            trace_id=bytes.fromhex(made["trace_id"]),
            span_id=bytes.fromhex(made["span_id"]),
            parent_span_id=bytes.fromhex(made["parent_id"] or ""),
            name=made["name"],
            start_time_unix_nano=int(made["start_time"] * 1e9),
            end_time_unix_nano=int(made["end_time"] * 1e9),
        )
        for key, value in made["attributes"].items():
            kind = {int: "int_value", float: "double_value"}.get(type(value), "string_value")
            setattr(sent.attributes.add(key=key).value, kind, value)
        yield sent
