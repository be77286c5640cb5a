"""Conversation ids that are ids of responses."""

from support.regressions import rows_of
from support.spans import chat, only_call, span, text_message, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span

ID = "gen_ai.conversation.id"


def agent(trace: str, at: float, conversation: str | None = None) -> Span:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"}
    named = {ID: conversation} if conversation else {}
    return span(attributes | named, trace=trace, id=f"agent of {trace}", at=at, ends=at + 9)


def call(trace: str, at: float, text: str, response: str, **more: str) -> Span:
    told = chat(
        [text_message("user", text)],
        text_message("assistant", f"On {text}"),
        {"gen_ai.request.model": "m"},
    )
    named = {"gen_ai.response.id": response, **more}
    return span(told | named, trace=trace, id=response, parent=f"agent of {trace}", at=at)


def test_the_group_of_logfires_agents_is_a_conversation_and_its_null_is_none() -> None:
    rows = rows_of("logfire_groups")
    alone = rows.llm_calls[-1].rollout_id
    assert [call.conversation_id for call in rows.llm_calls] == ["chat-1"] * 3 + [None] * 2
    assert [call.rollout_id for call in rows.llm_calls] == ["chat-1"] * 3 + [alone] * 2
    assert alone not in {"chat-1", "null"}


def test_another_key_of_that_name_is_no_conversation() -> None:
    assert (
        only_call(
            span(chat([], text_message("assistant", "Hi"), {"group_id": "g"}))
        ).conversation_id
        is None
    )


def test_the_first_call_of_an_agent_continues_the_response_that_the_agent_states() -> None:
    """Microsoft's Agent Framework states it on the calls after the first one only."""
    first = [agent("t1", 0), call("t1", 1, "sun", "resp_1")]
    later = [
        agent("t2", 20, "resp_1"),
        call("t2", 21, "rain", "resp_2"),
        call("t2", 23, "snow", "resp_3", **{ID: "resp_2"}),
    ]
    calls = derive([*first, *later], []).llm_calls
    assert {one.rollout_id for one in calls} == {"t1"}
    continued = [one.request_params.get("previous_response_id") for one in calls]
    assert continued == [None, "resp_1", "resp_2"]
    told = [
        *(text_message("user", "sun"), text_message("assistant", "On sun")),
        *(
            text_message("user", "rain"),
            text_message("assistant", "On rain"),
            text_message("user", "snow"),
        ),
    ]
    assert [one.input_messages for one in calls] == [told[:1], told[:3], told]
    assert {one.content for one in calls} == {"full"}
    assert trace_keys(first, []) & trace_keys(later, [])  # so a store derives them together


def test_a_call_that_states_another_response_continues_that_one() -> None:
    first = [agent("t1", 0), call("t1", 1, "sun", "resp_1"), call("t1", 3, "rain", "resp_2")]
    later = [agent("t2", 20, "resp_2"), call("t2", 21, "snow", "resp_3", **{ID: "resp_1"})]
    *_, last = derive([*first, *later], []).llm_calls
    assert last.request_params == {"previous_response_id": "resp_1"}


def test_a_response_that_is_the_agents_own_is_not_continued() -> None:
    spans = [agent("t1", 0, "resp_2"), call("t1", 1, "sun", "resp_1"), call("t1", 3, "x", "resp_2")]
    calls = derive(spans, []).llm_calls
    assert ["previous_response_id" in one.request_params for one in calls] == [False, False]


def test_a_response_that_is_not_known_is_not_continued() -> None:
    (only,) = derive([agent("t1", 0, "resp_0"), call("t1", 1, "sun", "resp_1")], []).llm_calls
    assert (only.conversation_id, "previous_response_id" in only.request_params) == (None, False)
