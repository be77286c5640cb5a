"""What a call's messages amount to: the state its model saw, whoever wrote it down and how."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.spans import ANSWER, QUESTION, chat, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.histories.histories import any_history, history
from otel_lightning.collector.derive.messages.packing import SHORT, pack, unpack
from otel_lightning.collector.derive.rows import LlmCall

TOLD = [QUESTION, tool_request("c1", "add", {"a": 1, "b": 2}), tool_response("c1", "3")]


def call(history: list[Any], **attributes: Any) -> LlmCall:
    (row,) = derive([span(chat(history, ANSWER, attributes))], []).llm_calls
    return row


def backwards(value: Any) -> Any:
    """Return a JSON value with the keys of its objects in the opposite order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(one) for one in value] if isinstance(value, list) else value


def test_the_order_of_keys_is_no_part_of_the_state() -> None:
    assert call(TOLD).state_hash == call(backwards(TOLD)).state_hash


def test_arguments_in_the_models_own_spelling_are_the_same_state() -> None:
    spelled = [QUESTION, tool_request("c1", "add", '{"b": 2,  "a": 1}'), tool_response("c1", "3")]
    assert call(TOLD).state_hash == call(spelled).state_hash


@pytest.mark.parametrize(
    "other",
    [
        [text_message("user", "Ho")],
        [text_message("system", "Hi")],
        [QUESTION, QUESTION],
        [text_message("user", '{"content":"Hi","type":"text"}')],
    ],
)
def test_another_text_role_or_turn_is_another_state(other: list[Any]) -> None:
    assert call([QUESTION]).state_hash != call(other).state_hash


def test_the_order_of_a_text_and_tool_calls_is_no_part_of_the_state() -> None:
    """Chat completions have them in two fields, so each package chooses an order."""
    calls = [tool_request(name, name, {}) for name in ("add", "take")]
    text, *asked = [one["parts"][0] for one in (ANSWER, *calls)]
    states = {
        call([QUESTION, {"role": "assistant", "parts": parts}, QUESTION]).state_hash
        for parts in ([text, *asked], [*asked, text], [asked[0], text, asked[1]])
    }
    assert len(states) == 1
    swapped = {"role": "assistant", "parts": [text, *reversed(asked)]}
    assert call([QUESTION, swapped, QUESTION]).state_hash not in states


def in_pieces(*texts: str) -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "text", "content": one} for one in texts]}


def test_a_text_that_comes_back_in_the_pieces_of_its_stream_is_the_same_history() -> None:
    """Clients of Gemini send back each piece as a part or, Google's own chats, as a message."""
    whole, pieces = text_message("assistant", "It is sunny."), in_pieces("It ", "is ", "sunny.")
    thought = {"type": "reasoning", "content": "hm"}
    around = {**pieces, "parts": [*pieces["parts"][:1], thought, *pieces["parts"][1:]]}
    apart = [in_pieces(part["content"]) for part in pieces["parts"]]
    for turn in ([pieces], [around], apart):
        for more in ([], [QUESTION] * SHORT):
            asked = call([*more, QUESTION, *turn, QUESTION])
            expected = call([*more, QUESTION, whole, QUESTION])
            assert asked.history.prefixes == expected.history.prefixes
    assert call([QUESTION, pieces]).state_hash == call([QUESTION, whole]).state_hash


@pytest.mark.parametrize(
    "other",
    [
        [in_pieces("It is ", "sunny"), QUESTION],
        [in_pieces("It "), QUESTION, in_pieces("is sunny.")],
    ],
)
def test_another_text_or_a_turn_between_is_another_state(other: list[Any]) -> None:
    whole = [in_pieces("It is sunny."), QUESTION]
    assert call([QUESTION, *other]).state_hash != call([QUESTION, *whole]).state_hash


def test_the_users_texts_stay_apart() -> None:
    texts = [{"type": "text", "content": one} for one in ("a", "b")]
    apart = call([{"role": "user", "parts": texts}])
    assert apart.state_hash != call([text_message("user", "ab")]).state_hash


def test_tools_are_a_part_of_the_state() -> None:
    offered = {"gen_ai.tool.definitions": [{"type": "function", "name": "add"}]}
    assert call([QUESTION]).state_hash != call([QUESTION], **offered).state_hash


@pytest.mark.parametrize("turns", [0, 1, SHORT, SHORT + 1])
def test_what_was_packed_comes_back_as_it_was(turns: int) -> None:
    given = call([QUESTION] * turns)
    before = given.input_messages, given.output_messages
    pack(given)
    unpack(given)
    assert (given.input_messages, given.output_messages) == before


