"""`rollout_rows`, which deriving keeps, says what the views computed from all rows before."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.examples import first_quick
from support.first_views import differences
from support.made_rollouts import deliver
from support.stores import unpacked

from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.load.batches import Request
from otel_lightning.collector.load.retention import forget
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.maintain.erase import Selection, erase
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.store import Store, open_store

DATA = Path(__file__).parents[3] / "data"
RECORDED = ("agentlightning/tool", "openinference_openai/tool", "traceloop_anthropic/error_gather")
SECOND, DAY = 10**9, 86_400 * 10**9
NOW = 1_800_000_000 * SECOND
JUDGED = "gen_ai.evaluation.result"
FLAG = "feature_flag.evaluation"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "t.duckdb") as opened:
        yield opened


def turn(rollout: int, number: int, *, when: int = NOW, **said: str) -> Request:
    """Return a trace with one model call of a rollout that has several traces."""
    sent = ExportTraceServiceRequest()
    span = sent.resource_spans.add().scope_spans.add().spans.add(name="chat")
    span.trace_id, span.span_id = (rollout * 100 + number).to_bytes(16, "big"), b"\x01" * 8
    span.start_time_unix_nano = when + rollout * 100 * SECOND + number * SECOND
    span.end_time_unix_nano = span.start_time_unix_nano + SECOND // 2
    own = {
        "gen_ai.operation.name": "chat",
        "lightning.rollout.id": f"rollout {rollout}",
        "gen_ai.response.id": f"response {rollout}.{number}",
        "gen_ai.agent.name": f"agent {rollout % 2}",
        "gen_ai.request.model": "m",
    }
    for key, value in (own | {k.replace("__", "."): v for k, v in said.items()}).items():
        span.attributes.add(key=key).value.string_value = value
    span.attributes.add(key="gen_ai.usage.output_tokens").value.int_value = 10 + number
    return Request("traces", when, sent.SerializeToString())


def record(name: str, when: int, trace: int | None = None, /, **said: str | float) -> Request:
    """Return a log record: a reward or an arm, with or without a trace."""
    sent = ExportLogsServiceRequest()
    made = sent.resource_logs.add().scope_logs.add().log_records.add()
    made.event_name, made.time_unix_nano = name, when
    if trace is not None:
        made.trace_id = trace.to_bytes(16, "big")
    for key, value in said.items():
        kind = "string_value" if isinstance(value, str) else "double_value"
        setattr(made.attributes.add(key=key.replace("__", ".")).value, kind, value)
    return Request("logs", when, sent.SerializeToString())


def reward(value: float, when: int, trace: int | None = None, /, **said: str) -> Request:
    return record(JUDGED, when, trace, gen_ai__evaluation__score__value=value, **said)


def traffic() -> list[Request]:
    """Return rollouts judged and flagged in every way, in the order of their times."""
    late = NOW + DAY
    finished = "gen_ai__response__finish_reasons"
    return [
        *(turn(1, n) for n in range(3)),
        turn(1, 3, **{finished: '["stop"]'}),
        *(turn(2, n, lightning__task__id="task 2") for n in range(2)),
        turn(2, 2, **{finished: '["length"]'}),
        *(turn(3, n) for n in range(2)),
        *(turn(4, n) for n in range(2)),
        turn(5, 0),
        reward(0.25, late, lightning__rollout__id="rollout 1"),
        reward(0.75, late + 1, gen_ai__response__id="response 1.2"),
        reward(1.0, late, gen_ai__response__id="response 3.1", lightning__task__id="task of 3"),
        reward(0.5, NOW - DAY, lightning__rollout__id="rollout 4"),
        reward(0.5, late, 201),
        reward(0.5, late, gen_ai__response__id="response of nobody"),
        record(FLAG, NOW, 100, feature_flag__key="prompt", feature_flag__result__variant="terse"),
        record(
            FLAG, NOW, lightning__rollout__id="rollout 3", feature_flag__key="prompt",
            feature_flag__result__variant="kind",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", first_quick(range(4)))
def test_kept_rows_equal_the_former_views_whatever_the_order_of_delivery(
    store: Store, tmp_path: Path, seed: int
) -> None:
    requests = traffic()
    random.Random(seed).shuffle(requests)  # noqa: S311
    for start in range(0, len(requests), 4):
        deliver(store, tmp_path, *requests[start : start + 4])
    assert differences(store) == []
    ends = store.query("SELECT rollout_id, outcome, final_reward FROM rollouts ORDER BY ALL")
    assert [tuple(row.values()) for row in ends.to_pylist()] == [
        ("rollout 1", "terminated", 0.75),
        ("rollout 2", "truncated", 0.5),
        ("rollout 3", "terminated", 1.0),
        ("rollout 4", "open", 0.5),
        ("rollout 5", "open", None),
    ]
    rows = store.query("SELECT agent_name, model, task_id, arms FROM rollout_rows ORDER BY ALL")
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("agent 0", "m", "task 2", None),
        ("agent 0", "m", None, None),
        ("agent 1", "m", "task of 3", ["prompt=kind"]),
        ("agent 1", "m", None, ["prompt=terse"]),
        ("agent 1", "m", None, None),
    ]


def test_recordings_and_a_rebuild_give_what_the_former_views_say(
    store: Store, tmp_path: Path
) -> None:
    for name in RECORDED:
        deliver(store, tmp_path, Request("traces", 1, (DATA / f"{name}.otlp.pb").read_bytes()))
    assert differences(store) == []
    before = store.query("FROM rollout_rows ORDER BY ALL")
    rebuild(store)
    assert len(store.query("FROM rollouts")) == 0
    while refresh(store):
        pass
    assert before == store.query("FROM rollout_rows ORDER BY ALL")


def test_check_deep_finds_a_row_that_is_wrong(store: Store, tmp_path: Path) -> None:
    deliver(store, tmp_path, *traffic())
    path = tmp_path / "t.duckdb"
    assert [one for one in check_deep(store, path) if not one.is_fine] == []
    store.execute("UPDATE rollout_rows SET final_reward = 9 WHERE rollout_id = 'rollout 1'")
    assert [one.name for one in check_deep(store, path) if not one.is_fine] == [
        "rollout_rows derived again"
    ]


def test_a_rollout_of_which_some_traces_expired_keeps_the_rest(
    store: Store, tmp_path: Path
) -> None:
    old = NOW - 40 * DAY
    deliver(store, tmp_path, *(turn(1, n, when=old) for n in range(2)), turn(2, 0, when=old))
    deliver(store, tmp_path, turn(1, 2), reward(1.0, NOW, gen_ai__response__id="response 1.0"))
    forget(store, LoaderSettings(retain_seconds=30 * 86_400), NOW)
    assert differences(store) == []
    rows = store.query("SELECT rollout_id, llm_calls FROM rollouts").to_pylist()
    assert rows == [{"rollout_id": "rollout 1", "llm_calls": 1}]


def test_an_erased_rollout_has_no_row(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        deliver(store, tmp_path, *traffic())
    erase(path, Selection(rollouts=["rollout 1"], traces=[f"{300:032x}"]))
    with open_store(path) as store:
        assert differences(store) == []
        rows = store.query("SELECT rollout_id, llm_calls FROM rollouts ORDER BY ALL").to_pylist()
    calls = {row["rollout_id"]: row["llm_calls"] for row in rows}
    assert calls == {"rollout 2": 3, "rollout 3": 1, "rollout 4": 2, "rollout 5": 1}


def test_a_migrated_store_has_its_rollouts_before_anything_is_derived_again(
    tmp_path: Path,
) -> None:
    path = unpacked("0.1.0", tmp_path)
    with open_store(path, read_only=True) as store:
        before = store.query("FROM rollouts ORDER BY ALL"), store.query("FROM rewards ORDER BY ALL")
    with open_store(path) as store:
        after = store.query("FROM rollouts ORDER BY ALL"), store.query("FROM rewards ORDER BY ALL")
        assert after == before
        assert len(after[0])
        while refresh(store):
            pass
        assert differences(store) == []
