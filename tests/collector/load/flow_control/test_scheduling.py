"""Storing and deriving share the time, and how far deriving lags is told."""

import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.running import LIMIT_S, eventually

from otel_lightning.collector.alarms import Alarms, alarms_file
from otel_lightning.collector.check.counts import check_store
from otel_lightning.collector.last_run import Run
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.flow_control import lag as lag_module
from otel_lightning.collector.load.flow_control.lag import Lag
from otel_lightning.collector.load.flow_control.scheduling import (
    BATCH_SECONDS,
    LEAST_SPANS,
    MOST_OWED_SECONDS,
    BatchSize,
    TimeShare,
)
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.load.trusted_clock import steady_ns
from otel_lightning.collector.refresh.refresh import rebuild, refresh
from otel_lightning.collector.refresh.stale import find_stale
from otel_lightning.collector.serve.watches.supervision import Supervisor
from otel_lightning.collector.spool.spool import Spool, SpoolError
from otel_lightning.collector.store import Store, open_store

SECOND_NS = 1_000_000_000


def one_span() -> bytes:
    sent = ExportTraceServiceRequest()
    made = sent.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16)
    made.span_id, made.start_time_unix_nano = b"s" * 8, 1
    return sent.SerializeToString()


REQUEST, REQUEST_TRACE = one_span(), (b"t" * 16).hex()


