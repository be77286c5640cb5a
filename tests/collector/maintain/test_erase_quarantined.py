"""`lightning-ingest forget` does not miss traces that no worker could derive."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from support.requests_by_hand import trace_request
from support.running import LIMIT_S, eventually

from otel_lightning.collector.alarms import Alarms
from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.settings import LoaderSettings
from otel_lightning.collector.maintain.erase import Selection, delete_underived, erase_rows
from otel_lightning.collector.maintain.erase_served import erase_served
from otel_lightning.collector.refresh import refresher as refreshing
from otel_lightning.collector.refresh.sent_batches import SentBatch
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import Store, StoreError, open_store
from otel_lightning.instrumentation.attributes import ROLLOUT_ID

KILLING, OTHER = os.urandom(16), os.urandom(16)


def call(trace: bytes, rollout: str) -> bytes:
    """A model call of a rollout that only its attribute names."""
    request = trace_request("chat", trace_id=trace)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    for key, value in ((ROLLOUT_ID, rollout), ("gen_ai.operation.name", "chat")):
        span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


@contextmanager
def serving(path: Path) -> Iterator[tuple[Store, Spool, Loader]]:
    """A served store whose workers derive whatever is stale."""
    with open_store(path, to_serve=True) as store, closing(Spool(spool_folder(path))) as spool:
        store.serve("127.0.0.1:0")
        loader = Loader(store.cursor(), spool, LoaderSettings(workers=2), Alarms())
        loader._refresher.start()
        loader.start()
        try:
            yield store, spool, loader
        finally:
            loader.stop()


@contextmanager
def killing(trace: bytes) -> Iterator[None]:
    """Kill each worker that gets a trace, as the system does with one that takes all memory."""

    def go_on(batch: SentBatch, go_on: Callable[[SentBatch], None] = SentBatch.go_on) -> None:
        # Before the worker is asked for the rows.
        if trace.hex() in batch.traces:
            with suppress(ProcessLookupError):
                os.kill(batch.worker.pid, signal.SIGKILL)
        go_on(batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentBatch, "go_on", go_on)
        yield


def traces(store: Store) -> set[str]:
    return set(store.cursor().column("SELECT trace_id FROM spans"))


def test_a_rollout_is_not_missed_because_its_trace_killed_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing, "LEAST_SPANS", 1)
    monkeypatch.setattr(refreshing, "IDLE_SECONDS", LIMIT_S)  # without workers this one derives
    with serving(tmp_path / "t.duckdb") as (store, spool, loader):
        with killing(KILLING):
            spool.append("traces", call(OTHER, "other"), 1).result(LIMIT_S)
            eventually(lambda: store.cursor().count("llm_calls") == 1)
            spool.append("traces", call(KILLING, "ada"), 1).result(LIMIT_S)
            eventually(lambda: loader._refresher.quarantine.holds_traces)
            # Which traces `ada` has is not known: to say that there are none would be wrong.
            with pytest.raises(StoreError, match="Nothing was erased") as refused:
                erase_served(loader, store.served_file(), Selection(rollouts=["ada"]))
            assert KILLING.hex() in str(refused.value)
            assert traces(store) == {KILLING.hex(), OTHER.hex()}
            # What the spans themselves tell does not wait for deriving.
            assert erase_served(loader, store.served_file(), Selection(traces=[OTHER.hex()])).traces
            assert traces(store) == {KILLING.hex()}
        done = erase_served(loader, store.served_file(), Selection(rollouts=["ada"]))
        assert (done.traces, traces(store)) == (1, set())


def test_rows_that_cannot_be_derived_without_an_erased_trace_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store:
        bodies = [call(KILLING, "together"), call(OTHER, "together")]
        load(store, [Request("traces", 1, one) for one in bodies], dead_letters=tmp_path)
        derive_all(store, path)
        assert store.count("llm_calls") == 2
        erase_rows(store, path, Selection(traces=[OTHER.hex()]))
        # As if workers died on it now: its rows were derived with the other one.
        delete_underived(store)
        assert store.count("llm_calls") == 0
        derive_all(store, path)
        assert store.column("SELECT trace_id FROM llm_calls") == [KILLING.hex()]
        delete_underived(store)
        assert store.count("llm_calls") == 1
