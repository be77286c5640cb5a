"""Token ids and logprobs, with the official openai client and the stock LLM instrumentor."""

import asyncio
import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.instrumentation.utils import suppress_instrumentation
from support.late import Late

openai: Any = Late("openai")
MESSAGES = [{"role": "user", "content": "Say hello."}]
REQUEST: dict[str, Any] = {"model": "small", "messages": MESSAGES}
ASKING: dict[str, Any] = {
    **REQUEST,
    "logprobs": True,
    "extra_body": {"return_token_ids": True},
}
RECORDED = {
    "lightning.prompt_token_ids": (151644, 872, 198),
    "lightning.completion_token_ids": (9707, 385, 151645),
    "lightning.completion_logprobs": (-0.25, -1.5, -0.0625),
}


def ours(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name.startswith("lightning.")}


@pytest.fixture
def client(model_server: Any) -> Iterator[Callable[[str], Any]]:
    opened = []

    def connect(kind: str) -> Any:
        opened.append(
            openai.OpenAI(api_key="none", base_url=model_server.base_url(kind), max_retries=0)
        )
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def test_what_the_server_says_about_tokens_is_on_the_llm_span(traced: Any, client: Any) -> None:
    client("vllm").chat.completions.create(**ASKING)
    assert ours(traced.spans()["openai.chat"]) == RECORDED


def test_nothing_is_added_to_requests_by_default(
    traced: Any, client: Any, model_server: Any
) -> None:
    client("vllm").chat.completions.create(**REQUEST)
    assert model_server.requests == [REQUEST]
    assert ours(traced.spans()["openai.chat"]) == {}


def test_logprobs_are_recorded_where_the_server_gives_no_token_ids(
    traced: Any, client: Any
) -> None:
    client("vllm").chat.completions.create(**REQUEST, logprobs=True)
    assert ours(traced.spans()["openai.chat"]) == {
        "lightning.completion_logprobs": (-0.25, -1.5, -0.0625)
    }


def test_a_stream_is_accumulated_over_its_chunks(traced: Any, client: Any) -> None:
    stream = client("vllm").chat.completions.create(**ASKING, stream=True)
    text = "".join(chunk.choices[0].delta.content for chunk in stream)
    assert text == "Hello"
    assert ours(traced.spans()["openai.chat"]) == RECORDED


def test_the_agent_gets_openais_own_stream(traced: Any, client: Any) -> None:
    with client("vllm").chat.completions.create(**ASKING, stream=True) as stream:
        assert isinstance(stream, openai.Stream)
        assert stream.response.status_code == 200
        chunks = list(stream)
        with pytest.raises(StopIteration):
            next(stream)
    assert [chunk.choices[0].token_ids for chunk in chunks] == [[9707], [385], [151645]]
    assert stream.response.is_closed
    assert ours(traced.spans()["openai.chat"]) == RECORDED


@pytest.mark.parametrize("end", ["close", "drop"])
def test_an_abandoned_stream_leaves_the_tokens_that_were_read(
    traced: Any, client: Any, end: str
) -> None:
    stream = client("vllm").chat.completions.create(**ASKING, stream=True)
    assert next(stream).choices[0].delta.content == "Hel"
    if end == "close":
        with stream:
            pass
    response = stream.response
    del stream
    gc.collect()
    assert response.is_closed
    assert ours(traced.spans()["openai.chat"]) == {
        "lightning.prompt_token_ids": (151644, 872, 198),
        "lightning.completion_token_ids": (9707,),
        "lightning.completion_logprobs": (-0.25,),
    }


