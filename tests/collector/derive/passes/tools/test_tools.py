"""Tool executions are joined with the requests and responses in messages."""

import json
from typing import Any

import pytest
from support.regressions import rows_of
from support.spans import (
    ANSWER,
    QUESTION,
    SECOND,
    TOOL,
    chat,
    span,
    text_message,
    tool_loop,
    tool_request,
    tool_response,
)

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, Span, ToolCall

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def test_a_result_that_was_written_as_json_text_for_the_model_is_the_text() -> None:
    request = tool_request("c1", "sun", {"city": "Rome"})
    first = span(chat([QUESTION], request), id="a")
    history = [QUESTION, request, tool_response("c1", '"It shines."')]
    second = span(chat(history, ANSWER), id="b", at=2)
    (tool,) = derive([first, second], []).tool_calls
    assert tool.result == "It shines."


def test_a_call_of_whose_answer_nothing_was_recorded_may_have_asked() -> None:
    """Google's ADK for JavaScript writes streamed answers that ask for tools so."""
    empty = {"role": "assistant", "parts": []}
    request = tool_request("c1", "sun", {"city": "Rome"})
    stopped = {"gen_ai.response.finish_reasons": ["stop"]}
    first = span(chat([QUESTION], empty) | stopped, id="a")
    history = [QUESTION, request, tool_response("c1", "It shines.")]
    second = span(chat(history, ANSWER), id="b", at=2)
    (tool,) = derive([first, second], []).tool_calls
    assert (tool.llm_span_id, tool.source) == ("a", "messages")


def test_responses_that_a_history_without_requests_repeats_answer_once() -> None:
    """TanStack AI writes no tool calls and no ids into its histories."""
    texts = ["sun in Rome", "sun in Oslo"]
    told = [{"role": "tool", "content": text} for text in texts]
    answers = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": at, "function": called}]}
        for at, called in (
            ("c1", {"name": "sun", "arguments": '{"city": "Rome"}'}),
            ("c2", {"name": "sun", "arguments": '{"city": "Oslo"}'}),
        )
    ]
    spans = [
        span(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": [PLAIN_QUESTION, *told[:at]],
                "gen_ai.output.messages": answers[at : at + 1],
            },
            id=f"s{at}",
            parent="root",
            at=2 * at,
        )
        for at in range(3)
    ]
    derived = derive([span({}, id="root", ends=9), *spans], [])
    assert sorted((tool.tool_call_id, tool.result) for tool in derived.tool_calls) == [
        ("c1", "sun in Rome"),
        ("c2", "sun in Oslo"),
    ]


def test_a_response_whose_request_was_lost_takes_no_later_request() -> None:
    """Langtrace loses the tool calls of a history, but not their responses."""

    def answers(city: str, call_id: str) -> list[dict[str, object]]:
        lost = {"role": "assistant", "content": ""}
        return [lost, {"role": "tool", "tool_call_id": call_id, "content": f"sun in {city}"}]

    def asks(city: str, call_id: str) -> dict[str, object]:
        function = {"name": "sun", "arguments": json.dumps({"city": city})}
        requested = [{"id": call_id, "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": requested}

    first = [PLAIN_QUESTION, *answers("Rome", "c1")]
    second = [*first, {"role": "user", "content": "And in Oslo?"}, *answers("Oslo", "c2")]
    turns = [([PLAIN_QUESTION], asks("Rome", "c1")), (first, asks("Oslo", "c2")), (second, None)]
    spans = [
        span(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": sent,
                "gen_ai.output.messages": [said] if said else [],
            },
            id=f"s{at}",
            parent="root",
            at=2 * at,
        )
        for at, (sent, said) in enumerate(turns)
    ]
    derived = derive([span({}, id="root", ends=9), *spans], [])
    rows = [(tool.tool_call_id, tool.arguments, tool.result) for tool in derived.tool_calls]
    assert sorted(rows) == [
        ("c1", {"city": "Rome"}, "sun in Rome"),
        ("c2", {"city": "Oslo"}, "sun in Oslo"),
    ]


