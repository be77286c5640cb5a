"""Provider payloads, by hand: the rules that recorded captures do not all show."""

from typing import Any

import pytest
from support.spans import only_call, span, text_message

from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.messages.payloads import (
    fill_from_request,
    fill_from_response,
    request_messages,
)
from otel_lightning.collector.derive.messages.token_counts import Usage, usage
from otel_lightning.collector.derive.rows import LlmCall

TEXT = {"type": "output_text", "text": "Hello"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
KIND = {"openinference.span.kind": "LLM"}


def read_call(request: Any, response: Any) -> LlmCall:
    given = {"openinference.span.kind": "LLM", "input.value": request, "output.value": response}
    call = read(span(given))
    assert isinstance(call, LlmCall)
    return call


TRACERS = {
    "openinference": ({"openinference.span.kind": "LLM"}, "output.value"),
    "langfuse": ({"langfuse.observation.type": "generation"}, "langfuse.observation.output"),
    "langsmith": ({"langsmith.span.kind": "llm"}, "gen_ai.completion"),
    "mlflow": ({"mlflow.spanType": '"CHAT_MODEL"'}, "mlflow.spanOutputs"),
    "semconv": ({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, "response"),
}
"""What marks a model call of each tracer that records responses as they are, and their key."""


@pytest.mark.parametrize("tracer", TRACERS)
def test_an_id_and_a_model_that_the_agents_sdk_made_up_are_none(tracer: str) -> None:
    marks, key = TRACERS[tracer]

    def read_response(response: Any) -> LlmCall:
        call = read(span({**marks, key: response}))
        assert isinstance(call, LlmCall)
        assert call.dialect == tracer
        assert call.output_messages == [text_message("assistant", "Hello")]
        return call

    item = {"type": "message", "role": "assistant", "content": [TEXT]}
    response = {"id": "__fake_id__", "model": "asked", "output": [item]}
    call = read_response(response)
    assert (call.response_id, call.response_model) == (None, None)
    told = {**item, "provider_data": {"response_id": "chatcmpl-1"}}
    assert read_response({**response, "output": [told]}).response_id == "chatcmpl-1"
    assert read_response({**response, "id": "resp-1"}).response_id == "resp-1"


def test_bedrocks_converse_is_a_request_and_a_response() -> None:
    tool = {"name": "weather", "inputSchema": {"json": SCHEMA}}
    request = {
        "modelId": "claude-x",
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "toolConfig": {"tools": [{"toolSpec": tool}]},
        "inferenceConfig": {"maxTokens": 9},
    }
    use = {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}}
    response = {
        "output": {"message": {"role": "assistant", "content": [use]}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 20, "outputTokens": 4, "cacheReadInputTokens": 5},
    }
    call = read_call(request, response)
    assert (call.request_model, call.finish_reason) == ("claude-x", "tool_calls")
    assert call.input_messages == [text_message("system", "Be brief."), text_message("user", "Hi")]
    offered = {"type": "function", "name": "weather", "parameters": SCHEMA}
    assert call.tool_definitions == [offered]
    assert call.request_params == {"inferenceConfig": {"maxTokens": 9}}
    assert (call.input_tokens, call.cached_input_tokens, call.output_tokens) == (25, 5, 4)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 3},
            Usage(9, 7, None, 3),
        ),
        (
            {"prompt_token_count": 9, "cached_content_token_count": 2, "candidates_token_count": 4},
            Usage(9, 4, 2, None),
        ),
        (
            {"input_tokens": 9, "output_tokens": 4, "input_token_details": {"cache_read": 2}},
            Usage(9, 4, 2, None),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(9, 4, None, 3),
        ),
        *(
            (
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "total_tokens": total,
                    "completion_tokens_details": {"reasoning_tokens": 3},
                },
                Usage(9, output, None, 3),
            )
            for total, output in ((13, 4), (16, 7))  # OpenAI's and xAI's
        ),
    ],
)
def test_what_a_provider_counts_apart_is_counted_in_once(
    counts: dict[str, Any], expected: Usage
) -> None:
    assert usage(counts) == expected


@pytest.mark.parametrize(
    "request_",
    [
        {"contents": {"role": "user", "parts": [{"text": "Hi"}]}},
        {"contents": "Hi", "config": {"temperature": 0.5}},
        {"prompt": "Hi"},
        {"messages": [[{"role": "user", "content": "Hi"}]]},
    ],
)
def test_a_history_is_found_wherever_a_request_has_it(request_: dict[str, Any]) -> None:
    assert request_messages(request_) == [text_message("user", "Hi")]


def test_a_request_without_a_history_has_none() -> None:
    assert request_messages({"prompt": {"id": "pmpt_1"}, "input": 5}) is None


def test_geminis_system_instruction_is_among_its_parameters() -> None:
    config = {"system_instruction": {"parts": [{"text": "Be brief."}]}, "temperature": 0.5}
    call = read_call({"model": "gemini-x", "contents": "Hi", "config": config}, {})
    assert call.input_messages == [text_message("system", "Be brief."), text_message("user", "Hi")]
    assert call.request_params == {"temperature": 0.5}


@pytest.mark.parametrize("key", ["system_instruction", "systemInstruction"])
def test_geminis_system_prompt_is_in_its_config_in_either_spelling(key: str) -> None:
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
    expected = [text_message("system", "Be brief."), text_message("user", "Hi")]
    assert request_messages({"contents": contents, "config": {key: "Be brief."}}) == expected


