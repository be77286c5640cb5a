"""Messages in the forms of providers and frameworks become those of the conventions."""

import json
from typing import Any

import pytest
from support.spans import (
    ANSWER,
    QUESTION,
    chat,
    only_call,
    read_call,
    span,
    text_message,
    tool_request,
    tool_response,
)

from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.messages.messages import conversation
from otel_lightning.collector.derive.messages.one_message import read_message
from otel_lightning.collector.derive.rows import LlmCall

BLOCK = "TextContent(type='text', text=\"It's 5\", meta=None)"
TWO = f"Result(content=[{BLOCK}, ImageContent(type='image', data='')])"
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def test_arguments_in_the_models_own_words_are_kept_beside_their_value() -> None:
    call = read_call(
        span(chat([text_message("user", "?")], tool_request("c1", "add", '{"a":  2}')))
    )
    (part,) = (call.output_messages or [])[0]["parts"]
    assert part["arguments"] == {"a": 2}
    assert part["arguments_raw"] == '{"a":  2}'


def test_arguments_that_came_as_an_object_have_no_raw_form() -> None:
    call = read_call(span(chat([text_message("user", "?")], tool_request("c1", "add", {"a": 2}))))
    assert "arguments_raw" not in (call.output_messages or [])[0]["parts"][0]


def test_arguments_that_are_not_json_are_kept_raw_and_not_repaired() -> None:
    call = read_call(span(chat([text_message("user", "?")], tool_request("c1", "add", '{"a": 2'))))
    (part,) = (call.output_messages or [])[0]["parts"]
    assert (part["arguments"], part["arguments_raw"]) == (None, '{"a": 2')


def test_an_id_that_is_empty_is_none() -> None:
    call = {"id": "", "function": {"name": "add", "arguments": "{}"}}
    (message,) = read_message({"role": "assistant", "tool_calls": [call, call]})
    assert [part["id"] for part in message["parts"]] == [None, None]


@pytest.mark.parametrize(
    ("result", "read_as"),
    [
        (f"CallToolResult(meta=None, content=[{BLOCK}], isError=False)", "It's 5"),
        (f"meta=None content=[{BLOCK}] isError=False", "It's 5"),
        (json.dumps(["TextBlock(type='text', text='5', id='1')"]), "5"),
        (TWO, TWO),
        (f"It said {BLOCK}", f"It said {BLOCK}"),
        ("[TextContent(type='text', text='5", "[TextContent(type='text', text='5"),
        ("Text, no more", "Text, no more"),
    ],
)
def test_a_result_that_is_the_spelling_of_one_block_is_its_text(result: str, read_as: str) -> None:
    (message,) = read_message({"role": "tool", "tool_call_id": "c1", "content": result})
    assert message == tool_response("c1", read_as)


def test_a_tool_call_whose_name_and_arguments_python_spelled_is_read() -> None:
    call = {"id": "c1", "name": "'add'", "arguments": """'{"a": "it\\'s 2"}'"""}
    (message,) = read_message({"role": "assistant", "tool_calls": [call]})
    (part,) = message["parts"]
    assert (part["name"], part["arguments"]) == ("add", {"a": "it's 2"})


def test_a_developer_speaks_as_the_system() -> None:
    assert conversation([{"role": "developer", "content": "Be brief."}]) == [
        text_message("system", "Be brief.")
    ]


def test_a_users_tool_results_are_tool_messages_before_what_the_user_says() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "5"}]},
        {"type": "text", "text": "And now?"},
    ]
    assert read_message({"role": "user", "content": blocks}) == [
        tool_response("c1", "5"),
        text_message("user", "And now?"),
    ]


def test_parallel_calls_written_as_messages_of_their_own_are_one_turn() -> None:
    calls = [tool_request("c1", "add", {"a": 1}), tool_request("c2", "add", {"a": 2})]
    (turn,) = conversation(calls)
    assert [part["id"] for part in turn["parts"]] == ["c1", "c2"]


def test_an_image_is_media_and_its_data_is_not_text() -> None:
    block = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    (message,) = conversation([{"role": "user", "content": [block]}])
    assert message["parts"] == [
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="}
    ]


@pytest.mark.parametrize(
    "block", [{"type": "toolUse", "toolUseId": "c1"}, {"toolUse": {"toolUseId": "c1"}}]
)
def test_bedrocks_block_of_a_tool_call_may_have_a_type_instead_of_a_key(block: Any) -> None:
    block.get("toolUse", block).update(name="add", input={"a": 2})
    (message,) = read_message({"role": "assistant", "content": [block]})
    assert message == tool_request("c1", "add", {"a": 2})


@pytest.mark.parametrize("key", ["function_call", "functionCall"])
def test_a_block_that_holds_a_text_and_a_tool_call_is_both(key: str) -> None:
    """OpenInference for `google-genai` adds all pieces of a streamed answer to one part."""
    block = {"text": "Let me look.", key: {"name": "sun", "args": {"city": "Oslo"}}}
    (message,) = read_message({"role": "model", "parts": [block]})
    assert message["parts"] == [
        {"type": "text", "content": "Let me look."},
        {"type": "tool_call", "id": None, "name": "sun", "arguments": {"city": "Oslo"}},
    ]


def test_a_thought_beside_a_tool_call_stays_a_thought() -> None:
    block = {"text": "Where?", "thought": True, "function_call": {"name": "sun", "args": {}}}
    (message,) = read_message({"role": "model", "parts": [block]})
    assert [part["type"] for part in message["parts"]] == ["reasoning", "tool_call"]


