"""Mastra's dialect."""

from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.regressions import rows_of
from support.spans import span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def mastra(kind: str, attributes: dict[str, object], **more: Any) -> Span:
    return span({"mastra.span.type": kind, **attributes}, **more)


@pytest.mark.parametrize("content", ["full", "redacted"])
def test_an_outline_of_mastras_is_completed_if_the_runs_input_is_known(content: str) -> None:
    messages = [{"role": "user", "content": "Is it sunny in Rome?"}]
    outline = [
        *messages,
        {"role": "assistant", "content": "[tool: sun]"},
        {"role": "tool", "content": "[tool-result: sun]"},
    ]
    requested = {"toolCallId": "c1", "toolName": "sun", "args": {"city": "Rome"}}
    ran = {
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": {"city": "Rome"},
        "gen_ai.tool.call.result": "It shines.",
    }

    def step(sent: object, answer: dict[str, object], **more: Any) -> Span:
        keys = {"mastra.model_step.input": sent, "mastra.model_step.output": answer}
        return mastra("model_step", keys, parent="run", **more)

    whole = {"mastra.model_generation.input": {"messages": messages}}
    spans = [
        mastra("model_generation", whole if content == "full" else {}, id="run", ends=9),
        step(messages, {"text": "", "toolCalls": [requested]}, id="s1"),
        mastra("tool_call", ran, id="tool", parent="s1", at=1),
        step(outline, {"text": "Yes.", "toolCalls": []}, id="s2", at=3),
    ]
    _, second = derive(spans, []).llm_calls
    assert second.content == content
    if content == "full":
        assert second.input_messages == [
            text_message("user", "Is it sunny in Rome?"),
            tool_request("c1", "sun", {"city": "Rome"}),
            tool_response("c1", "It shines."),
        ]


def test_a_result_that_mastras_outline_has_in_other_words_replaces_the_tools_own() -> None:
    """An agent that is a tool tells the model its text; its execution returned more."""
    question = {"role": "user", "content": "Is it sunny in Rome?"}
    names = ("sun", "agent-scout")
    requested = [{"toolCallId": name, "toolName": name, "args": {"city": "Rome"}} for name in names]
    told = {"role": "tool", "content": "[tool-result: sun]Rome is seen."}
    outline = [question, {"role": "assistant", "content": "[tool: sun][tool: agent-scout]"}, told]
    returned = {"sun": "It shines.", "agent-scout": {"text": "Rome is seen.", "thread": "t"}}

    def step(sent: object, answer: dict[str, object], **more: Any) -> Span:
        keys = {"mastra.model_step.input": sent, "mastra.model_step.output": answer}
        return mastra("model_step", keys, parent="run", **more)

    def ran(name: str) -> Span:
        keys = {
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": name,
            "gen_ai.tool.call.arguments": {"city": "Rome"},
            "gen_ai.tool.call.result": returned[name],
        }
        return mastra("tool_call", keys, id=name, parent="s1", at=1 + names.index(name))

    whole = {"mastra.model_generation.input": {"messages": [question]}}
    spans = [
        mastra("model_generation", whole, id="run", ends=9),
        step([question], {"text": "", "toolCalls": requested}, id="s1"),
        *map(ran, names),
        step(outline, {"text": "Yes.", "toolCalls": []}, id="s2", at=3),
    ]
    derived = derive(spans, [])
    *_, sun, scout = derived.llm_calls[1].input_messages or []
    assert sun == tool_response("sun", "It shines.")
    assert scout == tool_response("agent-scout", "Rome is seen.")
    assert [tool.result for tool in derived.tool_calls] == list(returned.values())


