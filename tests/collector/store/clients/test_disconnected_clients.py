"""A statement ends soon after its client has gone, and never while its client waits."""

import http.client
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest
from support.browser import ask, session
from support.examples import first_quick
from support.running import LIMIT_S, Ingester, background, eventually

from otel_lightning.collector.ingester_client.http import connected
from otel_lightning.collector.ingester_client.sql import PATH
from otel_lightning.collector.page.answer import MOST_WAITING
from otel_lightning.collector.page.process import PROCESSES
from otel_lightning.collector.process.tcp_connections import DESCRIPTORS, ESTABLISHED, Connection
from otel_lightning.collector.store import StoreError, open_store, read_server
from otel_lightning.collector.store.clients.cancellation import Cancellation
from otel_lightning.collector.store.clients.disconnected_clients import Statement, abandoned
from otel_lightning.collector.store.clients.reader_limits import ReaderLimits

pytestmark = pytest.mark.skipif(not DESCRIPTORS.exists(), reason="Linux only")

ROWS = "range(1000000) a, range(1000000) b, range(1000000) c"
BOUNDED = f"SELECT count(*) AS n FROM {ROWS} WHERE a.range * b.range % 7 = c.range"
APART = f"SELECT repeat(max(a.range)::VARCHAR, 2) AS n FROM {ROWS}"
"""Two statements that take years: the first runs in the ingester, the second in a process of its
own."""
OPTIONS = ("--reader-seconds", "3600", "--workers", "0")
ASK = """
import sys
from otel_lightning.collector.store import open_store
with open_store(sys.argv[1], read_only=True) as store:
    print("attached", flush=True)
    print(store.query(sys.argv[2]).to_pylist(), flush=True)
"""
CLOSE_WAIT = 8


@pytest.fixture
def serving(starter: Callable[..., Ingester]) -> Ingester:
    """An ingester whose readers have an hour."""
    return starter(*OPTIONS)


def processes(serving: Ingester) -> list[psutil.Process]:
    """Return the ingester and its children."""
    main = psutil.Process(serving.process.pid)
    return [main, *main.children(recursive=True)]


def is_busy(serving: Ingester) -> bool:
    """Return whether a statement runs: whether more than a tenth of a processor is used."""

    def used() -> float:
        total = 0.0
        for process in processes(serving):
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                times = process.cpu_times()
                total += times.user + times.system
        return total

    before, began = used(), time.monotonic()
    time.sleep(0.5)
    return used() - before > 0.1 * (time.monotonic() - began)


