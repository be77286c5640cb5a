"""Cache of judges' answers in a file beside the store, so that no question is paid for twice.

Each answer is committed when it arrives. A killed run loses only the requests in flight.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from otel_lightning.collector.files.atomic import PRIVATE
from otel_lightning.collector.files.reason import reason
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.answers import Answer

AT_ONCE = 500
"""Number of keys in one SQLite query; SQLite limits the placeholders of a statement."""


class AnswerCache:
    """Answers by the hash of their question; threads and processes may share one file."""

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            DataError: If the file has another format, or cannot be written.
        """
        self._path = path
        self._lock = Lock()
        schema = Path(__file__).with_name("cache.sql").read_text(encoding="utf-8")
        with self._expected_errors():
            # Answers quote conversations, so a new file is private, as a new store is. SQLite gives
            # its mode to the journal beside it.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
            # Threads share the connection, and the lock below lets one use it at a time. Other
            # processes may have the file too: SQLite waits up to 60 seconds for them.
            self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._connection.executescript(schema)

    def put(self, key: str, answer: Answer) -> None:
        """Store an answer; it replaces a former answer with the same key."""
        row = (key, answer.text, answer.input_tokens, answer.output_tokens)
        # The connection as a context commits at its end, or rolls back.
        with self._expected_errors(), self._lock, self._connection:
            self._connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Return the cached answers of some keys."""
        all_keys, answers = list(keys), {}
        for start in range(0, len(all_keys), AT_ONCE):
            batch = all_keys[start : start + AT_ONCE]
            marks = ", ".join("?" * len(batch))
            with self._expected_errors(), self._lock:
                rows = self._connection.execute(
                    f"SELECT * FROM answers WHERE key IN ({marks})", batch
                ).fetchall()
            answers.update({key: Answer(*row) for key, *row in rows})
        return answers

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _expected_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise DataError(
                f"'{self._path}' cannot keep answers ({reason(error)}). Choose another file with "
                "--cache."
            ) from error