@pytest.mark.parametrize(("ended", "reason"), [("stop", "tool_calls"), ("length", "length")])
def test_a_response_of_ollamas_says_its_model_usage_reasoning_and_tool_calls(
    ended: str, reason: str
) -> None:
    asked = {"function": {"name": "sun", "arguments": {"city": "Rome"}}}
    message = {"role": "assistant", "content": "", "thinking": "I look.", "tool_calls": [asked]}
    counts = {"prompt_eval_count": 31, "eval_count": 9}
    answered = {"model": "m", "done": True, "done_reason": ended, "message": message, **counts}
    call = read_call({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, answered)
    (answer,) = call.output_messages or []
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "tool_call"]
    assert (call.response_model, call.finish_reason) == ("m", reason)
    assert (call.input_tokens, call.output_tokens) == (31, 9)


def test_a_response_of_coheres_says_its_id_usage_plan_and_tool_calls() -> None:
    asked = {"id": "c1", "type": "function", "function": {"name": "sun", "arguments": "{}"}}
    message = {"role": "assistant", "tool_plan": "I ask.", "tool_calls": [asked]}
    tokens = {"input_tokens": 31}
    counts = {"billed_units": {"input_tokens": 5}, "tokens": tokens, "cached_tokens": 16}
    response = {"id": "r1", "finish_reason": "TOOL_CALL", "message": message, "usage": counts}
    history = [{"role": "user", "content": "Hi"}, message]
    call = read_call({"model": "m", "messages": history}, response)
    assert (call.response_id, call.finish_reason) == ("r1", "tool_calls")
    assert (call.input_tokens, call.cached_input_tokens) == (31, 16)
    for turn in ((call.output_messages or [])[0], (call.input_messages or [])[1]):
        plan, part = turn["parts"]
        assert plan == {"type": "reasoning", "content": "I ask."}
        assert part["name"] == "sun"


@pytest.mark.parametrize(
    ("number", "reason"), [(1, "stop"), (2, "length"), (3, "content_filter"), (0, None)]
)
def test_vertex_ais_numbers_and_resource_names_are_reasons_and_models(
    number: int, reason: str | None
) -> None:
    path = "projects/p/locations/l/publishers/google/models/gemini"
    sent = {"model": path, "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    answer = {"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finish_reason": number}
    call = read_call(sent, {"candidates": [answer], "model_version": "gemini-001"})
    assert (call.request_model, call.finish_reason) == ("gemini", reason)


def test_tools_that_are_equal_in_python_and_not_in_json_are_told_apart() -> None:
    """The tools of requests are cached, and `1 == True` in Python."""
    for default in (1, True, 1.0):
        tool = {"name": "sun", "parameters": {"type": "object", "default": default}}
        call = read_call({"model": "m", "messages": [{"role": "user"}], "tools": [tool]}, {})
        assert call.tool_definitions is not None
        assert type(call.tool_definitions[0]["parameters"]["default"]) is type(default)


def test_calls_that_offer_the_same_tools_share_them() -> None:
    request = {"model": "m", "messages": [{"role": "user"}], "tools": [{"name": "sun"}]}
    first, second = (read_call(request, {}) for _ in range(2))
    assert first.tool_definitions == [{"type": "function", "name": "sun"}]
    assert second.tool_definitions is first.tool_definitions


def test_googles_client_that_calls_tools_itself_returns_the_last_input() -> None:
    asked = {"parts": [{"text": "Sun in Rome?"}], "role": "user"}
    call = {"id": "c1", "name": "sun", "args": {"city": "Rome"}}
    result = {"id": "c1", "name": "sun", "response": {"result": "It shines."}}
    told = [
        asked,
        {"parts": [{"function_call": call}], "role": "model"},
        {"parts": [{"function_response": result}], "role": "user"},
    ]
    response = {
        "candidates": [{"content": {"parts": [{"text": "Yes."}], "role": "model"}}],
        "automatic_function_calling_history": told,
    }
    request = {"model": "m", "contents": [asked], "system_instruction": "Be brief."}
    row = LlmCall("t", "s", None, None, None, "d", None)
    fill_from_request(row, request)
    fill_from_response(row, response)
    roles = [message["role"] for message in row.input_messages or []]
    assert roles == ["system", "user", "assistant", "tool"]
    fill_from_request(row, request)
    fill_from_response(row, response | {"automatic_function_calling_history": [asked]})
    assert [message["role"] for message in row.input_messages or []] == ["system", "user"]


def test_the_text_of_a_completion_model_is_the_answer() -> None:
    choice = {"index": 0, "text": "It is sunny.", "finish_reason": "stop"}
    response = {"id": "cmpl-1", "object": "text_completion", "choices": [choice]}
    request = {"model": "i", "prompt": "Tell of Rome."}
    call = only_call(span({**KIND, "input.value": request, "output.value": response}))
    assert call.output_messages == [
        {**text_message("assistant", "It is sunny."), "finish_reason": "stop"}
    ]


def test_a_prompt_that_gemini_refused_is_a_call_without_an_answer() -> None:
    response = {
        "prompt_feedback": {"block_reason": "SAFETY"},
        "model_version": "gemini-002",
        "response_id": "r1",
        "usage_metadata": {"prompt_token_count": 31, "total_token_count": 31},
    }
    call = only_call(span({**KIND, "llm.model_name": "gemini", "output.value": response}))
    assert (call.response_id, call.response_model) == ("r1", "gemini-002")
    assert (call.finish_reason, call.output_messages) == ("content_filter", None)
