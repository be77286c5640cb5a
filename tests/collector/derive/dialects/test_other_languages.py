"""Packages that do not run in Python or JavaScript: their spans, written as their source does."""

import json
from typing import Any

import pytest
from support.spans import log, only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, Span

CITY = {"city": "Rome"}
SPELLED = json.dumps(CITY)
SYSTEM, QUESTION = text_message("system", "Be brief."), text_message("user", "Is it sunny in Rome?")
ASKED = {"type": "tool_call", "id": "call_1", "name": "sun", "arguments": CITY}
ANSWER = {"type": "text", "content": "It shines."}
MODEL = {"gen_ai.request.model": "m", "gen_ai.response.model": "m-1"}
COUNTS = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 3}


# Rig 0.42.0 (Rust), crates/rig-core/src/telemetry and crates/rig-agent.


@pytest.mark.parametrize(
    ("named", "operation"),
    [
        ("chat_streaming", "chat"),
        ("interactions", "generate_content"),
        ("interactions_streaming", "generate_content"),
    ],
)
def test_rigs_calls_are_read_without_content_too(named: str, operation: str) -> None:
    given = {"gen_ai.operation.name": named, **MODEL, **COUNTS}
    call = only_call(span(given, name=named))
    assert (call.operation, call.input_tokens, call.content) == (operation, 10, "absent")


def test_rigs_executions_tell_of_their_errors_under_a_key_of_their_own() -> None:
    given = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": SPELLED,
        "gen_ai.tool.call.result": "no weather",
        "gen_ai.tool.call.outcome": "error",
        "gen_ai.tool.error.type": "execution",
    }
    (tool,) = derive([span(given)], []).tool_calls
    assert (tool.arguments, tool.result, tool.error_type) == (CITY, "no weather", "execution")


def test_an_error_type_tells_of_an_error_where_the_status_is_unset() -> None:
    """Rust's `tracing` sets a status only where a package names it."""
    given = {"gen_ai.operation.name": "chat", **MODEL, "error.type": "timeout"}
    call = only_call(span(given))
    assert (call.error_type, call.finish_reason) == ("timeout", "error")
    assert only_call(span(given, status="STATUS_CODE_OK")).error_type is None


FUNCTION = {"name": "sun", "arguments": SPELLED}
CANDIDATE = {
    "content": {"parts": [{"functionCall": {"name": "sun", "args": CITY}}], "role": "model"},
    "finishReason": "STOP",
    "index": 0,
}


@pytest.mark.parametrize(
    "answer",
    [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": [],
                "tool_calls": [{"id": "call_1", "type": "function", "function": FUNCTION}],
            },
            "finish_reason": "tool_calls",
        },
        {"type": "tool_use", "id": "call_1", "name": "sun", "input": CITY},
        CANDIDATE,
    ],
    ids=["OpenAI's choice", "Anthropic's block", "Gemini's candidate"],
)
def test_the_providers_own_answer_of_rig_0_2_is_read(answer: dict[str, Any]) -> None:
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model_name": "m-1",
        "gen_ai.output.messages": [answer],
    }
    call = only_call(span(given))
    assert call.response_model == "m-1"
    ((part,),) = [message["parts"] for message in call.output_messages or ()]
    assert (part["type"], part["name"], part["arguments"]) == ("tool_call", "sun", CITY)


def test_the_blocks_of_an_answer_are_one_turn() -> None:
    use = {"type": "tool_use", "id": "call_1", "name": "sun", "input": CITY}
    told = [{"type": "text", "text": "I look."}, use]
    call = only_call(span({"gen_ai.operation.name": "chat", "gen_ai.output.messages": told}))
    (message,) = call.output_messages or ()
    assert [part["type"] for part in message["parts"]] == ["text", "tool_call"]
    assert message["role"] == "assistant"


@pytest.mark.parametrize(
    "use",
    [
        {"type": "tool_use", "id": "call_1", "name": "sun", "input": CITY},
        {"type": "tool_call", "id": "call_1", "name": "sun", "arguments": CITY},
    ],
    ids=lambda use: use["type"],
)
def test_a_tool_call_in_place_of_a_message_is_the_models(use: dict[str, Any]) -> None:
    history = [{"type": "text", "text": QUESTION["parts"][0]["content"]}, use]
    call = only_call(span({"gen_ai.operation.name": "chat", "gen_ai.input.messages": history}))
    assert call.input_messages == [QUESTION, {"role": "assistant", "parts": [ASKED]}]


