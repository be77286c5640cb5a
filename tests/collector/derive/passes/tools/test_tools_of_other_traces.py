"""Tools that ran in a trace of their own are joined to the call that requested them."""

from support.spans import ANSWER, TOOL, chat, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span


def apart(trace: str, call_id: str, at: float) -> list[Span]:
    """Return a tool loop of which each span is a trace of its own, `trace` in all their ids."""
    asks = tool_request(call_id, "add", '{"a": 2, "b": 3}')
    question = text_message("user", f"What does {trace} ask?")
    first = span(chat([question], asks), trace=f"{trace}1", id="ask", at=at)
    named = {**TOOL, "gen_ai.tool.call.id": call_id}
    ran = span(named, trace=f"{trace}2", id="tool", at=at + 4)
    turns = [question, asks, tool_response(call_id, "5")]
    second = span(chat(turns, ANSWER), trace=f"{trace}3", id="answer", at=at + 8)
    return [first, ran, second]


def test_a_tool_that_ran_as_a_trace_of_its_own_is_joined_to_the_call_that_asked() -> None:
    derived = derive(apart("a", "c1", 0), [])
    (tool,) = derived.tool_calls
    assert (tool.source, tool.trace_id, tool.llm_span_id, tool.result) == ("both", "a2", "ask", "5")
    assert {row.rollout_id for row in (*derived.llm_calls, tool)} == {"a1"}


def test_without_the_id_it_is_joined_by_its_arguments_if_it_ran_right_after_the_call() -> None:
    first, ran, second = apart("a", "c1", 0)
    given = {**TOOL, "gen_ai.tool.call.arguments": '{"b": 3, "a": 2}'}
    (tool,) = derive([first, ran._replace(attributes=given), second], []).tool_calls
    assert (tool.source, tool.tool_call_id, tool.rollout_id) == ("both", "c1", "a1")
    long_after = ran._replace(attributes=given, start_ns=10**12, end_ns=10**12)
    tools = derive([first, long_after, second], []).tool_calls
    assert {tool.source for tool in tools} == {"span", "messages"}


def test_a_tool_on_its_own_belongs_to_the_rollout_that_had_asked_and_not_gone_on() -> None:
    derived = derive([*apart("a", "0", 0), *apart("b", "0", 20)], [])
    assert {(tool.trace_id, tool.rollout_id, tool.source) for tool in derived.tool_calls} == {
        ("a2", "a1", "both"),
        ("b2", "b1", "both"),
    }


def test_where_two_rollouts_wait_for_the_same_tool_it_is_not_guessed_whose_it_is() -> None:
    derived = derive([*apart("a", "0", 0), *apart("b", "0", 1)], [])
    # Their messages have the executions, so those of the spans would be there twice.
    told = [(tool.rollout_id, tool.source) for tool in derived.tool_calls]
    assert sorted(told) == [("a1", "messages"), ("b1", "messages")]


def test_a_tool_that_no_messages_have_is_kept_though_two_rollouts_wait_for_it() -> None:
    derived = derive([*apart("a", "0", 0)[:2], *apart("b", "0", 1)[:2]], [])
    assert {tool.rollout_id for tool in derived.tool_calls} == {"a2", "b2"}


def test_a_call_that_shows_only_the_response_continues_the_one_that_asked() -> None:
    first, ran, _ = apart("a", "c1", 0)
    alone = span(
        chat([text_message("user", "Go on."), tool_response("c1", "5")], ANSWER), trace="a3", at=8
    )
    derived = derive([first, ran, alone], [])
    assert {call.rollout_id for call in derived.llm_calls} == {"a1"}
    assert [tool.source for tool in derived.tool_calls] == ["both"]
