"""Tool spans of agents that run their own functions: chat completions and Responses."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.late import Late

openai: Any = Late("openai")
TOOLS = [{"type": "function", "function": {"name": n, "parameters": {}}} for n in ("sun", "rain")]
FLAT_TOOLS = [{"type": "function", "name": name, "parameters": {}} for name in ("sun", "rain")]


@pytest.fixture
def connect(model_server: Any) -> Iterator[Any]:
    opened = []

    def make(kind: str = "vllm") -> Any:
        url = model_server.base_url(kind)
        opened.append(openai.OpenAI(api_key="none", base_url=url, max_retries=0))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


def run_tool(name: str, arguments: str) -> str:
    return f"{name} in {json.loads(arguments)['city']}"


def chat(client: Any, task: str, *, stream: bool = False) -> list[tuple[str, str, str]]:
    """Work on a task to its end; give the tools that ran: id, arguments, result."""
    messages: list[Any] = [{"role": "user", "content": task}]
    ran = []
    for _ in range(2):
        answer = client.chat.completions.create(
            model="small", messages=messages, tools=TOOLS, stream=stream
        )
        calls = stream_calls(answer) if stream else answer.choices[0].message.tool_calls or []
        if stream:
            plain = calls
        else:
            plain = [(call.id, call.function.name, call.function.arguments) for call in calls]
        asked = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, n, a in plain
        ]
        if asked:
            messages.append({"role": "assistant", "tool_calls": asked})
        for call_id, name, arguments in plain:
            result = run_tool(name, arguments)
            messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
            ran.append((call_id, arguments, result))
    return ran


def stream_calls(chunks: Any) -> list[tuple[str, str, str]]:
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for part in chunk.choices[0].delta.tool_calls or ():
            call = calls.setdefault(part.index, ["", "", ""])
            call[0] = part.id or call[0]
            call[1] = part.function.name or call[1]
            call[2] += part.function.arguments or ""
    return [(i, n, a) for i, n, a in calls.values()]


def respond(client: Any, task: str, *, stream: bool = False, held: bool = False) -> list[Any]:
    """Work on a task over Responses, with the history sent again or held by the provider."""
    history: list[Any] = [{"role": "user", "content": task}]
    sent, previous, ran = history, openai.omit, []
    for _ in range(2):
        answer = client.responses.create(
            model="small",
            input=sent,
            tools=FLAT_TOOLS,
            stream=stream,
            previous_response_id=previous,
        )
        if stream:
            answer = next(e for e in answer if e.type == "response.completed").response
        calls = [item for item in answer.output if item.type == "function_call"]
        results = []
        for call in calls:
            result = run_tool(call.name, call.arguments)
            output = {"type": "function_call_output", "call_id": call.call_id, "output": result}
            results.append(output)
            ran.append((call.call_id, call.arguments, result))
        history += [*(call.to_dict() for call in calls), *results]
        sent, previous = (results, answer.id) if held else (history, openai.omit)
    return ran


def tools(traced: Any) -> list[Any]:
    found = [s for s in traced.exporter.get_finished_spans() if "execute_tool" in s.name]
    for span in found:
        assert span.name == f"execute_tool {span.attributes['gen_ai.tool.name']}"
        assert span.attributes["lightning.inferred"] is True
        assert span.start_time <= span.end_time
    return found


def told(spans: list[Any]) -> list[tuple[Any, ...]]:
    keys = ("gen_ai.tool.call.id", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")
    return sorted(tuple(span.attributes[key] for key in keys) for span in spans)


@pytest.mark.parametrize("stream", [False, True])
def test_the_tools_of_a_chat_are_spans_with_what_they_got_and_gave(
    traced: Any, connect: Any, *, stream: bool
) -> None:
    client = connect()
    ran = [one for task in ("Oslo", "Rome") for one in chat(client, task, stream=stream)]
    assert len(ran) == 4
    assert told(tools(traced)) == sorted(ran)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_the_tools_of_responses_are_spans_with_what_they_got_and_gave(
    traced: Any, connect: Any, *, stream: bool, held: bool
) -> None:
    client = connect()
    ran = [
        one for task in ("Oslo", "Rome") for one in respond(client, task, stream=stream, held=held)
    ]
    assert len(ran) == 4
    assert told(tools(traced)) == sorted(ran)


def test_a_tool_span_is_in_the_trace_of_the_call_that_asked_and_between_both_calls(
    traced: Any, connect: Any
) -> None:
    chat(connect(), "Oslo")
    first, second = (s for s in traced.exporter.get_finished_spans() if s.name == "openai.chat")
    for span in tools(traced):
        assert span.context.trace_id == first.context.trace_id
        assert span.parent.span_id == first.context.span_id
        assert first.start_time <= span.start_time <= span.end_time
        assert span.end_time <= second.end_time


def test_a_tool_span_stands_beside_the_call_that_asked_where_that_has_a_parent(
    traced: Any, connect: Any
) -> None:
    with traced.provider.get_tracer("agent").start_as_current_span("task") as task:
        chat(connect(), "Oslo")
    assert {span.parent.span_id for span in tools(traced)} == {task.get_span_context().span_id}


def test_tools_of_conversations_at_once_are_told_apart_also_by_a_server_that_repeats_ids(
    traced: Any, model_server: Any
) -> None:
    async def work(client: Any, task: str, ready: asyncio.Barrier) -> list[tuple[str, str, str]]:
        messages: list[Any] = [{"role": "user", "content": task}]
        answer = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        calls = answer.choices[0].message.tool_calls
        messages.append(answer.choices[0].message)
        results = [run_tool(c.function.name, c.function.arguments) for c in calls]
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        await ready.wait()
        await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        return [(c.id, c.function.arguments, r) for c, r in zip(calls, results, strict=True)]

    async def everything() -> list[tuple[str, str, str]]:
        url = model_server.base_url("fixed")
        ready = asyncio.Barrier(3)
        async with openai.AsyncOpenAI(api_key="none", base_url=url) as client:
            tasks = [work(client, city, ready) for city in ("Oslo", "Rome", "Lima")]
            return [one for ran in await asyncio.gather(*tasks) for one in ran]

    ran = asyncio.run(everything())
    assert told(tools(traced)) == sorted(ran)


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"},
        {"openinference.span.kind": "TOOL", "tool.name": "sun"},
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "sun"},
    ],
)
def test_a_tool_that_a_framework_made_a_span_for_gets_no_second_one(
    traced: Any, connect: Any, attributes: dict[str, Any]
) -> None:
    tracer = traced.provider.get_tracer("framework")
    client = connect()
    messages: list[Any] = [{"role": "user", "content": "Oslo"}]
    answer = client.chat.completions.create(model="small", messages=messages, tools=TOOLS[:1])
    (call,) = answer.choices[0].message.tool_calls
    with tracer.start_as_current_span("sun", attributes=attributes):
        result = {"role": "tool", "tool_call_id": call.id, "content": "yes"}
    messages += [answer.choices[0].message, result]
    client.chat.completions.create(model="small", messages=messages, tools=TOOLS[:1])
    assert tools_inferred(traced) == []
    # The history is sent again with the next turn: still none.
    messages.append({"role": "user", "content": "Thanks"})
    client.chat.completions.create(model="small", messages=messages)
    assert tools_inferred(traced) == []


def tools_inferred(traced: Any) -> list[str]:
    spans = traced.exporter.get_finished_spans()
    return [span.name for span in spans if "lightning.inferred" in span.attributes]


def test_a_tool_that_says_that_it_failed_is_an_error(traced: Any, connect: Any) -> None:
    client = connect()
    messages: list[Any] = [{"role": "user", "content": "Oslo"}]
    answer = client.chat.completions.create(model="small", messages=messages, tools=TOOLS[:1])
    (call,) = answer.choices[0].message.tool_calls
    content = '{"isError": true, "content": "no such city"}'
    result = {"role": "tool", "tool_call_id": call.id, "content": content}
    messages += [answer.choices[0].message, result]
    client.chat.completions.create(model="small", messages=messages, tools=TOOLS[:1])
    (span,) = tools(traced)
    assert (span.attributes["error.type"], span.status.is_ok) == ("tool_error", False)


def test_without_content_a_tool_span_says_which_and_when_only(
    traced: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "false")
    chat(connect(), "Oslo")
    assert len(tools(traced)) == 2
    for span in tools(traced):
        assert "Oslo" not in str(dict(span.attributes))


@pytest.mark.parametrize("stream", [False, True])
def test_responses_record_the_ids_that_join_calls_results_and_answers(
    traced: Any, connect: Any, *, stream: bool
) -> None:
    ran = respond(connect(), "Oslo", stream=stream, held=True)
    first, second = (
        span for span in traced.exporter.get_finished_spans() if span.name == "openai.response"
    )
    asked = json.loads(first.attributes["gen_ai.output.messages"])[0]["parts"]
    assert [part["id"] for part in asked] == [call_id for call_id, _, _ in ran]
    assert (
        second.attributes["gen_ai.request.previous_response_id"]
        == first.attributes["gen_ai.response.id"]
    )


def test_responses_record_the_ids_of_calls_in_the_history_too(traced: Any, connect: Any) -> None:
    ran = respond(connect(), "Oslo")
    second = traced.exporter.get_finished_spans()[-1]
    history = json.loads(second.attributes["gen_ai.input.messages"])
    parts = [p for message in history for p in message["parts"] if p["type"] == "tool_call"]
    assert [part["id"] for part in parts] == [call_id for call_id, _, _ in ran]


@pytest.mark.parametrize("given", ["conv_1", {"id": "conv_1"}])
def test_responses_record_the_conversation(traced: Any, connect: Any, given: Any) -> None:
    connect().responses.create(model="small", input="Hi", conversation=given)
    assert traced.spans()["openai.response"]["gen_ai.conversation.id"] == "conv_1"
