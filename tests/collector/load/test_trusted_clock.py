"""Nothing is deleted by a clock that jumped."""

from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.running import LIMIT_S

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.load.trusted_clock import DAY_NS, HOUR_NS, TrustedClock
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import open_store

NOW = 1_800_000_000 * 10**9


class Times:
    """A clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 5 * DAY_NS

    def pass_by(self, ns: int) -> None:
        self.wall, self.steady = self.wall + ns, self.steady + ns

    def clock(self, folder: Path, newest: int | None = None) -> TrustedClock:
        return TrustedClock(folder, newest, lambda: self.wall, lambda: self.steady)


@pytest.fixture
def times() -> Times:
    return Times()


def test_a_clock_that_runs_on_is_trusted_also_at_the_next_start(
    times: Times, tmp_path: Path
) -> None:
    clock = times.clock(tmp_path, NOW - HOUR_NS)
    times.pass_by(10 * DAY_NS)
    assert clock.now_ns() == times.wall
    times.pass_by(HOUR_NS)
    assert times.clock(tmp_path).now_ns() == times.wall


def test_a_clock_that_is_ahead_at_one_start_or_more_is_trusted_after_a_steady_day(
    times: Times, tmp_path: Path
) -> None:
    assert times.clock(tmp_path, NOW).now_ns() == NOW
    times.wall += 40 * DAY_NS
    for _ in range(2):  # what was received by the wrong clock meanwhile makes it no truer
        clock = times.clock(tmp_path, times.wall)
        assert clock.now_ns() is None
    times.pass_by(DAY_NS - 1)
    assert clock.now_ns() is None
    times.pass_by(1)
    assert clock.now_ns() == times.wall


def test_a_clock_that_jumps_while_it_runs_is_not_trusted_until_it_is_set_back(
    times: Times, tmp_path: Path
) -> None:
    clock = times.clock(tmp_path)
    times.wall += 40 * DAY_NS
    assert clock.now_ns() is None
    times.wall -= 40 * DAY_NS
    times.pass_by(DAY_NS)
    assert clock.now_ns() == times.wall


def test_a_store_used_40_days_ago_keeps_its_traces_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(name="chat", trace_id=b"t" * 16, span_id=b"s" * 8)
    with open_store(path) as store:
        load(store, [Request("traces", NOW, request.SerializeToString())], dead_letters=tmp_path)
        store.execute("UPDATE spans SET received_at = now()::TIMESTAMP - INTERVAL 40 DAYS")
        spool = Spool(spool_folder(path))
        loader = Loader(store.cursor(), spool, LoaderSettings(retain_seconds=30 * 86_400))
        loader.start()
        spool.append("traces", b"").result(LIMIT_S)
        spool.close()
        loader.stop()
        assert len(store.query("FROM spans")) == 1
