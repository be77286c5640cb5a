"""Parallel tool calls that an instrumentation joined into one entry."""

from typing import Any

import pytest
from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.messages.joined_calls import separate

OFFERED = ["sun", "sunrise", "rain"]


def entry(tool_call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": tool_call_id, "name": name, "arguments": arguments}


def test_ids_names_and_arguments_are_separated() -> None:
    joined = entry("call_1call_2call_3", "sunrisesunrain", '{"a": "}{"}{"a": {}}{}')
    assert separate(joined, OFFERED) == [
        entry("call_1", "sunrise", '{"a": "}{"}'),
        entry("call_2", "sun", '{"a": {}}'),
        entry("call_3", "rain", "{}"),
    ]


def test_what_cannot_be_separated_is_unknown_and_not_guessed() -> None:
    (first, second) = separate(entry("a1bb22", "sunmoon", "{}{}"), OFFERED)
    assert first == second == {"id": None, "name": None, "arguments": "{}"}


@pytest.mark.parametrize("arguments", ['{"a": "}{"}', '{"a": 1}{"b', "{} {}", '{"a": 1}', "[]{}{}"])
def test_a_single_call_stays_as_it_is(arguments: str) -> None:
    single = entry("call_1", "sun", arguments)
    assert separate(single, OFFERED) == [single]


def test_a_span_with_joined_calls_asks_for_each_tool() -> None:
    said = "llm.output_messages.0.message"
    asked = f"{said}.tool_calls.0.tool_call"
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Hi",
        f"{said}.role": "assistant",
        f"{asked}.id": "call_1call_2",
        f"{asked}.function.name": "sunrain",
        f"{asked}.function.arguments": '{"a": 1}{"a": 2}',
        "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "sun"}}',
        "llm.tools.1.tool.json_schema": '{"type": "function", "function": {"name": "rain"}}',
    }
    (call,) = derive([span(attributes)], []).llm_calls
    parts = (call.output_messages or [])[0]["parts"]
    asked_for = [(part["id"], part["name"], part["arguments"]) for part in parts]
    assert asked_for == [("call_1", "sun", {"a": 1}), ("call_2", "rain", {"a": 2})]