@pytest.mark.parametrize("turns", [1, SHORT + 1])
@pytest.mark.parametrize(
    ("answered_with", "tokens", "completed"),
    [([ANSWER], None, True), (None, [7], True), (None, [], False), (None, None, False)],
)
def test_completion_is_words_or_tokens_and_known_however_messages_are_kept(
    turns: int, answered_with: list[Any] | None, tokens: list[int] | None, *, completed: bool
) -> None:
    given = call([QUESTION] * turns)
    given.output_messages, given.completion_token_ids = answered_with, tokens
    assert given.has_completion == completed
    pack(given)
    assert given.has_completion == completed


def dialogue(call_id: str, result: str = "21 C") -> LlmCall:
    sent = [text_message("user", "weather?"), tool_request(call_id, "w", {"city": "Paris"})]
    return call([*sent, tool_response(call_id, result)])


def test_what_a_model_saw_does_not_depend_on_the_ids_of_tool_calls() -> None:
    one, other = history(dialogue("call_1")), history(dialogue("call_2"))
    assert one.input_hash == other.input_hash
    assert set(one.prefixes).isdisjoint(other.prefixes)
    assert history(dialogue("call_1", "3 C")).input_hash != one.input_hash


def test_what_a_model_saw_tells_which_tool_call_a_response_answers() -> None:
    def parallel(first: str, second: str) -> str | None:
        both = tool_request("a", "w", {"city": "Paris"})
        both["parts"] += tool_request("b", "w", {"city": "Rome"})["parts"]
        results = [tool_response(first, "21 C"), tool_response(second, "9 C")]
        return history(call([text_message("user", "?"), both, *results])).input_hash

    assert parallel("a", "b") != parallel("b", "a")


def test_a_layer_that_loses_ids_is_continued_all_the_same() -> None:
    lost = tool_request("", "w", {"city": "Paris"})
    lost["parts"][0]["id"] = None
    first = call([text_message("user", "weather?")])
    first.output_messages = [lost]
    later = dialogue("call_1")
    assert set(history(first).with_answer).isdisjoint(history(later).prefixes)
    later.lost_ids = True
    assert not set(history(first).with_answer).isdisjoint(history(later).prefixes)


IDS = st.sampled_from([None, "", "a", "b"])
TEXT = st.fixed_dictionaries(
    {"type": st.just("text"), "content": st.sampled_from(["", "hi", "\ud800"])},
    optional={"cache": st.just(1)},
)
PART = st.one_of(
    TEXT,
    TEXT,
    st.fixed_dictionaries(
        {"type": st.just("tool_call"), "id": IDS, "name": st.sampled_from(["add", None])},
        optional={
            "arguments": st.sampled_from([None, {"b": 1, "a": 2**70}]),
            "arguments_raw": st.just("{}"),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_call_response")},
        optional={"id": IDS, "response": st.sampled_from(["3", {"b": 1, "a": [2]}])},
    ),
    st.just({"type": "reasoning", "content": "hm"}),
    st.just({"type": "server_tool_call", "id": "a", "name": "search"}),
    st.just({"type": "blob", "content": "QQ=="}),
)
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "assistant", "tool", "critic"]),
        "parts": st.lists(PART, max_size=3),
    }
)

WITHOUT_ID = [tool_request("", "add", {}), tool_response("", "3")]


@given(
    st.lists(MESSAGE, max_size=SHORT + 1),
    st.lists(MESSAGE.map(lambda one: {**one, "role": "assistant"}), max_size=2),
    st.booleans(),
    st.sampled_from(["full", "redacted"]),
)
@example([QUESTION, ANSWER, ANSWER], [ANSWER], False, "full")  # noqa: FBT003
@example([*TOLD, ANSWER, ANSWER], [ANSWER], False, "full")  # noqa: FBT003
@example([tool_request("a", "add", {}), tool_response("b", "3"), QUESTION], [ANSWER], False, "full")  # noqa: FBT003
@example(WITHOUT_ID, WITHOUT_ID[:1], False, "full")  # noqa: FBT003
def test_a_short_history_has_the_hashes_of_any_history(
    sent: list[Any],
    said: list[Any],
    lost: bool,  # noqa: FBT001 - hypothesis passes arguments by position
    content: str,
) -> None:
    made = LlmCall("t", "s", None, 0, 1, "semconv", input_messages=sent, output_messages=said)
    made.lost_ids, made.content = lost, content
    assert history(made) == any_history(made)
