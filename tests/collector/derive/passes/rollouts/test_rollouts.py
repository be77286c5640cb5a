"""Which calls make one rollout: identity in its order, and message containment at its edges."""

from itertools import pairwise, permutations
from typing import Any

import pytest
from support.regressions import rows_of, spans_of
from support.spans import chat, span, text_message, tool_request, tool_response, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall, Span

SYSTEM, QUESTION, ANSWER = (
    text_message("system", "Help."),
    text_message("user", "Hi"),
    text_message("assistant", "Hello"),
)


def turn(number: int, at: float, **more: Any) -> Span:
    """Return the n-th call of one conversation, in a trace of its own."""
    history = [SYSTEM, QUESTION]
    for earlier in range(number):
        history += [
            text_message("assistant", f"answer {earlier}"),
            text_message("user", f"go on {earlier}"),
        ]
    attributes = chat(
        history, text_message("assistant", f"answer {number}"), more.pop("attributes", None)
    )
    return span(attributes, **({"trace": f"t{number}", "id": f"s{number}", "at": at} | more))


def rollouts(*spans: Span) -> dict[str, tuple[str | None, int | None]]:
    """Return the rollout and the step of each call by its span id."""
    return {call.span_id: (call.rollout_id, call.step) for call in derive(spans, []).llm_calls}


def test_a_rollout_id_on_the_span_comes_before_all_else() -> None:
    ids = {"lightning.rollout.id": "r1", "gen_ai.conversation.id": "talk"}
    given = turn(0, 0, attributes=ids, resource={"agentlightning.rollout_id": "other"})
    assert rollouts(given) == {"s0": ("r1", 0)}


def test_a_rollout_id_on_the_resource_comes_before_a_conversation() -> None:
    resource = {"agentlightning.rollout_id": "ro-1"}
    given = turn(0, 0, attributes={"gen_ai.conversation.id": "talk"}, resource=resource)
    assert rollouts(given) == {"s0": ("ro-1", 0)}


def test_traces_of_one_conversation_are_one_rollout_with_steps_in_time_order() -> None:
    ids = {"session.id": "talk"}
    late = span(chat([QUESTION], ANSWER, ids), trace="a", id="late", at=9)
    early = span(chat([QUESTION], ANSWER, ids), trace="b", id="early", at=1)
    assert rollouts(late, early) == {"early": ("talk", 0), "late": ("talk", 1)}


def test_a_call_takes_the_conversation_of_the_agent_around_it() -> None:
    agent = span(
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "talk"}, id="agent"
    )
    other = span({"gen_ai.conversation.id": "aside"}, id="other")
    call = span(chat([QUESTION], ANSWER), id="call", parent="agent")
    assert rollouts(agent, other, call) == {"call": ("talk", 0)}


def test_two_rollouts_under_one_root_stay_two() -> None:
    root = span({}, id="root")
    runs = [span({"lightning.rollout.id": f"r{n}"}, id=f"run{n}", parent="root") for n in range(2)]
    calls = [span(chat([QUESTION], ANSWER), id=f"c{n}", parent=f"run{n}") for n in range(2)]
    assert rollouts(root, *runs, *calls) == {"c0": ("r0", 0), "c1": ("r1", 0)}


def test_a_call_that_begins_with_an_earlier_calls_messages_continues_it() -> None:
    found = rollouts(turn(2, 20), turn(0, 0), turn(1, 10))
    assert found == {"s0": ("t0", 0), "s1": ("t0", 1), "s2": ("t0", 2)}


def test_a_history_that_skips_an_unrecorded_call_still_continues_the_last_recorded_one() -> None:
    assert rollouts(turn(0, 0), turn(2, 20)) == {"s0": ("t0", 0), "s2": ("t0", 1)}


def test_tool_call_ids_tell_equal_looking_histories_apart() -> None:
    firsts = [
        span(
            chat([QUESTION], tool_request(f"c{n}", "add", {"a": 1})),
            trace=f"t{n}",
            id=f"s{n}",
            at=n,
        )
        for n in range(2)
    ]
    history = [QUESTION, tool_request("c0", "add", {"a": 1}), tool_response("c0", "1")]
    second = span(chat(history, ANSWER), trace="t9", id="s9", at=9)
    assert rollouts(*firsts, second)["s9"] == ("t0", 1)


