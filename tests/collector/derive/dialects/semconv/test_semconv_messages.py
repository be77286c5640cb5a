"""Messages of the GenAI conventions, in any form in which packages write them."""

import json
from typing import Any

import pytest
from support.spans import (
    ANSWER,
    QUESTION,
    assert_read,
    chat,
    only_call,
    read_call,
    span,
    text_message,
    tool_request,
    tool_response,
)

BARE = {"gen_ai.operation.name": "chat"}
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def test_a_call_with_a_truncated_message_list_is_truncated() -> None:
    attributes = chat([], text_message("assistant", "Hello"))
    whole = json.dumps([text_message("user", "A long question")])
    call = read_call(span({**attributes, "gen_ai.input.messages": whole[:-9]}))
    assert call.content == "truncated"
    assert call.input_messages is None
    assert call.output_messages == [text_message("assistant", "Hello")]


def test_system_instructions_come_first_and_are_not_doubled() -> None:
    system = text_message("system", "Be brief.")
    extra = {"gen_ai.system_instructions": system["parts"]}
    for history in ([text_message("user", "Hi")], [system, text_message("user", "Hi")]):
        call = read_call(span(chat(history, text_message("assistant", "Hello"), extra)))
        assert call.input_messages == [system, text_message("user", "Hi")]


def test_bare_system_instructions_are_text() -> None:
    extra = {"gen_ai.system_instructions": "Be brief."}
    call = read_call(
        span(chat([text_message("user", "Hi")], text_message("assistant", "Hello"), extra))
    )
    assert (call.input_messages or [])[0] == text_message("system", "Be brief.")


def test_several_messages_with_one_finish_reason_are_one_turn() -> None:
    outputs = [tool_request("c1", "add", {"a": 1}), tool_request("c2", "add", {"a": 2})]
    attributes = chat(
        [text_message("user", "?")], {}, {"gen_ai.response.finish_reasons": ["tool_call"]}
    )
    call = read_call(span({**attributes, "gen_ai.output.messages": outputs}))
    (message,) = call.output_messages or []
    assert [part["id"] for part in message["parts"]] == ["c1", "c2"]
    assert call.finish_reason == "tool_calls"


def test_as_many_finish_reasons_as_messages_are_choices() -> None:
    outputs = [text_message("assistant", "Hello"), text_message("assistant", "Hi")]
    attributes = chat(
        [text_message("user", "?")], {}, {"gen_ai.response.finish_reasons": ["stop", "stop"]}
    )
    call = read_call(span({**attributes, "gen_ai.output.messages": outputs}))
    assert call.output_messages == outputs


def test_ids_that_are_made_of_name_and_place_for_gemini_are_none() -> None:
    history = [tool_request("add_0", "add", {}), tool_response("add_2", "5")]
    given = chat(
        history, tool_request("real_id", "add", {}), {"gen_ai.provider.name": "gcp.gemini"}
    )
    call = read_call(span(given))
    sides = [*(call.input_messages or []), *(call.output_messages or [])]
    assert [part["id"] for one in sides for part in one["parts"]] == [None, None, "real_id"]
    other = read_call(span({**given, "gen_ai.provider.name": "openai"}))
    assert other.input_messages == history


def test_sentrys_texts_and_tool_calls_under_two_keys_are_one_answer() -> None:
    sent = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.messages": [text_message("user", "Hi")],
    }
    texts = {"gen_ai.response.text": ["Hello", "Hey"]}
    reasons = {"gen_ai.response.finish_reasons": ["stop", "stop"]}
    call = read_call(span({**sent, **texts, **reasons}))
    assert call.input_messages == [text_message("user", "Hi")]
    assert call.output_messages == [
        text_message("assistant", "Hello"),
        text_message("assistant", "Hey"),
    ]
    assert call.request_params == {}
    tool = {"id": "c1", "function": {"name": "add", "arguments": {"a": 2}}}
    call = read_call(span({**sent, "gen_ai.response.tool_calls": [tool]}))
    assert call.output_messages == [tool_request("c1", "add", {"a": 2})]


