"""Retention: what is too old or too much goes with every row that names it, and nothing else."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.retention import forget, used_bytes
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.store import Store, StoreError, open_store
from otel_lightning.collector.terminal.quantities import parse_age

DAY = 86_400 * 10**9
NOW = 1_800_000_000 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "t.duckdb") as opened:
        yield opened


def calls(trace: int, spans: range, text: str = "hello") -> bytes:
    """Return a request with model calls of one trace."""
    request = ExportTraceServiceRequest()
    sent = request.resource_spans.add().scope_spans.add().spans
    for number in spans:
        span = sent.add(name="chat", trace_id=trace.to_bytes(16), span_id=number.to_bytes(8))
        span.start_time_unix_nano = trace
        for key, value in (
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.request.model", "m"),
            ("lightning.rollout.id", f"rollout {trace}"),
            ("lightning.task.id", f"task {trace}"),
            ("note", text),
        ):
            span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


def receive(store: Store, folder: Path, when: int, body: bytes) -> None:
    load(store, [Request("traces", when, body)], dead_letters=folder)
    derive(store)


def derive(store: Store) -> None:
    while refresh(store):
        pass


def noise(seed: int) -> str:
    """Return a text that cannot be compressed much."""
    return random.Random(seed).randbytes(2_000).hex()  # noqa: S311 - no secret


def judgement(rollout: str, time_ns: int, value: float) -> bytes:
    """Return a log record that judges a rollout and names no trace; time 0 is none."""
    request = ExportLogsServiceRequest()
    log = request.resource_logs.add().scope_logs.add().log_records.add()
    log.event_name, log.time_unix_nano = "gen_ai.evaluation.result", time_ns
    log.attributes.add(key="lightning.rollout.id").value.string_value = rollout
    log.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = value
    return request.SerializeToString()


def judge(store: Store, folder: Path, when: int, bodies: Sequence[bytes]) -> None:
    load(store, [Request("logs", when, body) for body in bodies], dead_letters=folder)
    derive(store)


def judged(store: Store) -> list[str]:
    return store.column("SELECT rollout_id FROM rewards ORDER BY 1")


def keep_30_days(store: Store, now_ns: int = NOW) -> int:
    return forget(store, LoaderSettings(retain_seconds=parse_age("30d")), now_ns)


def traces(store: Store, table: str) -> list[int]:
    rows = store.query(f"SELECT DISTINCT trace_id FROM {table} ORDER BY trace_id")
    return [int(trace, 16) for trace in rows["trace_id"].to_pylist()]


def test_a_trace_goes_when_its_last_span_is_too_old(store: Store, tmp_path: Path) -> None:
    receive(store, tmp_path, NOW - 40 * DAY, calls(1, range(1, 3)))
    receive(store, tmp_path, NOW - 40 * DAY, calls(2, range(1, 2)))
    receive(store, tmp_path, NOW - 10 * DAY, calls(2, range(2, 3)))
    assert forget(store, LoaderSettings(retain_seconds=parse_age("30d")), NOW) == 1
    for table in ("spans", "llm_calls"):
        assert traces(store, table) == [2]
    assert store.query("SELECT count(*) AS n FROM spans")["n"].to_pylist() == [2]
    tasks = store.query("SELECT task_id FROM rollout_tasks")["task_id"].to_pylist()
    assert tasks == ["task 2"]


@pytest.mark.parametrize("table", ['"my notes"', "mine.notes"])
def test_rows_of_a_users_table_go_with_their_trace(
    store: Store, tmp_path: Path, table: str
) -> None:
    receive(store, tmp_path, NOW - 40 * DAY, calls(1, range(1, 2)))
    receive(store, tmp_path, NOW, calls(2, range(1, 2)))
    store.execute("CREATE SCHEMA mine")
    store.execute(f"CREATE TABLE {table} AS SELECT DISTINCT trace_id FROM spans")
    assert forget(store, LoaderSettings(retain_seconds=parse_age("30d")), NOW) == 1
    assert traces(store, table) == [2]


def test_without_a_limit_nothing_is_deleted(store: Store, tmp_path: Path) -> None:
    receive(store, tmp_path, 1, calls(1, range(1, 3)))
    assert forget(store, LoaderSettings(), NOW) == 0
    assert traces(store, "spans") == [1]


def test_the_oldest_traces_go_until_the_rest_fits(store: Store, tmp_path: Path) -> None:
    for trace in range(1, 9):
        text, spans = noise(trace), range(1, 600)
        texts = [calls(trace, range(n, n + 1), text[n:] + text[:n]) for n in spans]
        load(
            store,
            [Request("traces", NOW + trace, text) for text in texts],
            dead_letters=tmp_path,
        )
    store.checkpoint()
    cap = used_bytes(store) // 2
    forget(store, LoaderSettings(max_bytes=cap), NOW)
    left = traces(store, "spans")
    assert left == list(range(9 - len(left), 9))
    assert left != list(range(1, 9))
    counts = store.query("SELECT count(*) AS n FROM spans GROUP BY trace_id")["n"].to_pylist()
    assert set(counts) == {len(range(1, 600))}


def file_of_traces(store: Store, folder: Path, traces: range) -> None:
    """Load traces as `lightning-ingest load` does: all of a file are received at one time."""
    requests = [Request("traces", NOW, calls(one, range(1, 4), noise(one))) for one in traces]
    load(store, requests, dead_letters=folder)
    store.checkpoint()


def test_of_a_file_that_was_loaded_only_the_earliest_traces_go(
    store: Store, tmp_path: Path
) -> None:
    file_of_traces(store, tmp_path, range(1, 2_001))
    deleted = forget(store, LoaderSettings(max_bytes=used_bytes(store) * 9 // 10), NOW)
    left = traces(store, "spans")
    assert left == list(range(2_001 - len(left), 2_001))
    assert deleted == 2_000 - len(left)
    assert 0 < deleted < 2_000 // 2


def test_log_records_without_a_trace_are_counted_as_traces_are(
    store: Store, tmp_path: Path
) -> None:
    bodies = [judgement(noise(one), NOW + one, 1.0) for one in range(1, 2_001)]
    requests = [Request("logs", NOW + one, body) for one, body in enumerate(bodies)]
    load(store, requests, dead_letters=tmp_path)
    store.checkpoint()
    forget(store, LoaderSettings(max_bytes=used_bytes(store) * 9 // 10), NOW)
    times = store.column('SELECT epoch_ns("time") FROM logs ORDER BY 1')
    assert times == [NOW + one for one in range(2_001 - len(times), 2_001)]
    assert 2_000 // 2 < len(times) < 2_000


def test_what_fills_a_store_beside_traces_costs_no_trace_and_is_named(
    store: Store, tmp_path: Path
) -> None:
    file_of_traces(store, tmp_path, range(1, 101))
    cap = 2 * used_bytes(store)
    store.execute(
        'CREATE TABLE "my vectors" AS SELECT sha256(i::VARCHAR) AS v FROM range(10_000) t(i)'
    )
    while used_bytes(store) <= 2 * cap:
        store.execute('INSERT INTO "my vectors" SELECT sha256(v) FROM "my vectors"')
        store.checkpoint()
    for _ in range(3):
        with pytest.raises(StoreError, match='"my vectors"'):
            forget(store, LoaderSettings(max_bytes=cap), NOW)
    assert traces(store, "spans") == list(range(1, 101))


def test_what_was_received_last_stays_and_a_limit_that_it_exceeds_is_an_error(
    store: Store, tmp_path: Path
) -> None:
    receive(store, tmp_path, NOW, calls(1, range(1, 3)))
    receive(store, tmp_path, NOW + 1, calls(2, range(1, 3)))
    store.checkpoint()
    limit = LoaderSettings(max_bytes=used_bytes(store) - 1)
    assert forget(store, limit, NOW) == 1
    with pytest.raises(StoreError, match="no old trace"):
        forget(store, LoaderSettings(max_bytes=used_bytes(store) - 1), NOW)
    assert traces(store, "spans") == [2]


def test_a_judgement_stays_as_long_as_its_log_record_whatever_time_it_states(
    store: Store, tmp_path: Path
) -> None:
    old = [judgement("came long ago", 0, 1.0), judgement("will come", NOW + 90 * DAY, 1.0)]
    judge(store, tmp_path, NOW - 40 * DAY, old)
    new = [judgement("was long ago", NOW - 400 * DAY, 1.0), judgement("has no time", 0, 1.0)]
    judge(store, tmp_path, NOW, new)
    assert len(judged(store)) == len([*old, *new])
    keep_30_days(store)
    # A record without a time is told from others without one only by whether any is left.
    assert judged(store) == ["came long ago", "has no time", "was long ago"]
    assert store.count("logs") == len(new)
    keep_30_days(store, NOW + 31 * DAY)
    assert judged(store) == []
    assert store.count("logs") == 0


def test_a_rollout_whose_judgement_goes_has_its_reward_no_more(
    store: Store, tmp_path: Path
) -> None:
    judge(store, tmp_path, NOW - 40 * DAY, [judgement("rollout 1", NOW - 40 * DAY, 0.5)])
    receive(store, tmp_path, NOW, calls(1, range(1, 3)))
    final = "SELECT final_reward FROM rollouts"
    assert store.column(final) == [0.5]
    keep_30_days(store)
    assert judged(store) == []
    assert store.column(final) == [None]
