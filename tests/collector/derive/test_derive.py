"""Rows from spans that repeat, complete or judge each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.spans import answered, asked, chat, log, said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived, Event, Span, ToolCall

QUESTION, ANSWER = said("user", "Hi"), said("assistant", "Hello")
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}
EVALUATION = "gen_ai.evaluation.result"
ANNOTATION = "agentlightning.annotation"


def response(response_id: str) -> dict[str, Any]:
    return {"gen_ai.response.id": response_id}


def test_two_traces_that_share_a_response_id_record_one_call() -> None:
    one = span(chat([QUESTION], ANSWER, response("r1")), trace="a", id="layer", at=0, ends=4)
    other = span({"gen_ai.operation.name": "chat", **response("r1")}, trace="b", id="sdk", at=1)
    (call,) = derive([one, other], []).llm_calls
    assert (call.span_id, call.merged_span_ids) == ("sdk", ["layer"])
    assert call.output_messages == [ANSWER]


def test_nested_spans_with_equal_output_are_one_call_placed_by_the_inner() -> None:
    agent = span({"gen_ai.operation.name": "invoke_agent"}, id="agent")
    outer = span(chat([QUESTION], ANSWER), id="outer", parent="agent", at=0, ends=9)
    inner = span(chat([QUESTION], ANSWER, response("r1")), id="inner", parent="outer", at=2)
    (call,) = derive([agent, outer, inner], []).llm_calls
    assert (call.span_id, call.parent_span_id, call.response_id) == ("inner", "agent", "r1")
    assert call.merged_span_ids == ["outer"]


def test_nested_spans_that_name_the_same_tool_call_are_one_call() -> None:
    """OpenLIT records one of the parallel tool calls of Responses."""
    two = [asked("c1", "sun", {}), asked("c2", "rain", {})]
    both = {"role": "assistant", "parts": [part for one in two for part in one["parts"]]}
    outer = span(chat([QUESTION], both), id="outer", at=0, ends=9)
    inner = span(chat([QUESTION], two[1], response("r1")), id="inner", parent="outer", at=2)
    (call,) = derive([outer, inner], []).llm_calls
    assert call.response_id == "r1"
    (answer,) = call.output_messages or []
    assert [part["id"] for part in answer["parts"]] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ([], "truncated"),
        ([{"type": "text", "content": "Let me see."}], "truncated"),
        (asked("c1", "sun", {})["parts"], "full"),
    ],
)
def test_an_answer_that_lacks_the_tool_calls_of_its_reason_is_truncated(
    parts: list[dict[str, Any]], content: str
) -> None:
    answer = {"role": "assistant", "parts": parts, "finish_reason": "tool_calls"}
    (call,) = derive([span(chat([QUESTION], answer))], []).llm_calls
    assert (call.finish_reason, call.content) == ("tool_calls", content)


@pytest.mark.parametrize(("said", "content"), [("", "truncated"), ("Let me see.", "full")])
def test_an_input_in_which_a_turn_of_the_assistant_is_empty_is_truncated(
    said: str, content: str
) -> None:
    """Traceloop for LlamaIndex in JavaScript writes a tool's result as words of the user."""
    turn = {"role": "assistant", "parts": [{"type": "text", "content": said}]}
    result = {"role": "user", "parts": [{"type": "text", "content": "The sun shines."}]}
    (call,) = derive([span(chat([QUESTION, turn, result], ANSWER))], []).llm_calls
    assert call.content == content


@pytest.mark.parametrize(
    ("reason", "told"),
    [("completed", (None, "truncated")), ("end_turn", ("stop", "full"))],
)
def test_an_empty_answer_that_may_have_lost_its_tool_calls_is_truncated(
    reason: str, told: tuple[str | None, str]
) -> None:
    """OpenLIT writes no tool calls of responses, which are `completed`; `end_turn` has none."""
    answer = {"role": "assistant", "parts": [], "finish_reason": reason}
    reasons = {"gen_ai.response.finish_reasons": [reason]}
    (call,) = derive([span(chat([QUESTION], answer, reasons))], []).llm_calls
    assert (call.finish_reason, call.content) == told


def test_a_span_above_several_calls_sums_them_up_and_is_an_agent_run() -> None:
    outer = span(chat([QUESTION], ANSWER), id="outer", ends=9)
    inner = [
        span(chat([QUESTION], ANSWER, response(f"r{n}")), id=f"c{n}", parent="outer", at=n * 2)
        for n in range(2)
    ]
    derived = derive([outer, *inner], [])
    assert [call.span_id for call in derived.llm_calls] == ["c0", "c1"]
    assert [run.span_id for run in derived.agent_runs] == ["outer"]


