"""Settings that calls repeat are parsed once: the cache must not change any row."""

from support.captures import read_spans
from support.deliveries import DATA
from support.spans import span

from otel_lightning.collector.derive import dialects
from otel_lightning.collector.derive.attributes.shapes import shape_of
from otel_lightning.collector.derive.dialects.semconv import calls
from otel_lightning.collector.derive.rows import LlmCall, Row, Span

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.response.finish_reasons": ["stop"],
}


def call(**said: object) -> LlmCall:
    found = dialects.read(span(CALL | {f"gen_ai.{key}": value for key, value in said.items()}))
    assert isinstance(found, LlmCall)
    return found


def clear_plans(one: Span) -> None:
    for attributes in (one.attributes, *(event.attributes for event in one.events)):
        shape_of(attributes).plans.clear()


def test_each_recorded_span_gives_the_same_row_with_and_without_the_cache() -> None:
    spans = [one for file in sorted(DATA.rglob("*.otlp.*")) for one in read_spans(file)]
    before: list[Row | None] = [dialects.read(one) for one in spans]
    for one, row in zip(spans, before, strict=True):
        clear_plans(one)
        assert dialects.read(one) == row
    assert len([row for row in before if isinstance(row, LlmCall)]) > 500


def test_calls_that_repeat_their_settings_do_not_share_them() -> None:
    first, second = call(**{"response.id": "a"}), call(**{"response.id": "b"})
    assert (first.response_id, second.response_id) == ("a", "b")
    assert first.request_params == second.request_params == {"temperature": 0.5}
    first.request_params["top_p"] = 1  # as a dialect may do
    third = call(**{"response.id": "c"})
    assert second.request_params == third.request_params == {"temperature": 0.5}


def test_calls_of_one_shape_keep_their_own_settings() -> None:
    models = [f"model-{number}" for number in range(calls.MOST_SETTINGS + 2)]
    found = [call(**{"request.model": model}).request_model for model in (*models, *models)]
    assert found == [*models, *models]
    ended = [
        call(**{"response.finish_reasons": [reason]}).finish_reason
        for reason in ("stop", "length", "stop")
    ]
    assert ended == ["stop", "length", "stop"]