def test_rigs_own_messages_are_read() -> None:
    block = {"id": "call_1", "call_id": None, "function": {"name": "sun", "arguments": CITY}}
    result = {"type": "toolresult", "id": "call_1", "content": [{"type": "text", "text": "Sun."}]}
    history = [
        {"role": "assistant", "id": None, "content": [block]},
        {"role": "user", "content": [result]},
    ]
    call = only_call(span({"gen_ai.operation.name": "chat", "gen_ai.input.messages": history}))
    assert call.input_messages == [
        {"role": "assistant", "parts": [ASKED]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "call_1", "response": "Sun."}],
        },
    ]


# Koog (Kotlin), agents-features-opentelemetry, attribute/GenAIAttributes.kt of 2026-07.


def test_koogs_roles_are_read() -> None:
    response = {"type": "tool_call_response", "id": "call_1", "result": "It shines."}
    history = [
        {"role": "System", "parts": SYSTEM["parts"]},
        {"role": "User", "parts": QUESTION["parts"]},
        {"role": "Reasoning", "parts": [{"type": "text", "content": "I look."}]},
        {"role": "Tool", "parts": [ASKED]},
        {"role": "Tool", "parts": [response]},
    ]
    given = {
        "gen_ai.operation.name": "chat",
        **MODEL,
        "gen_ai.system_instructions": SYSTEM["parts"],
        "gen_ai.input.messages": history,
        "gen_ai.output.messages": [{"role": "Assistant", "parts": [ANSWER]}],
    }
    call = only_call(span(given))
    assert call.input_messages == [
        SYSTEM,
        QUESTION,
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "I look."}]},
        {"role": "assistant", "parts": [ASKED]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "call_1", "response": "It shines."}],
        },
    ]
    assert (call.output_messages, call.content) == (
        [{"role": "assistant", "parts": [ANSWER]}],
        "full",
    )


# OpenInference for LangChain4j (Java), utils/ChatMessageAttributeUtils.java of 2026-07.


def test_langchain4js_finish_reason_and_answer_without_text_are_read() -> None:
    called = "llm.output_messages.0.message.tool_calls.0.tool_call"
    given = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "llm.system": "langchain4j",
        "llm.provider": "openai",
        "llm.invocation_parameters": "{}",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION["parts"][0]["content"],
        "input.value": [{"role": "user", "content": QUESTION["parts"][0]["content"]}],
        "llm.output_messages.0.message.role": "assistant",
        f"{called}.id": "call_1",
        f"{called}.function.name": "sun",
        f"{called}.function.arguments": SPELLED,
        "llm.finish_reason": "TOOL_EXECUTION",
    }
    call = only_call(span(given))
    assert (call.finish_reason, call.input_messages) == ("tool_calls", [QUESTION])
    assert [part["id"] for part in (call.output_messages or [{}])[0]["parts"]] == ["call_1"]


# Microsoft.Extensions.AI (.NET), OpenTelemetryChatClient.cs of the conventions 1.41.


def test_the_chat_client_of_dotnet_is_read() -> None:
    answer = {"role": "assistant", "parts": [ASKED], "finish_reason": "tool_call"}
    given = {
        "gen_ai.operation.name": "chat",
        **MODEL,
        **COUNTS,
        "gen_ai.provider.name": "openai",
        "gen_ai.request.stop_sequences": '["a", "b"]',
        "gen_ai.system_instructions": SYSTEM["parts"],
        "gen_ai.input.messages": [QUESTION],
        "gen_ai.output.messages": [answer],
        "gen_ai.response.finish_reasons": '["tool_calls"]',
        "gen_ai.tool.definitions": [{"type": "function", "name": "sun", "parameters": {}}],
    }
    call = only_call(span(given))
    assert (call.input_messages, call.finish_reason) == ([SYSTEM, QUESTION], "tool_calls")
    assert call.request_params["stop_sequences"] == ["a", "b"]
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]


