"""LiteLLM's dialect."""

import pytest
from support.spans import (
    chat,
    only_call,
    read_call,
    span,
    text_message,
    tool_request,
    tool_response,
)

from otel_lightning.collector.derive.assemble import derive

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
REQUEST = {"gen_ai.request.model": "m", "gen_ai.input.messages": [PLAIN_QUESTION]}


@pytest.mark.parametrize(
    ("sent", "own"),
    [
        ("chatcmpl-1", "chatcmpl-1"),
        ("chatcmpl-21f3ee67-b3c4-4e0b-add9-2208a2e9ff04", None),
        ("resp_bGl0ZWxsbTptb2RlbF9pZDpOb25lO3Jlc3BvbnNlX2lkOnJlc3BfMQ==", "resp_1"),
        ("resp_bGl0ZWxsbTptb2RlbF9pZDpOb25l", "resp_bGl0ZWxsbTptb2RlbF9pZDpOb25l"),
        ("resp_bGl0ZWxsbTptb", "resp_bGl0ZWxsbTptb"),
    ],
    ids=["the provider's", "made up", "wrapped", "wrapped around nothing", "cut"],
)
def test_litellms_ids_of_responses_are_the_providers_or_none(sent: str, own: str | None) -> None:
    call = read_call(span(chat([], {}, {"litellm.call_id": "1", "gen_ai.response.id": sent})))
    assert (call.dialect, call.response_id) == ("litellm", own)


def test_litellms_own_id_of_a_request_that_failed_is_no_response_id() -> None:
    ids = {"litellm.call_id": "f2ecd686", "gen_ai.response.id": "f2ecd686"}
    call = only_call(span({**REQUEST, **ids, "gen_ai.operation.name": "chat"}, status="ERROR"))
    assert (call.dialect, call.response_id) == ("litellm", None)


