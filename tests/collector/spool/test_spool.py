"""The spool: what it answered for is there, whatever happens to its tail."""

import errno
import itertools
import os
import random
import re
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.running import LIMIT_S, eventually

from otel_lightning.collector.alarms import RECEIVING
from otel_lightning.collector.spool import disk_time, segments
from otel_lightning.collector.spool import spool as spool_module
from otel_lightning.collector.spool.folder import SET_ASIDE
from otel_lightning.collector.spool.format import (
    HEADER,
    Damage,
    Position,
    Record,
    read_segment,
    segment_path,
)
from otel_lightning.collector.spool.spool import Spool, SpoolError

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
        done.result(LIMIT_S)


def bodies(spool: Spool, start: Position = START) -> list[bytes]:
    return [record.body for record in spool.read(start, EVERYTHING) if not record.damaged]


def test_what_was_appended_is_read_after_reopening(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"a", b"", b"c" * 100_000)
    with opened(tmp_path) as spool:
        append(spool, b"d")
        assert bodies(spool) == [b"a", b"", b"c" * 100_000, b"d"]


def test_a_record_says_how_many_rows_it_makes(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.append("traces", b"three spans", 3).result(LIMIT_S)
        spool.append("logs", b"one record", 1).result(LIMIT_S)
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


@examples(60)
@given(lost=st.integers(1, 200), noise=st.binary(max_size=50))
def test_a_torn_tail_loses_only_the_torn_record(
    lost: int, noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    whole = [b"x" * 40, b"y" * 40, b"z" * 40]
    with opened(folder) as spool:
        append(spool, *whole)
    file = next(folder.glob("*.spool"))
    content = file.read_bytes()
    torn = content[: max(len(content) - lost, 0)] + noise
    file.write_bytes(torn)
    # Noise may be the very bytes that were lost.
    size = len(content) // len(whole)
    kept = [body for n, body in enumerate(whole, 1) if torn[: n * size] == content[: n * size]]
    with opened(folder) as spool:
        append(spool, b"after")
        assert bodies(spool) == [*kept, b"after"]


def set_aside(folder: Path) -> bytes:
    """Return all that was kept of damaged parts."""
    return b"".join(file.read_bytes() for file in sorted((folder / SET_ASIDE).glob("*.damaged")))


@examples(150)
@given(data=st.data())
def test_one_changed_byte_loses_one_record_at_most(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    whole = [bytes([65 + n]) * (n % 4 * 30) + b"\0" * n for n in range(12)]
    with opened(folder) as spool:
        append(spool, *whole)
    file = next(folder.glob("*.spool"))
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)
    with opened(folder) as spool:
        append(spool, b"after")
        read = spool.read(START, EVERYTHING)
        kept = [record.body for record in read if not record.damaged]
        assert kept[-1] == b"after"
        hit = hit_by(at, whole)
        assert kept[:-1] == whole[:hit] + whole[hit + 1 :]
        is_torn = hit == len(whole) - 1 and not (folder / SET_ASIDE).exists()
        assert is_torn or content[at : at + 1] in set_aside(folder)


def hit_by(offset: int, whole: list[bytes]) -> int:
    """Return the number of the record that an offset of the segment belongs to."""
    ends = itertools.accumulate(HEADER.size + len(body) for body in whole)
    return next(n for n, end in enumerate(ends) if offset < end)


def test_only_a_length_that_reaches_past_the_end_is_taken_for_a_torn_tail(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"first", b"second")
    file = next(tmp_path.glob("*.spool"))
    file.write_bytes(file.read_bytes().replace(b"second", b"sec0nd"))
    with opened(tmp_path) as spool:
        assert bodies(spool) == [b"first"]
        assert b"sec0nd" in set_aside(tmp_path)
        append(spool, b"third")
        assert bodies(spool)[-1] == b"third"


def test_a_byte_changed_while_running_is_reported_and_read_past(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"first", b"second", b"third")
        file = next(tmp_path.glob("*.spool"))
        content = bytearray(file.read_bytes())
        content[7] ^= 0x40  # the highest byte of a length
        content[-len(b"third")] ^= 1
        file.write_bytes(content)
        read = spool.read(START, EVERYTHING)
        assert [record.body for record in read] == [b"", b"second", b""]
        assert [bool(record.damaged) for record in read] == [True, False, True]
        append(spool, b"fourth")
        assert [record.body for record in spool.read(read[-1].end, EVERYTHING)] == [b"fourth"]
        spool.forget(spool.read(START, EVERYTHING)[-1].end)
        assert spool.backlog() == 0


@pytest.mark.parametrize("kept", [0, 10, 40])
def test_what_somebody_truncates_while_it_is_read_is_damage(kept: int, tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"a" * 100_000, b"b" * 100_000)
        found = read_segment(tmp_path, START, spool.end.offset)
        assert isinstance(next(found), Record)
        second = HEADER.size + 100_000
        os.truncate(segment_path(tmp_path, 1), second + kept)
        (damage,) = found  # a file that is mapped into memory would end this process here
        assert isinstance(damage, Damage)
        assert (damage.start.offset, damage.end) == (second, spool.end)
        assert ("truncated" in damage.reason) == (kept == 0)
        append(spool, b"c")  # later requests are found behind the gap
        read = spool.read(START, EVERYTHING)
        assert [bool(record.damaged) for record in read] == [False, True, False]


def test_a_full_segment_that_is_truncated_is_damaged_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    with opened(tmp_path) as spool:
        append(spool, b"a")
        append(spool, b"b")
        os.truncate(segment_path(tmp_path, 1), 0)
        read = spool.read(START, EVERYTHING)
        assert [(bool(record.damaged), record.body) for record in read] == [
            (True, b""),
            (False, b"b"),
        ]


def test_damage_in_a_large_segment_is_read_past_without_the_header(tmp_path: Path) -> None:
    chance = random.Random(1)  # noqa: S311  noise, not secrets
    large = [chance.randbytes(4_000_000) + b"\0" * 4_000_000 for _ in range(3)]
    with opened(tmp_path) as spool:
        append(spool, *large)
    file = next(tmp_path.glob("*.spool"))
    content = bytearray(file.read_bytes())
    content[0:8] = b"\xff" * 8
    file.write_bytes(content)
    with opened(tmp_path) as spool:
        assert bodies(spool) == [large[1], large[2]]
        assert len(set_aside(tmp_path)) == HEADER.size + len(large[0])


def test_a_disk_is_asked_to_keep_the_data_as_its_system_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no fdatasync and needs F_FULLFSYNC."""
    asked: list[tuple[int, int]] = []

    def full_sync(file: int, command: int) -> None:
        asked.append((os.fstat(file).st_ino, command))

    monkeypatch.setattr("fcntl.F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr("fcntl.fcntl", full_sync)
    monkeypatch.delattr("os.fdatasync")
    with opened(tmp_path) as spool:
        append(spool, b"kept")
        (segment,) = tmp_path.glob("*.spool")
    assert asked[-1] == (segment.stat().st_ino, 51)
    assert (tmp_path.stat().st_ino, 51) in asked  # so that the disk has the segment's name


def test_loaded_segments_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
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


class Slowing:
    """Backpressure that pauses for a second a megabyte, and can refuse."""

    reason: str | None = None

    def pause(self, size: int) -> float:
        return size / 1_000_000

    def refusal(self) -> str | None:
        return self.reason


def test_the_spool_pauses_as_the_loader_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with opened(tmp_path) as spool:
        monkeypatch.setattr(spool._closing, "wait", pauses.append)
        append(spool, b"x" * 900_000)
        spool.backpressure = Slowing()
        append(spool, b"x" * 900_000)
        append(spool, b"")
    assert pauses == [0.9]


def test_the_spool_refuses_as_the_loader_asks(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        spool.backpressure = slowing = Slowing()
        append(spool, b"x")
        slowing.reason = "deriving lags"
        with pytest.raises(SpoolError, match="deriving lags"):
            spool.append("traces", b"y")


def test_after_a_failed_sync_requests_are_taken_again_once_the_disk_syncs_a_new_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    with opened(tmp_path) as spool:
        append(spool, b"kept")
        monkeypatch.setattr(spool_module, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr("os.fdatasync", fail)
        for _ in range(3):  # the kernel may have dropped what a second sync would report as written
            with pytest.raises(SpoolError, match="Input/output error"):
                append(spool, b"unknown")
        monkeypatch.setattr("os.fdatasync", os.fsync)
        eventually(lambda: spool.refusal() is None)
        append(spool, b"after")
        assert bodies(spool) == [b"kept", b"after"]
        assert spool.end.segment == 2
        assert not spool.alarms.raised()
    with opened(tmp_path) as spool:
        assert bodies(spool) == [b"kept", b"after"]


def test_a_disk_whose_every_write_is_slow_is_an_alarm_until_one_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two writes nothing told it, though no sender waits so long."""
    go_on = threading.Event()
    with opened(tmp_path) as spool:
        with monkeypatch.context() as slow:
            slow.setattr(disk_time, "STALLED_SECONDS", 0.2)
            slow.setattr("os.fdatasync", lambda _file: go_on.wait(LIMIT_S))
            for _ in range(2):
                go_on.clear()
                done = spool.append("traces", b"slow")
                eventually(lambda: spool.disk_time.is_stalled)
                spool.alarms.raise_alarm(RECEIVING, disk_time.HANGS)  # as the supervisor does
                go_on.set()
                done.result(LIMIT_S)
                assert spool.alarms.is_raised(RECEIVING)
        append(spool, b"quick")
        assert not spool.alarms.raised()
        assert bodies(spool) == [b"slow", b"slow", b"quick"]


def test_a_folder_that_was_moved_with_its_parent_is_not_created_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with opened(data / "t.spool") as spool:
        append(spool, b"kept")
        data.rename(tmp_path / "moved")
        with pytest.raises(SpoolError, match="Move its folder back"):
            append(spool, b"refused")
        (tmp_path / "moved").rename(data)
        append(spool, b"after")
        assert bodies(spool) == [b"kept", b"after"]


def test_the_same_segment_in_another_file_is_used_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "t.spool"
    with opened(folder) as spool:
        append(spool, b"kept")
        folder.rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", folder)
        copy = next(folder.glob("*.spool")).stat().st_ino
        append(spool, b"after")
        assert bodies(spool) == [b"kept", b"after"]
        assert next(folder.glob("*.spool")).stat().st_ino == copy


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open so many further files in the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("count", [0, 1])
def test_a_segment_that_could_not_begin_begins_later(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    with opened(tmp_path) as spool:
        append(spool, b"first")
        with free_descriptors(count), pytest.raises(SpoolError, match="Too many open files"):
            append(spool, b"refused")
        append(spool, b"second")
        assert bodies(spool) == [b"first", b"second"]


def test_a_deleted_segment_that_cannot_be_put_back_leaks_no_descriptors(tmp_path: Path) -> None:
    descriptors = Path("/dev/fd")
    with opened(tmp_path) as spool:
        append(spool, b"x" * 100)
        before = len(list(descriptors.iterdir()))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))  # as on a full disk
        try:
            next(tmp_path.glob("*.spool")).unlink()
            for _ in range(3):
                with pytest.raises(SpoolError, match="File too large"):
                    append(spool, b"refused")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(list(descriptors.iterdir())) == before
        append(spool, b"after")
        assert bodies(spool) == [b"x" * 100, b"after"]


def test_a_file_in_place_of_the_folder_is_reported_with_its_path_and_a_remedy(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "t.spool"
    folder.write_text("not a folder")
    with pytest.raises(OSError, match=rf"'{folder}' .*move it away"):
        Spool(folder)
    folder.unlink()
    with opened(folder) as spool:
        folder.rename(tmp_path / "moved")
        folder.write_text("not a folder")
        with pytest.raises(SpoolError, match=rf"'{folder}/.*' .*move it away"):
            append(spool, b"refused")
        assert str(folder) in spool.alarms.raised()[0].reason
        folder.unlink()
        (tmp_path / "moved").rename(folder)
        append(spool, b"after")
        assert bodies(spool) == [b"after"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EROFS, "mount it for writing"), (errno.ENOSPC, "Make room"), (errno.EIO, "dmesg")],
)
def test_a_failed_write_is_reported_with_its_path_and_a_remedy(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    with opened(tmp_path) as spool:
        monkeypatch.setattr("os.write", fail)
        segment = re.escape(str(segment_path(tmp_path, 1)))
        with pytest.raises(SpoolError, match=f"'{segment}' .*{remedy}"):
            append(spool, b"refused")
        # A file system that has become read-only refuses to cut the file, too.
        monkeypatch.setattr("os.ftruncate", fail)
        with pytest.raises(SpoolError, match=f"'{segment}' .*{remedy}"):
            append(spool, b"refused")
        monkeypatch.undo()
        eventually(lambda: spool.refusal() is None)
        append(spool, b"after")
        assert bodies(spool) == [b"after"]


def test_the_log_says_that_a_segment_is_put_back_only_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"kept")
        next(tmp_path.glob("*.spool")).unlink()
        monkeypatch.setattr(segments, "copied", lambda *_: os.open(tmp_path / "no" / "no", 0))
        with pytest.raises(SpoolError):
            append(spool, b"refused")
        assert "put back" not in caplog.text
        monkeypatch.undo()
        append(spool, b"after")
        assert caplog.text.count("put back") == 1
        assert bodies(spool) == [b"kept", b"after"]


