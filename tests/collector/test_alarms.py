"""What was acknowledged and cannot be stored is noticed: by check, metrics, answers and the log."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.otlp_client import column, metric, send
from support.requests_by_hand import trace_request
from support.running import Ingester, cli_here, eventually

from otel_lightning.collector.alarms import Alarms, alarms_file, read_alarms
from otel_lightning.collector.store import open_store

SPANS = "SELECT count(*) FROM spans"


@pytest.fixture
def spans_away(starter: Callable[..., Ingester]) -> Iterator[Ingester]:
    """An ingester whose table `spans` has another name, so that nothing can be stored."""
    running = starter("--refuse-after", "1s")
    rename(running.store, "spans", "spans_away")
    yield running
    running.kill()


def rename(store: Path, old: str, new: str) -> None:
    with open_store(store) as opened:
        opened.execute(f"ALTER TABLE {old} RENAME TO {new}")


def one_span() -> bytes:
    return trace_request("chat").SerializeToString()


def test_what_cannot_be_stored_is_an_alarm_everywhere_until_it_is_stored(
    spans_away: Ingester,
) -> None:
    assert send(spans_away.http, one_span()).status == 200
    eventually(lambda: metric(spans_away.http, 'lightning_alarm{alarm="storing"}') == 1)
    eventually(lambda: send(spans_away.http, one_span()).status == 503)
    refused = send(spans_away.http, one_span())
    assert "What was acknowledged cannot be stored" in refused.reason()
    assert "spans" in refused.reason()
    assert refused.headers["retry-after"] == "1"

    rename(spans_away.store, "spans_away", "spans")
    eventually(lambda: send(spans_away.http, one_span()).status == 200)
    assert metric(spans_away.http, 'lightning_alarm{alarm="storing"}') == 0
    eventually(lambda: column(spans_away.store, SPANS)[0] >= 2)
    eventually(lambda: cli_here("check", "--store", str(spans_away.store)).returncode == 0)


def test_a_truncated_spool_loses_only_what_was_cut_and_is_an_alarm(spans_away: Ingester) -> None:
    kept, cut = one_span(), one_span()
    assert send(spans_away.http, kept).status == 200
    (segment,) = spans_away.store.with_name("traces.duckdb.spool").glob("*.spool")
    size = segment.stat().st_size
    assert send(spans_away.http, cut).status == 200
    os.truncate(segment, size + 1)
    rename(spans_away.store, "spans_away", "spans")
    eventually(lambda: send(spans_away.http, one_span()).status == 200)
    eventually(lambda: column(spans_away.store, SPANS) == [2])
    result = cli_here("check", "--store", str(spans_away.store))
    assert result.returncode == 1
    assert re.search(r"rejected +1  <- look here", result.stdout)


def test_what_cannot_be_derived_is_an_alarm_while_storing_goes_on(
    starter: Callable[..., Ingester],
) -> None:
    running = starter()
    rename(running.store, "arms", "arms_away")
    assert send(running.http, one_span()).status == 200
    eventually(lambda: metric(running.http, 'lightning_alarm{alarm="deriving"}') == 1)
    assert column(running.store, SPANS) == [1]  # storing goes on
    rename(running.store, "arms_away", "arms")
    eventually(lambda: metric(running.http, 'lightning_alarm{alarm="deriving"}') == 0)


def test_old_traces_that_cannot_be_deleted_are_an_alarm_that_refuses_nothing(
    starter: Callable[..., Ingester],
) -> None:
    first = starter()
    assert send(first.http, one_span()).status == 200
    eventually(lambda: column(first.store, SPANS) == [1])
    with open_store(first.store) as opened:  # rows that may not go, because others refer to them
        opened.execute(
            "CREATE TABLE mine (trace_id VARCHAR PRIMARY KEY);"
            "CREATE TABLE notes (trace VARCHAR REFERENCES mine (trace_id));"
            "INSERT INTO mine SELECT trace_id FROM spans;"
            "INSERT INTO notes SELECT trace_id FROM spans"
        )
    assert first.stop() == 0
    running = starter("--retain", "1s", "--refuse-after", "0.001s")
    alarm = 'lightning_alarm{alarm="retaining"}'
    eventually(lambda: metric(running.http, alarm) == 1)
    assert send(running.http, one_span()).status == 200
    assert metric(running.http, alarm) == 1
    running.kill()
    result = cli_here("check", "--store", str(running.store))
    assert result.returncode == 1
    assert "alarm retaining" in result.stdout


@pytest.mark.slow
def test_check_names_the_alarm_of_another_process(spans_away: Ingester) -> None:
    send(spans_away.http, one_span())
    eventually(lambda: bool(read_alarms(spans_away.store)))
    rename(spans_away.store, "spans_away", "spans_again")
    with open_store(spans_away.store) as opened:  # so that check can count
        opened.execute("CREATE VIEW spans AS FROM spans_again")
    result = cli_here("check", "--store", str(spans_away.store))
    assert result.returncode == 1
    assert "alarm storing  since 2" in result.stdout
    spans_away.kill()
    assert cli_here("check", "--store", str(spans_away.store)).returncode == 1


def test_an_alarm_is_logged_once_and_refuses_only_when_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_000.0
    file = alarms_file(tmp_path / "t.duckdb")
    alarms = Alarms(file, refuse_after=60, clock=lambda: now, steady=lambda: now)
    alarms.raise_alarm("storing", "the disk is full")
    now += 59
    alarms.raise_alarm("storing", "the disk is still full")
    assert alarms.refusal() is None
    now += 1
    assert str(alarms.refusal()).endswith("For 60 seconds: the disk is still full")
    (read,) = read_alarms(tmp_path / "t.duckdb")
    assert (read.reason, read.since) == ("the disk is still full", 1_000.0)
    assert file.stat().st_mode & 0o777 == 0o600
    alarms.clear("storing")
    alarms.clear("storing")
    assert (alarms.refusal(), file.exists(), len(caplog.records)) == (None, False, 2)


def test_a_clock_that_is_set_back_puts_off_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    wall, steady = 10_000.0, 0.0
    alarms = Alarms(refuse_after=60, clock=lambda: wall, steady=lambda: steady)
    alarms.raise_alarm("storing", "the disk is full")
    wall, steady = 5_000.0, 60.0
    assert str(alarms.refusal()).endswith("For 60 seconds: the disk is full")
    alarms.clear("storing")
    assert "over after 60 seconds" in caplog.text


def test_alarms_of_a_former_process_are_gone_when_the_next_one_starts(tmp_path: Path) -> None:
    file = alarms_file(tmp_path / "t.duckdb")
    Alarms(file).raise_alarm("storing", "it broke")
    Alarms(file)
    assert read_alarms(tmp_path / "t.duckdb") == []


def test_an_orderly_stop_leaves_the_alarms_that_are_still_true(tmp_path: Path) -> None:
    alarms = Alarms(alarms_file(tmp_path / "t.duckdb"))
    for name in ("restarting", "storing", "checkpointing"):
        alarms.raise_alarm(name, "it broke")
    alarms.end()
    assert [alarm.name for alarm in read_alarms(tmp_path / "t.duckdb")] == ["storing"]
