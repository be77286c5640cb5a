"""Spans that gateways between agents and providers write of the requests that they pass on.

They follow what OpenRouter, Cloudflare and Vercel send; no gateway runs here.
"""

import json
from typing import Any

from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

TOOL = {"type": "function", "function": {"name": "sun", "parameters": {"type": "object"}}}
REQUESTED = {"id": "c1", "type": "function", "function": {"name": "sun", "arguments": "{}"}}
FLAT_TOOL = {"type": "function", "name": "sun", "parameters": {"type": "object"}}
CHAT = {"gen_ai.operation.name": "chat"}


def sent_through(request: Any, response: Any, **more: Any) -> LlmCall:
    """Return the call of a request that Cloudflare's AI Gateway passed on."""
    attributes = {
        **CHAT,
        "gen_ai.request.model": "openai/m",
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.input.messages": json.dumps(request),
        "gen_ai.output.messages": json.dumps(response),
        **more,
    }
    (call,) = derive([span(attributes)], []).llm_calls
    return call


def said(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the type and the content or name of each part of a message."""
    return [(part["type"], part.get("content", part.get("name"))) for part in message["parts"]]


def request_of_openrouter(sent: Any, answered: Any, trace: str = "t1", at: int = 0) -> list[Any]:
    """Return the spans of one request: its record, an attempt at a provider and the generation."""
    record = {
        **CHAT,
        "span.type": "generation",
        "session.id": "talk",
        "gen_ai.request.model": "openai/m",
        "gen_ai.response.id": f"gen-{trace}",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.input_tokens.cached": 7,
        "gen_ai.usage.input_tokens.cache_write": 3,
        "gen_ai.usage.output_tokens.reasoning": 5,
        "gen_ai.usage.total_cost": 0.25,
        "gen_ai.response.finish_reason": "stop",
        "gen_ai.prompt": {"messages": sent},
        "gen_ai.completion": answered,
    }
    inner = {**CHAT, "span.type": "span"}
    place: dict[str, Any] = {"trace": trace, "scope": "openrouter"}
    parts = [
        span(
            {**inner, "gen_ai.response.id": f"gen-{trace}:{name}"},
            id=f"{trace}{name}",
            parent=trace,
            at=at,
            **place,
        )
        for name in ("attempt-0", "generation")
    ]
    return [span(record, id=trace, name="LLM Generation", at=at, **place), *parts]


def test_a_request_through_openrouter_is_one_call_with_its_answer() -> None:
    answer = {
        "completion": "Let me look.",
        "reasoning": "I must look.",
        "toolCalls": [REQUESTED],
        "tools": [TOOL],
        "rawRequest": {"model": "openai/m", "temperature": 0.5, "_skin": "x"},
    }
    user = {"role": "user", "content": "Is it sunny?"}
    (call,) = derive(request_of_openrouter([user], answer), []).llm_calls
    assert (call.dialect, call.response_id, call.cost) == ("openrouter", "gen-t1", 0.25)
    counts = (call.cached_input_tokens, call.cache_creation_input_tokens, call.reasoning_tokens)
    assert (call.input_tokens, call.output_tokens, *counts) == (100, 20, 7, 3, 5)
    assert [said(one) for one in call.input_messages or ()] == [[("text", "Is it sunny?")]]
    assert [said(one) for one in call.output_messages or ()] == [
        [("reasoning", "I must look."), ("text", "Let me look."), ("tool_call", "sun")]
    ]
    assert (call.tool_definitions, call.finish_reason) == ([FLAT_TOOL], "tool_calls")
    assert (call.request_params, call.content) == ({"temperature": 0.5}, "full")


def test_a_session_of_openrouter_is_one_rollout_whose_tool_ran_between_its_calls() -> None:
    user = {"role": "user", "content": "Is it sunny?"}
    asked = {"role": "assistant", "content": [], "tool_calls": [REQUESTED]}
    thought = [{"type": "reasoning.text", "text": "I must look."}, {"type": "reasoning.encrypted"}]
    told = {"role": "tool", "content": "It is.", "tool_call_id": "c1"}
    spans = [
        *request_of_openrouter([user], {"completion": "", "toolCalls": [REQUESTED]}, "t1"),
        *request_of_openrouter(
            [user, {**asked, "reasoning_details": thought}, told],
            {"completion": "Yes."},
            "t2",
            at=5,
        ),
    ]
    derived = derive(spans, [])
    assert [(call.rollout_id, call.step) for call in derived.llm_calls] == [
        ("talk", 0),
        ("talk", 1),
    ]
    (tool,) = derived.tool_calls
    assert (tool.name, tool.result) == ("sun", "It is.")
    history = derived.llm_calls[1].input_messages or []
    assert said(history[1]) == [("reasoning", "I must look."), ("tool_call", "sun")]


def test_a_request_of_openrouter_in_privacy_mode_has_counts_and_no_content() -> None:
    (record, *_) = request_of_openrouter([], {})
    attributes = dict(record.attributes)
    del attributes["gen_ai.prompt"], attributes["gen_ai.completion"]
    (call,) = derive([record._replace(attributes=attributes)], []).llm_calls
    assert (call.input_tokens, call.content) == (100, "absent")


def test_the_bodies_of_a_request_through_cloudflare_are_its_messages_tools_and_answer() -> None:
    body = {
        "messages": [{"role": "user", "content": "Is it sunny?"}],
        "system": "Be brief.",
        "max_tokens": 128,
        "tools": [{"name": "sun", "input_schema": {"type": "object"}}],
    }
    use = {"type": "tool_use", "id": "c1", "name": "sun", "input": {}}
    message = {
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "text", "text": "Let me look."}, use],
        "stop_reason": "tool_use",
    }
    call = sent_through(body, {"state": "Completed", "result": message})
    assert [one["role"] for one in call.input_messages or ()] == ["system", "user"]
    assert [said(one) for one in call.output_messages or ()] == [
        [("text", "Let me look."), ("tool_call", "sun")]
    ]
    assert (call.response_id, call.finish_reason, call.content) == ("msg_1", "tool_calls", "full")
    assert call.request_params == {"max_tokens": 128}
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]


def test_a_chat_completion_and_a_completion_through_cloudflare_are_answers() -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}
    answers = [{"object": "chat.completion", "choices": [choice]}, {"response": "A", "usage": {}}]
    for answer in answers:
        call = sent_through({"messages": [{"role": "user", "content": "Hi"}]}, answer)
        assert [said(one) for one in call.output_messages or ()] == [[("text", "A")]]
        assert call.content == "full"


def test_an_answer_of_an_unknown_form_is_not_called_full() -> None:
    call = sent_through({"messages": [{"role": "user", "content": "Hi"}]}, {"unknown": {"a": 1}})
    assert (call.output_messages, call.content) == (None, "truncated")


def test_embeddings_through_cloudflare_are_no_step_though_it_calls_them_a_chat() -> None:
    call = sent_through({"input": "Hi"}, {"data": [[0.5, 0.25]], "shape": [1, 2]})
    assert (call.operation, call.step, call.output_messages) == ("embeddings", None, None)


def test_cloudflares_former_keys_of_a_request_and_response_are_read() -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}
    attributes = {
        "gen_ai.request.model": "m",
        "gen_ai.model.provider": "openai",
        "gen_ai.prompt_json": {"messages": [{"role": "user", "content": "Hi"}]},
        "gen_ai.completion_json": {"id": "r1", "choices": [choice]},
    }
    (call,) = derive([span(attributes)], []).llm_calls
    assert (call.provider, call.response_id, call.content) == ("openai", "r1", "full")
    assert [said(one) for one in call.output_messages or ()] == [[("text", "A")]]


def test_the_cost_of_a_request_through_vercels_gateway_is_read() -> None:
    attributes = {**CHAT, "gen_ai.request.model": "m", "vercel.ai_gateway.cost.total": "0.5"}
    (call,) = derive([span(attributes)], []).llm_calls
    assert call.cost == 0.5


def test_the_finish_reason_of_cloudflares_agents_is_read() -> None:
    attributes = {**CHAT, "cloudflare.agents.response.finish_reason": "tool-calls"}
    (call,) = derive([span(attributes)], []).llm_calls
    assert call.finish_reason == "tool_calls"


def test_a_request_to_bedrock_without_an_operation_is_a_call() -> None:
    request = {"rpc.service": "BedrockRuntime", "gen_ai.request.model": "amazon.titan-text-v1"}
    spans = [
        span({**request, "rpc.method": method}, id=method)
        for method in ("InvokeModel", "InvokeModelWithResponseStream", "ListAsyncInvokes")
    ]
    calls = derive(spans, []).llm_calls
    assert [call.operation for call in calls] == ["chat", "chat"]
    embedding = {**request, "gen_ai.request.model": "amazon.titan-embed-text-v2:0"}
    (call,) = derive([span({**embedding, "rpc.method": "InvokeModel"})], []).llm_calls
    assert (call.operation, call.step) == ("embeddings", None)
