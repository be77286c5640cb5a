"""Answers of the OpenAI Agents SDK and AutoGen, as OpenInference and Logfire write them."""

from typing import Any

from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall

ANSWERED = "llm.output_messages.0.message"
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "sun", "arguments": '{"city": "Rome"}'},
}
FLATTENED = {
    f"{ANSWERED}.tool_calls.0.tool_call.id": "c1",
    f"{ANSWERED}.tool_calls.0.tool_call.function.name": "sun",
    f"{ANSWERED}.tool_calls.0.tool_call.function.arguments": '{"city": "Rome"}',
}


def generation(message: dict[str, Any], flattened: dict[str, str] | None = None) -> LlmCall:
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "output.value": [{"role": "assistant", "content": None, "refusal": None, **message}],
        f"{ANSWERED}.role": "assistant",
        **(flattened or {}),
    }
    (call,) = derive([span(attributes)], []).llm_calls
    return call


def parts(call: LlmCall) -> list[tuple[str, Any]]:
    (message,) = call.output_messages or []
    return [(part["type"], part.get("content") or part.get("id")) for part in message["parts"]]


def test_an_answer_with_reasoning_keeps_its_tool_calls() -> None:
    thinking = {"reasoning_content": "It is day.", "tool_calls": [CALL]}
    call = generation(thinking, FLATTENED)
    assert parts(call) == [("reasoning", "It is day."), ("tool_call", "c1")]
    said = generation({**thinking, "content": "I look."}, FLATTENED)
    assert sorted(parts(said)) == [
        ("reasoning", "It is day."),
        ("text", "I look."),
        ("tool_call", "c1"),
    ]


def test_a_refusal_is_the_text_of_the_answer() -> None:
    assert parts(generation({"refusal": "I may not."})) == [("text", "I may not.")]


def test_a_call_of_logfire_that_failed_has_no_answer() -> None:
    told = {
        "gen_ai.system": "openai",
        "gen_ai.request.model": "m",
        "input": [{"role": "user", "content": "Hi"}],
        "output": "null",
    }
    failed = span(told, status="ERROR", message="RateLimitError: 429")
    (call,) = derive([failed], []).llm_calls
    assert (call.output_messages, call.finish_reason) == (None, "error")


def test_a_response_of_logfire_that_failed_is_a_call_without_content() -> None:
    """It names no operation, and nothing of what was asked."""
    told = {
        "gen_ai.system": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "response_id": "null",
        "usage": "null",
        "error": {"message": "Error getting response", "data": {"error": "no weather"}},
    }
    raised = Event("exception", 0, {"exception.type": "openai.BadRequestError"})
    failed = span(told, status="ERROR", message="Error getting response", events=(raised,))
    (call,) = derive([failed], []).llm_calls
    assert (call.error_type, call.finish_reason) == ("BadRequestError", "error")
    assert (call.request_model, call.content, call.output_messages) == ("m", "absent", None)


def test_the_name_of_a_span_with_a_model_says_whether_it_is_an_embedding() -> None:
    models = {"gen_ai.request.model": "m", "gen_ai.response.model": "m-1"}
    calls = derive([span(models, id="a"), span(models, id="b", name="Embed texts")], []).llm_calls
    assert [call.operation for call in calls] == ["chat", "embeddings"]


def test_the_thought_of_autogen_is_the_text_beside_its_tool_calls() -> None:
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        f"{ANSWERED}.role": "assistant",
        **FLATTENED,
    }
    asked = {"content": [{"id": "c1", "name": "sun", "arguments": "{}"}], "thought": "I look."}
    (call,) = derive([span(attributes | {"output.value": asked})], []).llm_calls
    assert parts(call) == [("text", "I look."), ("tool_call", "c1")]
    (call,) = derive([span(attributes | {"output.value": asked | {"thought": None}})], []).llm_calls
    assert parts(call) == [("tool_call", "c1")]
