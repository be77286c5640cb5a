"""Spans are read some at a time, step by step, and each as if it were alone."""

from collections.abc import Iterator
from weakref import WeakValueDictionary

from support.spans import chat, span, text_message

from otel_lightning.collector.derive.parse import SPANS_AT_ONCE, TEXT_AT_ONCE, read
from otel_lightning.collector.derive.rows import Span


def call(number: int) -> Span:
    return span(
        chat([text_message("user", f"Hi {number}")], text_message("assistant", "Hello")),
        id=f"s{number}",
    )


def test_all_spans_of_a_long_trace_are_read_in_their_order() -> None:
    numbers = range(2 * SPANS_AT_ONCE + 1)
    found = read(map(call, numbers), [])
    assert [row.span_id for row in found.calls] == [f"s{number}" for number in numbers]
    assert len({row.history.input_hash for row in found.calls}) == len(found.nodes) == len(numbers)


def test_a_span_that_is_delivered_again_much_later_is_read_once() -> None:
    found = read(map(call, [*range(SPANS_AT_ONCE), 0]), [])
    assert len(found.calls) == SPANS_AT_ONCE


def test_a_span_that_cannot_be_read_affects_no_span_that_is_read_with_it() -> None:
    keys = {"openinference.span.kind": "LLM", "llm.input_messages.x.message.role": "user"}
    odd = span(keys, id="odd")
    found = read([call(1), odd, call(2)], [])
    assert [row.span_id for row in found.calls] == ["s1", "s2"]
    assert list(found.unread) == [("t1", "odd")]
    assert ("t1", "odd") in found.nodes


class Watched(dict[str, str]):
    """Attributes that are known to be freed."""

    __slots__ = ("__weakref__",)


def test_few_megabytes_of_attributes_are_kept_at_a_time() -> None:
    spans_sent, size, most = 40, TEXT_AT_ONCE // 4, 0
    alive = WeakValueDictionary[int, Watched]()

    def spans() -> Iterator[Span]:
        nonlocal most
        for number in range(spans_sent):
            attributes = alive[number] = Watched({"note": "x" * size})
            most = max(most, len(alive))
            yield call(number)._replace(attributes=attributes)

    assert len(read(spans(), []).nodes) == spans_sent
    assert most * size < 3 * TEXT_AT_ONCE