def test_two_calls_that_say_the_same_stay_two() -> None:
    calls = [span(chat([QUESTION], ANSWER), id=f"c{n}", at=n) for n in range(2)]
    assert len(derive(calls, []).llm_calls) == 2


def test_a_call_names_the_agent_that_runs_around_it() -> None:
    agent = span({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}, id="agent")
    step = span({}, id="step", parent="agent")
    call = span(chat([QUESTION], ANSWER), id="call", parent="step")
    assert derive([agent, step, call], []).llm_calls[0].agent_name == "a"


def tool_loop(**tool: Any) -> list[Span]:
    """Return two calls with a tool between them, and the tool's span unless there is none."""
    ask = asked("c1", "add", '{"a": 2, "b": 3}')
    first = span(chat([QUESTION], ask), id="ask", at=0)
    second = span(chat([QUESTION, ask, answered("c1", "5")], ANSWER), id="answer", at=8)
    ran = [span({**TOOL, **tool}, id="tool", at=4)] if tool else []
    return [first, *ran, second]


def only_tool(spans: list[Span]) -> ToolCall:
    (tool,) = derive(spans, []).tool_calls
    return tool


def test_an_execution_that_no_span_shows_is_read_from_the_next_calls_messages() -> None:
    tool = only_tool(tool_loop())
    assert (tool.source, tool.llm_span_id, tool.span_id) == ("messages", "ask", None)
    assert (tool.name, tool.arguments, tool.result) == ("add", {"a": 2, "b": 3}, "5")


