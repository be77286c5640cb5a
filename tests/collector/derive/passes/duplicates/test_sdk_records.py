"""Records of a call by a provider's own SDK, beside those of a framework without response ids."""

import json
from typing import Any

import pytest
from support.spans import SECOND, chat, span, text_message, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.links import ties
from otel_lightning.collector.derive.parse import read
from otel_lightning.collector.derive.rows import LlmCall, Span

MODEL = {
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "m",
    "gen_ai.operation.name": "chat",
}


def framework(id: str, at: float, tokens: int = 9, **more: Any) -> Span:  # noqa: A002
    """Return a streamed call as LangChain's packages record it."""
    counts = {"gen_ai.usage.output_tokens": tokens}
    told = chat([text_message("user", "Hi")], text_message("assistant", "Hello"))
    return span({**told, **MODEL, **counts}, id=id, trace=f"t{id}", parent="run", at=at, **more)


def sdk(id: str, at: float, tokens: int = 9, **more: Any) -> Span:  # noqa: A002
    """Return the SDK's own record, in a trace of its own."""
    counts = {"gen_ai.usage.input_tokens": 31, "gen_ai.usage.output_tokens": tokens}
    named = {"gen_ai.response.id": f"msg_{id}"}
    given = {"scope": "sdk", "id": id, "trace": f"t{id}", "at": at, "ends": at + 0.5, **more}
    return span({**MODEL, **counts, **named}, **given)


def calls(*spans: Span) -> list[LlmCall]:
    return derive(spans, []).llm_calls


def test_the_sdks_record_inside_the_time_of_the_only_call_that_fits_is_that_call() -> None:
    (call,) = calls(framework("a", 0), sdk("b", 0.2))
    assert (call.trace_id, call.span_id, call.response_id) == ("ta", "a", "msg_b")
    assert (call.input_tokens, call.content, call.merged_span_ids) == (31, "full", ["b"])


@pytest.mark.parametrize("provider", ["openai", "aws.bedrock", None])
def test_no_list_of_providers_says_whose_records_repeat_a_call(provider: str | None) -> None:
    other = sdk("b", 0.2)
    other.attributes["gen_ai.provider.name"] = provider or ""  # type: ignore[index]
    (call,) = calls(framework("a", 0), other)
    assert (call.response_id, call.merged_span_ids) == ("msg_b", ["b"])


@pytest.mark.parametrize(("tokens", "count"), [("31", 1), ("30", 2)])
def test_records_that_know_their_input_tokens_know_the_same(tokens: str, count: int) -> None:
    counted = framework("a", 0)
    counted.attributes["gen_ai.usage.input_tokens"] = tokens  # type: ignore[index]
    assert len(calls(counted, sdk("b", 0.2))) == count


@pytest.mark.parametrize(("question", "count"), [("Hi", 1), ("Hello?", 2)])
def test_a_clients_record_of_the_same_messages_is_the_frameworks_call(
    question: str, count: int
) -> None:
    """As OpenInference writes for LangChain's streams and for OpenAI's client."""
    own = sdk("b", 0.2)
    told = chat([text_message("user", question)], text_message("assistant", "Hello"))
    own.attributes.update(span(told).attributes)  # type: ignore[attr-defined]
    assert len(calls(framework("a", 0), own)) == count


@pytest.mark.parametrize(("question", "count"), [("Hi", 1), ("Hello?", 2)])
def test_a_record_that_names_no_requested_model_is_the_clients_call(
    question: str, count: int
) -> None:
    """As Langfuse's wrapper of the OpenAI client writes inside LangSmith's."""
    whole, own = framework("a", 0.1, ends=0.4), sdk("b", 0)
    for one in (whole, own):
        one.attributes["gen_ai.usage.input_tokens"] = "31"  # type: ignore[index]
    del whole.attributes["gen_ai.request.model"]  # type: ignore[attr-defined]
    told = chat([text_message("user", question)], text_message("assistant", "Hello"))
    own.attributes.update(span(told).attributes)  # type: ignore[attr-defined]
    found = calls(whole, own)
    assert len(found) == count
    assert {call.response_id for call in found if call.request_model} == {"msg_b"}


