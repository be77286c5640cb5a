"""Tool calls and results that OpenLIT leaves out of the requests of the Responses API."""

import pytest
from support.spans import chat, span, text_message, tool_request, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall, Span

QUESTION, ANSWER = text_message("user", "Sun in Rome?"), text_message("assistant", "Yes.")
ASKS = tool_request("call_1", "sun", {"city": "Rome"})
OPENLIT = "openlit.instrumentation.openai"


def response(
    name: str, said: dict[str, object], *, at: float, scope: str = OPENLIT, streamed: bool = True
) -> Span:
    more = {
        "openai.api.type": "responses",
        "gen_ai.response.id": f"resp_{name}",
        "gen_ai.request.stream": streamed,
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    return span(chat([QUESTION], said, more), trace=name, id=name, at=at, scope=scope)


@pytest.mark.parametrize(("scope", "content"), [(OPENLIT, "truncated"), ("other", "full")])
def test_a_response_that_repeats_the_input_of_one_with_tool_calls_has_lost_them(
    scope: str, content: str
) -> None:
    spans = [response("a", ASKS, at=0, scope=scope), response("b", ANSWER, at=2, scope=scope)]
    assert [call.content for call in derive(spans, []).llm_calls] == ["full", content]
    # So they are derived together.
    first, second = (trace_keys([one], []) for one in spans)
    assert first & second


def test_a_response_of_openlit_without_tools_is_whole() -> None:
    spans = [response("a", ANSWER, at=0), response("b", ANSWER, at=2)]
    assert [call.content for call in derive(spans, []).llm_calls] == ["full", "full"]


@pytest.mark.parametrize(("streamed", "content"), [(True, "full"), (False, "truncated")])
def test_an_answer_of_openlit_that_is_not_streamed_may_lack_parallel_tool_calls(
    *, streamed: bool, content: str
) -> None:
    (call,) = derive([response("a", ASKS, at=0, streamed=streamed)], []).llm_calls
    assert call.content == content


def test_a_request_of_openlit_that_nobody_spoke_in_has_lost_the_results_of_tools() -> None:
    keys = {"openai.api.type": "responses", "gen_ai.response.id": "resp_1"}
    given = chat([text_message("system", "Be short.")], ANSWER, keys)
    (call,) = derive([span(given, scope=OPENLIT)], []).llm_calls
    assert call.content == "truncated"


def in_javascript(sent: list[dict[str, object]], more: dict[str, object]) -> LlmCall:
    keys = {"openai.api.type": "responses", "gen_ai.response.finish_reasons": ["completed"], **more}
    given = span(chat(sent, ANSWER, keys), scope="@openlit/instrumentation-openai")
    (call,) = derive([given], []).llm_calls
    return call


def test_a_response_of_openlit_in_javascript_that_offers_tools_may_lack_tool_calls() -> None:
    call = in_javascript([QUESTION], {"gen_ai.tool.definitions": [{"name": "sun"}]})
    assert (call.content, call.finish_reason) == ("truncated", None)


def test_a_request_of_openlit_in_javascript_lacks_what_the_assistant_said() -> None:
    call = in_javascript([QUESTION, QUESTION], {})
    assert (call.content, call.finish_reason) == ("truncated", "stop")


def test_a_response_of_openlit_in_javascript_to_one_question_without_tools_is_whole() -> None:
    call = in_javascript([text_message("system", "Be short."), QUESTION], {})
    assert (call.content, call.finish_reason) == ("full", "stop")
