"""Unusual uses of the openai client: the agent sees the same as without us, and all is kept."""

import asyncio
import gc
import importlib
import json
import re
import weakref
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from support.late import Late
from support.running import LIMIT_S

from otel_lightning.instrumentation import added_fields, client, model_call, policy
from otel_lightning.instrumentation.answers import ChatAnswer

openai: Any = Late("openai")
MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
CHAT: Any = {"model": "small", "messages": MESSAGES}
RESPONSES: Any = {"model": "small", "input": "Say hello."}
TOOLS: Any = [{"type": "function", "function": {"name": "sun", "parameters": {}}}]
IDS = (9707, 385, 151645)


@pytest.fixture
def connect(model_server: Any) -> Iterator[Any]:
    base_url = model_server.base_url("same")
    with openai.OpenAI(api_key="none", base_url=base_url, max_retries=0) as opened:
        yield opened


def texts(parts: Any) -> list[str]:
    return [part.to_json() for part in parts]


def chat_lines(c: Any) -> list[str]:
    with c.chat.completions.with_streaming_response.create(**CHAT, stream=True) as response:
        return list(response.iter_lines())


def chat_bytes(c: Any) -> bytes:
    with c.chat.completions.with_streaming_response.create(**CHAT) as response:
        return bytes(response.read())


def responses_lines(c: Any) -> list[str]:
    with c.responses.with_streaming_response.create(**RESPONSES, stream=True) as response:
        return list(response.iter_lines())


def chat_parsed_from_the_wire(c: Any) -> list[str]:
    with c.chat.completions.with_streaming_response.create(**CHAT, stream=True) as response:
        return texts(response.parse())


def stream_helper(c: Any) -> list[str]:
    with c.chat.completions.stream(**CHAT) as stream:
        return [*(event.type for event in stream), stream.get_final_completion().to_json()]


def responses_helper(c: Any) -> list[str]:
    with c.responses.stream(**RESPONSES) as stream:
        return [*(event.type for event in stream), stream.get_final_response().to_json()]


def azure(c: Any) -> str:
    opened = openai.AzureOpenAI(api_key="none", api_version="1", base_url=str(c.base_url))
    with opened as client_of_azure:
        return client_of_azure.chat.completions.create(**CHAT).to_json()