def test_a_request_from_before_a_rollout_is_not_executed_in_it() -> None:
    """Its history has the request from the first call on, but not as what this call answers."""
    before = [
        text_message("user", "Sun in Oslo?"),
        tool_request("c1", "sun", {"city": "Oslo"}),
        tool_response("c1", "It shines."),
        text_message("user", "And in Rome?"),
    ]
    asks, tells = tool_request("c2", "sun", {"city": "Rome"}), tool_response("c2", "It does not.")
    calls = [
        span(chat(before, asks), id="s1", parent="root"),
        span(
            chat([*before, asks, tells], text_message("assistant", "No.")),
            id="s2",
            parent="root",
            at=2,
        ),
    ]
    derived = derive([span({}, id="root", ends=9), *calls], [])
    assert [tool.tool_call_id for tool in derived.tool_calls] == ["c2"]


def test_a_history_names_the_tool_call_whose_output_lost_its_id() -> None:
    """Langfuse for JavaScript loses the ids of tool calls in streams."""
    question, lost = text_message("user", "Sun in Rome?"), tool_request("", "sun", {"city": "Rome"})
    history = [
        question,
        tool_request("c1", "sun", {"city": "Rome"}),
        tool_response("c1", "It shines."),
    ]
    ran = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.arguments": {"city": "Rome"},
        "gen_ai.tool.call.result": "It shines.",
    }
    spans = [
        span(chat([question], lost), id="s1", parent="root"),
        span(ran, id="tool", parent="root", at=1),
        span(chat(history, text_message("assistant", "Yes.")), id="s2", parent="root", at=2),
    ]
    derived = derive([span({}, id="root", ends=9), *spans], [])
    (tool,) = derived.tool_calls
    assert (tool.tool_call_id, tool.llm_span_id, tool.source) == ("c1", "s1", "both")


def test_a_tool_call_that_a_framework_wrote_into_a_history_has_no_requesting_call() -> None:
    rows = rows_of("made_up_asker")
    assert [(tool.name, tool.llm_span_id) for tool in rows.tool_calls] == [
        ("transfer_back_to_supervisor", None)
    ]


def test_a_tool_that_no_model_was_offered_and_none_asked_for_did_not_run() -> None:
    """LangGraph's supervisor writes `transfer_back_to_supervisor` and its response itself."""
    rows = rows_of("langgraph_supervisor")
    assert [tool.name for tool in rows.tool_calls] == ["transfer_to_sun_expert"]


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([{"name": "sun"}], []),
        ([{"name": "sun"}, {"name": "transferBack"}], ["transfer_back"]),
        ([{"type": "mcp"}], ["transfer_back"]),  # only the provider knows its tools
        ([], ["transfer_back"]),
    ],
)
def test_a_request_in_a_history_is_no_models_only_if_all_offered_tools_are_known(
    tools: list[dict[str, str]], names: list[str]
) -> None:
    made_up = [tool_request("x", "transfer_back", {}), tool_response("x", "Done.")]
    offered = {"gen_ai.tool.definitions": tools}
    calls = [
        span(chat([QUESTION], ANSWER, offered), id="a", parent="root"),
        span(chat([QUESTION, ANSWER, *made_up], ANSWER), id="b", parent="root", at=2),
    ]
    rows = derive([span({}, id="root", ends=9), *calls], [])
    assert [(tool.name, tool.llm_span_id) for tool in rows.tool_calls] == [
        (name, None) for name in names
    ]


def test_a_tool_without_a_span_has_the_times_of_the_calls_around_it() -> None:
    history = [text_message("user", "task"), tool_request("c", "w", {}), tool_response("c", "21 C")]
    first = span(chat(history[:1], history[1]), id="s1", at=1, ends=2)
    later = span(chat(history, text_message("assistant", "done")), id="s2", at=7)
    (tool,) = derive([first, later], []).tool_calls
    assert (tool.start_ns, tool.end_ns, tool.source) == (2 * SECOND, 7 * SECOND, "messages")


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
    example = [tool_request("x", "add", {"a": 1}), tool_response("x", "1"), QUESTION]
    assert derive([span(chat(example, ANSWER))], []).tool_calls == []


