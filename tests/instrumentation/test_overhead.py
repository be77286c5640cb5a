"""What we save in the bundled instrumentation changes nothing that it records."""

import asyncio
import logging
import os
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from packaging import version
from support.late import Late

from otel_lightning.instrumentation import overhead

openai: Any = Late("openai")

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
CHAT: Any = {"model": "small", "messages": MESSAGES}
IMAGE: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SHOWN: Any = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]
TOOLS: Any = [{"type": "function", "function": {"name": "sun", "parameters": {}}}]
SENT: dict[str, dict[str, Any]] = {
    "a text": CHAT,
    "tools": {**CHAT, "tools": TOOLS, "temperature": 0.5},
    "an image": {"model": "small", "messages": SHOWN},
    "no list of messages": {"model": "small", "messages": 7},
    "a stream": {**CHAT, "stream": True},
}


@pytest.fixture
def connect(model_server: Any) -> Iterator[Any]:
    base_url = model_server.base_url("same")
    with openai.OpenAI(api_key="none", base_url=base_url, max_retries=0) as opened:
        yield opened


def recorded(traced: Any, call: Callable[[], Any]) -> list[dict[str, Any]]:
    traced.exporter.clear()
    answer = call()
    if not hasattr(answer, "choices"):
        list(answer)
    (span,) = traced.exporter.get_finished_spans()
    ids = {"gen_ai.response.id", "gen_ai.output.messages"}  # a tool call's id is new in each
    assert ids <= span.attributes.keys()
    kept = {name: value for name, value in span.attributes.items() if name not in ids}
    parts = re.sub(r"call_\w+", "id", span.attributes["gen_ai.output.messages"])
    return [{**kept, "parts": parts}, *(dict(event.attributes) for event in span.events)]


@pytest.mark.parametrize("name", SENT)
def test_a_span_is_the_same_as_without_savings(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from opentelemetry.instrumentation.openai import utils
    from opentelemetry.instrumentation.openai.shared import chat_wrappers

    def call() -> Any:
        return connect.chat.completions.create(**SENT[name])

    async def within_a_loop() -> list[dict[str, Any]]:
        return recorded(traced, call)

    cheap = [recorded(traced, call), asyncio.run(within_a_loop())]
    with monkeypatch.context() as before:
        assert chat_wrappers.run_async is not utils.run_async
        before.setattr(chat_wrappers, "run_async", utils.run_async)
        before.setattr(utils, "pkg_version", version)
        before.setattr(utils, "traceback", traceback)
        assert [recorded(traced, call), asyncio.run(within_a_loop())] == cheap


def test_a_function_of_the_agents_that_uploads_images_may_wait(
    connect: Any, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.instrumentation.openai.shared import chat_wrappers

    async def upload(*_: str) -> str:
        await asyncio.sleep(0.001)
        return "https://images/1"

    monkeypatch.setattr(chat_wrappers.Config, "upload_base64_image", upload)
    connect.chat.completions.create(**SENT["an image"])
    assert "https://images/1" in traced.spans()["openai.chat"]["gen_ai.input.messages"]


def test_an_error_of_the_instrumentation_is_logged_with_its_traceback(
    connect: Any, traced: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry.instrumentation.openai.shared import chat_wrappers

    with caplog.at_level(logging.DEBUG, chat_wrappers.__name__):
        connect.chat.completions.create(**SENT["no list of messages"])
    assert traced.spans()
    assert "Traceback (most recent call last)" in caplog.text
    assert "TypeError" in caplog.text


@pytest.mark.parametrize(
    ("exporter", "asked", "seen"),
    [("none", None, "false"), ("none", "true", "true"), ("otlp", None, None)],
)
def test_metrics_are_off_only_where_no_exporter_reads_them_and_nobody_asked(
    monkeypatch: pytest.MonkeyPatch, exporter: str, asked: str | None, seen: str | None
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", exporter)
    monkeypatch.delenv("TRACELOOP_METRICS_ENABLED", raising=False)
    if asked is not None:
        monkeypatch.setenv("TRACELOOP_METRICS_ENABLED", asked)
    with overhead.without_unread_metrics():
        assert os.environ.get("TRACELOOP_METRICS_ENABLED") == seen
    assert os.environ.get("TRACELOOP_METRICS_ENABLED") == asked