def test_a_call_that_started_before_the_other_ended_does_not_continue_it() -> None:
    assert rollouts(turn(0, 0, ends=15), turn(1, 10)) == {"s0": ("t0", 0), "s1": ("t1", 0)}


def test_a_history_without_its_tool_calls_still_continues_the_call_that_told_the_result() -> None:
    first = span(chat([QUESTION], tool_request("c1", "add", {})), trace="t0", id="s0", at=0)
    used = [QUESTION, tool_request("c1", "add", {}), tool_response("c1", "1")]
    told = span(chat(used, ANSWER), trace="t1", id="s1", at=2)
    kept = span(
        chat([QUESTION, ANSWER, text_message("user", "And?")], ANSWER), trace="t2", id="s2", at=4
    )
    other = span(
        chat([QUESTION, text_message("assistant", "No")], ANSWER), trace="t3", id="s3", at=6
    )
    expected = {"s0": ("t0", 0), "s1": ("t0", 1), "s2": ("t0", 2), "s3": ("t3", 0)}
    assert rollouts(first, told, kept, other) == expected


def test_a_start_in_whole_milliseconds_may_be_later_than_the_end_within_that_millisecond() -> None:
    javascript = rollouts(turn(0, 0, ends=10.0004), turn(1, 10.0))
    assert javascript == {"s0": ("t0", 0), "s1": ("t0", 1)}
    exact = rollouts(turn(0, 0, ends=10.0004), turn(1, 10.0003))
    assert exact == {"s0": ("t0", 0), "s1": ("t1", 0)}


def two_runs(at: float, **more: Any) -> list[Span]:
    """Return the first calls of two runs with the same messages; the second starts `at`."""
    other = {"trace": "b", "id": "b0", "at": at} | more
    return [turn(0, 0, trace="a", id="a0"), turn(0, **other)]


def test_of_equal_histories_the_most_recent_is_continued_if_the_other_run_had_ended() -> None:
    found = rollouts(*two_runs(5), turn(1, 10, trace="b1", id="b1"))
    assert found == {"a0": ("a", 0), "b0": ("b", 0), "b1": ("b", 1)}


def test_runs_one_after_the_other_with_the_same_messages_are_told_apart() -> None:
    second = turn(1, 2, trace="a1", id="a1"), turn(1, 10, trace="b1", id="b1")
    found = rollouts(*two_runs(5), *second)
    assert found == {"a0": ("a", 0), "a1": ("a", 1), "b0": ("b", 0), "b1": ("b", 1)}


@pytest.mark.parametrize("at", [0.5, 5], ids=["overlapping calls", "calls in turn"])
def test_runs_at_once_with_the_same_messages_go_on_in_the_order_in_which_their_calls_ended(
    at: float,
) -> None:
    second = turn(1, 10, trace="x", id="x1"), turn(1, 10.5, trace="y", id="y1")
    found = rollouts(*two_runs(at), *second)
    assert found == {"a0": ("a", 0), "b0": ("b", 0), "x1": ("a", 1), "y1": ("b", 1)}


def test_a_call_of_the_same_trace_is_continued_whatever_runs_at_the_same_time() -> None:
    second = turn(1, 10, trace="x", id="x1"), turn(1, 10.5, trace="a", id="a1")
    found = rollouts(*two_runs(5), *second)
    assert found == {"a0": ("a", 0), "b0": ("b", 0), "x1": ("b", 1), "a1": ("a", 1)}


def test_runs_at_once_with_the_same_messages_are_told_apart_by_their_models() -> None:
    other = {"gen_ai.request.model": "other"}
    first = two_runs(0.5, attributes=other)
    second = turn(1, 10, trace="x", id="x1"), turn(1, 10.5, trace="y", id="y1", attributes=other)
    found = rollouts(*first, *second)
    assert found == {"a0": ("a", 0), "b0": ("b", 0), "x1": ("a", 1), "y1": ("b", 1)}