def test_parallel_calls_of_one_tool_are_answered_in_the_order_they_were_asked_in() -> None:
    cities = ("Oslo", "Rome")
    parts = [
        tool_request("", "weather", {"city": city})["parts"][0] | {"id": None} for city in cities
    ]
    call = span(chat([QUESTION], {"role": "assistant", "parts": parts}), id="call", parent="agent")
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
    ran = [span(tool, id=f"t{n}", parent="agent", at=2 + n) for n in range(2)]
    tools = derive([span({}, id="agent"), call, *ran], []).tool_calls
    assert [one.arguments for one in tools] == [{"city": city} for city in cities]


def test_a_tool_is_not_joined_to_a_call_that_starts_in_the_same_millisecond() -> None:
    """JavaScript's clock counts in milliseconds, and Laminar's spans of tools have no ids."""
    asks = [
        tool_request(f"c{n}", "rain", {"city": city}) for n, city in enumerate(("Oslo", "Rome"))
    ]
    told = [tool_response(f"c{n}", "It rains.") for n in range(2)]
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


@pytest.mark.parametrize("response", [{"result": 5}, '{"result": 5}'])
def test_a_frameworks_result_is_taken_out_of_the_object_that_gemini_needs(response: Any) -> None:
    result = {"type": "tool_call_response", "id": "c1", "response": response}
    history = [QUESTION, tool_request("c1", "add", {"a": 2}), {"role": "tool", "parts": [result]}]
    for provider, expected in (("gcp.gemini", 5), ("openai", response)):
        attributes = {"gen_ai.provider.name": provider}
        first = span(chat([QUESTION], history[1], attributes), id="c1", parent="agent")
        ran = span({**TOOL, "gen_ai.tool.call.id": "c1"}, id="tool", parent="agent", at=2)
        second = span(chat(history, ANSWER, attributes), id="c2", parent="agent", at=4)
        (tool,) = derive([span({}, id="agent"), first, ran, second], []).tool_calls
        assert tool.result == expected


@pytest.mark.parametrize("offered", ["ask_a_friend", "AskAFriend"])
def test_a_tool_is_joined_by_the_name_under_which_it_was_offered_to_the_model(offered: str) -> None:
    """Providers allow no spaces in names, so CrewAI offers `Ask a friend` as `ask_a_friend`."""
    request = tool_request("c1", offered, {"about": "Rome"})
    history = [QUESTION, request, tool_response("c1", "It shines.")]
    ran = {"gen_ai.tool.name": "Ask a friend", "gen_ai.tool.call.arguments": {"about": "Rome"}}
    tool = only_tool(
        [
            span(chat([QUESTION], request), id="ask", parent="run"),
            span({**TOOL, **ran}, id="tool", parent="run", at=1),
            span(chat(history, ANSWER), id="tell", parent="run", at=2),
        ]
    )
    assert (tool.name, tool.tool_call_id, tool.result) == (offered, "c1", "It shines.")
    assert (tool.span_id, tool.llm_span_id) == ("tool", "ask")


def test_tool_calls_without_ids_belong_to_the_agent_that_made_them() -> None:
    """Gemini's have none, so their names tell an agent's from those of the one that it asks."""

    def asks(name: str) -> dict[str, Any]:
        return {
            "role": "assistant",
            "parts": [{"type": "tool_call", "name": name, "arguments": {}}],
        }

    def told(text: str) -> dict[str, Any]:
        return {"role": "tool", "parts": [{"type": "tool_call_response", "response": text}]}

    ask, sun = asks("ask"), asks("sun")
    spans = [
        span(chat([QUESTION], ask), id="a1", parent="run"),
        span(chat([SECOND], sun), id="b1", parent="run", at=1),
        span(chat([SECOND, sun, told("It shines.")], ANSWER), id="b2", parent="run", at=2),
        span(chat([QUESTION, ask, told("Go there.")], ANSWER), id="a2", parent="run", at=3),
    ]
    tools = [(t.name, t.llm_span_id, t.result) for t in derive(spans, []).tool_calls]
    assert sorted(tools) == [("ask", "a1", "Go there."), ("sun", "b1", "It shines.")]