def test_equal_calls_of_one_package_that_fail_at_once_are_not_one() -> None:
    asked = {**chat([text_message("user", "Hi")], {}), **MODEL, "error.type": "RateLimitError"}
    del asked["gen_ai.output.messages"]
    first, second = (span(asked, id=f"s{at}", trace=f"t{at}", at=at, ends=3 - at) for at in (0, 1))
    assert len(calls(first, second)) == 2
    # Those of two packages may be one.
    assert len(calls(first, second._replace(scope_name="client"))) == 1


def test_a_stream_that_broke_off_after_the_first_chunk_that_the_sdk_timed_is_one_call() -> None:
    whole, own = framework("a", 0, status="ERROR"), sdk("b", 0.2, status="ERROR")
    for key in ("gen_ai.output.messages", "gen_ai.usage.output_tokens"):
        whole.attributes.pop(key)  # type: ignore[attr-defined]
    own.attributes.pop("gen_ai.usage.output_tokens")  # type: ignore[attr-defined]
    own.attributes["gen_ai.response.time_to_first_chunk"] = "0.1"  # type: ignore[index]
    (call,) = calls(whole, own)
    assert (call.span_id, call.response_id, call.finish_reason) == ("a", "msg_b", "error")


def test_records_without_counts_are_not_told_by_time_alone() -> None:
    uncounted = framework("a", 0), sdk("b", 0.2)
    for one in uncounted:
        del one.attributes["gen_ai.usage.output_tokens"]  # type: ignore[attr-defined]
    assert len(calls(*uncounted)) == 2


def uncounted(answer: dict[str, Any] | None = None) -> tuple[Span, Span]:
    """Return two records of a stream without counts, as OpenInference writes below LangChain.

    LangChain asks for counts only at OpenAI's own address, and vLLM sends none unasked.
    """
    whole, own = framework("a", 0), sdk("b", 0.2)
    own.attributes.update(span(chat([text_message("user", "Hi")], {}), id="b").attributes)  # type: ignore[attr-defined]
    said = text_message("assistant", "Hello")
    for one, output in ((whole, said), (own, answer or said)):
        one.attributes["gen_ai.output.messages"] = json.dumps([output])  # type: ignore[index]
        one.attributes["gen_ai.response.finish_reasons"] = '["stop"]'  # type: ignore[index]
        for key in ("input_tokens", "output_tokens"):
            one.attributes.pop(f"gen_ai.usage.{key}", None)  # type: ignore[attr-defined]
    return whole, own


def test_two_records_of_a_stream_without_counts_are_one_call() -> None:
    whole, own = uncounted()
    (call,) = calls(whole, own)
    assert (call.span_id, call.response_id, call.merged_span_ids) == ("a", "msg_b", ["b"])
    assert trace_keys([whole], []) & trace_keys([own], [])


def test_without_counts_another_answer_or_time_is_another_call() -> None:
    assert len(calls(*uncounted(text_message("assistant", "Bye")))) == 2
    whole, own = uncounted()
    assert len(calls(whole, own._replace(start_ns=3 * SECOND, end_ns=4 * SECOND))) == 2


def test_streams_without_counts_at_once_stay_apart() -> None:
    whole, own = uncounted()
    again = whole._replace(trace_id="tc", span_id="c")
    assert len(calls(whole, own, again)) == 3


@pytest.mark.parametrize("other", [sdk("b", 2), sdk("b", 0.2, tokens=8)])
def test_a_record_of_another_time_or_count_is_another_call(other: Span) -> None:
    assert len(calls(framework("a", 0), other)) == 2


def test_calls_at_once_are_told_apart_by_their_counts_or_not_at_all() -> None:
    both = framework("a", 0), framework("c", 0.1, tokens=8)
    merged = calls(*both, sdk("b", 0.2), sdk("d", 0.2, tokens=8))
    assert [(call.span_id, call.response_id) for call in merged] == [("a", "msg_b"), ("c", "msg_d")]
    alike = framework("a", 0), framework("c", 0.1)
    assert len(calls(*alike, sdk("b", 0.2), sdk("d", 0.2))) == 4


def test_a_record_whose_call_names_the_response_is_no_other_call() -> None:
    named = framework("c", 0)
    named.attributes["gen_ai.response.id"] = "msg_b"  # type: ignore[index]
    merged = calls(framework("a", 0), named, sdk("b", 0.2))
    assert [(call.span_id, call.response_id) for call in merged] == [("a", None), ("c", "msg_b")]


