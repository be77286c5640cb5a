"""Ids of tool calls that differ from those of their responses."""

from support.spans import (
    ANSWER,
    QUESTION,
    chat,
    span,
    text_message,
    tool_request,
    tool_response,
    trace_keys,
)

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span


def test_a_text_after_tool_calls_does_not_part_them_from_their_responses() -> None:
    answer = {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "call_1", "response": "It shines."}],
    }
    calls, text = (
        tool_request("fc_1", "sun", {"city": "Rome"}),
        text_message("assistant", "I look."),
    )
    for turn in ([calls, text], [text, calls]):
        history = [text_message("user", "Sun in Rome?"), *turn, answer]
        (call,) = derive([span(chat(history, text_message("assistant", "Yes.")))], []).llm_calls
        parts = [part for message in call.input_messages or [] for part in message["parts"]]
        assert [part["id"] for part in parts if "id" in part] == ["call_1", "call_1"]


def item(call_id: str) -> dict[str, object]:
    """Return an answer that asks for a tool by the id of the Responses API's item."""
    return tool_request(call_id, "w", {"city": "Paris"})


def responses_task(number: int, at: float) -> list[Span]:
    """Return one task on the Responses API as Traceloop records it: a trace a call, no link."""
    first = chat(
        [text_message("user", f"task {number}")],
        item(f"fc_{number}"),
        {"gen_ai.response.id": f"resp_{number}a", "gen_ai.request.model": "m"},
    )
    second = chat(
        [tool_response(f"call_{number}", "21 C")],
        text_message("assistant", f"done {number}"),
        {"gen_ai.response.id": f"resp_{number}b", "gen_ai.request.model": "m"},
    )
    return [
        span(first, trace=f"t{number}a", id=f"s{number}a", at=at),
        span(second, trace=f"t{number}b", id=f"s{number}b", at=at + 2),
    ]


def test_two_tasks_whose_tool_calls_have_the_ids_of_items_are_two_rollouts() -> None:
    spans = [*responses_task(0, 0), *responses_task(1, 5)]
    rows = derive(spans, [])
    assert [(call.span_id, call.rollout_id) for call in rows.llm_calls] == [
        *(("s0a", "t0a"), ("s0b", "t0a"), ("s1a", "t1a"), ("s1b", "t1a"))
    ]
    assert [(tool.name, tool.llm_span_id) for tool in rows.tool_calls] == [
        *(("w", "s0a"), ("w", "s1a"))
    ]
    assert rows.llm_calls[1].content == "full"
    first, second = (trace_keys(spans[at : at + 1], []) for at in (0, 1))
    assert first & second


def test_concurrent_tasks_that_look_alike_are_not_joined() -> None:
    rows = derive([*responses_task(0, 0), *responses_task(1, 0.5)], [])
    assert len({call.rollout_id for call in rows.llm_calls}) == 4
    assert [call.content for call in rows.llm_calls] == ["full", "full", "truncated", "truncated"]


def test_a_history_that_names_tool_calls_where_the_answer_named_items_continues_it() -> None:
    first, _ = responses_task(0, 0)
    history = [text_message("user", "task 0"), item("call_0"), tool_response("call_0", "21 C")]
    later = chat(history, text_message("assistant", "done"), {"gen_ai.response.id": "resp_0b"})
    rows = derive([first, span(later, trace="t2", id="s2", at=9)], [])
    assert [call.rollout_id for call in rows.llm_calls] == ["t0a", "t0a"]
    assert [tool.llm_span_id for tool in rows.tool_calls] == ["s0a"]


def test_a_response_id_that_names_the_call_renames_an_items_id() -> None:
    ask = tool_request("fc_1", "add", {"a": 2})
    first = span(chat([QUESTION], ask), id="ask", at=0)
    second = span(chat([QUESTION, ask, tool_response("call_1", "5")], ANSWER), id="answer", at=8)
    derived = derive([first, second], [])
    (tool,) = derived.tool_calls
    assert (tool.tool_call_id, tool.llm_span_id, tool.result) == ("call_1", "ask", "5")
    assert (derived.llm_calls[0].output_messages or [])[0]["parts"][0]["id"] == "call_1"
