"""Records of one call or execution by several instrumentations are merged."""

from typing import Any

import pytest
from support.regressions import rows_of, spans_of
from support.spans import (
    ANSWER,
    QUESTION,
    TOOL,
    assert_read,
    chat,
    span,
    text_message,
    tool_request,
    trace_keys,
)

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span

BARE = {"gen_ai.operation.name": "chat"}
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
REQUEST = {"gen_ai.request.model": "m", "gen_ai.input.messages": [PLAIN_QUESTION]}


def test_an_answer_written_as_an_instant_span_belongs_to_the_call_that_asked() -> None:
    sent = {**BARE, "gen_ai.input.messages": [QUESTION]}
    begun = span(sent, trace="t1", id="begun", at=0)
    later = span(sent, trace="t3", id="later", at=9)
    ended = span(chat([QUESTION], ANSWER), trace="t2", id="ended", at=5, ends=5)
    first, second = derive([ended, later, begun], []).llm_calls
    assert_read(first)
    assert (first.span_id, first.merged_span_ids) == ("begun", ["ended"])
    assert (second.span_id, second.merged_span_ids) == ("later", ())


def failed(trace: str, at: float, ends: float, more: dict[str, Any]) -> Span:
    given = {**BARE, "gen_ai.request.model": "m", "error.type": "api_error", **more}
    return span(given, trace=trace, at=at, ends=ends, status="ERROR")


def test_an_sdks_own_record_of_a_failed_call_is_the_call_around_it() -> None:
    asking = {"gen_ai.input.messages": [QUESTION]}
    outer = [failed("t1", 0, 4, asking), failed("t2", 1, 6, asking)]
    inner = [failed("t3", 2, 5, {}), failed("t4", 3, 3.5, {})]
    apart = [failed("t5", 7, 8, {})]
    calls = derive([*inner, *apart, *outer], []).llm_calls
    assert sorted((call.trace_id, call.content) for call in calls) == [
        ("t3", "full"), ("t4", "full"), ("t5", "absent"),
    ]  # fmt: skip


def test_a_failed_call_that_three_instrumentations_recorded_is_one() -> None:
    """The OpenAI Agents SDK, traced by Traceloop's two packages and by OpenInference."""
    rows = rows_of("failed_by_three")
    (call,) = rows.llm_calls
    assert (call.error_type, call.content) == ("BadRequestError", "full")
    assert len(call.merged_span_ids) == 2
    # The span above both records of the call is no agent.
    assert [run.kind for run in rows.agent_runs] == ["workflow", "agent"]


def test_a_failed_call_below_a_span_that_was_sent_under_another_id_is_one() -> None:
    """LangSmith's own ids: those of its span, and those that the client's record below it names."""
    asking = {"gen_ai.input.messages": [QUESTION]}
    whole = failed("t1", 0, 4, asking)
    inner = failed("t2", 1, 3, asking)._replace(
        span_id="s2", parent_span_id="unsent", scope_name="client"
    )
    (call,) = derive([whole, inner], []).llm_calls
    assert (call.trace_id, call.merged_span_ids) == ("t2", ["s1"])
    assert trace_keys([whole], []) & trace_keys([inner], [])
    above = span({}, trace="t2", id="unsent", ends=9)
    assert len(derive([whole, inner, above], []).llm_calls) == 2


@pytest.mark.parametrize("scopes", [("a",), ("a", "b"), ("a", "b", "c")])
def test_parallel_calls_that_failed_stay_as_many_however_many_packages_recorded_them(
    scopes: tuple[str, ...],
) -> None:
    asking = {**BARE, "gen_ai.request.model": "m", "gen_ai.input.messages": [QUESTION]}
    given = [
        span(
            {**asking, "error.type": "RateLimitError"},
            id=f"{scope}{call}",
            parent="root",
            at=call / 10 + depth / 100,
            ends=9 + call / 10 - depth / 100,
            status="ERROR",
            scope=scope,
        )
        for call in range(3)
        for depth, scope in enumerate(scopes)
    ]
    calls = derive([span({}, id="root", ends=20), *given], []).llm_calls
    assert [call.span_id for call in calls] == [f"{scopes[-1]}{call}" for call in range(3)]
    assert {len(call.merged_span_ids) for call in calls} == {len(scopes) - 1}