def test_a_named_response_is_continued_whatever_runs_at_the_same_time() -> None:
    first = [turn(0, 0, trace="a", id="a0", attributes={"gen_ai.response.id": "resp_a"})]
    first += [turn(0, 0.5, trace="b", id="b0", attributes={"gen_ai.response.id": "resp_b"})]
    named = turn(1, 10, trace="x", id="x1", attributes={"gen_ai.conversation.id": "resp_b"})
    found = rollouts(*first, named, turn(1, 11, trace="y", id="y1"))
    assert found == {"a0": ("a", 0), "b0": ("b", 0), "x1": ("b", 1), "y1": ("a", 1)}


def test_a_retry_continues_what_the_failed_call_continued() -> None:
    failed = turn(1, 10, id="failed", trace="x", status="ERROR")
    retried = turn(1, 20, id="retried", trace="y")
    assert rollouts(turn(0, 0), failed, retried)["retried"] == ("t0", 2)


def test_another_service_with_the_same_words_is_another_rollout() -> None:
    other = turn(1, 10, resource={"service.name": "another"})
    assert rollouts(turn(0, 0), other)["s1"] == ("t1", 0)


def test_the_same_process_comes_before_a_more_recent_one() -> None:
    here, there = ({"service.name": "a", "process.pid": pid} for pid in ("1", "2"))
    first = turn(0, 0, trace="here", id="here", resource=here)
    newer = turn(0, 5, trace="there", id="there", resource=there)
    assert rollouts(first, newer, turn(1, 10, resource=here))["s1"] == ("here", 1)


def test_a_stored_response_that_is_named_is_continued() -> None:
    first = span(
        {
            "openinference.span.kind": "LLM",
            "input.value": {"model": "m", "input": "Hi", "instructions": "Help."},
            "output.value": _responses("resp_1", "Hello"),
        },
        trace="t0",
        id="s0",
    )
    request = {"model": "m", "input": "Again", "previous_response_id": "resp_1"}
    second = span(
        {
            "openinference.span.kind": "LLM",
            "input.value": request,
            "output.value": _responses("resp_2", "Hello again"),
        },
        trace="t1",
        id="s1",
        at=5,
    )
    calls = derive([first, second], []).llm_calls
    assert [call.rollout_id for call in calls] == ["t0", "t0"]
    assert calls[1].input_messages == [QUESTION, ANSWER, text_message("user", "Again")]


