"""The spool: what it answered for is there, whatever happens to its tail."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_lightning.collector import spool as spool_module
from otel_lightning.collector.spool import Position, Spool, SpoolError

START = Position(1, 0)
EVERYTHING = 1 << 30


@contextmanager
def opened(folder: Path, **options: int) -> Iterator[Spool]:
    spool = Spool(folder, **options)
    try:
        yield spool
    finally:
        spool.close()


def append(spool: Spool, *bodies: bytes) -> None:
    for done in [spool.append("traces", body) for body in bodies]:
        done.result(timeout=10)


def bodies(spool: Spool, start: Position = START) -> list[bytes]:
    return [record.body for record in spool.read(start, EVERYTHING)]


def test_what_was_appended_is_read_after_reopening(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"a", b"", b"c" * 100_000)
    with opened(tmp_path) as spool:
        append(spool, b"d")
        assert bodies(spool) == [b"a", b"", b"c" * 100_000, b"d"]


def test_a_record_says_how_many_rows_it_makes(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append("traces", b"three spans", 3).result(timeout=10)
        spool.append("logs", b"one record", 1).result(timeout=10)
        read = spool.read(START, EVERYTHING)
        assert [(one.signal, one.rows, one.body) for one in read] == [
            ("traces", 3, b"three spans"),
            ("logs", 1, b"one record"),
        ]


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"a", b"b", b"c")
        first = spool.read(START, limit=1)
        assert [record.body for record in first] == [b"a"]
        assert bodies(spool, first[-1].end) == [b"b", b"c"]


@settings(max_examples=60)
@given(lost=st.integers(1, 200), noise=st.binary(max_size=50))
def test_a_torn_tail_costs_only_what_it_tore(
    lost: int, noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    whole = [b"x" * 40, b"y" * 40, b"z" * 40]
    with opened(folder) as spool:
        append(spool, *whole)
    file = next(folder.glob("*.spool"))
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[: max(size - lost, 0)] + noise)
    record = size // len(whole)
    kept = whole[: max(size - lost, 0) // record]
    with opened(folder) as spool:
        append(spool, b"after")
        assert bodies(spool) == [*kept, b"after"]


def test_a_changed_byte_ends_the_readable_part(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"first", b"second")
    file = next(tmp_path.glob("*.spool"))
    file.write_bytes(file.read_bytes().replace(b"second", b"sec0nd"))
    with opened(tmp_path) as spool:
        assert bodies(spool) == [b"first"]


def test_loaded_segments_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 1)
    with opened(tmp_path) as spool:
        for body in (b"a", b"b", b"c"):
            append(spool, body)
        records = spool.read(START, EVERYTHING)
        assert [record.body for record in records] == [b"a", b"b", b"c"]
        spool.forget(records[-1].end)
        assert len(list(tmp_path.glob("*.spool"))) == 1
        assert spool.backlog() == 0


def test_a_full_spool_takes_nothing_until_the_loader_catches_up(tmp_path: Path) -> None:
    with opened(tmp_path, backlog_bytes=100) as spool:
        append(spool, b"x" * 200)
        with pytest.raises(SpoolError, match="the loader is behind"):
            spool.append("traces", b"y")
        spool.forget(spool.read(START, EVERYTHING)[-1].end)
        append(spool, b"z")


def test_senders_are_slowed_down_to_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with opened(tmp_path) as spool:
        monkeypatch.setattr(spool._closing, "wait", pauses.append)
        spool.stored_per_second = 1_000_000
        append(spool, b"x" * 900_000)  # more than may wait
        append(spool, b"y")
        spool.forget(spool.read(START, EVERYTHING)[-1].end)
        append(spool, b"x" * 400_000)
        append(spool, b"y")
    assert pauses == pytest.approx([0.9, 0.0], abs=0.01)


def test_after_a_failed_sync_nothing_more_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    with opened(tmp_path) as spool:
        append(spool, b"kept")
        monkeypatch.setattr("os.fdatasync", fail)
        with pytest.raises(SpoolError, match="Input/output error"):
            append(spool, b"unknown")
        monkeypatch.undo()
        with pytest.raises(SpoolError, match="restart lightning-ingest"):
            append(spool, b"after")
        assert bodies(spool) == [b"kept"]