SENTRYS = {
    "gen_ai.operation.name": "chat",
    "gen_ai.input.messages": [{"role": "user", "content": "Hi"}],
    "gen_ai.response.streaming": True,
    "gen_ai.response.text": "Hello",
}


@pytest.mark.parametrize(
    ("reasons", "reason", "content"),
    [
        (["stop"], "stop", "full"),
        (["in_progress", "completed"], "stop", "full"),
        (["in_progress", "incomplete"], "length", "full"),
        (["in_progress"], None, "truncated"),
        (None, None, "truncated"),
    ],
)
def test_a_stream_of_sentrys_that_did_not_end_is_truncated(
    reasons: list[str] | None, reason: str | None, content: str
) -> None:
    stated = {"gen_ai.response.finish_reasons": reasons} if reasons else {}
    call = read_call(span({**SENTRYS, **stated}, scope="@sentry/node"))
    assert (call.finish_reason, call.content) == (reason, content)
    assert call.output_messages == [text_message("assistant", "Hello")]


@pytest.mark.parametrize(
    ("scope", "name", "role", "content"),
    [
        ("@sentry/node", "resp_1", "user", "truncated"),
        ("@sentry/node", "resp_1", "system", "full"),
        ("@sentry/node", "chatcmpl-1", "user", "full"),
        ("other", "resp_1", "user", "full"),
    ],
)
def test_a_response_of_sentrys_may_lack_its_instructions(
    scope: str, name: str, role: str, content: str
) -> None:
    ended = {"gen_ai.response.id": name, "gen_ai.response.finish_reasons": ["completed"]}
    sent = {"gen_ai.input.messages": [{"role": role, "content": "Hi"}]}
    assert read_call(span({**SENTRYS, **ended, **sent}, scope=scope)).content == content


def test_the_reasoning_among_sentrys_tool_calls_is_no_tool_call() -> None:
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": {"a": 2}},
    ]
    stated = {"gen_ai.response.finish_reasons": ["completed"], "gen_ai.response.text": ""}
    call = read_call(span({**SENTRYS, **stated, "gen_ai.response.tool_calls": items}))
    reasoning = {"type": "reasoning", "content": "Hm"}
    (asked,) = tool_request("c1", "add", {"a": 2})["parts"]
    assert call.output_messages == [{"role": "assistant", "parts": [reasoning, asked]}]


@pytest.mark.parametrize(
    ("history", "output"),
    [
        ([{"role": "user", "content": "Hi"}], [{"role": "assistant", "content": "Hello"}]),
        (QUESTION, ANSWER),
        ("Hi", "Hello"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            [{"role": "model", "parts": [{"text": "Hello"}]}],
        ),
        (
            {"version": "0.1.0", "messages": [QUESTION]},
            {"version": "0.1.0", "messages": [ANSWER]},
        ),
    ],
    ids=["a provider's own form", "one message alone", "bare text", "blocks", "Agent 365's object"],
)
def test_messages_are_read_in_any_form_under_the_conventions_keys(
    history: Any, output: Any
) -> None:
    given = {**BARE, "gen_ai.input.messages": history, "gen_ai.output.messages": output}
    assert_read(only_call(span(given)))


def test_a_stream_left_before_its_end_is_truncated() -> None:
    begun = {**ANSWER, "finish_reason": ""}
    call = only_call(span(chat([QUESTION], begun, {"gen_ai.is_streaming": True})))
    assert (call.content, call.finish_reason) == ("truncated", None)


@pytest.mark.parametrize(("counted", "content"), [(True, "full"), (False, "truncated")])
def test_a_counted_stream_of_openai_ended_whatever_its_reason(
    *, counted: bool, content: str
) -> None:
    """OpenTelemetry's package for LangChain writes `error` of each response that is streamed."""
    stated = {"gen_ai.request.stream": True, "gen_ai.provider.name": "openai"}
    counts = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 3} if counted else {}
    ended = {**ANSWER, "finish_reason": "error"}
    call = only_call(span(chat([QUESTION], ended, stated | counts)))
    assert (call.content, call.finish_reason, call.error_type) == (content, None, None)
    assert call.output_tokens == (3 if counted else None)