def test_a_request_that_mastra_cut_off_is_completed_from_the_run_around_it() -> None:
    keys = {"gen_ai.operation.name": "chat", "input": {"messages": [PLAIN_QUESTION]}}
    requested = {"toolCallId": "c1", "toolName": "sun", "args": {"city": "Rome"}}
    first = {"input": {"body": {"model": "m", "messages": [PLAIN_QUESTION]}}, "body": {"id": "r1"}}
    ran = {"gen_ai.tool.name": "sun", "gen_ai.tool.input": {"city": "Rome"}}
    steps = [
        mastra(
            "model_step", {**first, "output": {"toolCalls": [requested]}}, id="s1", parent="run"
        ),
        mastra("tool_call", {**ran, "gen_ai.tool.output": "It shines."}, id="tool", parent="s1"),
        mastra(
            "model_step",
            {"input": {"body": '{"model": "m", "mess…[truncated]'}, "output": {"text": "Yes."}},
            id="s2",
            parent="run",
            at=3,
        ),
    ]
    run = mastra("model_generation", keys, id="run", ends=9)
    _, second = derive([run, *steps], []).llm_calls
    assert second.input_messages == [
        text_message("user", "Is it sunny in Rome?"),
        tool_request("c1", "sun", {"city": "Rome"}),
        tool_response("c1", "It shines."),
    ]


@pytest.mark.parametrize("parent", ["step", "inference"])
def test_a_piece_of_mastras_stream_that_its_text_lacks_is_reasoning(parent: str) -> None:
    step = {
        "mastra.model_step.input": [PLAIN_QUESTION],
        "mastra.model_step.output": {"text": "Yes. It shines.", "toolCalls": []},
    }
    pieces = [{"text": "The sky"}, {"text": " is blue."}, {"text": "Yes."}, {"toolName": "sun"}]
    spans = [
        mastra("model_step", step, id="step", ends=9),
        mastra("model_inference", {"gen_ai.request.model": "m"}, id="inference", parent="step"),
        *(
            mastra("model_chunk", {"mastra.model_chunk.output": piece}, id=f"c{at}", parent=parent)
            for at, piece in enumerate(pieces)
        ),
    ]
    (call,) = derive(spans, []).llm_calls
    (answer,) = call.output_messages or []
    assert [(part["type"], part["content"]) for part in answer["parts"]] == [
        ("reasoning", "The sky"),
        ("reasoning", " is blue."),
        ("text", "Yes. It shines."),
    ]
    assert call.content == "full"


def test_pieces_of_a_stream_without_their_call_give_no_row() -> None:
    piece = mastra("model_chunk", {"mastra.model_chunk.output": {"text": "Yes."}}, parent="gone")
    derived = derive([piece], [])
    assert (derived.llm_calls, derived.tool_calls, derived.unread) == ([], [], {})


def test_values_that_mastra_cut_are_unknown() -> None:
    function = {"name": "sun", "parameters": {"type": "object", "properties": {"c": "[MaxDepth]"}}}
    offered = [{"type": "function", "function": function}]
    request = {"model": "m", "messages": [PLAIN_QUESTION], "tools": offered}
    answer = {"text": "", "toolCalls": [{"toolCallId": "c1", "toolName": "sun", "args": {}}]}
    message = {"role": "assistant", "tool_calls": [{"id": "[MaxDepth]", "function": "[MaxDepth]"}]}
    response = {"id": "r1", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    given = {"input": {"body": request}, "output": answer, "body": response}
    (call,) = derive([mastra("model_step", given)], []).llm_calls
    assert call.tool_definitions == [{"type": "function", "name": "sun"}]
    assert call.response_id == "r1"
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    assert [(part["id"], part["name"]) for part in parts] == [("c1", "sun")]


def test_a_stream_that_broke_off_failed_though_no_span_of_it_did() -> None:
    capture = load(DATA / "mastra" / "broken.truth.json")
    (call,) = derive(capture.spans, capture.logs).llm_calls
    assert (call.error_type, call.finish_reason, call.content) == ("_OTHER", "error", "truncated")


def test_a_call_in_whose_messages_mastra_replaced_a_value_is_truncated() -> None:
    """A tool's argument is named `key`, and its result is nested too deeply in the next turn."""
    calls = rows_of("mastra_replaced").llm_calls
    assert [call.content for call in calls] == ["truncated", "truncated", "truncated", "full"]
    assert "[MaxDepth]" in str(calls[2].input_messages)


def test_a_tool_that_the_client_executes_has_no_execution_of_mastras() -> None:
    asked = mastra("client_tool_call", {"gen_ai.operation.name": "client_tool_call"})
    ran = mastra("tool_call", {"gen_ai.tool.name": "sun"}, id="ran")
    assert [tool.name for tool in derive([asked, ran], []).tool_calls] == ["sun"]