def test_failed_calls_of_another_input_or_time_stay_apart() -> None:
    def asked(text: str, scope: str, at: float) -> Span:
        given = {**BARE, "error.type": "RateLimitError", "gen_ai.request.model": "m"}
        given["gen_ai.input.messages"] = [text_message("user", text)]
        return span(given, id=f"{text}{at}", parent="root", at=at, status="ERROR", scope=scope)

    given = [asked("Hi", "a", 0), asked("Ho", "b", 0), asked("Hi", "b", 3)]
    assert len(derive([span({}, id="root", ends=20), *given], []).llm_calls) == 3


def heard(call: int, scope: str, at: float, **more: Any) -> Span:
    """Return the record of a call by one of several listeners to a framework."""
    given = chat([QUESTION], ANSWER, {"gen_ai.request.model": "m", **more})
    return span(given, id=f"{scope}{call}", parent="root", at=at, ends=at + 5, scope=scope)


def test_listeners_that_hear_of_a_call_in_turn_recorded_one() -> None:
    """LangChain tells its listeners one after the other; none knows the id of a streamed answer."""
    given = [
        heard(call, scope, call + late) for call in (0, 1) for scope, late in (("a", 0), ("b", 0.1))
    ]
    calls = derive([span({}, id="root", ends=20), *given], []).llm_calls
    assert [len(call.merged_span_ids) for call in calls] == [1, 1]


def test_listeners_without_a_span_around_them_recorded_one_call_in_two_traces() -> None:
    given = [
        heard(0, scope, late)._replace(trace_id=scope, parent_span_id=None)
        for scope, late in (("a", 0), ("b", 0.1))
    ]
    (call,) = derive(given, []).llm_calls
    assert len(call.merged_span_ids) == 1
    assert set.intersection(*(trace_keys([one], []) for one in given))


@pytest.mark.parametrize(
    "other",
    [heard(1, "a", 0.1), heard(1, "b", 6), heard(1, "b", 0.1, **{"gen_ai.request.model": "n"})],
)
def test_a_record_of_the_same_package_another_time_or_model_is_another_call(other: Span) -> None:
    assert len(derive([span({}, id="root", ends=20), heard(0, "a", 0), other], []).llm_calls) == 2


def test_a_span_inside_the_span_of_the_same_tool_call_is_no_second_execution() -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c1"}
    outer = span({**ran, "gen_ai.tool.name": "sun"}, id="outer", at=0)
    inner = span(ran, id="inner", parent="outer", at=0.1, status="ERROR", name="execution")
    (tool,) = derive([outer, inner], []).tool_calls
    assert (tool.name, tool.error_type) == ("sun", "_OTHER")


def test_a_servers_span_below_its_client_is_no_second_call() -> None:
    """VLLM's own span; see `SpanAttributes` in its `vllm/tracing.py`."""
    client = span(chat([QUESTION], ANSWER), id="client", ends=3)
    counts = {"gen_ai.usage.prompt_tokens": 31, "gen_ai.usage.completion_tokens": 9}
    latency = {"gen_ai.latency.e2e": 0.3, "gen_ai.latency.time_to_first_token": 0.1}
    names = {"gen_ai.request.id": "cmpl-1", "gen_ai.response.model": "m"}
    server = span({**names, **counts, **latency}, id="server", parent="client", name="llm_request")
    assert [call.span_id for call in derive([client, server], []).llm_calls] == ["client"]


def test_a_model_that_answered_is_known_from_the_record_that_does_not_echo_the_request() -> None:
    """Logfire's span of a stream has the requested model under both keys."""
    models = {"gen_ai.request.model": "m", "gen_ai.response.model": "m"}
    asks = {**models, "gen_ai.operation.name": "chat", "gen_ai.input.messages": [PLAIN_QUESTION]}
    answers = {
        **asks,
        "gen_ai.response.model": "m-2026",
        "gen_ai.output.messages": [text_message("assistant", "Yes.")],
    }
    call, late = span(asks, id="a"), span(answers, id="b", trace="t2", at=1, ends=1)
    (merged,) = derive([call, late], []).llm_calls
    assert (merged.span_id, merged.request_model, merged.response_model) == ("a", "m", "m-2026")