def mcp_call(*names: str) -> list[Span]:
    """Return the spans of one call over MCP, outermost first, in a trace of their own."""
    sent = {"mcp.method.name": "tools/call", "jsonrpc.request.id": "1"}
    ran = {**sent, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    return [
        span(
            sent if name.startswith("MCP send") else ran,
            trace="tool",
            id=f"s{at}",
            parent=f"s{at - 1}" if at else None,
            at=4,
            name=name,
        )
        for at, name in enumerate(names)
    ]


SERVER, SENDING = "tools/call sun", "MCP send tools/call sun"


@pytest.mark.parametrize("around", [None, "turn"])
@pytest.mark.parametrize("names", [(SENDING, SERVER), (SERVER, SENDING, SERVER)])
def test_an_execution_of_which_only_the_name_is_known_has_no_second_row(
    names: tuple[str, ...], around: str | None
) -> None:
    """MCP's SDK and FastMCP do not write which tool call their spans are of."""
    request = tool_request("c1", "sun", {"city": "Rome"})
    history = [QUESTION, request, tool_response("c1", "It shines.")]
    calls = [
        span(chat([QUESTION], request), trace=around or "a", id="a", parent=around),
        span(chat(history, ANSWER), trace=around or "b", id="b", parent=around, at=9),
    ]
    ran = mcp_call(*names)
    if around:
        ran = [
            one._replace(trace_id=around, parent_span_id=one.parent_span_id or around)
            for one in ran
        ]
    (tool,) = derive([*calls, *ran], []).tool_calls
    assert (tool.tool_call_id, tool.arguments) == ("c1", {"city": "Rome"})
    assert tool.result == "It shines."
    assert tool.source == ("both" if around else "messages")


def test_an_execution_of_a_server_whose_client_is_not_recorded_is_kept() -> None:
    assert [row.name for row in derive(mcp_call(SERVER), []).tool_calls] == ["sun"]


def test_an_execution_without_content_stays_in_the_run_of_its_agent() -> None:
    agent = span({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}, id="agent")
    tool = span(
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}, id="t", parent="agent"
    )
    assert [row.name for row in derive([agent, tool], []).tool_calls] == ["sun"]


@pytest.mark.parametrize("is_event", [False, True])
def test_a_tool_that_waits_for_a_person_has_no_row(*, is_event: bool) -> None:
    raised = "langgraph.errors.GraphInterrupt"
    events = (Event("exception", 1, {"exception.type": raised}),) if is_event else ()
    waiting = span(TOOL if is_event else TOOL | {"error.type": raised}, events=events)
    failed = span(TOOL | {"error.type": "ValueError"}, id="b")
    (tool,) = derive([waiting, failed], []).tool_calls
    assert tool.span_id == failed.span_id


def test_a_tool_that_langchain_for_javascript_says_to_wait_has_no_row() -> None:
    question = '[\n  {\n    "value": "Go?"\n  }\n]'
    message = f"{question}\n\nGraphInterrupt: {question}\n    at interrupt (interrupt.js:93:8)"
    waiting = span(TOOL, status="ERROR", message=message)
    stated = span(TOOL | {"langfuse.observation.status_message": f"GraphInterrupt: {question}"})
    failed = span(TOOL, id="b", status="ERROR", message="no GraphInterrupt: it failed")
    asked = span(TOOL | {"gen_ai.tool.call.result": "GraphInterrupt: asked"}, id="c")
    rows = derive([waiting, stated._replace(span_id="d"), failed, asked], []).tool_calls
    assert {tool.span_id for tool in rows} == {failed.span_id, asked.span_id}