def test_a_tool_span_and_the_messages_are_joined_by_the_call_id() -> None:
    tool = only_tool(tool_loop(**{"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "five"}))
    assert (tool.source, tool.span_id, tool.llm_span_id) == ("both", "tool", "ask")
    assert tool.result == "five"


def test_a_tool_span_without_a_call_id_is_joined_by_its_name() -> None:
    tool = only_tool(tool_loop(**{"gen_ai.tool.type": "function"}))
    assert (tool.source, tool.tool_call_id, tool.result) == ("both", "c1", "5")


def test_a_dispatcher_called_with_the_tools_name_is_that_tool() -> None:
    wrapped = {"args": ["add", '{"a": 2, "b": 3}'], "kwargs": {}}
    call = {"gen_ai.tool.name": "call_tool", "gen_ai.tool.call.arguments": wrapped}
    tool = only_tool(tool_loop(**call))
    assert (tool.name, tool.arguments, tool.source) == ("add", {"a": 2, "b": 3}, "both")


def apart(trace: str, call_id: str, at: float) -> list[Span]:
    """Return a tool loop of which each span is a trace of its own, `trace` in all their ids."""
    asks = asked(call_id, "add", '{"a": 2, "b": 3}')
    question = said("user", f"What does {trace} ask?")
    first = span(chat([question], asks), trace=f"{trace}1", id="ask", at=at)
    named = {**TOOL, "gen_ai.tool.call.id": call_id}
    ran = span(named, trace=f"{trace}2", id="tool", at=at + 4)
    turns = [question, asks, answered(call_id, "5")]
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
    ran = {tool.trace_id: tool.rollout_id for tool in derived.tool_calls if tool.source == "span"}
    assert ran == {"a2": "a2", "b2": "b2"}


def test_a_call_that_shows_only_the_response_continues_the_one_that_asked() -> None:
    first, ran, _ = apart("a", "c1", 0)
    alone = span(chat([said("user", "Go on."), answered("c1", "5")], ANSWER), trace="a3", at=8)
    derived = derive([first, ran, alone], [])
    assert {call.rollout_id for call in derived.llm_calls} == {"a1"}
    assert [tool.source for tool in derived.tool_calls] == ["both"]


def test_a_tool_below_a_span_that_sums_calls_up_names_no_call_that_is_not_there() -> None:
    outer = span(chat([QUESTION], ANSWER), id="outer", ends=9)
    inner = [span(chat([QUESTION], ANSWER), id=f"c{n}", parent="outer", at=n * 2) for n in range(2)]
    given = {"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": '{"a": 2}'}
    ran = span({**TOOL, **given}, id="tool", parent="outer", at=1)
    derived = derive([outer, *inner, ran], [])
    (tool,) = derived.tool_calls
    assert tool.llm_span_id in {None, *(call.span_id for call in derived.llm_calls)}


def test_a_request_that_was_never_answered_is_no_execution() -> None:
    assert derive(tool_loop()[:1], []).tool_calls == []


def test_a_tool_in_a_prompts_example_is_no_execution() -> None:
    example = [asked("x", "add", {"a": 1}), answered("x", "1"), QUESTION]
    assert derive([span(chat(example, ANSWER))], []).tool_calls == []


def test_a_tool_span_inside_one_of_the_same_tool_is_the_same_execution() -> None:
    outer = span(TOOL, id="outer", ends=5)
    inner = span({**TOOL, "gen_ai.tool.call.id": "c1"}, id="inner", parent="outer", at=1)
    (tool,) = derive([outer, inner], []).tool_calls
    assert (tool.span_id, tool.tool_call_id) == ("outer", "c1")


def test_a_response_id_that_names_the_call_renames_an_items_id() -> None:
    ask = asked("fc_1", "add", {"a": 2})
    first = span(chat([QUESTION], ask), id="ask", at=0)
    second = span(chat([QUESTION, ask, answered("call_1", "5")], ANSWER), id="answer", at=8)
    derived = derive([first, second], [])
    (tool,) = derived.tool_calls
    assert (tool.tool_call_id, tool.llm_span_id, tool.result) == ("call_1", "ask", "5")
    assert (derived.llm_calls[0].output_messages or [])[0]["parts"][0]["id"] == "call_1"


def judged(value: float, **more: Any) -> Event:
    said_ = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": str(value)}
    return Event(EVALUATION, 7, {**said_, **more})


def test_an_evaluation_event_is_a_reward_for_the_span_that_carries_it() -> None:
    carrier = span(chat([QUESTION], ANSWER), id="s1", events=(judged(0.5),))
    (reward,) = derive([carrier], []).rewards
    assert (reward.name, reward.value, reward.span_id) == ("solved", 0.5, "s1")
    assert reward.rollout_id == "t1"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_reward_that_is_not_finite_stays_a_number(text: str) -> None:
    said_ = {"gen_ai.evaluation.score.value": text}
    carrier = span({}, events=(Event(EVALUATION, 7, said_),))
    annotated = span({"agentlightning.reward.0.value": text}, name=ANNOTATION, id="b")
    rewards = derive([carrier, annotated], [log(EVALUATION, said_, at=3)]).rewards
    assert [str(reward.value) for reward in rewards] == [str(float(text))] * 3


def test_an_evaluation_log_without_a_trace_names_a_response() -> None:
    attributes = {
        "gen_ai.evaluation.name": "solved",
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.response.id": "r1",
    }
    (reward,) = derive([], [log(EVALUATION, attributes, at=3)]).rewards
    assert (reward.response_id, reward.label, reward.value) == ("r1", "pass", None)
    assert (reward.trace_id, reward.rollout_id, reward.source) == (None, None, "log")


def test_a_reward_delivered_twice_is_one_and_keeps_its_id() -> None:
    carrier = span({}, events=(judged(1.0),))
    record = log(EVALUATION, {"gen_ai.evaluation.name": "solved"}, at=3)
    once, twice = derive([carrier], [record]), derive([carrier] * 2, [record] * 2)
    assert once.rewards == twice.rewards
    assert len({reward.reward_id for reward in once.rewards}) == 2


def test_two_judgements_of_one_span_are_two_rewards() -> None:
    assert len(derive([span({}, events=(judged(1.0), judged(0.0)))], []).rewards) == 2


def test_an_agentlightning_annotation_rewards_the_rollout_of_its_resource() -> None:
    attributes = {"agentlightning.reward.0.value": 0.75}
    resource = {"agentlightning.rollout_id": "ro-1"}
    given = span(attributes, name=ANNOTATION, resource=resource)
    (reward,) = derive([given], []).rewards
    assert (reward.name, reward.value, reward.rollout_id) == ("primary", 0.75, "ro-1")
    assert reward.span_id is None


def test_an_agentlightning_annotation_judges_the_response_that_it_links_to() -> None:
    link = {"key_match": "gen_ai.response.id", "value_match": "r2"}
    attributes = {f"agentlightning.link.0.{key}": value for key, value in link.items()}
    given = span({"agentlightning.reward.0.value": 0.5} | attributes, name=ANNOTATION)
    (reward,) = derive([given], []).rewards
    assert (reward.response_id, reward.value) == ("r2", 0.5)


def test_rewards_of_earlier_agentlightning_and_of_agentops_are_read() -> None:
    earlier = span({"reward": 0.25}, name=ANNOTATION, id="a")
    returned = {"agentops.task.output": '{"type": "reward", "value": 0.5}'}
    other = {"agentops.task.output": '{"type": "report", "value": 9}'}
    spans = [earlier, span(returned, id="b", at=1), span(other, id="c", at=2)]
    assert [reward.value for reward in derive(spans, []).rewards] == [0.25, 0.5]


def test_a_flag_evaluation_is_an_arm_with_its_propensity() -> None:
    chosen = {
        "feature_flag.key": "prompt",
        "feature_flag.result.variant": "terse",
        "lightning.propensity": "0.25",
        "lightning.policy.version": "v3",
    }
    carrier = span(
        {"lightning.rollout.id": "r1"}, events=(Event("feature_flag.evaluation", 1, chosen),)
    )
    record = log("feature_flag.evaluation", chosen, trace="t1", span_id="s1", at=2)
    derived = derive([carrier], [record])
    assert [(arm.key, arm.arm, arm.propensity) for arm in derived.arms] == [
        ("prompt", "terse", 0.25)
    ] * 2
    assert {(arm.policy_version, arm.rollout_id) for arm in derived.arms} == {("v3", "r1")}


def test_a_task_is_known_by_its_rollout() -> None:
    given = span(chat([QUESTION], ANSWER, {"lightning.task.id": "task-7"}))
    assert derive([given], []).tasks == {"t1": "task-7"}


def episode() -> tuple[list[Span], Derived]:
    """Return spans of several traces that touch every rule, and their rows."""
    spans = [
        *tool_loop(**{"gen_ai.tool.call.id": "c1"}),
        span(chat([QUESTION], ANSWER, response("r1")), trace="a", id="a1", events=(judged(1.0),)),
        span(chat([QUESTION], ANSWER, response("r1")), trace="b", id="b1"),
        *(one._replace(trace_id="c", start_ns=0, end_ns=0) for one in tool_loop()),
    ]
    return spans, derive(spans, [])


EPISODE, ROWS = episode()


@examples(60)
@given(st.permutations(EPISODE), st.integers(0, len(EPISODE) - 1))
def test_rows_depend_on_neither_the_order_nor_the_count_of_deliveries(
    order: list[Span], repeated: int
) -> None:
    assert derive([*order, order[repeated]], []) == ROWS


def test_parallel_calls_of_one_tool_are_answered_in_the_order_they_were_asked_in() -> None:
    cities = ("Oslo", "Rome")
    parts = [asked("", "weather", {"city": city})["parts"][0] | {"id": None} for city in cities]
    call = span(chat([QUESTION], {"role": "assistant", "parts": parts}), id="call", parent="agent")
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
    ran = [span(tool, id=f"t{n}", parent="agent", at=2 + n) for n in range(2)]
    tools = derive([span({}, id="agent"), call, *ran], []).tool_calls
    assert [one.arguments for one in tools] == [{"city": city} for city in cities]


def test_a_tool_is_not_joined_to_a_call_that_starts_in_the_same_millisecond() -> None:
    """JavaScript's clock counts in milliseconds, and Laminar's spans of tools have no ids."""
    asks = [asked(f"c{n}", "rain", {"city": city}) for n, city in enumerate(("Oslo", "Rome"))]
    told = [answered(f"c{n}", "It rains.") for n in range(2)]
    history = [QUESTION, asks[0], told[0], asks[1], told[1]]
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "rain"}
    spans = [
        span(chat(history[:1], asks[0]), id="ask0", at=0),
        span(tool, id="ran0", at=2),
        span(chat(history[:3], asks[1]), id="ask1", at=2),
        span(tool, id="ran1", at=4),
        span(chat(history, ANSWER), id="end", at=4),
    ]
    tools = derive(spans, []).tool_calls
    assert [(one.span_id, one.llm_span_id) for one in tools] == [("ran0", "ask0"), ("ran1", "ask1")]


def test_a_frameworks_result_is_taken_out_of_the_object_that_gemini_needs() -> None:
    result = {"type": "tool_call_response", "id": "c1", "response": {"result": 5}}
    history = [QUESTION, asked("c1", "add", {"a": 2}), {"role": "tool", "parts": [result]}]
    for provider, expected in (("gcp.gemini", 5), ("openai", {"result": 5})):
        told = {"gen_ai.provider.name": provider}
        first = span(chat([QUESTION], history[1], told), id="c1", parent="agent")
        ran = span({**TOOL, "gen_ai.tool.call.id": "c1"}, id="tool", parent="agent", at=2)
        second = span(chat(history, ANSWER, told), id="c2", parent="agent", at=4)
        (tool,) = derive([span({}, id="agent"), first, ran, second], []).tool_calls
        assert tool.result == expected
