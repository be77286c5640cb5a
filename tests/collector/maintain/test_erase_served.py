"""`lightning-ingest forget` while the ingester runs: it goes on receiving, and loses nothing."""

import http.client
import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.examples import by_profile
from support.otlp_client import column, metric
from support.running import LIMIT_S, Ingester, background, cli, eventually, join
from support.sending import post

from otel_lightning.collector.check.deep import check_deep
from otel_lightning.collector.maintain.erase import Selection
from otel_lightning.collector.maintain.erase_served import erase_by_path
from otel_lightning.collector.spool.folder import spool_folder
from otel_lightning.collector.store import Store, StoreError, open_store, quote_literal

SECRET = b"Ada Lovelace, 12 St James's Square"
FORGET = ("forget", "--where", "attributes['user.id'] = 'ada'", "--store")
STALE = "SELECT count(*) FROM stale"


def call(number: int, user: str = "bob") -> bytes:
    """A model call in a trace of its own; those of the user `ada` quote her address."""
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(name="chat", trace_id=number.to_bytes(16), span_id=number.to_bytes(8))
    )
    text = SECRET.decode() if user == "ada" else f"hello {number}"
    for key, value in (
        ("gen_ai.operation.name", "chat"),
        ("user.id", user),
        (
            "gen_ai.input.messages",
            f'[{{"role":"user","parts":[{{"type":"text","content":"{text}"}}]}}]',
        ),
    ):
        span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