@pytest.mark.parametrize(("key", "content"), [("events", "truncated"), ("http.url", "full")])
def test_messages_in_which_logfire_replaced_a_text_are_truncated(key: str, content: str) -> None:
    """It replaces whole texts that have words such as `session` or `password`."""
    place = {"path": ["attributes", key, 1, "content"], "matched_substring": "session"}
    asked = text_message("user", "[Scrubbed due to 'session']")
    call = only_call(span(chat([asked], ANSWER, {"logfire.scrubbed": [place]})))
    assert call.content == content


def test_a_choice_that_wraps_its_message_is_read() -> None:
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Hello"},
    }
    given = {**BARE, "gen_ai.input.messages": [QUESTION], "gen_ai.output.messages": [choice]}
    call = only_call(span(given))
    assert_read(call)
    assert call.finish_reason == "stop"


def test_a_tool_calls_own_id_is_kept_over_the_id_of_the_item_that_holds_it() -> None:
    told = {"gen_ai.tool.name": "look, add", "gen_ai.tool.call.id": "call_1, call_2"}
    (output,) = (
        only_call(span(chat([QUESTION], tool_request("fc_2", "add", {}), told))).output_messages
        or []
    )
    assert output["parts"][0]["id"] == "call_2"


def test_parallel_calls_of_one_tool_have_ids_of_their_own() -> None:
    """OpenLIT's, of a streamed response: the id of the last call was that of all."""
    told = {"gen_ai.tool.name": "add, look, add", "gen_ai.tool.call.id": "call_1, call_2, call_3"}
    asked = {
        "role": "assistant",
        "parts": [
            tool_request(f"fc_{at}", name, {})["parts"][0]
            for at, name in enumerate(("add", "look", "add", "add"))
        ],
    }
    (output,) = only_call(span(chat([QUESTION], asked, told))).output_messages or []
    ids = [part["id"] for part in output["parts"]]
    assert ids == ["call_1", "call_2", "call_3", "fc_3"]


def test_a_user_message_that_names_a_tool_call_is_the_tools() -> None:
    result = {"role": "user", "content": "5", "tool_call_id": "c1"}
    given = {**BARE, "gen_ai.input.messages": [QUESTION, tool_request("c1", "add", {}), result]}
    assert (only_call(span(given)).input_messages or [])[-1] == tool_response("c1", "5")


@pytest.mark.parametrize(
    "own",
    [
        chat([QUESTION], ANSWER),
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": [{"role": "user", "content": "Hi"}],
            "ai.response.text": "Hello",
        },
    ],
    ids=["the conventions", "the AI SDK"],
)
def test_a_spans_own_keys_win_over_those_that_a_processor_added(own: dict[str, Any]) -> None:
    assert_read(only_call(span({**own, "openinference.span.kind": "LLM", "output.value": "cut"})))


@pytest.mark.parametrize(
    ("output", "answer"),
    [("Hello", "Hello"), (json.dumps([{"role": "assistant", "content": "Hello"}]), "Hello")],
)
def test_messages_under_keys_without_a_prefix_are_read(output: str, answer: str) -> None:
    """Pipecat writes them beside the conventions' model and usage."""
    history = json.dumps([{"role": "user", "content": "Hi"}])
    tools = json.dumps([{"type": "function", "function": {"name": "sun", "parameters": {}}}])
    call = only_call(span({**BARE, "input": history, "output": output, "tools": tools}))
    assert call.input_messages == [QUESTION]
    assert [one["parts"][0]["content"] for one in call.output_messages or []] == [answer]
    assert [tool["name"] for tool in call.tool_definitions or []] == ["sun"]


def test_an_object_under_a_key_without_a_prefix_is_no_answer() -> None:
    output = json.dumps({"text": "Hello", "usage": {}})
    assert only_call(span({**BARE, "output": output})).output_messages is None


