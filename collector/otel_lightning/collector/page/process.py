"""Processes that write the pages, so that no page delays an acknowledgement.

A page process turns rows into HTML. It has no connection to the store: it names a statement of the
folder `sql` with its parameters, and the receiving process runs it within limits and sends the rows
back. Both talk over the page process's stdin and stdout.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from otel_lightning.collector.page.statements import bound
from otel_lightning.collector.process.child import Child, LateError, Pool, packed
from otel_lightning.collector.store import StoreError
from otel_lightning.collector.store.clients.cancellation import Cancellation
from otel_lightning.collector.store.clients.page_reads import PageReads

REQUEST, ROWS, FAILED, ASK, TYPED, ANSWER, READY = range(7)
PROCESSES = 2
PAGE_SECONDS = 30.0  # for a whole page
START_SECONDS = 60.0
STATEMENT_SECONDS = 5.0
TYPED_SECONDS = 10.0
MEMORY_BYTES = 512_000_000


class PageError(Exception):
    """A page that could not be written; the message is shown."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GET request for a page, and facts of this process that it shows."""

    path: str
    query: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Pages:
    """A pool of page processes, and the statements that run without one."""

    def __init__(self, reads: PageReads) -> None:
        self._reads = reads
        self._pool = Pool(lambda: _Process(reads), PROCESSES)

    def write(self, request: Request, cancellation: Cancellation) -> Answer:
        """Write the page for a request.

        Args:
            request: The request.
            cancellation: Ends the statements of the page, whose answer nobody waits for.

        Raises:
            PageError: If it takes too long, too much memory, or fails.
        """
        with self._pool.one() as process:
            return process.write(request, cancellation)

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Run a statement of the folder `sql`, outside a page.

        Raises:
            StoreError: If it fails or takes too long.
        """
        return self._reads.ask(*bound(name, parameters), STATEMENT_SECONDS)

    def close(self) -> None:
        """Stop all idle processes."""
        self._pool.close()


class _Process(Child):
    def __init__(self, reads: PageReads) -> None:
        super().__init__("otel_lightning.collector.page.child")
        self._reads = reads
        self._converse(json.dumps({"memory": MEMORY_BYTES}).encode(), START_SECONDS, Cancellation())

    def write(self, request: Request, cancellation: Cancellation) -> Answer:
        question = {"path": request.path, "query": request.query, "facts": dict(request.facts)}
        answer = self._converse(json.dumps(question).encode(), PAGE_SECONDS, cancellation)
        head, _, body = answer.partition(b"\n")
        header = json.loads(head)
        return Answer(header["status"], header["type"], body, tuple(map(tuple, header["headers"])))

    def _converse(
        self, content: bytes | memoryview, seconds: float, cancellation: Cancellation
    ) -> bytes:
        """Send a request, answer the questions of the process, and return its last message."""
        kind = REQUEST
        try:
            with self.within(seconds):
                while True:
                    answered, answer = self.ask(kind, content)
                    # A page needs several statements. Until its answer comes, each message of the
                    # child is a question, and its rows are the next message to it.
                    if answered in (ANSWER, READY):
                        return answer
                    if answered == FAILED:
                        raise PageError(answer.decode(errors="replace"))
                    kind, content = self._rows(answered, json.loads(answer), cancellation)
        except LateError as error:
            raise PageError(f"The page took longer than {seconds:g} seconds.") from error
        except OSError as error:
            raise PageError(
                f"The page took more than {MEMORY_BYTES // 10**6} MB of memory, or its process "
                f"ended."
            ) from error

    def _rows(
        self, kind: int, question: Mapping[str, Any], cancellation: Cancellation
    ) -> tuple[int, bytes | memoryview]:
        try:
            if kind == TYPED:
                rows = self._reads.ask_typed(
                    question["select"], question["rows"], TYPED_SECONDS, cancellation
                )
            else:
                values = bound(question["statement"], question["parameters"])
                rows = self._reads.ask(*values, STATEMENT_SECONDS, cancellation)
        except StoreError as error:
            return FAILED, str(error).encode()
        return ROWS, packed(rows)