# Semantic Kernel (.NET), InternalUtilities/src/Diagnostics/ModelDiagnostics.cs of 2026-08.


def semantic_kernel(role: str, **more: Any) -> Event:
    name = {"developer": "gen_ai.tool.developer"}.get(role, f"gen_ai.{role}.message")
    said = {"role": role, "name": None, "content": None, "tool_calls": [], **more}
    return Event(name, 1, {"gen_ai.event.content": json.dumps(said), "gen_ai.system": "openai"})


def test_the_events_of_semantic_kernel_for_dotnet_are_read() -> None:
    """A tool's message has no id there, and the event of a developer's message an odd name."""
    history = (
        semantic_kernel("developer", content="Be brief."),
        semantic_kernel("user", content="Is it sunny in Rome?"),
    )
    asked = [{"id": "call_1", "type": "function", "function": {"name": "sun", "arguments": CITY}}]
    asks = {"role": "assistant", "content": None, "tool_calls": asked}
    chosen = {"index": 0, "message": asks, "tool_calls": asked, "finish_reason": "ToolCalls"}
    ask = Event("gen_ai.choice", 2, {"gen_ai.event.content": json.dumps(chosen)})
    given = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    ran = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.arguments": SPELLED,
        "gen_ai.tool.call.result": "It shines.",
    }
    more = (
        semantic_kernel("assistant", tool_calls=asked),
        semantic_kernel("tool", content="It shines."),
    )
    spans = [
        span({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "w"}, id="p", ends=9),
        span(given, id="a", parent="p", at=1, events=(*history, ask)),
        span(ran, id="tool", parent="p", at=3),
        span(given, id="b", parent="p", at=5, events=(*history, *more)),
    ]
    derived = derive(spans, [])
    first, second = derived.llm_calls
    assert first.input_messages == [SYSTEM, QUESTION]
    assert (first.output_messages or [{}])[0]["parts"] == [ASKED]
    assert (second.input_messages or [])[:2] == [SYSTEM, QUESTION]
    (tool,) = derived.tool_calls
    assert (tool.tool_call_id, tool.llm_span_id, tool.source) == ("call_1", "a", "both")


# LangChain4j (Java), langchain4j-observation of 2026-08: a listener for Micrometer.


def test_langchain4js_observations_have_models_and_counts() -> None:
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "OPEN_AI",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
        "outcome": "SUCCESS",
        "output_tokens": "3",
        "input_tokens": "10",
    }
    call = only_call(span(given, name="chat m"))
    assert (call.request_model, call.input_tokens, call.output_tokens) == ("m", 10, 3)
    unknown = {"gen_ai.request.model": "unknown", "gen_ai.response.model": "unknown"}
    call = only_call(span({**given, **unknown, "outcome": "ERROR"}, status="ERROR"))
    assert (call.request_model, call.response_model, call.error_type) == (None, None, "_OTHER")
    named = {"openinference.span.kind": "LLM", "llm.model_name": "unknown"}
    call = only_call(span({**named, "llm.token_count.total": 3}))
    assert (call.request_model, call.response_model) == (None, None)  # OpenInference for Spring AI


# OpenTelemetry's agent for Java, openai-java-1.1/library of 2026-08: content is in log records.