@pytest.mark.parametrize("role", ["AIMessageChunk", "unknown"])
def test_a_message_of_langchain_that_was_streamed_is_the_assistants(role: str) -> None:
    """`unknown` is Traceloop's word for it."""
    message = {"role": role, "content": "", "tool_calls": [{"id": "c1", "name": "sun", "args": {}}]}
    (read,) = read_message(message)
    assert (read["role"], [part["type"] for part in read["parts"]]) == ("assistant", ["tool_call"])
    kept = {
        "lc": 1,
        "id": ["AIMessageChunk"],
        "kwargs": {"content": "Hi", "type": "AIMessageChunk"},
    }
    assert read_message(kept) == [text_message("assistant", "Hi")]


@pytest.mark.parametrize(
    ("role", "speaker"),
    [
        ("MessageRole.SYSTEM", "system"),
        ("MessageRole.ASSISTANT", "assistant"),
        ("MessageRole.TOOL_CALL", "assistant"),
        ("MessageRole.TOOL_RESPONSE", "user"),
        ("ChatRole.DEVELOPER", "system"),
    ],
)
def test_a_role_that_is_a_member_of_an_enumeration_is_its_value(role: str, speaker: str) -> None:
    """OpenTelemetry's package for OpenAI writes so the roles of smolagents."""
    message = {"role": role, "parts": [{"type": "text", "content": "Hi"}]}
    assert read_message(message) == [text_message(speaker, "Hi")]
    named = {"role": role, "content": "Hi", "additional_kwargs": {}}
    assert read_message(named) == [text_message(speaker, "Hi")]


def test_a_role_that_is_a_tools_name_is_the_tools() -> None:
    result = {"role": "weather", "content": "Rain", "additional_kwargs": {}}
    (message,) = read_message({**result, "tool_call_id": "c1"})
    assert message == tool_response("c1", "Rain")
    assert read_message(result)[0]["role"] == "tool"
    assert read_message({**result, "role": "human"}) == [text_message("user", "Rain")]


def test_a_plain_message_is_stored_with_its_role_first_whatever_order_it_came_in() -> None:
    parts = [{"type": "text", "content": "hi"}]
    for sent in ({"role": "user", "parts": parts}, {"parts": parts, "role": "user"}):
        keys = {"gen_ai.input.messages": [sent], "gen_ai.output.messages": [sent]}
        call = read(span({"gen_ai.operation.name": "chat", **keys}))
        assert isinstance(call, LlmCall)
        stored = [list(one) for one in (call.input_messages or [])]
        stored += [list(one) for one in (call.output_messages or [])]
        assert stored == [["role", "parts"]] * 2


CALL_ITEM = {
    "type": "function_call",
    "call_id": "c1",
    "name": "sun",
    "arguments": '{"city": "Rome"}',
}


def test_the_name_of_a_class_in_place_of_a_tool_call_is_no_text() -> None:
    answer = {"role": "assistant", "parts": ["ToolCall"], "finish_reason": "tool_calls"}
    call = only_call(span(chat([QUESTION], answer)))
    assert [message["parts"] for message in call.output_messages or []] == [[]]


def test_a_tool_call_whose_item_is_spelled_inside_its_part_is_read() -> None:
    """OpenLIT writes LangChain's blocks so."""
    asking = {"role": "assistant", "parts": [{"type": "function_call", "content": str(CALL_ITEM)}]}
    call = only_call(span(chat([QUESTION, asking, tool_response("c1", "It shines.")], ANSWER)))
    (part,) = (call.input_messages or [])[1]["parts"]
    assert (part["id"], part["name"], part["arguments"]) == ("c1", "sun", {"city": "Rome"})


def test_tool_responses_within_an_assistants_message_keep_their_place() -> None:
    """AgentScope keeps all that an agent does for one request in one message."""
    turn = [
        *tool_request("c1", "sun", {"city": "Oslo"})["parts"],
        *tool_response("c1", "It shines.")["parts"],
    ]
    turn += text_message("assistant", "It is sunny.")["parts"]
    call = only_call(
        span(chat([{"role": "assistant", "parts": turn}], text_message("assistant", "Yes.")))
    )
    assert call.input_messages == [
        tool_request("c1", "sun", {"city": "Oslo"}),
        tool_response("c1", "It shines."),
        text_message("assistant", "It is sunny."),
    ]


def answered_without_ids(*results: str) -> LlmCall:
    """OpenLIT for JavaScript: two tool calls with ids, and responses as plain texts."""
    ids = ("c1", "c2")
    asks = [{"type": "tool_call", "id": one, "name": "sun", "arguments": {}} for one in ids]
    told = [{"role": "tool", "parts": [{"type": "text", "content": result}]} for result in results]
    history = [PLAIN_QUESTION, {"role": "assistant", "parts": asks}, *told]
    return only_call(span(chat(history, text_message("assistant", "It is."))))


def response_ids(call: LlmCall) -> list[tuple[str | None, str]]:
    parts = [part for message in call.input_messages or () for part in message["parts"]]
    return [(one["id"], one["response"]) for one in parts if one["type"] == "tool_call_response"]


def test_responses_without_ids_answer_as_many_tool_calls_in_order() -> None:
    assert response_ids(answered_without_ids("Rome", "Oslo")) == [("c1", "Rome"), ("c2", "Oslo")]


def test_fewer_responses_than_tool_calls_get_no_ids() -> None:
    assert response_ids(answered_without_ids("Rome")) == [(None, "Rome")]