def test_the_sdks_record_of_a_stream_may_end_a_little_later() -> None:
    (call,) = calls(framework("a", 0), sdk("b", 0.502))
    assert (call.span_id, call.response_id) == ("a", "msg_b")
    assert len(calls(framework("a", 0), sdk("b", 0.51))) == 2


@pytest.mark.parametrize(("tokens", "late", "count"), [("31", 0, 1), ("31", -0.2, 2), ("30", 0, 2)])
def test_the_sdks_record_may_be_around_one_with_its_counts(
    tokens: str, late: float, count: int
) -> None:
    """Anthropic's `messages.stream` calls `messages.create`, where OpenInference listens."""
    whole = framework("a", 0.1)
    whole.attributes["gen_ai.usage.input_tokens"] = tokens  # type: ignore[index]
    own = sdk("b", 0)._replace(end_ns=int((1.15 + late) * SECOND))
    found = calls(whole, own)
    assert len(found) == count
    assert found[-1].response_id == ("msg_b" if count == 1 else None)


def test_a_record_without_input_tokens_is_not_known_by_a_longer_one() -> None:
    assert len(calls(framework("a", 0.1), sdk("b", 0)._replace(end_ns=2 * SECOND))) == 2


def test_records_of_which_one_is_above_the_other_fit_no_third() -> None:
    own = span({**sdk("b", 0.2).attributes}, id="b", trace="ta", parent="a", at=0.2, ends=0.7)
    at_once = framework("c", 0.1), sdk("d", 0.3)
    merged = calls(framework("a", 0), own, *at_once)
    assert [(call.span_id, call.response_id) for call in merged] == [("b", "msg_b"), ("c", "msg_d")]


@pytest.mark.parametrize(("whole_at", "own_at"), [(8.999, 9.501), (8.999, 9.6), (9.1, 9.3)])
def test_a_trace_that_ends_in_the_next_interval_is_found(whole_at: float, own_at: float) -> None:
    """Either of the two may end later: at 9.999 and 10.1, or at 10.1 and 9.8."""
    whole, own = (ties(read([one], [])) for one in (framework("a", whole_at), sdk("b", own_at)))
    assert set(whole.key) & set(own.seeks) or set(own.key) & set(whole.seeks)


@pytest.mark.parametrize("at", [5, 9.5])
def test_their_traces_find_each_other_and_those_of_frameworks_do_not(at: float) -> None:
    """At 9.5 the framework's record ends in the next interval of 10 seconds."""

    def keys(one: Span) -> tuple[set[str], set[str]]:
        tied = ties(read([one], []))
        rows = [row for row in zip(*tied, strict=True) if row[1] != row[2]]
        return {key for _, key, _ in rows}, {seeks for _, _, seeks in rows}

    (whole, wanted), (own, owns) = keys(framework("a", at)), keys(sdk("b", at - 0.1))
    assert whole & owns
    assert own & wanted
    assert not whole & wanted


def gave_up(id: str, at: float) -> Span:  # noqa: A002
    """Return a call whose answer was cut off, as Strands 1.16 for TypeScript records it."""
    given = {
        "gen_ai.input.messages": [text_message("user", "Hi")],
        **MODEL,
        "error.type": "MaxTokensError",
    }
    return span(given, id=id, trace=f"t{id}", parent="run", at=at, status="ERROR")


def cut_off(id: str, at: float) -> Span:  # noqa: A002
    """Return the SDK's record of an answer that was cut off."""
    own = sdk(id, at)
    own.attributes["gen_ai.response.finish_reasons"] = '["max_tokens"]'  # type: ignore[index]
    return own


def test_an_answer_that_was_cut_off_and_the_error_that_a_framework_made_of_it_are_one_call() -> (
    None
):
    (call,) = calls(gave_up("a", 0), cut_off("b", 0.2))
    assert (call.span_id, call.response_id, call.merged_span_ids) == ("a", "msg_b", ["b"])
    assert (call.finish_reason, call.error_type, call.output_tokens) == ("length", None, 9)
    assert call.content == "truncated"  # nobody recorded the answer


def test_a_call_that_failed_is_not_the_one_that_ended() -> None:
    assert len(calls(gave_up("a", 0), sdk("b", 0.2))) == 2


def test_traces_with_an_answer_that_was_cut_off_find_each_other() -> None:
    whole, own = (ties(read([one], [])) for one in (gave_up("a", 0), cut_off("b", 0.2)))
    assert set(whole.key) & set(own.seeks) or set(own.key) & set(whole.seeks)