def test_opentelemetrys_records_of_javas_openai_client_are_read() -> None:
    function = {"name": "sun", "arguments": SPELLED}
    asks = {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    told: list[tuple[str, str, dict[str, Any]]] = [
        ("a", "system.message", {"role": "developer", "content": "Be brief."}),
        ("a", "user.message", {"content": "Is it sunny in Rome?"}),
        ("a", "choice", {"finish_reason": "tool_calls", "index": 0, "message": asks}),
        ("b", "system.message", {"role": "developer", "content": "Be brief."}),
        ("b", "user.message", {"content": "Is it sunny in Rome?"}),
        ("b", "assistant.message", asks),
        ("b", "tool.message", {"id": "call_1", "content": "It shines."}),
        ("b", "choice", {"finish_reason": "stop", "index": 0, "message": {"content": "Yes."}}),
    ]
    logs = [
        log(f"gen_ai.{kind}", trace="t1", span_id=of, body=body, at=at)
        for at, (of, kind, body) in enumerate(told)
    ]
    given = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", **MODEL, **COUNTS}
    spans = [
        span({}, id="p", ends=20),
        *(span({**given, "gen_ai.response.id": one}, id=one, parent="p") for one in "ab"),
    ]
    derived = derive(spans, logs)
    asked = {**ASKED, "arguments_raw": SPELLED}
    first, second = derived.llm_calls
    assert (first.output_messages or [{}])[0]["parts"] == [asked]
    assert (second.input_messages or [])[:3] == [
        *(SYSTEM, QUESTION),
        {"role": "assistant", "parts": [asked]},
    ]
    (tool,) = derived.tool_calls
    assert (tool.name, tool.result, tool.llm_span_id) == ("sun", "It shines.", "a")


# Genkit (Go), go/core/tracing/tracing.go and go/ai/tools.go of 2026-08.


def test_genkits_calls_and_tools_in_go_are_read() -> None:
    def action(subtype: str, name: str, at: float, sent: Any, told: Any) -> Span:
        given = {
            "genkit:name": name,
            "genkit:state": "success",
            "genkit:type": "action",
            "genkit:metadata:subtype": subtype,
            "genkit:input": sent,
            "genkit:output": told,
        }
        parent = None if subtype == "flow" else "flow"
        return span(given, id=f"{subtype}{at}", parent=parent, name=name, at=at)

    asks = {"role": "model", "content": [{"toolRequest": {"input": CITY, "name": "sun"}}]}
    sent = {
        "messages": [
            {"role": "system", "content": [{"text": "Be brief."}]},
            {"role": "user", "content": [{"text": "Is it sunny in Rome?"}]},
        ],
        "tools": [{"name": "sun", "description": "Tell.", "inputSchema": {"type": "object"}}],
    }
    usage = {"inputTokens": 10, "outputTokens": 3}
    response = {"name": "sun", "output": "It shines."}
    results = {"role": "tool", "content": [{"toolResponse": response}]}
    ends = {"role": "model", "content": [{"text": "Yes."}]}
    derived = derive(
        [
            action("flow", "weather", 0, "Rome", "Yes."),
            action("model", "googleai/m", 1, sent, {"message": asks, "usage": usage}),
            action("tool.v2", "sun", 3, CITY, {"output": "It shines."}),
            action(
                *("model", "googleai/m", 5),
                {**sent, "messages": [*sent["messages"], asks, results]},
                {"message": ends, "finishReason": "stop", "usage": usage},
            ),
        ],
        [],
    )
    first, second = derived.llm_calls
    assert (first.provider, first.request_model, first.input_tokens) == ("googleai", "m", 10)
    assert (first.input_messages, second.finish_reason) == ([SYSTEM, QUESTION], "stop")
    (tool,) = derived.tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", CITY, "It shines.")
    assert (tool.source, tool.llm_span_id) == ("both", "model1")


# Eino (Go), eino-ext/callbacks/apmplus/apmplus.go of 2026-07.


def eino(kind: str, at: float, sent: str, told: str, **more: Any) -> Span:
    given = {
        "gen_ai.system": "eino",
        "gen_ai.span.kind": kind,
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": sent,
        "gen_ai.completion.0.content": told,
        "gen_ai.is_streaming": False,
        **more,
    }
    parent = None if kind == "workflow" else "workflow"
    return span(given, id=kind, parent=parent, name="sun" if kind == "tool" else kind, at=at)


def test_only_the_calls_and_tools_of_eino_are_rows() -> None:
    called = [{"id": "call_1", "type": "function", "function": FUNCTION}]
    answer = json.dumps([{"role": "assistant", "content": "", "tool_calls": called}])
    derived = derive(
        [
            eino("workflow", 0, '{"query": "Rome"}', '"It shines."'),
            eino("chattemplate", 1, '{"Variables": {}}', '{"Result": []}'),
            eino("chatmodel", 2, "Is it sunny in Rome?", answer, **MODEL),
            eino("toolsnode", 3, '{"role": "assistant"}', "[]"),
            eino("tool", 4, json.dumps({"ArgumentsInJSON": SPELLED}), '{"Response": "It shines."}'),
        ],
        [],
    )
    (call,) = derived.llm_calls
    assert (call.span_id, call.input_messages) == ("chatmodel", [QUESTION])
    (part,) = (call.output_messages or [{}])[0]["parts"]
    assert (part["id"], part["name"], part["arguments"]) == ("call_1", "sun", CITY)
    (tool,) = derived.tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", CITY, "It shines.")
    assert tool.llm_span_id == "chatmodel"


# Spring AI 2.0 (Java), org.springframework.ai.chat.observation of 2026-07: the handlers of prompts
# and completions write texts alone, so what the model asked its tools for is in their spans only.


def spring(id: str, at: float, reason: str, sent: list[Any], **more: Any) -> Span:  # noqa: A002
    given = {
        "gen_ai.operation.name": "chat",
        **MODEL,
        "gen_ai.response.id": f"chatcmpl-{id}",
        "gen_ai.response.finish_reasons": [reason],
        "gen_ai.input.messages": sent,
        **more,
    }
    return span(given, id=id, parent="client", at=at)


def spring_tool(id: str, at: float, city: str) -> Span:  # noqa: A002
    given = {
        "gen_ai.operation.name": "framework",
        "spring.ai.kind": "tool_call",
        "spring.ai.tool.definition.name": "sun",
        "spring.ai.tool.call.id": id,
        "spring.ai.tool.call.arguments": json.dumps({"city": city}),
        "spring.ai.tool.call.result": '"It shines."',
    }
    return span(given, id=id, parent="client", at=at)


def test_the_tools_that_ran_after_a_call_of_spring_ai_are_what_it_asked_for() -> None:
    history = [
        {"role": "user", "content": QUESTION["parts"][0]["content"]},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": ""},
    ]
    derived = derive(
        [
            span({"spring.ai.kind": "chat_client"}, id="client", ends=20),
            spring("a", 1, "TOOL_CALLS", history[:1]),
            spring_tool("call_1", 3, "Rome"),
            spring_tool("call_2", 5, "Oslo"),
            spring(
                "b",
                7,
                "STOP",
                history,
                **{"gen_ai.output.messages": [text_message("assistant", "Yes")]},
            ),
            spring_tool("call_3", 9, "Lima"),
        ],
        [],
    )
    first, second = derived.llm_calls
    asked = (first.output_messages or [{}])[0]["parts"]
    assert [(part["id"], part["arguments"]) for part in asked] == [
        ("call_1", {"city": "Rome"}),
        ("call_2", {"city": "Oslo"}),
    ]
    assert (first.finish_reason, second.output_messages) == (
        "tool_calls",
        [text_message("assistant", "Yes")],
    )
    assert {first.content, second.content} == {"truncated"}  # texts beside them may be lost
    assert {tool.tool_call_id: tool.llm_span_id for tool in derived.tool_calls} == {
        "call_1": "a",
        "call_2": "a",
        "call_3": None,
    }


def test_a_tool_that_ran_while_a_call_ran_is_none_of_its_requests() -> None:
    spans = [
        span({"spring.ai.kind": "chat_client"}, id="client", ends=20),
        spring("a", 1, "TOOL_CALLS", [{"role": "user", "content": "Hi"}]),
        spring_tool("call_1", 1.5, "Rome"),
    ]
    (call,) = derive(spans, []).llm_calls
    assert call.output_messages is None


def test_a_call_without_messages_gets_none_from_the_tools_that_ran_after_it() -> None:
    """Otherwise a rollout without content would be learned from by its tool calls alone."""
    unrecorded = spring("a", 1, "TOOL_CALLS", [])
    del unrecorded.attributes["gen_ai.input.messages"]
    client = span({"spring.ai.kind": "chat_client"}, id="client", ends=20)
    derived = derive([client, unrecorded, spring_tool("call_1", 3, "Rome")], [])
    (call,) = derived.llm_calls
    assert (call.content, call.input_messages, call.output_messages) == ("absent", None, None)
    assert [tool.arguments for tool in derived.tool_calls] == [{"city": "Rome"}]


# Braintrust's SDKs: Go, trace/contrib; Java, instrumentation/InstrumentationSemConv.java.

TOOL = {"type": "function", "function": {"name": "sun", "parameters": {}}}
CHOICE = {
    "index": 0,
    "message": {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": FUNCTION}],
    },
    "finish_reason": "tool_calls",
}
SPOKEN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it sunny in Rome?"},
]


