"""The flattened layout: a key for each field of each message."""

import json
from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import only_call, read_call, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span


def test_agentlightning_token_arrays_are_read_from_the_indexed_layout() -> None:
    given = {
        "gen_ai.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "Hello",
        "gen_ai.completion.0.finish_reason": "stop",
        "prompt_token_ids": [5, 6],
        "response_token_ids": [7],
    }
    call = read_call(span(given))
    assert (call.dialect, call.finish_reason) == ("indexed", "stop")
    assert (call.prompt_token_ids, call.completion_token_ids) == ([5, 6], [7])


def test_indexed_messages_are_ordered_by_number_and_not_by_text() -> None:
    given = {
        f"gen_ai.prompt.{n}.{key}": text
        for n in range(12)
        for key, text in (("role", "user" if n % 2 == 0 else "assistant"), ("content", f"line {n}"))
    }
    call = read_call(span({"llm.request.type": "chat", **given}))
    texts = [message["parts"][0]["content"] for message in call.input_messages or []]
    assert texts == [f"line {n}" for n in range(12)]


@pytest.mark.parametrize("times", [1, 40])
def test_tool_calls_as_texts_of_the_assistant_and_a_reason_of_its_own_number_are_read(
    times: int,
) -> None:
    """Netra writes them so. A reader is compiled for a shape that repeats."""
    sun, rain = ('{"name": "sun", "arguments": "{}"}', '{"name": "rain", "arguments": "{}"}')
    given = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.content": sun,
        "gen_ai.prompt.1.tool_call_id": "c1",
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "It shines.",
        "gen_ai.prompt.2.tool_call_id": "c1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": sun,
        "gen_ai.completion.0.tool_call_id": "c2",
        "gen_ai.completion.1.role": "assistant",
        "gen_ai.completion.1.content": rain,
        "gen_ai.completion.1.tool_call_id": "c3",
        "gen_ai.completion.2.finish_reason": "tool_calls",
    }
    calls = derive([span(given, id=f"s{at}", at=at) for at in range(times)], []).llm_calls
    call = calls[-1]
    (part,) = (call.input_messages or [])[1]["parts"]
    assert (part["type"], part["id"], part["name"]) == ("tool_call", "c1", "sun")
    (answer,) = call.output_messages or []
    assert [part["id"] for part in answer["parts"]] == ["c2", "c3"]
    assert (call.finish_reason, call.content) == ("tool_calls", "full")


@pytest.mark.parametrize("times", [1, 40])
def test_tool_calls_as_one_text_of_a_flattened_message_are_read(times: int) -> None:
    """xAI's SDK writes them so, with the names of protobuf's enums and counts of its own."""
    call = {"name": "sun", "arguments": {"city": "Oslo"}}
    asked = json.dumps([{"id": "c1", "type": "function", "function": call}])
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.content": "",
        "gen_ai.prompt.1.tool_calls": asked,
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "It shines.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "",
        "gen_ai.completion.0.tool_calls": asked,
        "gen_ai.completion.start_time": "2026-01-01T00:00:00Z",
        "gen_ai.response.finish_reasons": ["REASON_TOOL_CALLS"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.cached_prompt_text_tokens": 4,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.reasoning_tokens": 5,
        "gen_ai.usage.total_tokens": 14,
    }
    calls = derive([span(given, id=f"s{at}", at=at) for at in range(times)], []).llm_calls
    request = tool_request("c1", "sun", {"city": "Oslo"})
    last = calls[-1]
    history = [text_message("user", "Hi"), request, tool_response("c1", "It shines.")]
    assert last.input_messages == history
    assert last.output_messages == [request]
    assert (last.finish_reason, last.content) == ("tool_calls", "full")
    counts = (last.input_tokens, last.cached_input_tokens, last.output_tokens)
    assert counts == (7, 4, 7)


def test_the_items_of_a_response_as_texts_of_the_assistant_are_one_answer() -> None:
    """Netra writes them so, without ids."""
    given = {
        "llm.request.type": "response",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.content": '{"name": "sun", "arguments": "{}"}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "It shines.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I ask.",
        "gen_ai.completion.1.role": "assistant",
        "gen_ai.completion.1.content": '{"name": "rain", "arguments": "{}"}',
    }
    call = only_call(span(given))
    assert [message["parts"][0]["type"] for message in call.input_messages or []] == [
        "text",
        "tool_call",
        "tool_call_response",
    ]
    (answer,) = call.output_messages or []
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]


