"""The page process: answers requests from stdin until it is closed."""

import json
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from otel_lightning.collector.page.process import (
    ANSWER,
    ASK,
    FAILED,
    READY,
    ROWS,
    TYPED,
    Request,
)
from otel_lightning.collector.page.routes import respond
from otel_lightning.collector.process.child import (
    be_killed_first,
    end_with,
    limit_memory,
    receive,
    send,
    unpacked,
)
from otel_lightning.collector.store import StoreError

NICENESS = 10  # the receiving process gets a busy processor first


class Pipe:
    """Asks the receiving process for rows."""

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a statement of the folder `sql`.

        Raises:
            StoreError: If it failed; the message says why.
        """
        question = {"statement": name, "parameters": parameters}
        return self._table(ASK, question).to_pylist()  # type: ignore[no-any-return]

    def ask_typed(self, select: str, rows: int) -> pa.Table:
        """Return the rows of a statement that a person typed.

        Raises:
            StoreError: If it was refused or failed; the message says why.
        """
        return self._table(TYPED, {"select": select, "rows": rows})

    def _table(self, kind: int, question: dict[str, Any]) -> pa.Table:
        send(sys.stdout.buffer, kind, json.dumps(question).encode())
        answered, answer = receive(sys.stdin.buffer)
        if answered != ROWS:
            raise StoreError(answer.decode(errors="replace"))
        return unpacked(answer)


def main() -> None:
    """Answer requests until the receiving process ends."""
    threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
    be_killed_first()
    os.nice(NICENESS)
    _, request = receive(sys.stdin.buffer)
    limit_memory(json.loads(request)["memory"])
    send(sys.stdout.buffer, READY, b"")
    pipe = Pipe()
    while True:
        try:
            _, content = receive(sys.stdin.buffer)
        except OSError:
            return
        try:
            answer = respond(Request(**json.loads(content)), pipe)
        except MemoryError:
            send(sys.stdout.buffer, FAILED, b"The page needs too much memory.")
            continue
        except Exception:  # noqa: BLE001  the next page may work
            traceback.print_exc()
            failed = b"The page could not be written; the log of lightning-ingest says why."
            send(sys.stdout.buffer, FAILED, failed)
            continue
        # The head is one line of JSON, which has no line break in it; all behind it is the body.
        head = {
            "status": answer.status,
            "type": answer.content_type,
            "headers": answer.headers,
        }
        send(sys.stdout.buffer, ANSWER, json.dumps(head).encode() + b"\n" + answer.body)
