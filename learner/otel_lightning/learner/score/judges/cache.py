"""Answers of judges, kept beside the store, so that no question is paid for twice.

Each answer is committed when it comes: a run that is killed loses only what was in flight.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score.judges.answers import Answer

AT_ONCE = 500
"""How many keys one question to SQLite names."""


class AnswerCache:
    """Answers by the hash of what was asked; many threads and processes may share one."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            DataError: If it is another kind of file, or cannot be written.
        """
        self._path = path
        self._lock = Lock()
        schema = Path(__file__).with_name("cache.sql").read_text(encoding="utf-8")
        with self._expected_errors():
            self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)
            self._connection.executescript(schema)

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer, in the place of a former one."""
        row = (key, answer.text, answer.input_tokens, answer.output_tokens)
        with self._expected_errors(), self._lock, self._connection:
            self._connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)

    def get(self, keys: Iterable[str]) -> dict[str, Answer]:
        """Find the answers that are there."""
        wanted, found = list(keys), {}
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            marks = ", ".join("?" * len(some))
            with self._expected_errors(), self._lock:
                rows = self._connection.execute(
                    f"SELECT * FROM answers WHERE key IN ({marks})", some
                ).fetchall()
            found.update({key: Answer(*row) for key, *row in rows})
        return found

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _expected_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise DataError(
                f"'{self._path}' cannot keep answers ({error}). Choose another file with --cache."
            ) from error