def _responses(response_id: str, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    output = [{"type": "message", "role": "assistant", "content": content}]
    return {"id": response_id, "object": "response", "status": "completed", "output": output}


def test_reasoning_does_not_break_a_history_because_it_is_not_sent_back() -> None:
    thought = {"type": "reasoning", "content": "Hm."}
    output = {"role": "assistant", "parts": [thought, *ANSWER["parts"]]}
    first = span(chat([QUESTION], output), trace="t0", id="s0")
    second = span(chat([QUESTION, ANSWER, QUESTION], ANSWER), trace="t1", id="s1", at=5)
    assert rollouts(first, second)["s1"] == ("t0", 1)


def test_outlines_without_text_or_tool_ids_are_not_taken_for_one_history() -> None:
    outline = {"role": "user", "parts": [{"type": "text"}]}
    silent = {"role": "assistant", "parts": []}
    first = span(chat([outline], silent), trace="t0", id="s0")
    second = span(chat([outline, silent, outline], silent), trace="t1", id="s1", at=5)
    assert rollouts(first, second) == {"s0": ("t0", 0), "s1": ("t1", 0)}


def test_a_conversation_takes_in_the_trace_that_it_continues() -> None:
    named = turn(1, 10, attributes={"gen_ai.conversation.id": "talk"})
    assert rollouts(turn(0, 0), named) == {"s0": ("talk", 0), "s1": ("talk", 1)}


def test_calls_of_a_trace_without_any_id_are_one_rollout() -> None:
    calls = [
        span(chat([text_message("user", f"{n}")], ANSWER), id=f"s{n}", at=n * 5) for n in range(3)
    ]
    assert {rollout for rollout, _ in rollouts(*calls).values()} == {"t1"}


def test_a_parent_cycle_in_a_broken_trace_ends() -> None:
    one = span(chat([QUESTION], ANSWER), id="a", parent="b")
    other = span({}, id="b", parent="a")
    assert rollouts(one, other) == {"a": ("t1", 0)}


def test_tied_traces_share_a_key_and_strangers_share_none() -> None:
    first, second = trace_keys([turn(0, 0)], []), trace_keys([turn(1, 10)], [])
    stranger = trace_keys([span(chat([text_message("user", "Else")], ANSWER), trace="z")], [])
    assert first & second
    assert not (first | second) & stranger


def test_keys_say_of_what_kind_they_are() -> None:
    ids = {
        "lightning.rollout.id": "r1",
        "gen_ai.conversation.id": "talk",
        "gen_ai.response.id": "resp-1",
    }
    keys = trace_keys([turn(0, 0, attributes=ids)], [])
    assert {"rollout:r1", "conversation:talk", "response:resp-1"} < keys
    assert {key.partition(":")[0] for key in keys} == {
        "rollout",
        "conversation",
        "response",
        "sdk",
        "framework",
        "history",
    }


def test_steps_are_numbered_by_time_within_each_rollout() -> None:
    calls: list[LlmCall] = derive([turn(n, 10 * n) for n in (3, 1, 0, 2)], []).llm_calls
    assert [(call.span_id, call.step) for call in calls] == [(f"s{n}", n) for n in range(4)]


def test_a_conversation_named_by_the_previous_response_is_one_rollout() -> None:
    rows = rows_of("maf_responses")
    assert len({call.rollout_id for call in rows.llm_calls}) == 1
    assert {tool.rollout_id for tool in rows.tool_calls} == {rows.llm_calls[0].rollout_id}
    last = rows.llm_calls[-1]
    assert last.request_params["previous_response_id"] == "resp_2"
    assert last.conversation_id is None
    assert [message["role"] for message in last.input_messages or []] == [
        *("user", "assistant", "tool", "assistant", "tool")
    ]
    assert [call.content for call in rows.llm_calls] == ["full"] * 3
    assert [(tool.name, tool.result) for tool in rows.tool_calls] == [("f", "r1"), ("g", "r2")]


def test_the_conversation_of_a_sub_agent_is_a_part_of_its_callers() -> None:
    rows = rows_of("pydantic_subagent")
    assert {call.rollout_id for call in rows.llm_calls} == {"conv-main"}
    assert {run.rollout_id for run in rows.agent_runs} == {"conv-main"}
    assert [call.conversation_id for call in rows.llm_calls] == [
        *("conv-main", "conv-sub", "conv-main")
    ]


def test_a_session_id_of_two_services_names_two_rollouts() -> None:
    talk = chat(
        [text_message("user", "Hi")], text_message("assistant", "Hello"), {"session.id": "1"}
    )
    one = span(talk, trace="a", id="a", resource={"service.name": "shop"})
    other = span(talk, trace="b", id="b", at=3, resource={"service.name": "bank"})
    calls = derive([one, other], []).llm_calls
    assert [call.rollout_id for call in calls] == ["shop/1", "bank/1"]
    assert [call.conversation_id for call in calls] == ["1", "1"]
    below = span({}, trace="a", id="c", parent="a", resource={"service.name": "bank"})
    calls = derive([one, other, below], []).llm_calls
    assert [call.rollout_id for call in calls] == ["1", "1"]


def test_without_content_calls_stay_together_by_ids_parents_and_responses() -> None:
    def call(**more: object) -> dict[str, object]:
        return {"gen_ai.operation.name": "chat", **more}

    own = [span(call(**{"lightning.rollout.id": "r"}), trace=f"o{n}", id=f"o{n}") for n in "12"]
    root = span({}, trace="p", id="root")
    under = [span(call(), trace="p", id=f"p{n}", parent="root", at=n) for n in (1, 2)]
    named = {"gen_ai.request.previous_response_id": "resp_1"}
    held = [
        span(call(**{"gen_ai.response.id": "resp_1"}), trace="h1", id="h1"),
        span(call(**named), trace="h2", id="h2", at=3),
    ]
    found = {c.span_id: c.rollout_id for c in derive([*own, root, *under, *held], []).llm_calls}
    assert found == {"o1": "r", "o2": "r", "p1": "p", "p2": "p", "h1": "h1", "h2": "h1"}


def test_an_agent_without_a_conversation_of_its_own_has_that_of_its_first_call() -> None:
    def agent(name: str) -> dict[str, object]:
        return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}

    def call(talk: str) -> dict[str, object]:
        return chat(
            [text_message("user", "a")],
            text_message("assistant", "b"),
            {"gen_ai.conversation.id": talk},
        )

    given = [
        span(agent("main"), id="main", ends=20),
        span(call("conv-main"), id="c1", parent="main", at=1),
        span({"gen_ai.operation.name": "execute_tool"}, id="tool", parent="main", at=3, ends=9),
        span(agent("sub"), id="sub", parent="tool", at=4, ends=8),
        span(call("conv-sub"), id="c2", parent="sub", at=5),
    ]
    rows = derive(given, [])
    assert {call.rollout_id for call in rows.llm_calls} == {"conv-main"}
    alone = derive([given[1]._replace(parent_span_id=None), given[4]], [])
    assert {call.rollout_id for call in alone.llm_calls} == {"conv-main", "conv-sub"}


