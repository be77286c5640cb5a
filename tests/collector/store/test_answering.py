"""A process that serves a store and answers nothing: no command waits for it without a word."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest
from support.running import LIMIT_S, Ingester, background, cli, eventually, join
from support.stores import RELEASED, unpacked

from otel_lightning.collector.files.process_file import run_file
from otel_lightning.collector.store import Store, open_store
from otel_lightning.collector.store.answering import ASK_SECONDS
from otel_lightning.collector.store.files.server_file import read_server


@contextmanager
def stopped(ingester: Ingester) -> Iterator[None]:
    ingester.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        ingester.process.send_signal(signal.SIGCONT)


def test_each_command_says_which_process_does_not_answer_and_how_to_go_on(
    ingester: Ingester, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("model,input,output\nm,1,2\n")
    commands = (
        ("sql", "SELECT 1"),
        ("doctor",),
        ("show",),
        ("backup", str(tmp_path / "copy.duckdb")),
        ("forget", "--trace", "00"),
        ("prices", str(prices)),
        ("serve", "--http", "127.0.0.1:0", "--grpc", "none"),
    )
    pid = ingester.process.pid

    def ask(command: tuple[str, ...]) -> str:
        result = cli(*command, "--store", str(ingester.store))
        assert result.returncode == 1, command
        return result.stderr

    with stopped(ingester), ThreadPoolExecutor(len(commands)) as threads:
        told = dict(zip(commands, threads.map(ask, commands), strict=True))
    for command, words in told.items():
        assert f"process {pid}, which has answered nothing for" in words, command
        assert f"kill -CONT {pid}" in words, command


MANY_ROWS = "FROM range(1_000_000)"


def runs() -> pa.Table:
    """A row of a run; made in a test, because pyarrow imports pandas for it."""
    return pa.table({"run_id": ["a"]})


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.column("SELECT 42"),
        lambda store: store.execute("DELETE FROM runs"),
        lambda store: store.insert("runs", runs()),
        lambda store: store.replace("runs", runs()),
        lambda store: list(store.stream(MANY_ROWS, 1000)),
    ],
    ids=["query", "execute", "insert", "replace", "stream"],
)
def test_a_process_that_stops_during_a_statement_is_told_and_waited_for(
    ask: Callable[[Store], object], lasting: Ingester, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        open_store(lasting.store) as opened,
        ThreadPoolExecutor(1) as threads,
        caplog.at_level(logging.WARNING),
    ):
        with stopped(lasting):
            asked = threads.submit(ask, opened)
            eventually(lambda: "waits for process" in caplog.text)
            assert f"kill -CONT {lasting.process.pid}" in caplog.text
            assert not asked.done()
        asked.result(LIMIT_S)


def test_a_process_that_stops_between_two_batches_is_told(
    lasting: Ingester, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        open_store(lasting.store) as opened,
        ThreadPoolExecutor(1) as threads,
        caplog.at_level(logging.WARNING),
    ):
        batches = opened.stream(MANY_ROWS, 1000)
        rows = len(next(batches))
        with stopped(lasting):
            rest = threads.submit(lambda: sum(map(len, batches)))
            eventually(lambda: "waits for process" in caplog.text)
        assert rows + rest.result(LIMIT_S) == 1_000_000


def test_a_statement_that_takes_long_is_waited_for_in_silence(
    ingester: Ingester, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(ingester.store) as opened, caplog.at_level(logging.WARNING):
        # It sleeps in the ingester until the process was asked whether it lives.
        opened.query(f"SELECT sleep_ms({1000 * (ASK_SECONDS + 2):.0f})")
    assert caplog.text == ""


SLOWLY = """
import sys, time
from pathlib import Path
from otel_lightning.collector.serve.watches.heartbeat import Heartbeat

announce = Heartbeat.announce

def announce_when_asked(self, *told):
    while not go.exists():
        time.sleep(0.01)
    announce(self, *told)

go = Path(sys.argv.pop())
Heartbeat.announce = announce_when_asked
from otel_lightning.collector.__main__ import main
main()
"""
"""Serves a store, but tells that only once the file is there that the last argument names."""


def test_a_store_is_opened_while_its_ingester_starts_and_while_it_stops(tmp_path: Path) -> None:
    """In between the ingester holds the file, and answers no SQL yet or no more."""
    path, go = tmp_path / "t.duckdb", tmp_path / "go"
    command = (sys.executable, "-c", SLOWLY, "serve", "--grpc", "none", "--http", "127.0.0.1:0")
    with background(*command, "--store", path, go) as process:
        eventually(run_file(path).exists)
        assert read_server(path) is None
        waits = Timer(0.5, go.touch)
        waits.start()
        with open_store(path, read_only=True) as store:
            assert store.server
            assert store.column("SELECT 1") == [1]
        join(waits)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: read_server(path) is None)
        with open_store(path, read_only=True) as store:
            assert store.server is None
            assert store.column("SELECT count(*) FROM spans") == [0]
        assert process.wait(LIMIT_S) == 0


def test_a_store_is_opened_while_its_ingester_migrates_it(tmp_path: Path) -> None:
    """The ingester holds the file before it has the tables of this version."""
    path = unpacked(RELEASED[-1], tmp_path)
    command = (sys.executable, "-m", "otel_lightning.collector", "--grpc", "none")
    with background(*command, "--http", "127.0.0.1:0", "--store", path) as process:

        def is_served() -> bool:
            assert process.poll() is None
            # Until the ingester holds the file this opens the file itself; then it waits.
            with open_store(path, read_only=True) as store:
                return store.server is not None

        eventually(is_served)
