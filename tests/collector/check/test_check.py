"""`lightning-ingest check --deep`: what does not agree is named."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.otlp_client import column, send
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, Ingester, cli, cli_here, eventually

from otel_lightning.collector.check.counts import check_disks
from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.receive.feedback import read_feedback
from otel_lightning.collector.refresh.refresh import refresh
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.format import segment_path
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """One model call, stored and derived."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    span = spans.add(name="chat", trace_id=b"t" * 16, span_id=b"s" * 8)
    span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
    with open_store(path) as opened:
        load(opened, [Request("traces", 1, request.SerializeToString())], dead_letters=path.parent)
        while refresh(opened):
            pass
        yield opened


def unwell(store: Store, path: Path) -> list[str]:
    return [finding.name for finding in check_deep(store, path) if not finding.is_fine]


def test_a_sound_store_agrees(store: Store, path: Path) -> None:
    assert unwell(store, path) == []


def test_a_span_that_is_there_twice_is_named(store: Store, path: Path) -> None:
    store.execute("INSERT INTO spans BY NAME SELECT * EXCLUDE (resource) FROM spans")
    assert unwell(store, path) == ["duplicates in spans"]


def test_a_derived_row_without_its_trace_is_named(store: Store, path: Path) -> None:
    store.execute("DELETE FROM spans")
    assert "orphans in llm_calls" in unwell(store, path)


@pytest.mark.parametrize("sample", [None, 1])
def test_a_derived_row_that_is_not_what_the_spans_say_is_named(
    sample: int | None, store: Store, path: Path
) -> None:
    store.execute("UPDATE llm_calls SET operation = 'text_completion'")
    unwell = [finding for finding in check_deep(store, path, sample) if not finding.is_fine]
    assert [finding.name for finding in unwell] == ["llm_calls derived again"]
    assert f"1 of 1 trace differ, such as {(b't' * 16).hex()}" in unwell[0].value


def test_a_judgement_without_a_trace_is_derived_again_too(store: Store, path: Path) -> None:
    said = json.dumps({"id": "1", "rollout_id": "r", "value": 1}).encode()
    body = read_feedback(said, 1).request.SerializeToString()
    load(store, [Request("logs", 2, body)], dead_letters=path.parent)  # after the last span
    while refresh(store):
        pass
    assert unwell(store, path) == []
    store.execute("UPDATE reward_events SET value = 2")
    assert unwell(store, path) == ["reward_events derived again"]


def test_what_waits_to_be_derived_is_no_difference(store: Store, path: Path) -> None:
    store.execute("DELETE FROM llm_calls")
    store.execute("INSERT INTO stale (kind, id) SELECT 'trace', trace_id FROM spans")
    assert unwell(store, path) == []


def test_a_sample_has_a_trace_that_lost_its_rows_and_its_mark(store: Store, path: Path) -> None:
    others = trace_request(*(f"GET /{number}" for number in range(50)))
    load(store, [Request("traces", 2, others.SerializeToString())], dead_letters=path.parent)
    while refresh(store):
        pass
    assert unwell(store, path) == []
    store.execute("DELETE FROM llm_calls; DELETE FROM rollout_rows; DELETE FROM trace_keys")
    findings = [finding for finding in check_deep(store, path, sample=1) if not finding.is_fine]
    assert [finding.name for finding in findings] == ["llm_calls derived again"]
    assert f"differ, such as {(b't' * 16).hex()}" in findings[0].value


@pytest.mark.slow
def test_a_store_that_is_being_served_is_checked_alike(ingester: Ingester) -> None:
    request = trace_request(*(f"call {number}" for number in range(20)))
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
        span.attributes.add(key="gen_ai.conversation.id").value.string_value = "one"
    send(ingester.http, request.SerializeToString())
    eventually(lambda: column(ingester.store, "SELECT count(*) FROM llm_calls") == [20])
    result = cli_here("check", "--deep", "--sample", "1", "--store", str(ingester.store))
    assert (result.returncode, result.stderr) == (0, "")
    assert "llm_calls derived again  20 traces are equal" in result.stdout


def test_a_process_that_answers_nothing_is_told_as_that(ingester: Ingester) -> None:
    ingester.process.send_signal(signal.SIGSTOP)
    try:
        result = cli_here("check", "--store", str(ingester.store))
    finally:
        ingester.process.send_signal(signal.SIGCONT)
    assert result.returncode == 1
    assert f"process {ingester.process.pid}, which has answered nothing" in result.stdout
    assert cli_here("check", "--store", str(ingester.store)).returncode == 0


def test_a_damaged_spool_is_named(store: Store, path: Path) -> None:
    spool = Spool(spool_folder(path))
    for body in (b"first", b"second"):
        spool.append("traces", body).result(LIMIT_S)
    spool.close()
    file = next(spool_folder(path).glob("*.spool"))
    file.write_bytes(file.read_bytes().replace(b"second", b"sec0nd"))
    assert unwell(store, path) == ["spool"]


def test_a_disk_that_hangs_when_it_is_read_is_named(store: Store, path: Path) -> None:
    spool_folder(path).mkdir()
    # To open it waits for somebody who writes, as to read from a disk that hangs does.
    os.mkfifo(segment := segment_path(spool_folder(path), 1))
    store.close()
    result = cli("check", "--store", str(path))
    with segment.open("wb"):  # so that the process that reads it ends
        pass
    assert result.returncode == 1
    assert f"the spool cannot use '{spool_folder(path)}'" in result.stdout
    assert "Its disk does not answer" in result.stdout


def test_a_file_in_place_of_the_spool_is_named(path: Path) -> None:
    spool_folder(path).write_text("not a folder")
    (told,) = check_disks(path)
    assert not told.is_fine
    assert str(spool_folder(path)) in told.value
    assert "move it away" in told.value