@pytest.mark.parametrize("answer", [[], [text_message("assistant", "Ye")]])
def test_a_stream_that_broke_off_is_one_call_that_failed(answer: list[dict[str, Any]]) -> None:
    """Logfire's span of the request ends well; only its record of the answer has the error."""
    asks = {**REQUEST, "gen_ai.operation.name": "chat"}
    answers = {**asks, "gen_ai.output.messages": answer, "error.type": "APIConnectionError"}
    call = span(asks, id="a")
    late = span(answers, id="b", trace="t2", at=1, ends=1, status="ERROR", message="Broken.")
    (merged,) = derive([call, late], []).llm_calls
    assert (merged.span_id, merged.error_type) == ("a", "APIConnectionError")
    assert (merged.error_message, merged.finish_reason) == ("Broken.", "error")


def test_a_call_of_two_traces_has_place_agent_and_tools_of_the_framework() -> None:
    rows = rows_of("dup_session")
    assert [(call.trace_id[:2], call.span_id[:4]) for call in rows.llm_calls] == [
        *(("cc", "0202"), ("cc", "0505"))
    ]
    assert {call.agent_name for call in rows.llm_calls} == {"my_agent"}
    assert {call.rollout_id for call in rows.llm_calls} == {"sess-1"}
    assert {run.rollout_id for run in rows.agent_runs} == {"sess-1"}
    (tool,) = rows.tool_calls
    assert (tool.rollout_id, tool.source, tool.llm_span_id) == (
        *("sess-1", "both"),
        rows.llm_calls[0].span_id,
    )


def test_a_call_inside_a_tool_of_a_call_is_another_call() -> None:
    rows = rows_of("nested_no_content")
    assert [(call.input_tokens, call.output_tokens) for call in rows.llm_calls] == [
        *((71, 30), (46, 19))
    ]


def test_nested_calls_without_content_that_counted_other_tokens_are_two() -> None:
    def counted(tokens: int) -> dict[str, object]:
        usage = {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": tokens}
        return {"gen_ai.operation.name": "chat", **usage}

    given = [span(counted(71), id="s0", ends=9), span(counted(46), id="s1", parent="s0", at=1)]
    assert len(derive(given, []).llm_calls) == 2


def test_the_id_of_a_streamed_response_is_read_under_logfire() -> None:
    asks = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": [text_message("user", "Hi")]}
    attributes = {"gen_ai.output.messages": [text_message("assistant", "Hello")]}
    kept = {"response_data": {"message": {"content": "Hello"}, "id": "chatcmpl-1"}}
    for more in ({"gen_ai.response.id": "chatcmpl-1"}, kept):
        streamed = span({**asks, **attributes, **more}, id="log", at=3, ends=3)
        (call,) = derive([span(asks, id="ask"), streamed], []).llm_calls
        assert (call.span_id, call.response_id) == ("ask", "chatcmpl-1")


def test_a_span_id_of_another_trace_ties_nothing_to_a_merged_call() -> None:
    other = chat([text_message("user", "else")], text_message("assistant", "so"))
    same_id = span(other, trace="other", id="0303030303030303", resource={"service.name": "x"})
    calls = derive([*spans_of("dup_session"), same_id], []).llm_calls
    assert {call.rollout_id for call in calls if call.trace_id == "other"} == {"other"}


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
    two = [tool_request("c1", "sun", {}), tool_request("c2", "rain", {})]
    both = {"role": "assistant", "parts": [part for one in two for part in one["parts"]]}
    outer = span(chat([QUESTION], both), id="outer", at=0, ends=9)
    inner = span(chat([QUESTION], two[1], response("r1")), id="inner", parent="outer", at=2)
    (call,) = derive([outer, inner], []).llm_calls
    assert call.response_id == "r1"
    (answer,) = call.output_messages or []
    assert [part["id"] for part in answer["parts"]] == ["c1", "c2"]


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


def test_a_tool_span_inside_one_of_the_same_tool_is_the_same_execution() -> None:
    outer = span(TOOL, id="outer", ends=5)
    inner = span({**TOOL, "gen_ai.tool.call.id": "c1"}, id="inner", parent="outer", at=1)
    (tool,) = derive([outer, inner], []).tool_calls
    assert (tool.span_id, tool.tool_call_id) == ("outer", "c1")