def test_a_chat_completion_of_braintrust_in_go_is_read_without_a_type() -> None:
    metadata = {
        "provider": "openai",
        "endpoint": "/v1/chat/completions",
        "model": "m",
        "temperature": 0.5,
        "tools": [TOOL],
        "id": "chatcmpl-1",
    }
    metrics = {"prompt_tokens": 10, "completion_tokens": 3, "tokens": 13, "prompt_cached_tokens": 2}
    given = {
        "braintrust.input_json": SPOKEN,
        "braintrust.output_json": [CHOICE],
        "braintrust.metadata": metadata,
        "braintrust.metrics": {**metrics, "completion_reasoning_tokens": 1},
    }
    call = only_call(span(given, name="Chat Completion"))
    assert (call.dialect, call.provider, call.request_model) == ("braintrust", "openai", "m")
    assert call.input_messages == [SYSTEM, QUESTION]
    assert call.output_messages is not None
    assert call.output_messages[0]["parts"] == [ASKED | {"arguments_raw": SPELLED}]
    assert (call.input_tokens, call.output_tokens) == (10, 3)
    assert (call.cached_input_tokens, call.reasoning_tokens) == (2, 1)
    assert (call.response_id, call.finish_reason, call.content) == (
        "chatcmpl-1",
        "tool_calls",
        "full",
    )
    assert call.request_params == {"temperature": 0.5}
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]