def test_an_answer_in_the_flattened_layout_is_read_without_a_prompt_in_it() -> None:
    answered = {
        "gen_ai.response.id": "resp_1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "It is.",
    }
    call = only_call(span(answered))
    assert call.dialect == "indexed"
    assert call.output_messages == [
        {"role": "assistant", "parts": [{"type": "text", "content": "It is."}]}
    ]


def test_agnos_record_of_an_execution_has_its_result_or_its_failure() -> None:
    def tool(record: str, at: str) -> Span:
        keys = {"traceloop.span.kind": "tool", "gen_ai.tool.name": "sun"}
        return span({**keys, "traceloop.entity.output": record}, id=at)

    rest = "updated_session_state=None images=None"
    good, bad = derive(
        [
            tool(f"status='success' result='It shines.' error=None {rest}", "s1"),
            tool(f"status='failure' result=None error='no such city' {rest}", "s2"),
        ],
        [],
    ).tool_calls
    assert (good.result, good.told_error) == ("It shines.", False)
    assert (bad.result, bad.told_error) == ({"error": "no such city"}, True)


def flat(**keys: Any) -> dict[str, object]:
    """Return the attributes of a call in the flattened layout."""
    found: dict[str, object] = {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user"}
    return found | {key.replace("__", "."): value for key, value in keys.items()}


def test_bedrocks_blocks_without_types_are_read_from_flattened_messages() -> None:
    uses = [{"text": "So."}, {"toolUse": {"toolUseId": "c1", "name": "sun", "input": {}}}]
    results = [{"toolResult": {"toolUseId": "c1", "content": [{"text": "It shines."}]}}]
    call = only_call(
        span(
            flat(
                gen_ai__prompt__0__content=json.dumps([{"text": "Sun?"}]),
                gen_ai__prompt__1__role="assistant",
                gen_ai__prompt__1__content=json.dumps(uses),
                gen_ai__prompt__2__role="user",
                gen_ai__prompt__2__content=json.dumps(results),
            )
        )
    )
    parts = [*text_message("assistant", "So.")["parts"], *tool_request("c1", "sun", {})["parts"]]
    assert call.input_messages == [
        text_message("user", "Sun?"),
        {"role": "assistant", "parts": parts},
        tool_response("c1", "It shines."),
    ]


def test_a_users_list_of_other_objects_stays_text() -> None:
    text = '[{"city": "Rome"}]'
    call = only_call(span(flat(gen_ai__prompt__0__content=text)))
    assert call.input_messages == [text_message("user", text)]


def test_reasoning_in_blocks_and_coheres_documents_are_read_as_texts() -> None:
    thought = [{"text": "Three.", "type": "summary_text"}]
    document = [{"type": "document", "document": {"data": "It shines."}}]
    call = only_call(
        span(
            flat(
                gen_ai__prompt__0__role="tool",
                gen_ai__prompt__0__content=json.dumps(document),
                gen_ai__completion__0__content="So.",
                gen_ai__completion__0__reasoning=json.dumps(thought),
                llm__usage__reasoning_tokens=5,
            )
        )
    )
    assert (call.input_messages or [])[0]["parts"][0]["response"] == "It shines."
    (output,) = call.output_messages or ()
    assert output["parts"][0] == {"type": "reasoning", "content": "Three."}
    assert call.reasoning_tokens == 5


def test_a_reranking_in_the_flattened_layout_is_no_model_call() -> None:
    capture = load(DATA / "traceloop_cohere/modes.truth.json")
    (found,) = derive(capture.spans, capture.logs).retrievals
    assert (found.kind, found.query) == ("reranker", "sunny city")
    assert found.documents == [
        {"content": "Rome is sunny.", "score": 0.9},
        {"content": "Oslo is cold.", "score": 0.7},
    ]


def test_traceloops_tasks_are_no_tools_if_a_processor_calls_them_so() -> None:
    task = {"traceloop.span.kind": "task", "openinference.span.kind": "TOOL", "input.value": "x"}
    assert not derive([span(task, name="plan.task")], []).tool_calls


@pytest.mark.parametrize(("tools", "content"), [(["sun"], "truncated"), ([], "full")])
def test_an_answer_of_ollama_may_have_lost_its_tool_calls(tools: list[str], content: str) -> None:
    given = {
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Is it sunny in Rome?",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I will look.",
        **{f"llm.request.functions.{at}.name": name for at, name in enumerate(tools)},
    }
    assert read_call(span(given, scope="opentelemetry.instrumentation.ollama")).content == content