def test_previous_responses_in_other_traces_are_followed() -> None:
    spans = [
        one._replace(trace_id=f"trace {number}", parent_span_id=None)
        for number, one in enumerate(spans_of("maf_responses"))
        if "chat" in one.name
    ]
    rows = derive(spans, [])
    assert len({call.rollout_id for call in rows.llm_calls}) == 1
    keys = [trace_keys([one], []) for one in spans]
    assert keys[0] & keys[1]
    assert keys[1] & keys[2]


def test_a_reward_in_a_sub_agents_conversation_is_of_the_callers_rollout() -> None:
    spans = spans_of("pydantic_subagent")
    score = {"gen_ai.evaluation.score.value": "1", "gen_ai.conversation.id": "conv-sub"}
    judged = Event("gen_ai.evaluation.result", 1, score)
    spans = [
        one._replace(events=(judged,)) if one.name == "invoke_agent sub" else one for one in spans
    ]
    (reward,) = derive(spans, []).rewards
    assert reward.rollout_id == "conv-main"


def test_an_answer_that_googles_chat_sends_back_in_pieces_is_continued() -> None:
    """Each piece of a stream is a message of the next input; OpenInference for `google-genai`."""
    rows = rows_of("genai_pieces")
    assert len(rows.llm_calls[1].input_messages or []) > 5
    assert len({call.rollout_id for call in rows.llm_calls}) == 1
    assert [call.step for call in rows.llm_calls] == [0, 1, 2]
    (tool,) = rows.tool_calls
    assert (tool.name, tool.arguments, tool.llm_span_id) == (
        *("get_weather", {"city": "Paris"}),
        rows.llm_calls[0].span_id,
    )


def handled(trace: str, writer: tuple[str, str] | None, scope: str) -> list[Span]:
    """Return the trace of a message between two agents: what handled it, and its model call."""
    message = span({"messaging.operation": "process"}, trace=trace, id="p", scope=scope)
    links = (writer,) if writer else ()
    called = span(chat([text_message("user", trace)], ANSWER), trace=trace, id="c", parent="p")
    return [message._replace(links=links), called]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("autogen SingleThreadedAgentRuntime", 1), ("opentelemetry.instrumentation.kafka", 3)],
)
def test_agents_that_send_each_other_messages_are_one_rollout(scope: str, expected: int) -> None:
    """A consumer of any other queue may link to messages of many rollouts."""
    traces = [
        handled("a", None, scope),
        handled("b", ("a", "c"), scope),
        handled("d", ("b", "c"), scope),
    ]
    calls = derive([one for own in traces for one in own], []).llm_calls
    assert len({call.rollout_id for call in calls}) == expected
    keys = [trace_keys(own, []) for own in traces]
    ties = [bool(one & other) for one, other in pairwise(keys)]
    assert ties == [expected == 1] * 2


def test_the_rollout_of_traces_without_calls_does_not_depend_on_their_order() -> None:
    scope = "autogen SingleThreadedAgentRuntime"
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    messages = [
        handled(trace, writer, scope)[0]._replace(start_ns=at)
        for at, (trace, writer) in enumerate([("b", None), ("c", ("b", "p")), ("a", ("c", "p"))])
    ]
    agents = [span(agent, trace=one.trace_id, id="agent", parent="p") for one in messages]
    for order in permutations(messages):
        runs = derive([*order, *agents], []).agent_runs
        assert {run.rollout_id for run in runs} == {"b"}