def test_a_spool_has_one_writer(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        append(spool, b"first")
        with pytest.raises(OSError, match=rf"'{tmp_path}' .*Another process receives there"):
            Spool(tmp_path)
        append(spool, b"second")
    with opened(tmp_path) as spool:
        assert bodies(spool) == [b"first", b"second"]


def test_what_came_before_a_new_segment_is_in_earlier_files(tmp_path: Path) -> None:
    with opened(tmp_path) as spool:
        assert spool.begin_segment() == START  # nothing is before it
        append(spool, b"before")
        start = spool.begin_segment()
        assert start == Position(2, 0) == spool.begin_segment()
        append(spool, b"after")
        assert bodies(spool, start) == [b"after"]
        assert bodies(spool) == [b"before", b"after"]
    with pytest.raises(SpoolError, match="closed"):
        spool.begin_segment()


def test_room_for_less_than_what_was_refused_is_no_end_of_the_fault(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path) as spool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))  # as on an almost full disk
        try:
            with pytest.raises(SpoolError, match="File too large"):
                append(spool, bytes(1_000_000))
            append(spool, b"small")
            spool._check_file()  # as every two seconds
            assert spool.alarms.is_raised(RECEIVING)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        eventually(lambda: not spool.alarms.is_raised(RECEIVING))
        append(spool, b"large enough")
        assert bodies(spool) == [b"small", b"large enough"]