@pytest.fixture
def clients(serving: Ingester) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start clients that each send a statement."""
    with ExitStack() as stack:

        def start(statement: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", ASK, str(serving.store), statement]
            running = background(*command, stdout=subprocess.PIPE, text=True)
            client = stack.enter_context(running)
            assert client.stdout is not None
            assert client.stdout.readline() == "attached\n"
            return client

        yield start


Start = Callable[[str], subprocess.Popen[str]]


@pytest.mark.parametrize("statement", first_quick([BOUNDED, APART]))
def test_a_statement_ends_after_its_client_was_killed(
    statement: str, serving: Ingester, clients: Start
) -> None:
    client = clients(statement)
    eventually(lambda: is_busy(serving))
    client.send_signal(signal.SIGKILL)
    eventually(lambda: not is_busy(serving))
    with open_store(serving.store, read_only=True) as reader:
        assert reader.query("SELECT repeat('x', 2) AS x")["x"].to_pylist() == ["xx"]
        assert reader.query("SELECT 1 AS one")["one"].to_pylist() == [1]


def test_statements_of_clients_that_wait_go_on(serving: Ingester, clients: Start) -> None:
    """Each waiting client gets its answer, though two others are killed meanwhile."""
    answered = "SELECT count(*) AS n FROM range(30000) a, range(30000) b WHERE a.range % 7 = 9"
    waiting = [clients(answered), clients(f"{answered} AND length(repeat('x', 3)) = 3")]
    gone = [clients(BOUNDED), clients(APART)]
    eventually(lambda: is_busy(serving))
    for client in gone:
        client.kill()
    for client in waiting:
        said, _ = client.communicate(timeout=LIMIT_S)
        assert said == "[{'n': 0}]\n"
    eventually(lambda: not is_busy(serving))


def test_a_statement_over_http_ends_after_its_client_has_gone(serving: Ingester) -> None:
    server = read_server(serving.store)
    assert server is not None
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/sql"}
    with connected(server, None, 60) as connection:
        connection.request("POST", PATH, BOUNDED.encode(), headers)
        eventually(lambda: is_busy(serving))
    eventually(lambda: not is_busy(serving), seconds=60)  # its limit is 120 s


def test_pages_that_nobody_waits_for_keep_no_other_page_waiting(serving: Ingester) -> None:
    """As many endless statements as the page takes at once; each would run for ten seconds."""
    headers = {"Cookie": session(serving)}
    path = f"/ui/sql?{urlencode({'q': BOUNDED})}"
    with ExitStack() as stack:
        for _ in range(PROCESSES + MOST_WAITING):
            connection = http.client.HTTPConnection(serving.http, timeout=LIMIT_S)
            stack.callback(connection.close)
            connection.request("GET", path, headers=headers)
        # Then the others have arrived, too: the next request takes no place of theirs.
        eventually(lambda: is_busy(serving))
        eventually(lambda: ask(serving, "/ui", **headers).status == 503)
    eventually(lambda: ask(serving, "/ui", **headers).status == 200)


@pytest.mark.parametrize("statement", first_quick([BOUNDED, APART]))
def test_a_typed_statement_can_be_cancelled(statement: str, tmp_path: Path) -> None:
    cancellation = Cancellation()
    with open_store(tmp_path / "t.duckdb") as store, ThreadPoolExecutor() as threads:
        store.serve("127.0.0.1:1", limits=ReaderLimits(memory_bytes=400_000_000))
        reads = store.sql_server.page_reads()
        told = threads.submit(reads.ask_typed, statement, 10, 3600, cancellation)
        while not told.done():
            cancellation.cancel()
        with pytest.raises(StoreError, match="closed its connection"):
            told.result(LIMIT_S)
        # The next one gets a process that lives.
        again = reads.ask_typed("SELECT repeat('x', 2) AS x", 10, 60, Cancellation())
        assert again["x"].to_pylist() == ["xx"]


def connection(
    inode: int, came: float, *, left: bool = False, answered: bool = False
) -> Connection:
    """A connection whose last request came some seconds ago."""
    state = CLOSE_WAIT if left else ESTABLISHED
    return Connection(inode, inode, state, came - 1 if answered else came, came, 100)


@pytest.mark.parametrize(
    ("looks", "ended"),
    [
        # One statement that began 9 s ago, and its connection.
        ([[connection(1, 9.0)]], []),
        ([[connection(1, 9.0, left=True)]], [9]),
        # A request that was answered, or came later, is another one's.
        ([[connection(1, 9.0, left=True), connection(2, 9.5, answered=True)]], [9]),
        ([[connection(1, 9.0, left=True), connection(2, 8.0)]], [9]),
        # An earlier request that still waits could be this statement's.
        ([[connection(1, 9.0, left=True), connection(2, 9.5)]], []),
        ([[connection(1, 9.0, left=True), connection(2, 9.5, left=True)]], [9]),
        # Once it is answered, or has a new request, it cannot.
        (
            [
                [connection(1, 9.0, left=True), connection(2, 9.5)],
                [connection(1, 9.0, left=True), connection(2, 9.5, answered=True)],
            ],
            [9],
        ),
        ([[connection(1, 9.0), connection(2, 9.5)], [connection(1, 9.0), connection(2, 0.5)]], []),
        # Nothing is known of a statement without any connection.
        ([[]], []),
        ([[connection(1, 9.0)], []], []),
    ],
)
def test_a_statement_is_ended_only_if_all_its_possible_connections_are_closed(
    looks: list[list[Connection]], ended: list[int]
) -> None:
    now = 1000.0
    statement = Statement(Cancellation(), now - 9.0)
    for found in looks:
        given_up = abandoned([statement], found, now)
    assert [round(now - one.began) for one in given_up] == ended


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_statements_that_began_one_after_another_are_told_apart(gone: int) -> None:
    now = 1000.0
    running = [Statement(Cancellation(), now - 10 * number) for number in (1, 2, 3)]
    found = [connection(n, 10.0 * n, left=n == gone) for n in (1, 2, 3)]
    assert abandoned(running, found, now) == [running[gone - 1]]