def test_a_message_of_anthropic_is_read_as_braintrust_writes_it_in_go_and_in_java() -> None:
    """Java keeps the whole response, and writes the system prompt last."""
    content = [{"type": "text", "text": "It shines."}]
    go = {
        "braintrust.input_json": SPOKEN,
        "braintrust.output_json": [{"role": "assistant", "content": content}],
        "braintrust.metadata": {
            "provider": "anthropic",
            "endpoint": "/v1/messages",
            "model": "m",
            "stop_reason": "end_turn",
        },
    }
    response = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 8, "output_tokens": 3, "cache_read_input_tokens": 2},
    }
    java = {
        "braintrust.span_attributes": {"type": "llm"},
        "braintrust.input_json": SPOKEN[::-1],
        "braintrust.output_json": response,
        "braintrust.metadata": {
            "provider": "anthropic",
            "request_path": "v1/messages",
            "model": "m",
        },
        "braintrust.metrics": {"prompt_tokens": 8, "completion_tokens": 3},
    }
    for given in (go, java):
        call = only_call(span(given))
        assert call.input_messages == [SYSTEM, QUESTION]
        assert call.output_messages is not None
        assert call.output_messages[0]["parts"] == [ANSWER]
        assert (call.finish_reason, call.content) == ("stop", "full")
    assert (call.response_id, call.response_model, call.input_tokens) == ("msg_1", "m-1", 10)


def test_only_the_models_and_tools_of_braintrust_are_rows() -> None:
    tool = {
        "braintrust.span_attributes": {"type": "tool"},
        "braintrust.input_json": SPELLED,
        "braintrust.output": "It shines.",
    }
    task = {
        "braintrust.span_attributes": {"type": "task", "name": "task"},
        "braintrust.input_json": {"input": "Rome"},
        "braintrust.output_json": {"output": "It shines."},
    }
    found = derive([span(tool, id="a", name="sun"), span(task, id="b")], [])
    assert found.llm_calls == []
    (ran,) = found.tool_calls
    assert (ran.name, ran.arguments, ran.result) == ("sun", CITY, "It shines.")


def test_braintrusts_keys_beside_the_conventions_do_not_decide_who_reads() -> None:
    given = {
        "gen_ai.operation.name": "chat",
        **MODEL,
        "gen_ai.input.messages": [QUESTION],
        "gen_ai.output.messages": [text_message("assistant", "It shines.")],
        "braintrust.span_attributes": {"type": "llm"},
        "braintrust.metadata": {"user": "7"},
    }
    assert only_call(span(given)).dialect == "semconv"