def test_the_async_client_is_recorded_plain_and_streaming(traced: Any, model_server: Any) -> None:
    async def converse() -> str:
        base_url = model_server.base_url("vllm")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as client:
            await client.chat.completions.create(**ASKING)
            stream = await client.chat.completions.create(**ASKING, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(converse()) == "Hello"
    spans = traced.exporter.get_finished_spans()
    assert [ours(dict(span.attributes)) for span in spans] == [RECORDED, RECORDED]


def test_an_abandoned_async_stream_leaves_the_tokens_that_were_read(
    traced: Any, model_server: Any
) -> None:
    async def give_up() -> None:
        base_url = model_server.base_url("vllm")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as client:
            stream = await client.chat.completions.create(**ASKING, stream=True)
            await anext(stream)
            await stream.close()
            del stream
            gc.collect()

    asyncio.run(give_up())
    assert ours(traced.spans()["openai.chat"])["lightning.completion_token_ids"] == (9707,)


def test_a_raw_response_is_recorded_and_parses_to_the_same_object(traced: Any, client: Any) -> None:
    raw = client("vllm").chat.completions.with_raw_response.create(**ASKING)
    assert raw.http_response.status_code == 200
    assert raw.parse() is raw.parse()
    assert raw.parse().choices[0].message.content == "Hello"
    assert ours(traced.spans()["openai.chat"]) == RECORDED


def test_a_structured_completion_is_recorded(traced: Any, client: Any) -> None:
    client("vllm").chat.completions.parse(**ASKING)
    assert ours(traced.spans()["openai.chat"]) == RECORDED


def test_a_span_that_is_no_model_call_gets_no_tokens(client: Any, traced: Any) -> None:
    tracer = traced.provider.get_tracer("agent")
    with tracer.start_as_current_span("invoke_agent"), suppress_instrumentation():
        client("vllm").chat.completions.create(**ASKING)
    assert ours(traced.spans()["invoke_agent"]) == {}


def test_token_ids_are_asked_for_where_the_user_says_so(
    traced: Any, client: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    extra_body = {"top_k": 5}
    client("vllm").chat.completions.create(**REQUEST, extra_body=extra_body)
    assert model_server.requests == [
        {**REQUEST, "top_k": 5, "return_token_ids": True, "logprobs": True}
    ]
    assert extra_body == {"top_k": 5}
    assert ours(traced.spans()["openai.chat"]) == RECORDED


@pytest.mark.parametrize("kind", ["same", "nulls"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_only_we_asked_for_is_not_in_the_agents_view(
    client: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, kind: str, *, stream: bool
) -> None:
    def see() -> list[str]:
        answer = client(kind).chat.completions.create(**REQUEST, stream=stream)
        seen = [part.to_json() for part in answer] if stream else [answer.to_json()]
        return [re.sub(r"chatcmpl-\w+", "id", text) for text in seen]

    without = see()
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    traced.exporter.clear()
    assert see() == without
    assert ours(traced.spans()["openai.chat"]) == RECORDED


@pytest.mark.parametrize("kind", ["same", "nulls"])
def test_what_only_we_asked_for_is_not_in_a_raw_answers_bytes(
    client: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def see() -> bytes:
        raw = client(kind).chat.completions.with_raw_response.create(**REQUEST)
        return re.sub(rb"chatcmpl-\w+", b"id", raw.content)

    without = see()
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    assert see() == without
    assert ours(traced.spans()["openai.chat"]) == RECORDED


def test_what_the_agent_asked_for_too_stays_in_its_view(
    client: Any, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del traced
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    answer = client("vllm").chat.completions.create(**REQUEST, logprobs=True)
    assert [token.logprob for token in answer.choices[0].logprobs.content] == [-0.25, -1.5, -0.0625]
    assert "token_ids" not in answer.choices[0].to_dict()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["chat", "completion"])
def test_the_tokens_of_each_choice_are_recorded_and_removed(
    traced: Any, client: Any, monkeypatch: pytest.MonkeyPatch, endpoint: str, *, stream: bool
) -> None:
    def see() -> list[str]:
        opened = client("same")
        if endpoint == "chat":
            answer = opened.chat.completions.create(**REQUEST, n=2, stream=stream)
        else:
            answer = opened.completions.create(model="small", prompt="Hi", n=2, stream=stream)
        return [part.to_json() for part in answer] if stream else [answer.to_json()]

    without = see()
    assert len(without) == (6 if stream else 1)
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    traced.exporter.clear()
    assert see() == without
    assert ours(traced.spans()[f"openai.{endpoint}"]) == {
        **RECORDED,
        "lightning.completion_token_ids.1": (9708, 386, 151646),
        "lightning.completion_logprobs.1": (-1.25, -2.5, -1.0625),
    }


@pytest.mark.parametrize("stream", [False, True])
def test_completions_are_recorded_and_look_to_the_agent_as_without_us(
    traced: Any, client: Any, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    def see() -> list[str]:
        answer = client("vllm").completions.create(model="small", prompt="Hi", stream=stream)
        return [part.to_json() for part in answer] if stream else [answer.to_json()]

    without = see()
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    traced.exporter.clear()
    assert see() == without
    assert ours(traced.spans()["openai.completion"]) == RECORDED


@pytest.mark.parametrize("stream", [False, True])
def test_responses_are_recorded_and_look_to_the_agent_as_without_us(
    traced: Any, client: Any, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    def see() -> list[str]:
        answer = client("vllm").responses.create(model="small", input="Hi", stream=stream)
        seen = [part.to_json() for part in answer] if stream else [answer.to_json()]
        return [re.sub(r"(resp|msg)_\w+", "id", text) for text in seen]

    without = see()
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    traced.exporter.clear()
    assert see() == without
    assert ours(traced.spans()["openai.response"]) == RECORDED


@pytest.mark.parametrize("endpoint", ["chat", "completion"])
def test_token_counts_of_a_stream_are_asked_for_only_where_the_user_says_so(
    traced: Any, client: Any, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    def see() -> list[str]:
        opened = client("same")
        if endpoint == "chat":
            answer = opened.chat.completions.create(**REQUEST, stream=True)
        else:
            answer = opened.completions.create(model="small", prompt="Hi", stream=True)
        return [part.to_json() for part in answer]

    without = see()
    name = f"openai.{endpoint}"
    assert "gen_ai.usage.output_tokens" not in traced.spans()[name]
    monkeypatch.setenv("LIGHTNING_REQUEST_USAGE", "true")
    traced.exporter.clear()
    assert see() == without
    assert traced.spans()[name]["gen_ai.usage.input_tokens"] == 3
    assert traced.spans()[name]["gen_ai.usage.output_tokens"] == 3


def test_sampling_parameters_of_the_other_endpoints_are_recorded(traced: Any, client: Any) -> None:
    connected = client("vllm")
    connected.completions.create(model="small", prompt="Hi", temperature=0.5, seed=7, stop=["END"])
    connected.responses.create(model="small", input="Hi", temperature=0.5, max_output_tokens=9)
    completion, response = (traced.spans()[f"openai.{n}"] for n in ("completion", "response"))
    assert completion["gen_ai.request.temperature"] == response["gen_ai.request.temperature"] == 0.5
    assert completion["gen_ai.request.seed"] == 7
    assert list(completion["gen_ai.request.stop_sequences"]) == ["END"]
    assert response["gen_ai.request.max_tokens"] == 9


def test_sampling_parameters_are_recorded(traced: Any, client: Any) -> None:
    client("vllm").chat.completions.create(
        **REQUEST, temperature=0.5, seed=7, stop="END", n=2, extra_body={"top_k": 5, "min_p": 0.1}
    )
    span = traced.spans()["openai.chat"]
    asked = {"temperature": 0.5, "seed": 7, "choice.count": 2, "top_k": 5, "min_p": 0.1}
    assert {name: span[f"gen_ai.request.{name}"] for name in asked} == asked
    assert list(span["gen_ai.request.stop_sequences"]) == ["END"]


@pytest.mark.parametrize(
    "switch", ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "TRACELOOP_TRACE_CONTENT"]
)
def test_token_ids_are_content_to_either_content_switch(
    traced: Any, client: Any, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(switch, "false")
    client("vllm").chat.completions.create(**ASKING)
    recorded = ours(traced.spans()["openai.chat"])
    assert not [name for name in recorded if "token" in name or "logprobs" in name]


def test_what_the_agent_asked_for_itself_is_kept(
    traced: Any, client: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    extra_body = {"return_token_ids": False}
    client("vllm").chat.completions.create(**REQUEST, logprobs=False, extra_body=extra_body)
    assert model_server.requests == [{**REQUEST, "return_token_ids": False, "logprobs": False}]
    assert ours(traced.spans()["openai.chat"]) == {}


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_refuses_our_fields_is_asked_once_only(
    traced: Any, client: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    completions = client("strict").chat.completions
    for _ in range(2):
        answer = completions.create(**REQUEST, stream=stream)
        if stream:
            assert [chunk.choices[0].delta.content for chunk in answer] == ["Hel", "lo", ""]
    asked = ["return_token_ids" in request for request in model_server.requests]
    assert asked == [True, False, False]
    assert [span.status.is_ok for span in traced.exporter.get_finished_spans()] == [True, True]


def test_a_refused_async_request_is_sent_again_without_our_fields(
    traced: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")

    async def ask() -> Any:
        base_url = model_server.base_url("strict")
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as client:
            return await client.chat.completions.create(**REQUEST)

    assert asyncio.run(ask()).choices[0].message.content == "Hello"
    assert len(model_server.requests) == 2
    assert ours(traced.spans()["openai.chat"]) == {}


def test_the_agents_own_error_reaches_it_untouched(
    traced: Any, client: Any, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTNING_REQUEST_TOKEN_IDS", "true")
    completions = client("broken").chat.completions
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="context too long") as caught:
            completions.create(**REQUEST)
        cause = caught.value.__context__  # the client's own, from HTTP
        assert cause is not None
        assert cause.__context__ is None
    # An error of the request's own does not show that the server cannot give token ids.
    asked = ["return_token_ids" in request for request in model_server.requests]
    assert asked == [True, False, True, False]
    assert traced.spans()["openai.chat"]["error.type"] == "BadRequestError"


def test_token_ids_that_the_agent_asks_for_and_reads_from_the_wire_are_recorded(
    traced: Any, client: Any
) -> None:
    tracer = traced.provider.get_tracer("agent")
    span = tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"})
    create = client("vllm").chat.completions.with_streaming_response.create
    with span, suppress_instrumentation(), create(**ASKING) as response:
        assert not response.http_response.is_stream_consumed
        assert response.json()["choices"][0]["token_ids"] == [9707, 385, 151645]
    recorded = traced.spans()["chat"]
    assert recorded["lightning.prompt_token_ids"] == (151644, 872, 198)
    assert recorded["lightning.completion_token_ids"] == (9707, 385, 151645)
    assert recorded["lightning.completion_logprobs"] == (-0.25, -1.5, -0.0625)