@pytest.mark.parametrize(
    ("asked_for", "told"),
    [
        ({"gen_ai.prompt": "Hi"}, {"gen_ai.completion": "Hello"}),
        ({"gen_ai.prompt": '["Hi"]'}, {"gen_ai.completion": '["Hello"]'}),
        (
            {"input.value": '{"messages": [{"role": "user", "content": "Hi"}]}'},
            {"output.value": "Hello"},
        ),
    ],
    ids=["plain", "Spring AI", "a request"],
)
def test_content_under_other_keys_beside_the_conventions_is_read(
    asked_for: dict[str, str], told: dict[str, str]
) -> None:
    assert_read(only_call(span({**BARE, "gen_ai.request.model": "m", **asked_for, **told})))


def test_several_texts_without_roles_are_no_messages() -> None:
    call = only_call(span({**BARE, "gen_ai.prompt": '["Be kind.", "Hi"]'}))
    assert call.input_messages is None


def test_a_text_that_may_be_only_the_last_piece_of_a_stream_is_truncated() -> None:
    given = span(
        chat([QUESTION], ANSWER), scope="opentelemetry.instrumentation.google_generativeai"
    )
    assert only_call(given).content == "truncated"
    asking = chat([QUESTION], tool_request("c1", "add", {}))
    assert only_call(given._replace(attributes=span(asking).attributes)).content == "full"


def test_an_input_that_lost_the_tool_calls_before_their_responses_is_truncated() -> None:
    lost = {"role": "assistant", "parts": [{"type": "text", "content": ""}]}
    told = {"role": "tool", "parts": [{"type": "text", "content": "It shines."}]}
    assert only_call(span(chat([QUESTION, lost, told], ANSWER))).content == "truncated"


def test_reasoning_under_a_key_of_its_own_comes_before_the_answer() -> None:
    """OpenLIT's messages lack it."""
    given = {**chat([QUESTION], ANSWER), "gen_ai.content.reasoning": "Hm."}
    (answer,) = only_call(span(given)).output_messages or []
    assert answer["parts"] == [{"type": "reasoning", "content": "Hm."}, *ANSWER["parts"]]


def test_reasoning_under_a_key_of_its_own_is_read() -> None:
    """Strands for TypeScript writes so the assistant's earlier messages."""
    request = tool_request("c1", "sun", {"city": "Oslo"})
    thought = {"reasoning": {"text": "I look.", "signature": "c2ln"}}
    turn = {"role": "assistant", "parts": [thought, *request["parts"]]}
    call = only_call(span(chat([PLAIN_QUESTION], turn)))
    read = {"type": "reasoning", "content": "I look."}
    assert (call.output_messages or [])[0]["parts"] == [read, *request["parts"]]


def test_a_users_message_whose_text_was_lost_leaves_the_call_incomplete() -> None:
    """LiteLLM's proxy writes the tool calls and results of Responses as empty texts of the user."""
    lost = [PLAIN_QUESTION, {"role": "user", "parts": [{"type": "text", "content": ""}]}]
    assert only_call(span(chat(lost, text_message("assistant", "Yes.")))).content == "redacted"
    ended = {"gen_ai.response.finish_reasons": ["end_turn"]}
    nothing = chat([PLAIN_QUESTION], text_message("assistant", ""), ended)
    assert only_call(span(nothing)).content == "full"


@pytest.mark.parametrize(("provider", "is_object"), [("gcp.gen_ai", True), ("openai", False)])
def test_a_response_that_traceloop_wrote_as_text_is_geminis_object(
    provider: str, *, is_object: bool
) -> None:
    """What a tool tells Gemini is an object. Other models are told a text, which may be JSON."""
    told = '{"result": "It shines."}'
    history = [PLAIN_QUESTION, tool_request("", "sun", {"city": "Rome"}), tool_response("", told)]
    keys = chat(history, text_message("assistant", "Yes."), {"gen_ai.provider.name": provider})
    (part,) = (only_call(span(keys)).input_messages or [])[2]["parts"]
    assert part["response"] == (json.loads(told) if is_object else told)