class Sender(threading.Thread):
    """Sends calls, one trace each, until it is stopped or the ingester is killed."""

    def __init__(self, ingester: Ingester, first: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self.statuses: set[int] = set()
        self._ingester, self._numbers = ingester, itertools.count(first)
        self._over = threading.Event()

    def run(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            while not self._over.is_set():
                number = next(self._numbers)
                status = post(self._ingester.http, call(number))
                self.statuses.add(status)
                if status == http.client.OK:
                    self.acknowledged.append(number)

    def stop(self) -> None:
        self._over.set()
        join(self)


@contextmanager
def sending(ingester: Ingester, first: int) -> Iterator[Sender]:
    """Send for the block."""
    sender = Sender(ingester, first)
    sender.start()
    try:
        eventually(lambda: len(sender.acknowledged) > 10)
        yield sender
    finally:
        sender.stop()


def with_secrets(ingester: Ingester, count: int = 30) -> None:
    """Send calls of `ada` and of others, numbered from 1, and wait until they are derived."""
    for number in range(1, count + 1):
        user = "ada" if number % 3 == 0 else "bob"
        assert post(ingester.http, call(number, user)) == http.client.OK
    query = "SELECT count(*) FROM llm_calls"
    eventually(lambda: column(ingester.store, query) == [count])


def kept(count: int = 30) -> list[int]:
    """The numbers of the calls that stay."""
    return [number for number in range(1, count + 1) if number % 3]


def stored(store: Path) -> list[int]:
    """The number of each stored span."""
    return sorted(int(one, 16) for one in column(store, "SELECT trace_id FROM spans"))


def files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def test_receiving_goes_on_and_nothing_else_is_lost(ingester: Ingester) -> None:
    with_secrets(ingester)
    spool = next(spool_folder(ingester.store).glob("*.spool"))
    with (
        ExitStack() as stack,
        ingester.store.open("rb") as old,
        spool.open("rb") as segment,
        open_store(ingester.store) as writer,
        open_store(ingester.store, read_only=True) as reader,
    ):
        assert SECRET in segment.read()
        writer.execute("CREATE TABLE mine AS SELECT 'x' AS a; CREATE VIEW theirs AS FROM mine")
        log = stack.enter_context(log_with_secret(ingester.store, writer))
        with sending(ingester, 1000) as sender:
            result = cli(*FORGET, str(ingester.store))
            assert (result.returncode, result.stderr) == (0, "")
            assert "Erased 10 traces and 10 rollouts" in result.stdout
            sent = len(sender.acknowledged)
            eventually(lambda: len(sender.acknowledged) > sent + 10)
        assert sender.statuses == {http.client.OK}
        for file in (old, segment, log):  # they have no name any more
            file.seek(0)
            assert set(file.read()) == {0}
        expected = kept() + sender.acknowledged
        eventually(lambda: stored(ingester.store) == expected)
        # Sessions of SQL clients go on, and write to the new file.
        assert reader.query("FROM theirs")["a"].to_pylist() == ["x"]
        writer.execute("INSERT INTO mine VALUES ('y')")
        assert reader.count("theirs") == 2
    eventually(lambda: column(ingester.store, STALE) == [0])
    assert ingester.stop() == 0
    for file in files(ingester.store.parent):
        assert SECRET not in file.read_bytes(), file
    with open_store(ingester.store) as store:
        assert store.count("mine") == 2
        assert [one for one in check_deep(store, ingester.store) if not one.is_fine] == []
        assert store.count("llm_calls") == len(expected)
    assert not list(ingester.store.parent.glob(".*.partial"))


def log_with_secret(path: Path, writer: Store) -> BinaryIO:
    """Open DuckDB's log of a store when it contains the secret."""
    opened: list[BinaryIO] = []

    def contains() -> bool:  # a checkpoint may delete the log before it is opened
        writer.execute(f"CREATE TABLE secrets AS SELECT {quote_literal(SECRET.decode())} AS a")
        writer.execute("DROP TABLE secrets")
        with suppress(FileNotFoundError):
            opened.append(path.with_name(path.name + ".wal").open("rb"))
        return bool(opened) and SECRET in opened[-1].read()

    eventually(contains)
    return opened[-1]


def test_rows_that_clients_write_meanwhile_are_kept(ingester: Ingester) -> None:
    with_secrets(ingester)
    over = threading.Event()
    written: list[int] = []

    def write() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            writer.execute(f"INSERT INTO mine VALUES ({number})")
            written.append(number)

    with open_store(ingester.store) as writer:
        writer.execute("CREATE TABLE mine (n BIGINT)")
        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        eventually(lambda: len(written) > 10)
        assert erase_by_path(
            ingester.store, Selection(where="attributes['user.id'] = 'ada'")
        ).traces
        before = len(written)
        eventually(lambda: len(written) > before + 10)
        over.set()
        join(writing)
        assert writer.query("FROM mine ORDER BY n")["n"].to_pylist() == written


@pytest.mark.slow
def test_no_other_process_can_open_the_new_file(ingester: Ingester) -> None:
    with_secrets(ingester)
    for _ in range(2):  # the second time the new file is replaced
        erase_by_path(ingester.store, Selection(traces=[f"{kept()[0]:032x}"]))
        opening = "import sys, duckdb; duckdb.connect(sys.argv[1])"
        with background(sys.executable, "-c", opening, str(ingester.store)) as other:
            assert other.wait(LIMIT_S) == 1
    result = cli(
        "backup", str(ingester.store.with_name("b.duckdb")), "--store", str(ingester.store)
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(column(ingester.store.with_name("b.duckdb"), "SELECT trace_id FROM spans")) == 29


def test_nothing_selected_erases_nothing(ingester: Ingester) -> None:
    with_secrets(ingester, 3)
    result = cli("forget", "--rollout", "nobody", "--store", str(ingester.store))
    assert result.returncode == 1
    assert "nothing was erased" in result.stderr
    assert stored(ingester.store) == [1, 2, 3]


def test_a_wrong_condition_is_an_error_and_the_ingester_goes_on(ingester: Ingester) -> None:
    with pytest.raises(StoreError, match="no_such_column"):
        erase_by_path(ingester.store, Selection(where="no_such_column = 1"))
    with_secrets(ingester, 3)


def test_a_statement_that_goes_on_for_too_long_is_ended(starter: Callable[..., Ingester]) -> None:
    ingester = starter("--reader-seconds", "3600")
    with_secrets(ingester)
    endless = "SELECT count(*) FROM spans, range(1000000) a, range(1000000) b, range(1000000)"
    failed: list[str] = []

    def ask() -> None:
        with open_store(ingester.store, read_only=True) as reader:
            try:
                reader.query(endless)
            except StoreError as error:
                failed.append(str(error))

    asking = threading.Thread(target=ask, daemon=True)
    before = cpu_seconds(ingester)
    asking.start()
    eventually(lambda: cpu_seconds(ingester) > before + 2)
    assert erase_by_path(ingester.store, Selection(where="attributes['user.id'] = 'ada'")).traces
    join(asking)
    assert "was rewritten to forget traces" in failed[0]
    assert stored(ingester.store) == kept()


def cpu_seconds(ingester: Ingester) -> float:
    times = psutil.Process(ingester.process.pid).cpu_times()
    return times.user + times.system


def test_a_session_that_rests_in_a_transaction_is_closed(ingester: Ingester) -> None:
    with_secrets(ingester)
    with open_store(ingester.store) as resting, open_store(ingester.store) as other:
        resting.execute("BEGIN")
        assert resting.count("spans") == 30
        erased = erase_by_path(ingester.store, Selection(where="attributes['user.id'] = 'ada'"))
        assert erased.traces == 10
        for session in (resting, other):
            with pytest.raises(StoreError, match="Invalid connection id"):
                session.count("spans")
    assert stored(ingester.store) == kept()
    assert post(ingester.http, call(50)) == http.client.OK
    eventually(lambda: stored(ingester.store) == [*kept(), 50])


def test_a_kill_leaves_the_old_or_the_new_store(starter: Callable[..., Ingester]) -> None:
    kills = by_profile(quick=2, thorough=20)
    chance, expected = random.Random(kills), []  # noqa: S311  which moments, not secrets
    for kill in range(kills):
        ingester = starter()
        first = 1 + kill * 10_000
        with sending(ingester, first) as sender:
            for number in range(first + 9_000, first + 9_030):
                assert post(ingester.http, call(number, "ada")) == http.client.OK
            forget = (sys.executable, "-m", "otel_lightning.collector", *FORGET)
            with background(*forget, str(ingester.store), stderr=subprocess.DEVNULL) as forgetting:
                partial = ingester.store.with_name(f".{ingester.store.name}.partial")
                if kill % 2:  # in the middle of the copy
                    eventually(lambda p=partial, f=forgetting: p.exists() or f.poll() is not None)
                    time.sleep(chance.uniform(0, 0.3))
                else:
                    time.sleep(chance.uniform(0.5, 3))
                ingester.kill()
        expected += sender.acknowledged
    last = starter()
    erase_by_path(last.store, Selection(where="attributes['user.id'] = 'ada'"))
    eventually(lambda: metric(last.http, "lightning_loader_lag_seconds") == 0)
    assert last.stop() == 0
    found = stored(last.store)
    assert len(set(found)) == len(found), "twice"
    assert set(expected) - set(found) == set(), "lost"
    assert not any(SECRET in file.read_bytes() for file in files(last.store.parent))
    with open_store(last.store) as store:
        assert [one for one in check_deep(store, last.store) if not one.is_fine] == []


def test_the_token_that_only_reads_cannot_forget(ingester: Ingester) -> None:
    with (
        open_store(ingester.store, read_only=True) as store,
        pytest.raises(StoreError, match="This token reads only"),
    ):
        store.query("SELECT system.main.lightning_forget('{}')")