@pytest.mark.parametrize(
    "told",
    [
        {"gen_ai.request.stream": True},
        {"llm.is_streaming": "True"},
        {"litellm.request.streaming": True},
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_the_end_of_litellms_streams_may_be_late(
    told: dict[str, object], *, streamed: bool
) -> None:
    """A task of its own ends their span, when the next call may have started."""
    keys = {"litellm.call_id": "x", **(told if streamed else {})}
    question, lost = text_message("user", "Sun in Rome?"), {"role": "assistant", "parts": []}
    function = {"gen_ai.completion.0.function_call.name": "sun"}
    function["gen_ai.completion.0.function_call.arguments"] = '{"city": "Rome"}'
    asks = tool_request("c1", "sun", {"city": "Rome"})
    history = [question, asks, tool_response("c1", "It shines.")]
    first = chat([question], lost, {**keys, **function})
    second = chat(history, text_message("assistant", "Yes."), keys)
    calls = derive([span(first, trace="t1", ends=2), span(second, trace="t2", at=1)], []).llm_calls
    assert (len({call.rollout_id for call in calls}) == 1) is streamed


def item(call_id: str) -> dict[str, object]:
    """Return an answer that asks for a tool by the id of the Responses API's item."""
    return tool_request(call_id, "w", {"city": "Paris"})


def test_outputs_without_the_ids_of_tool_calls_continue_at_litellm() -> None:
    lost = {
        "litellm.call_id": "1",
        "gen_ai.output.messages": [{"role": "assistant", "parts": []}],
        "gen_ai.completion.0.function_call.name": "w",
        "gen_ai.completion.0.function_call.arguments": '{"city": "Paris"}',
    }
    history = [text_message("user", "task"), item("call_0"), tool_response("call_0", "21 C")]
    later = chat(history, text_message("assistant", "done"), {"litellm.call_id": "2"})
    first = span(chat(history[:1], text_message("assistant", ""), lost), trace="a", id="a")
    rows = derive([first, span(later, trace="b", id="b", at=3)], [])
    assert [call.rollout_id for call in rows.llm_calls] == ["a", "a"]


def test_a_response_of_the_proxy_is_one_call_with_the_id_that_its_client_got() -> None:
    """The proxy encrypts the ids of responses; only the record of the raw payload has their own."""
    asked = {
        "litellm.call_id": "c1",
        "gen_ai.operation.name": "aresponses",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "resp_Q37EE8kK-UAhYp51lBar_Lp7",
        "gen_ai.input.messages": [text_message("user", "Hi")],
        "gen_ai.output.messages": [text_message("assistant", "Hello")],
    }
    answer = {"type": "output_text", "text": "Hello"}
    message = {"type": "message", "role": "assistant", "content": [answer]}
    raw = {
        "llm.openai.id": "resp_1",
        "llm.openai.object": "response",
        "llm.openai.input": "Hi",
        "llm.openai.output": repr([message]),
        "llm.openai.model": "m-2026-01-01",
        "llm.openai.status": "completed",
    }
    spans = [
        span(asked, id="request", scope="litellm", ends=9),
        span(raw, id="raw", parent="request", name="raw_gen_ai_request", scope="litellm"),
    ]
    (call,) = derive(spans, []).llm_calls
    assert call.response_id == asked["gen_ai.response.id"]
    assert call.response_model == "m-2026-01-01"


def test_a_request_of_anthropics_form_to_the_proxy_is_a_chat() -> None:
    asked = {"litellm.call_id": "c1", "gen_ai.operation.name": "anthropic_messages"}
    given = chat([text_message("user", "Hi")], text_message("assistant", "Hello"), asked)
    (call,) = derive([span(given, scope="litellm")], []).llm_calls
    assert call.operation == "chat"


ROUTED = {
    "litellm.call_id": "c1",
    "litellm.call_type": "acompletion",
    "gen_ai.request.model": "alias",
    "gen_ai.response.model": "m-2026-01-01",
}


@pytest.mark.parametrize(
    ("provider", "routed", "model"),
    [
        ("openai", "openai/m", "m"),
        ("azure.ai.openai", "azure/m", "m"),
        ("gcp.vertex_ai", "vertex_ai/m", "m"),
        ("x_ai", "xai/m", "m"),
        ("cohere", "cohere_chat/m", "m"),
        ("hosted_vllm", "hosted_vllm/Qwen/Qwen3", "Qwen/Qwen3"),
        ("openai", "Qwen/Qwen3", "Qwen/Qwen3"),
        ("openai", "m", "m"),
        (None, "openai/m", "openai/m"),
        ("openai", None, "alias"),
    ],
)
def test_the_model_that_litellms_proxy_asked_for_is_the_providers(
    provider: str | None, routed: str | None, model: str
) -> None:
    """Its requested model is the name that the proxy's configuration gives the model."""
    more = {"gen_ai.provider.name": provider, "litellm.provider.model": routed}
    keys = {key: value for key, value in more.items() if value}
    call = read_call(span(chat([PLAIN_QUESTION], text_message("assistant", "Yes"), ROUTED | keys)))
    assert (call.request_model, call.response_model) == (model, "m-2026-01-01")


def test_litellms_own_name_of_a_model_is_no_responding_model() -> None:
    """The proxy replaces the model in the responses of OpenAI's models by it."""
    named = {"gen_ai.response.model": "alias", "litellm.provider.model": "openai/m"}
    keys = ROUTED | named | {"gen_ai.provider.name": "openai"}
    call = read_call(span(chat([PLAIN_QUESTION], text_message("assistant", "Yes"), keys)))
    assert (call.request_model, call.response_model) == ("m", None)


@pytest.mark.parametrize("cost", [0.25, 0.0])
def test_the_cost_that_litellm_states_is_that_of_the_call(cost: float) -> None:
    """It is 0 for a model whose price LiteLLM does not know."""
    keys = ROUTED | {"litellm.cost.total": cost, "litellm.cost.input": 0.2}
    call = read_call(span(chat([PLAIN_QUESTION], text_message("assistant", "Yes"), keys)))
    assert call.cost == (cost or None)


@pytest.mark.parametrize("declared", [1, 12])
def test_tools_of_which_litellm_wrote_only_some_are_unknown(declared: int) -> None:
    keys = {**ROUTED, "gen_ai.tool.0.name": "sun", "litellm.request.tools.declared": declared}
    call = read_call(span(chat([PLAIN_QUESTION], text_message("assistant", "Yes"), keys)))
    assert [one["name"] for one in call.tool_definitions or ()] == (
        ["sun"] if declared == 1 else []
    )


@pytest.mark.parametrize("route", ["arerank", "amoderation", "aimage_generation", "afile_list"])
def test_what_else_litellms_proxy_does_is_no_model_call(route: str) -> None:
    """Its results are written as the messages of a chat."""
    keys = ROUTED | {"litellm.call_type": route}
    given = chat([PLAIN_QUESTION], text_message("assistant", "0: 0.5"), keys)
    assert derive([span(given, scope="litellm")], []).llm_calls == []


def test_a_tool_that_litellms_proxy_ran_is_no_model_call() -> None:
    ran = {
        "litellm.call_id": "c1",
        "gen_ai.operation.name": "execute_tool",
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.arguments": {"city": "Rome"},
        "gen_ai.tool.call.result": {"content": [{"type": "text", "text": "It shines."}]},
    }
    listed = {"litellm.call_id": "c2", "mcp.method.name": "tools/list"}
    rows = derive([span(ran, scope="litellm"), span(listed, id="s2", scope="litellm")], [])
    assert rows.llm_calls == []
    (tool,) = rows.tool_calls
    assert (tool.name, tool.arguments) == ("sun", {"city": "Rome"})


@pytest.mark.parametrize(
    ("route", "content"), [("acompletion", "full"), ("responses", "truncated")]
)
def test_responses_of_litellms_newer_callback_lack_their_instructions(
    route: str, content: str
) -> None:
    keys = ROUTED | {"litellm.call_type": route}
    call = read_call(span(chat([PLAIN_QUESTION], text_message("assistant", "Yes"), keys)))
    assert call.content == content