@pytest.fixture
def _stopped_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass, so that an age near a limit stays on its side of it."""
    now_ns, steady = time.time_ns(), steady_ns()
    monkeypatch.setattr("time.time_ns", lambda: now_ns)
    monkeypatch.setattr(lag_module, "steady_ns", lambda: steady)


def spooled(folder: Path) -> "closing[Spool]":
    return closing(Spool(folder / "t.duckdb.spool"))


def test_what_storing_takes_is_owed_to_deriving_until_it_was_given() -> None:
    sharing = TimeShare()
    sharing.stored(2.0)
    assert sharing.is_deriving_due
    sharing.derived(1.5)
    assert sharing.is_deriving_due
    sharing.derived(0.5)
    assert not sharing.is_deriving_due


def test_a_long_store_does_not_stop_storing_for_as_long() -> None:
    sharing = TimeShare()
    sharing.stored(1_000.0)
    sharing.derived(MOST_OWED_SECONDS)
    assert not sharing.is_deriving_due


@pytest.mark.parametrize("is_late", [False, True])
def test_batches_that_take_long_become_smaller(*, is_late: bool) -> None:
    size = BatchSize(most=25_000)
    for _ in range(10):
        size.took(size.spans * BATCH_SECONDS / 1_500, is_full=True, is_late=is_late)
    assert size.spans == pytest.approx(1_500, rel=0.02)


def test_batches_stay_small_while_rows_are_not_late() -> None:
    size = BatchSize(most=25_000)
    for _ in range(10):
        size.took(10 * BATCH_SECONDS, is_full=True)
    assert size.spans == LEAST_SPANS


def test_late_batches_grow_if_small_ones_take_as_long() -> None:
    # As if each batch searched tables for 20 seconds, and took half a millisecond a span.
    size, spans, seconds = BatchSize(most=25_000), 0, 0.0
    for number in range(30):
        took = 20.0 + size.spans / 2_000
        if number >= 10:
            spans, seconds = spans + size.spans, seconds + took
        size.took(took, is_full=True, is_late=True)
    # Batches of LEAST_SPANS would derive 50 spans a second, those of 25,000 some 770.
    assert spans / seconds > 500


def test_batches_shrink_again_once_they_take_no_time_besides_their_spans() -> None:
    size = BatchSize(most=25_000)
    for number in range(60):
        size.took((20.0 if number < 20 else 0.0) + size.spans / 2_000, is_full=True, is_late=True)
    assert size.spans == pytest.approx(2_000 * BATCH_SECONDS, rel=0.02)


def test_quick_batches_grow_to_the_limit_while_more_waits() -> None:
    size, alone = BatchSize(most=25_000), BatchSize(most=25_000)
    before = alone.spans
    for _ in range(10):
        size.took(BATCH_SECONDS / 10, is_full=True)
        alone.took(BATCH_SECONDS / 10, is_full=False)
    assert size.spans == 25_000
    assert alone.spans == before


def test_the_lag_of_deriving_is_reported_until_all_is_derived(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        loader = Loader(store.cursor(), spool)
        began = time.time()
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)
        assert loader.lag.derive_seconds() == 0.0
        assert loader._load_some(0)
        assert 0 < loader.lag.derive_seconds() <= time.time() - began
        loader._derive_due()
        assert loader.lag.derive_seconds() == 0.0
        assert not len(store.query("FROM stale"))


def test_without_deriving_there_is_no_lag_of_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        loader = Loader(store.cursor(), spool, LoaderSettings(derive=False))
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)
        assert loader._load_some(0)
        assert loader.lag.derive_seconds() == 0.0
        assert find_stale(store).oldest_ns is None


def test_rows_that_a_former_process_left_underived_are_in_the_lag_and_slow_nobody(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        _store_at(store, tmp_path, time.time_ns() - 100 * SECOND_NS)
        loader = Loader(store.cursor(), spool)
        assert loader.lag.derive_seconds() >= 100
        assert loader.lag.work() == 0
        assert loader.lag.pause(1_000_000) == 0
        assert spool.refusal() is None
        loader.start()
        eventually(lambda: loader.lag.derive_seconds() == 0)
        loader.stop()


def test_what_was_stored_without_deriving_lags_from_the_start_of_who_derives(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        one = Request("traces", 1, REQUEST)
        load(store, [one], dead_letters=tmp_path, derives=False)
        begun = time.time()
        loader = Loader(store.cursor(), spool)
        assert 0 < loader.lag.derive_seconds() <= time.time() - begun


def test_senders_are_refused_while_their_own_requests_wait_too_long(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        loader = Loader(store.cursor(), spool, LoaderSettings(max_lag_seconds=1e-6))
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)
        assert loader._load_some(0)
        with pytest.raises(SpoolError, match="more than --max-lag"):
            spool.append("traces", REQUEST, rows=1)
        loader._derive_due()
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)


def test_senders_are_refused_while_their_requests_wait_too_long_to_be_stored(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        settings = LoaderSettings(derive=False, max_lag_seconds=1e-6)
        loader = Loader(store.cursor(), spool, settings)
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)
        loader._note_lag()  # as after the batch before, while this one waits
        with pytest.raises(SpoolError, match="storing and deriving lag"):
            spool.append("traces", REQUEST, rows=1)
        assert loader._load_some(0)
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)


def lag_of(spool: Spool, *, seconds: float, alarms: Alarms) -> Lag:
    """The lag of a process that began some seconds ago, at the default --max-lag of 30 s."""
    lag = Lag(spool, LoaderSettings(), alarms)
    lag._started_ns -= int(seconds * SECOND_NS)
    lag._started_steady_ns -= int(seconds * SECOND_NS)
    return lag


def names(alarms: Alarms) -> list[str]:
    return [alarm.name for alarm in alarms.raised()]


@pytest.mark.usefixtures("_stopped_clocks")
def test_a_long_lag_is_one_alarm_although_nothing_is_stale_between_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alarms = Alarms()
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        lag = lag_of(spool, seconds=1000, alarms=alarms)
        for seconds, raised in ((1, []), (29, []), (40, ["lagging"]), (16, ["lagging"]), (14, [])):
            lag.note(store, (), time.time_ns() - seconds * SECOND_NS)
            assert names(alarms) == raised
        told, over = caplog.messages
        assert "a request has waited 40 s; --max-lag is 30 s" in told
        assert "'lagging' is over" in over


def test_a_long_wait_to_be_derived_is_an_alarm_that_check_and_senders_hear(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    alarms = Alarms(alarms_file(path))
    with open_store(path) as store, spooled(tmp_path) as spool:
        _store_at(store, tmp_path, time.time_ns() - 40 * SECOND_NS)
        lag = lag_of(spool, seconds=1000, alarms=alarms)
        lag.note(store, (), None)
        assert names(alarms) == ["lagging"]
        assert "more than --max-lag" in str(lag.refusal())
        assert alarms.refusal() is None
        unwell = [finding.name for finding in check_store(store, path) if not finding.is_fine]
        assert unwell == ["not derived", "alarm lagging"]
        refresh(store)
        lag.note(store, (), None)
        assert (names(alarms), lag.refusal()) == ([], None)
        assert all(finding.is_fine for finding in check_store(store, path))


def test_what_waits_is_no_younger_when_the_clock_is_set_back(tmp_path: Path) -> None:
    alarms, ahead = Alarms(), 3600 * SECOND_NS
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        lag = lag_of(spool, seconds=100, alarms=alarms)
        lag._started_ns += ahead  # the clock was an hour ahead until now
        received_ns = time.time_ns() - 40 * SECOND_NS + ahead
        assert 39 < lag.age(received_ns) < 40 + LIMIT_S
        lag.note(store, (), received_ns)
        assert names(alarms) == ["lagging"]
        assert "more than --max-lag" in str(lag.refusal())
        lag.note(store, (), None)
        _store_at(store, tmp_path, received_ns)
        lag.note(store, (), None)
        assert names(alarms) == ["lagging"]
        assert 39 < lag.derive_seconds() < 40 + LIMIT_S


def test_what_a_former_process_left_under_a_clock_that_was_ahead_lags_from_the_start(
    tmp_path: Path,
) -> None:
    with spooled(tmp_path) as spool:
        lag = lag_of(spool, seconds=25, alarms=Alarms())
        assert 24 < lag.age(time.time_ns() + 3600 * SECOND_NS) < 25 + LIMIT_S


@pytest.mark.usefixtures("_stopped_clocks")
def test_what_a_former_process_left_lags_from_the_start_of_this_one(tmp_path: Path) -> None:
    alarms = Alarms()
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        _store_at(store, tmp_path, time.time_ns() - 3600 * SECOND_NS)
        lag_of(spool, seconds=25, alarms=alarms).note(store, (), 1)
        assert not names(alarms)
        old = lag_of(spool, seconds=35, alarms=alarms)
        old.note(store, (), 1)
        assert (names(alarms), old.refusal()) == (["lagging"], None)


def test_what_an_upgrade_marks_is_no_alarm(tmp_path: Path) -> None:
    alarms = Alarms()
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        _store_at(store, tmp_path, 1)
        rebuild(store)
        lag_of(spool, seconds=1000, alarms=alarms).note(store, (), None)
        assert not names(alarms)


def test_a_rollout_that_is_put_off_is_late_only_after_five_minutes(tmp_path: Path) -> None:
    alarms = Alarms()
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        put_off = [REQUEST_TRACE]
        _store_at(store, tmp_path, time.time_ns() - 200 * SECOND_NS)
        lag = lag_of(spool, seconds=1000, alarms=alarms)
        lag.note(store, put_off, None)
        assert (names(alarms), lag.refusal()) == ([], None)
        store.execute("UPDATE stale SET received_at = received_at - INTERVAL 200 SECONDS")
        lag.note(store, put_off, None)
        assert (names(alarms), lag.refusal()) == (["lagging"], None)


def test_a_lag_is_noticed_while_the_loader_is_busy(tmp_path: Path) -> None:
    alarms = Alarms()
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        loader = Loader(store.cursor(), spool, LoaderSettings(max_lag_seconds=1e-6), alarms)
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)
        supervisor = Supervisor(loader, spool, (), alarms, Run(tmp_path / "t.duckdb"))
        supervisor._looked_at -= 10
        supervisor.look()  # the loader, which is not started, never looks
        assert names(alarms) == ["lagging"]
        assert spool.refusal()


def test_a_clock_that_is_set_back_does_not_end_the_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "t.duckdb") as store, spooled(tmp_path) as spool:
        loader = Loader(store.cursor(), spool, LoaderSettings(max_lag_seconds=1e-6))
        now, wall = time.time_ns(), time.time_ns
        monkeypatch.setattr("time.time_ns", lambda: wall() - 3600 * SECOND_NS)
        spool.append("traces", REQUEST, rows=1).result(LIMIT_S)
        assert loader._load_some(0)
        assert time.time_ns() < now
        with pytest.raises(SpoolError, match="more than --max-lag"):
            spool.append("traces", REQUEST, rows=1)


def test_check_names_what_is_not_derived(tmp_path: Path) -> None:
    path, seconds = tmp_path / "t.duckdb", 600
    with open_store(path) as store:
        _store_at(store, tmp_path, time.time_ns() - seconds * SECOND_NS)
        (waits,) = [one for one in check_store(store, path) if one.name == "not derived"]
        (told,) = re.findall(r"received (\d+) seconds ago", waits.value)
        assert int(told) >= seconds
        assert refresh(store)
        (waits,) = [one for one in check_store(store, path) if one.name == "not derived"]
        assert waits.value == "nothing waits"
        rebuild(store)  # as a migration does: everything is stale, without a time
        (waits,) = [one for one in check_store(store, path) if one.name == "not derived"]
        assert "left" in waits.value


def _store_at(store: Store, folder: Path, received_ns: int) -> None:
    load(store, [Request("traces", received_ns, REQUEST)], dead_letters=folder)