LOGPROBS = ("message.output_text.logprobs",)
VIEWS: dict[str, Callable[[Any], Any]] = {
    "lines of a chat": chat_lines,
    "bytes of a chat": chat_bytes,
    "lines of Responses": responses_lines,
    "parsed from the wire": chat_parsed_from_the_wire,
    "stream helper": stream_helper,
    "stream helper of Responses": responses_helper,
    "Azure": azure,
    "parse": lambda c: c.chat.completions.parse(**CHAT).to_json(),
    "parse of Responses": lambda c: c.responses.parse(**RESPONSES).to_json(),
    "raw stream": lambda c: texts(
        c.chat.completions.with_raw_response.create(**CHAT, stream=True).parse()
    ),
    "raw stream of Responses": lambda c: texts(
        c.responses.with_raw_response.create(**RESPONSES, stream=True).parse()
    ),
    "raw completion": lambda c: (
        c.completions.with_raw_response.create(model="small", prompt="Hi").text
    ),
    "copy of the client": lambda c: (
        c.with_options(timeout=LIMIT_S).chat.completions.create(**CHAT).to_json()
    ),
    "markers": lambda c: c.chat.completions.create(
        **CHAT,
        temperature=openai.NOT_GIVEN,
        logprobs=openai.omit,
        stream=openai.omit,
        tools=openai.omit,
        extra_body=None,
    ).to_json(),
    "objects as messages": lambda c: c.chat.completions.create(
        model="small",
        messages=[*MESSAGES, c.chat.completions.create(**CHAT).choices[0].message, *MESSAGES],
    ).to_json(),
    "tuple of messages": lambda c: c.chat.completions.create(
        model="small", messages=tuple(MESSAGES)
    ).to_json(),
    "logprobs asked in a tuple": lambda c: c.responses.create(
        **RESPONSES, include=LOGPROBS
    ).to_json(),
    "arguments of wrong types": lambda c: c.chat.completions.create(
        model=7, messages="Hi", stop=("a", 1, None), seed=2**70, user=b"raw"
    ).to_json(),
    "no arguments": lambda c: c.chat.completions.create(),
    "body that is no mapping": lambda c: c.chat.completions.create(**CHAT, extra_body=[1]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_an_unusual_call_looks_to_the_agent_as_without_us(
    connect: Any,
    traced: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    def see() -> str:
        try:
            seen = repr(VIEWS[name](connect))
        except (TypeError, ValueError) as error:
            seen = repr(error)
        return re.sub(r"(resp|msg)_\w+", "id", seen)

    without = see()
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    monkeypatch.setenv("LIGHTNING_REQUEST_USAGE", "true")
    traced.exporter.clear()
    assert see() == without
    assert traced.exporter.get_finished_spans()
    encode_spans(traced.exporter.get_finished_spans())
    assert not [record for record in caplog.records if record.name.startswith("otel_lightning")]


@pytest.mark.parametrize("end", ["read", "drop"])
@pytest.mark.parametrize("endpoint", ["chat", "responses", "completions"])
def test_a_raw_stream_is_recorded_with_what_was_read(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, endpoint: str, end: str
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    asked: dict[str, Any] = {
        "chat": (connect.chat.completions, CHAT),
        "responses": (connect.responses, RESPONSES),
        "completions": (connect.completions, {"model": "small", "prompt": "Say hello."}),
    }
    resource, request = asked[endpoint]
    stream = resource.with_raw_response.create(**request, stream=True).parse()
    if end == "read":
        list(stream)
    elif endpoint == "responses":
        while next(stream).type != "response.output_text.delta":
            pass
    else:
        next(stream)
    del stream
    gc.collect()
    (span,) = traced.exporter.get_finished_spans()
    recorded = dict(span.attributes)
    if endpoint != "responses" or end == "read":
        assert recorded["lightning.completion_token_ids"] == (IDS if end == "read" else IDS[:1])
    text = "Hel" if endpoint != "responses" and end == "drop" else "Hello"
    assert text in str(recorded["gen_ai.output.messages"])
    assert "Say hello." in str(recorded["gen_ai.input.messages"])
    assert recorded["gen_ai.response.id"]
    assert recorded["gen_ai.request.model"] == "small"


def test_an_async_raw_stream_is_recorded(
    traced: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")

    async def read() -> None:
        base_url = model_server.base_url("same")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as opened:
            chat, responses = opened.chat.completions, opened.responses
            raw: Any = await chat.with_raw_response.create(**CHAT, stream=True)
            assert len([chunk async for chunk in raw.parse()]) == 3
            raw = await responses.with_raw_response.create(**RESPONSES, stream=True)
            assert [event.type async for event in raw.parse()][-1] == "response.completed"

    asyncio.run(read())
    spans = traced.exporter.get_finished_spans()
    assert [span.name for span in spans] == ["openai.chat", "openai.response"]
    for span in spans:
        assert span.attributes["lightning.completion_token_ids"] == IDS
        assert "Hello" in span.attributes["gen_ai.output.messages"]
        assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)


def test_tools_that_a_raw_stream_requests_are_spans(connect: Any, traced: Any) -> None:
    raw = connect.chat.completions.with_raw_response
    chunks = list(raw.create(**CHAT, tools=TOOLS, stream=True).parse())
    call_id = chunks[0].choices[0].delta.tool_calls[0].id
    call = {"id": call_id, "type": "function", "function": {"name": "sun", "arguments": "{}"}}
    history = [{"role": "assistant", "tool_calls": [call]}]
    result = {"role": "tool", "tool_call_id": call_id, "content": "five hours"}
    connect.chat.completions.create(model="small", messages=[*MESSAGES, *history, result])
    assert traced.spans()["execute_tool sun"]["gen_ai.tool.call.result"] == "five hours"
    first = traced.exporter.get_finished_spans()[0].attributes
    (message,) = json.loads(first["gen_ai.output.messages"])
    assert (message["parts"][0]["name"], message["parts"][0]["id"]) == ("sun", call_id)
    assert first["gen_ai.response.finish_reasons"] == ("tool_call",)


@pytest.mark.parametrize("stream", [False, True])
def test_an_incomplete_answer_of_responses_is_recorded(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    answer = connect.responses.create(**RESPONSES, max_output_tokens=1, stream=stream)
    if stream:
        list(answer)
    (span,) = traced.exporter.get_finished_spans()
    assert span.name == "openai.response"
    assert span.attributes["gen_ai.response.finish_reasons"] == ("length",)
    assert "Hello" in span.attributes["gen_ai.output.messages"]
    assert "Say hello." in span.attributes["gen_ai.input.messages"]
    assert span.attributes["lightning.completion_token_ids"] == IDS


@pytest.mark.parametrize(
    "switch", ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "TRACELOOP_TRACE_CONTENT"]
)
def test_a_call_that_only_we_record_has_no_content_where_either_switch_is_off(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(switch, "false")
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    connect.responses.create(**RESPONSES, max_output_tokens=1)
    (span,) = traced.exporter.get_finished_spans()
    assert "ello" not in span.to_json()
    assert "lightning.completion_token_ids" not in span.attributes
    assert span.attributes["gen_ai.response.id"]


RESOURCES: Any = {
    "chat": (lambda c: c.chat.completions, CHAT),
    "completions": (lambda c: c.completions, {"model": "small", "prompt": "Say hello."}),
    "responses": (lambda c: c.responses, RESPONSES),
}
READERS: dict[str, Callable[[Any], Any]] = {
    "lines": lambda response: list(response.iter_lines()),
    "bytes": lambda response: list(response.iter_bytes(7)),
    "at once": lambda response: response.read(),
    "parsed": lambda response: texts(response.parse()),
}


@pytest.mark.parametrize("endpoint", RESOURCES)
@pytest.mark.parametrize("reader", READERS)
def test_a_stream_that_the_agent_reads_from_the_wire_is_recorded(
    connect: Any, traced: Any, endpoint: str, reader: str
) -> None:
    find, request = RESOURCES[endpoint]
    resource = find(connect).with_streaming_response
    with resource.create(**request, stream=True) as response:
        assert READERS[reader](response)
    (span,) = traced.exporter.get_finished_spans()
    assert "Say hello." in span.attributes["gen_ai.input.messages"]
    assert "Hello" in span.attributes["gen_ai.output.messages"]
    assert span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert span.attributes["gen_ai.response.id"]


def test_a_stream_read_from_the_wire_in_part_is_recorded_in_part(connect: Any, traced: Any) -> None:
    with connect.chat.completions.with_streaming_response.create(**CHAT, stream=True) as response:
        assert "Hel" in next(line for line in response.iter_lines() if line)
    with connect.chat.completions.with_streaming_response.create(**CHAT, stream=True):
        pass
    part, nothing = traced.exporter.get_finished_spans()
    assert "gen_ai.response.id" in part.attributes
    assert "gen_ai.response.id" not in nothing.attributes


@pytest.mark.parametrize("endpoint", RESOURCES)
def test_an_answer_on_the_wire_that_cannot_be_read_still_ends_its_span(
    traced: Any, endpoint: str
) -> None:
    find, request = RESOURCES[endpoint]
    # openai's versions are built on different packages of one interface: httpx, later httpx2.
    package = openai.DefaultHttpxClient.__base__.__module__.partition(".")[0]
    http = importlib.import_module(package)
    answer = http.Response(200, content=b'data: {"id": "r1", \n\n')
    transport = http.MockTransport(lambda _: answer)
    with openai.OpenAI(api_key="none", http_client=http.Client(transport=transport)) as opened:
        resource = find(opened).with_streaming_response
        with resource.create(**request, stream=True) as response:
            assert list(response.iter_lines())
    (span,) = traced.exporter.get_finished_spans()
    assert "Say hello." in span.attributes["gen_ai.input.messages"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_async_answer_that_the_agent_reads_from_the_wire_is_recorded(
    traced: Any, model_server: Any, *, stream: bool
) -> None:
    async def read() -> None:
        base_url = model_server.base_url("same")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as opened:
            for find, request in RESOURCES.values():
                resource = find(opened).with_streaming_response
                async with resource.create(**request, stream=stream) as response:
                    assert [line async for line in response.iter_lines()]

    asyncio.run(read())
    spans = traced.exporter.get_finished_spans()
    assert len(spans) == len(RESOURCES)
    for span in spans:
        assert "Hello" in span.attributes["gen_ai.output.messages"]


def test_tools_requested_in_an_answer_read_from_the_wire_are_spans(
    connect: Any, traced: Any
) -> None:
    raw = connect.chat.completions.with_streaming_response
    with raw.create(**CHAT, tools=TOOLS) as response:
        message = json.loads(response.read())["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "five"}
    connect.chat.completions.create(model="small", messages=[*MESSAGES, message, result])
    assert traced.spans()["execute_tool sun"]["gen_ai.tool.call.result"] == "five"


LEGACY: Any = {"model": "small", "prompt": "Say hello.", "stream": True}


def test_a_stream_of_completions_is_openais_own(connect: Any, traced: Any) -> None:
    with connect.completions.create(**LEGACY) as stream:
        assert isinstance(stream, openai.Stream)
        assert stream.response.status_code == 200
        text = "".join(part.choices[0].text for part in stream)
    assert stream.response.is_closed
    (span,) = traced.exporter.get_finished_spans()
    assert text == "Hello"
    assert text in span.attributes["gen_ai.output.messages"]


def test_an_async_stream_of_completions_is_openais_own(traced: Any, model_server: Any) -> None:
    async def read() -> str:
        base_url = model_server.base_url("same")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as opened:
            async with await opened.completions.create(**LEGACY) as stream:
                assert isinstance(stream, openai.AsyncStream)
                text = "".join([part.choices[0].text async for part in stream])
            left: Any = await opened.completions.create(**LEGACY)
            await left.close()
        return text

    assert asyncio.run(read()) == "Hello"
    whole, left = traced.exporter.get_finished_spans()
    assert "Hello" in whole.attributes["gen_ai.output.messages"]
    assert "Say hello." in left.attributes["gen_ai.input.messages"]


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_of_completions_that_is_not_read_to_its_end_is_recorded(
    connect: Any, traced: Any, end: str
) -> None:
    stream = connect.completions.create(**LEGACY)
    read = next(stream).choices[0].text
    if end == "close":
        stream.close()
    del stream
    gc.collect()
    (span,) = traced.exporter.get_finished_spans()
    (message,) = json.loads(span.attributes["gen_ai.output.messages"])
    assert message["parts"] == [{"type": "text", "content": read}]
    assert span.attributes["gen_ai.response.id"]


def test_iterators_are_not_consumed_where_the_agent_instruments_in_code(
    connect: Any, traced: Any, model_server: Any
) -> None:
    content = iter([{"type": "text", "text": "Oslo"}])
    connect.chat.completions.create(
        model="small", messages=iter([{"role": "user", "content": content}]), tools=iter(TOOLS)
    )
    flat: Any = {"type": "function", "name": "sun", "parameters": {}}
    connect.responses.create(model="small", input="Oslo", tools=iter([flat]))
    chat, responses = model_server.requests
    assert chat["messages"][0]["content"] == [{"type": "text", "text": "Oslo"}]
    assert len(chat["tools"]) == len(responses["tools"]) == len(TOOLS)
    assert "Oslo" in traced.spans()["openai.chat"]["gen_ai.input.messages"]


def test_arguments_that_otlp_cannot_carry_cost_no_other_attribute(
    connect: Any, traced: Any
) -> None:
    stop: Any = ["a", 1, None]
    connect.chat.completions.create(**CHAT, seed=2**70, stop=stop, top_p=0.5)
    (span,) = traced.exporter.get_finished_spans()
    (kept,) = encode_spans([span]).resource_spans[0].scope_spans[0].spans
    names = {pair.key for pair in kept.attributes}
    assert {"gen_ai.request.top_p", "gen_ai.response.id"} <= names
    assert not {"gen_ai.request.seed", "gen_ai.request.stop_sequences"} & names


def test_a_tool_result_that_is_nested_too_deeply_loses_nothing_else(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    answer = connect.chat.completions.create(model="small", messages=MESSAGES, tools=TOOLS)
    (asked,) = answer.choices[0].message.tool_calls
    deep = '{"error": ' + "[" * 100_000
    result = {"role": "tool", "tool_call_id": asked.id, "content": deep}
    traced.exporter.clear()
    connect.chat.completions.create(
        model="small", messages=[*MESSAGES, answer.choices[0].message, result]
    )
    spans = traced.spans()
    assert spans["execute_tool sun"]["gen_ai.tool.call.result"] == deep
    assert spans["openai.chat"]["lightning.completion_token_ids"] == IDS


def test_any_number_of_chunks_with_only_token_counts_are_skipped() -> None:
    from openai.types.chat import ChatCompletionChunk
    from openai.types.completion_usage import CompletionUsage

    usage = CompletionUsage(completion_tokens=1, prompt_tokens=1, total_tokens=2)
    chunk = ChatCompletionChunk.model_construct(id="1", model="m", choices=[], usage=usage)
    call = model_call.ModelCall("chat", {}, 0, Context(), ChatAnswer())
    chunks = client._Chunks(iter([chunk] * 5000), call, added_fields.Additions({}, usage=True))
    assert list(chunks) == []


def test_a_raw_answer_with_half_of_a_surrogate_pair_loses_our_fields_too() -> None:
    body = '{"choices":[{"token_ids":[1],"text":"\\ud800 é"}]}'.encode()
    stripped = added_fields.strip_body(added_fields.Additions({}, ids=True), body)
    assert json.loads(stripped) == {"choices": [{"text": "\ud800 é"}]}


def test_token_ids_that_are_no_numbers_cost_no_other_attribute() -> None:
    answer = ChatAnswer(prompt_token_ids=["a"], text=["Hello"])  # type: ignore[list-item]
    answer.choice(0).ids, answer.choice(0).logprobs = [1, 2], [None]  # type: ignore[list-item]
    assert dict(answer.token_attributes()) == {"lightning.completion_token_ids": (1, 2)}


class Conversation(list[Any]):
    """A list that can be referred to weakly."""


def test_a_tool_request_that_is_never_answered_keeps_no_conversation_in_memory(
    connect: Any, traced: Any
) -> None:
    messages = Conversation(MESSAGES)
    connect.chat.completions.create(model="small", messages=messages, tools=TOOLS)
    assert traced.spans()
    kept = weakref.ref(messages)
    del messages
    gc.collect()
    assert kept() is None


def test_iterators_and_images_reach_the_model_and_the_span(agent: Any) -> None:
    script = """
import openai
c = openai.OpenAI().chat.completions
tool = {"type": "function", "function": {"name": "sun", "parameters": {}}}
words = ({"role": "user", "content": text} for text in ("Oslo",))
c.create(model="small", messages=words, tools=(one for one in [tool]))
image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
c.create(model="small", messages=[
    {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}])
"""
    agent.run(script)
    iterated, shown = agent.model_server.requests
    assert iterated["messages"] == [{"role": "user", "content": "Oslo"}]
    assert [tool["function"]["name"] for tool in iterated["tools"]] == ["sun"]
    assert shown["messages"][0]["content"][1]["image_url"]["url"].endswith("AAAA")
    first, second = (s.attributes["gen_ai.input.messages"] for s in agent.sink.llm_spans())
    assert "Oslo" in first
    assert "What is it?" in second
    assert "sha256:" in second
    assert "AAAA" not in second


BROKEN: Any = [
    (model_call, "begin"),
    (policy, "apply"),
    (added_fields, "additions"),
    (added_fields, "strip"),
    (ChatAnswer, "add"),
    (model_call.ModelCall, "write"),
    (model_call, "note_start"),
]


@pytest.mark.parametrize(
    ("owner", "name"), BROKEN, ids=lambda part: getattr(part, "__name__", part)
)
def test_an_error_of_ours_never_reaches_the_agent(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    monkeypatch.setattr(owner, name, break_down)
    answer = connect.chat.completions.create(**CHAT)
    assert answer.choices[0].message.content == "Hello"
    stream = connect.chat.completions.create(**CHAT, stream=True)
    assert "".join(part.choices[0].delta.content for part in stream) == "Hello"
    assert [span.name for span in traced.exporter.get_finished_spans()] == ["openai.chat"] * 2


def test_the_headers_of_the_agent_stay_as_they_are(connect: Any, traced: Any) -> None:
    headers = {"X-Desk": "1"}
    connect.chat.completions.create(**CHAT, extra_headers=headers)
    connect.chat.completions.create(**CHAT, extra_headers=MappingProxyType(headers))
    assert headers == {"X-Desk": "1"}
    assert len(traced.exporter.get_finished_spans()) == 2
