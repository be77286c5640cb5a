"""Values of types that no reader expects: they may cost their own fields, and nothing else."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, span, text_message, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.batches import to_arrow
from otel_lightning.collector.derive.rows import Attributes, Derived, Event, Log, Reward, Span
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.store import open_store

TRUTHS = sorted(DATA.glob("*/*.truth.json"))
SHARES = (0.02, 0.1, 0.3)
"""Shares of the values of a recording that are changed, one for each seed."""
NUMBERS: list[Any] = [0, 7, -1.5, 10**30, True, None, float("nan")]
BAGS: list[Any] = [[], {}, [1], [None], [[]], [{}], {"a": 1}, {"": None}, [["x"]]]
MESSAGES: list[Any] = [
    {"role": 3, "content": {"a": 1}},
    [{"role": ["user"], "parts": "x"}],
    [{"role": "assistant", "parts": [None, 3, "x", {"type": ["text"]}]}],
    [{"type": "text", "text": [1]}, [{"role": "user"}]],
    {"choices": [None], "usage": [1], "content": [{"type": "tool_use"}]},
    [{"role": "assistant", "tool_calls": [{"id": [1], "function": "x"}, None]}],
]
ODD: list[Any] = ["", "x", "\ud83d", *NUMBERS, *BAGS, *MESSAGES]


def changed(value: Any, draw: random.Random) -> Any:
    """Return a value with one change at a random place inside."""
    if isinstance(value, dict | list) and value and draw.random() < 0.85:
        place = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
        other: Any = value.copy()
        if draw.random() < 0.1:
            del other[place]
        else:
            other[place] = changed(value[place], draw)
        return other
    if isinstance(value, str) and value[:1] in "[{" and draw.random() < 0.7:
        inner = as_json(value)
        return value if inner is None else json.dumps(changed(inner, draw))
    ways = [[value], {"value": value}, str(value), str(value)[: len(str(value)) // 2]]
    return draw.choice([*ways, *draw.sample(ODD, 6)])


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def changed_text(text: str, draw: random.Random) -> str:
    if draw.random() < 0.1:
        return text[: draw.randrange(len(text) + 1)]
    known = as_json(text)
    value = changed(text if known is None else known, draw)
    written = value if isinstance(value, str) else json.dumps(value)
    return written.encode(errors="replace").decode()


def changed_map(attributes: Attributes, draw: random.Random, share: float) -> dict[str, str]:
    return {
        key: changed_text(text, draw) if draw.random() < share else text
        for key, text in attributes.items()
    }


def changed_span(one: Span, draw: random.Random, share: float) -> Span:
    events = (
        Event(event.name, event.time_ns, changed_map(event.attributes, draw, share))
        for event in one.events
    )
    return one._replace(attributes=changed_map(one.attributes, draw, share), events=tuple(events))


def changed_log(one: Log, draw: random.Random, share: float) -> Log:
    fields = {name: getattr(one, name) for name in Log.__slots__}
    fields["attributes"] = changed_map(one.attributes, draw, share)
    if one.body and draw.random() < share:
        fields["body"] = changed_text(one.body, draw)
    return Log(**fields)


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, pa.Schema]]:
    with open_store(tmp_path_factory.mktemp("odd") / "t.duckdb") as store:
        yield schemas(store)


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_odd_values_break_no_reader_and_cost_no_other_trace(
    truth: Path, columns: dict[str, pa.Schema]
) -> None:
    recorded = load(truth)
    sound = span(
        chat([text_message("user", "Hi")], text_message("assistant", "Hello")), trace="sound"
    )
    for share in SHARES:
        draw = random.Random(f"{truth.parent.name}/{truth.name}/{share}")  # noqa: S311
        spans = [changed_span(one, draw, share) for one in recorded.spans]
        logs = [changed_log(one, draw, share) for one in recorded.logs]
        derived = derive([*spans, sound], logs)
        assert [call.trace_id for call in derived.llm_calls].count("sound") == 1
        broken = [why for why in derived.unread.values() if "its column cannot hold" not in why]
        assert not broken
        assert dict(to_arrow.tables(derived, columns))
        assert trace_keys(spans, logs) is not None


@pytest.mark.parametrize("values", [[0.0, -0.0, 0.0], [0.5, 0.5], [None, None], [None, 1.0, None]])
def test_values_that_are_equal_in_all_rows_stay_as_they_are(
    values: list[float | None], columns: dict[str, pa.Schema]
) -> None:
    rewards = [Reward(str(at), "primary", value) for at, value in enumerate(values)]
    rows = dict(to_arrow.tables(Derived(rewards=rewards), columns))["reward_events"]
    assert str(rows["value"].to_pylist()) == str(values)
    assert rows["name"].to_pylist() == ["primary"] * len(values)
    assert rows["reward_id"].to_pylist() == [one.reward_id for one in rewards]


@pytest.mark.parametrize(
    ("given", "told", "reason"),
    [
        ({"mlflow.llm.model": "[5]"}, None, "request_model is [5]: its column cannot hold it"),
        ({"mlflow.llm.model": '"m"'}, "m", None),
    ],
)
def test_only_a_value_that_its_column_cannot_hold_is_cleared(
    given: dict[str, str], told: str | None, reason: str | None
) -> None:
    asked = {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '"Hi"', **given}
    derived = derive([span(asked)], [])
    (call,) = derived.llm_calls
    assert call.request_model == told
    assert list(derived.unread.values()) == ([reason] if reason else [])


@pytest.mark.parametrize("count", ["15", '"15"', "15.0"])
def test_a_count_that_is_written_as_text_is_a_number(count: str) -> None:
    asked = {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": '"Hi"'}
    (call,) = derive(
        [span({**asked, "mlflow.chat.tokenUsage": f'{{"output_tokens": {count}}}'})], []
    ).llm_calls
    assert call.output_tokens == 15
