"""How far a spool is stored, as another process than the loader's sees it."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from support.requests_by_hand import trace_request
from support.running import LIMIT_S

from otel_lightning.collector.load.loader import Loader
from otel_lightning.collector.load.position import oldest_waiting, wait_until_stored, waiting
from otel_lightning.collector.load.resume import move_to
from otel_lightning.collector.spool import segments
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.spool.format import Position
from otel_lightning.collector.spool.spool import Spool
from otel_lightning.collector.store import StoreError, open_store


def test_requests_of_the_next_segment_wait_when_the_one_before_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    path, before = tmp_path / "t.duckdb", time.time_ns()
    with open_store(path) as store, closing(Spool(spool_folder(path))) as spool:
        for body in (b"first", b"second"):
            spool.append("traces", body).result(LIMIT_S)
        first, second = spool.read(Position(1, 0), 1 << 20)
        for end, left in ((Position(1, 0), first), (first.end, second)):
            move_to(store, end)
            assert waiting(store, path) > 0
            assert before <= left.received_ns == oldest_waiting(store, path)
        move_to(store, second.end)
        assert (waiting(store, path), oldest_waiting(store, path)) == (0, None)


def test_waiting_until_all_is_stored_does_not_ask_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.duckdb"
    with open_store(path) as store, closing(Spool(spool_folder(path))) as spool:
        loader = Loader(store.cursor(), spool)
        wait_until_stored(store, path, seconds=0.0)  # an empty spool
        with monkeypatch.context() as ahead:
            now_ns = time.time_ns() + 3600 * 10**9
            ahead.setattr(time, "time_ns", lambda: now_ns)
            spool.append("traces", trace_request("one").SerializeToString()).result(LIMIT_S)
        with pytest.raises(StoreError, match="made no progress"):
            wait_until_stored(store, path, seconds=0.0)
        assert loader._load_some(0)
        wait_until_stored(store, path, seconds=0.0)
