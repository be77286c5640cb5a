"""The redactor: what leaves the process after it, on real spans of a real client."""

import json
import os
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.running import finish

from otel_lightning.instrumentation import model_call, privacy
from otel_lightning.instrumentation.processor import LightningSpanProcessor
from otel_lightning.instrumentation.providers import put_first
from otel_lightning.instrumentation.tools import InferredTools

SECRETS = {
    "keys": "sk-proj-abcdefghij0123456789",
    "emails": "ada.lovelace+desk@example.co.uk",
    "cards": "4111 1111 1111 1111",
    "phones": "+44 20 7946 0958",
}
HARMLESS = [
    "call_0123456789abcdef",
    "2026-11-22T06:25:02",
    "1763792702123456789",
    "4111 1111 1111 1112",
    "order 12345-678",
    "v1.2.3, 127.0.0.1:4318",
    "a@b",
    "risk-free-and-long-enough-words",
]


@pytest.fixture
def redact(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LIGHTNING_REDACT", "all")
    return privacy.redactor()


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_replaced_by_its_kind(redact: Any, kind: str) -> None:
    assert redact(f"use {SECRETS[kind]}, please") == f"use [redacted:{kind}], please"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_the_very_same_object(redact: Any, text: str) -> None:
    assert redact(text) is text


@pytest.mark.parametrize("kind", SECRETS)
def test_json_stays_json_however_deep_a_secret_is(redact: Any, kind: str) -> None:
    inner = json.dumps({"to": SECRETS[kind], "count": 3})
    text = json.dumps([{"parts": [{"arguments": inner, "n": 1.5, "ok": True}]}])
    found = json.loads(redact(text))[0]["parts"][0]
    assert json.loads(found["arguments"]) == {"to": f"[redacted:{kind}]", "count": 3}
    assert (found["n"], found["ok"]) == (1.5, True)


def test_a_secret_that_json_escapes_or_writes_as_a_number_is_found(redact: Any) -> None:
    text = '{"mail": "ada\\u0040example.com", "card": 4111111111111111}'
    assert json.loads(redact(text)) == {"mail": "[redacted:emails]", "card": "[redacted:cards]"}


@given(
    st.lists(
        st.sampled_from([*SECRETS.values(), *HARMLESS, " ", "(030) 123-4567", "030.123.4567"])
        | st.text(" -.()+@0123456789ABab_:", max_size=12)
    )
)
def test_the_quick_check_passes_on_every_text_that_has_a_secret(parts: list[str]) -> None:
    text = "".join(parts)
    for shown in (text, json.dumps({"parts": [text, json.dumps([text])]})):
        for kind, secret in privacy.secrets_in(text):
            assert privacy._MAY_HOLD[kind](shown) or "\\u" in shown, (kind, secret)


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(st.data())
@pytest.mark.parametrize("kind", privacy._KINDS)
def test_the_quick_check_passes_on_each_text_that_the_pattern_matches(kind: str, data: Any) -> None:
    text = data.draw(st.from_regex(privacy._KINDS[kind]))
    assert privacy._MAY_HOLD[kind](text)


def test_a_secret_within_text_of_another_script_is_found(redact: Any) -> None:
    assert redact(f"Звоните {SECRETS['phones']}") == "Звоните [redacted:phones]"
    assert redact("اتصل ٠٣٠-١٢٣-٤٥٦٧") == "اتصل [redacted:phones]"


def test_only_the_kinds_that_are_named_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNING_REDACT", "emails")
    redact = privacy.redactor()
    assert redact
    assert redact(" ".join(SECRETS.values())) == " ".join(
        "[redacted:emails]" if kind == "emails" else text for kind, text in SECRETS.items()
    )


def test_nothing_is_redacted_unless_asked_for() -> None:
    assert privacy.redactor() is None


def test_an_unknown_kind_is_named_and_lets_no_secret_through(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LIGHTNING_REDACT", "emials")
    redact = privacy.redactor()
    assert redact
    assert redact(SECRETS["emails"]) == "[redacted:emails]"
    assert "unknown kind 'emials'. Known: all, keys, emails, cards, phones." in caplog.text
    assert privacy.redactor()  # spans, log records and each reward have a redactor of their own
    assert caplog.text.count("unknown kind 'emials'") == 1


def test_patterns_of_the_users_own_come_from_a_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "patterns"
    path.write_text("# tickets\nTICKET-\\d+\n(\n")
    monkeypatch.setenv("LIGHTNING_REDACT_PATTERNS", str(path))
    redact = privacy.redactor()
    assert redact
    assert redact("see TICKET-17") == "see [redacted:own]"
    assert "patterns:3: not a regular expression" in caplog.text


def test_without_the_users_patterns_no_text_leaves(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LIGHTNING_REDACT_PATTERNS", str(tmp_path / "absent"))
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    put_first(provider, LightningSpanProcessor(InferredTools(provider.get_tracer("test"))))
    provider.get_tracer("agent").start_span("step", attributes={"said": "TICKET-17\n"}).end()
    (finished,) = exporter.get_finished_spans()
    assert finished.attributes == {"said": "[redacted:error]"}
    assert "absent cannot be read" in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        "https://desk/?mail=ada%40example.com&tel=%2B442079460958",
        {"ada@example.com": 1},
        json.dumps({"ada@example.com": 1}),
        '\n {"to": "ada\\u0040example.com"}',
        b"to ada@example.com \xff",
        "postgres://ada:pass-4711@db/desk",
    ],
    ids=["URL", "name", "name in JSON", "indented JSON", "bytes", "password in a URL"],
)
def test_a_secret_is_found_wherever_it_stands(redact: Any, given: Any) -> None:
    left = str(redact(given))
    assert "redacted:" in left
    assert not [part for part in ("ada", "2079", "4711") if part in left]


@pytest.mark.parametrize("word", ["ab-", "a%20", "b.", "-eyJaaaaaaaa", "1 "])
def test_long_words_are_redacted_in_time_proportional_to_their_length(word: str) -> None:
    # In proportion to its square, it would take hours: the limit of `finish` ends that.
    script = (
        "from otel_lightning.instrumentation import privacy\n"
        f"text = 'a@b.example ' + {word!r} * (2_000_000 // {len(word)})\n"
        "print(privacy.redactor()(text)[:17])"
    )
    environment = {**os.environ, "LIGHTNING_REDACT": "all"}
    process = finish(sys.executable, "-c", script, env=environment, check=True)
    assert process.stdout == "[redacted:emails]\n"


def test_every_field_of_a_span_is_redacted_before_any_exporter_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIGHTNING_REDACT", "all")
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    put_first(provider, LightningSpanProcessor(InferredTools(provider.get_tracer("test"))))
    secret = SECRETS["emails"]
    tracer = provider.get_tracer("agent")
    with suppress(ValueError), tracer.start_as_current_span(secret) as span:
        span.set_attribute("gen_ai.system_instructions", f"mail {secret}")
        span.set_attribute("list", [secret, "kept"])
        span.add_event("said", {"text": secret})
        span.add_event(secret)
        span.set_attribute("lightning.prompt_token_ids", [97, 64, 101])
        span.set_attribute("lightning.completion_token_ids.1", [97, 64, 101])
        raise ValueError(secret)
    (finished,) = exporter.get_finished_spans()
    assert secret not in finished.to_json()
    assert finished.attributes["list"] == ("[redacted:emails]", "kept")
    assert not [name for name in finished.attributes if "token_ids" in name], "they spell the text"
    assert secret not in repr([event.name for event in finished.events])


def test_a_secret_in_json_that_is_nested_too_deeply_is_found(redact: Any) -> None:
    text = "[" * 100_000 + json.dumps(SECRETS["emails"])
    assert SECRETS["emails"] not in redact(text)


def test_a_value_that_cannot_be_redacted_is_withheld_and_the_others_are_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_at(value: Any) -> Any:
        if value == "poison":
            raise RuntimeError(value)
        return value.replace("secret", "[redacted:own]")

    monkeypatch.setattr(privacy, "redactor", lambda: fail_at)
    monkeypatch.setattr(model_call, "note_ending", fail_at)
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    put_first(provider, LightningSpanProcessor(InferredTools(provider.get_tracer("test"))))
    attributes = {"first": "poison", "second": "a secret"}
    provider.get_tracer("agent").start_span("step", attributes=attributes).end()
    (finished,) = exporter.get_finished_spans()
    assert finished.attributes == {"first": "[redacted:error]", "second": "a [redacted:own]"}


def test_a_conversation_with_tools_leaves_without_its_secrets(agent: Any) -> None:
    script = f"""
import openai
client = openai.OpenAI()
tools = [{{"type": "function", "function": {{"name": "mail", "parameters": {{}}}}}}]
messages = [{{"role": "system", "content": "key {SECRETS["keys"]}"}},
            {{"role": "user", "content": "{SECRETS["emails"]}"}}]
answer = client.chat.completions.create(model="small", messages=messages, tools=tools).choices[0]
call = answer.message.tool_calls[0]
assert "{SECRETS["emails"]}" in call.function.arguments, "the agent sees what it saw before"
messages += [answer.message, {{"role": "tool", "tool_call_id": call.id,
                               "content": "sent, {SECRETS["cards"]}"}}]
client.chat.completions.create(model="small", messages=messages, tools=tools)
"""
    agent.run(script, LIGHTNING_REDACT="all")
    assert len(agent.sink.spans) == 3
    sent = repr(agent.sink.spans)
    assert not [secret for secret in SECRETS.values() if secret in sent]
    for kind in ("keys", "emails", "cards"):
        assert f"[redacted:{kind}]" in sent


@pytest.mark.parametrize("name", ["headers", "url"])
def test_what_gives_access_to_the_model_server_is_never_recorded(
    traced: Any, model_server: Any, name: str
) -> None:
    import openai

    url = model_server.base_url("vllm")
    if name == "url":
        url = url.replace("://", "://desk:pass-4711@")
    headers = {"Authorization": "Basic pass-4711", "X-Key": "pass-4711"}
    with openai.OpenAI(api_key="none", base_url=url) as client:
        client.chat.completions.create(
            model="small",
            messages=[{"role": "user", "content": "Hi"}],
            extra_headers=headers if name == "headers" else None,
        )
    span = traced.spans()["openai.chat"]
    assert "pass-4711" not in repr(span)
    assert span["gen_ai.openai.api_base"].startswith(model_server.url)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
def test_an_error_that_quotes_a_prompt_leaves_without_its_text_if_content_is_off(
    traced: Any, model_server: Any, monkeypatch: Any, endpoint: str, *, stream: bool
) -> None:
    import openai

    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", "false")
    prompt = "nobody may read this"
    tracer = traced.provider.get_tracer("agent")

    def ask(client: Any) -> None:
        chat = {"messages": [{"role": "user", "content": prompt}]}
        request = {"chat": chat, "completions": {"prompt": prompt}, "responses": {"input": prompt}}
        resource = client.chat.completions if endpoint == "chat" else getattr(client, endpoint)
        # The error passes through the span of the agent, which is no GenAI span.
        with tracer.start_as_current_span("step"):
            list(resource.create(model="small", stream=stream, **request[endpoint]))

    def fail() -> None:
        with tracer.start_as_current_span("other"):
            raise ValueError("an error of the agent")

    base_url = model_server.base_url("quoting")
    with openai.OpenAI(api_key="none", base_url=base_url, max_retries=0) as client:
        with pytest.raises(openai.APIError, match=prompt):
            ask(client)
        with pytest.raises(ValueError, match="the agent"):
            fail()
    spans = {span.name: span.to_json() for span in traced.exporter.get_finished_spans()}
    assert len(spans) == 3
    assert not [name for name, span in spans.items() if prompt in span]
    assert '"exception.type": "openai.' in spans["step"]
    assert "[redacted" not in spans["other"]


@pytest.mark.slow
def test_the_stock_content_switch_turns_the_bundled_one_off_too(agent: Any) -> None:
    script = """
import openai
openai.OpenAI().chat.completions.create(
    model="small", messages=[{"role": "user", "content": "a secret"}]
)
"""
    agent.run(script, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="false")
    assert len(agent.sink.llm_spans()) == 1
    assert "secret" not in repr(agent.sink.spans)
