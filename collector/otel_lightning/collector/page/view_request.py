"""The request that a view answers: its address and parameters, and a way to query rows."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, quote, urlencode

import pyarrow as pa

from otel_lightning.collector.page.statements import sql_text, with_values

PAGE_ROWS = 50


class Source(Protocol):
    """Runs statements of the folder `sql`, and typed ones."""

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a statement of the folder `sql`."""

    def ask_typed(self, select: str, rows: int) -> pa.Table:
        """Return the rows of a statement that a person typed."""


class Statement(NamedTuple):
    """A statement that a page ran, as a person can run it again, and how long it took."""

    name: str
    text: str
    milliseconds: float
    rows: int


class View(NamedTuple):
    """The content of a page: its template and the template's values."""

    template: str
    title: str
    values: Mapping[str, Any]
    status: int = 200


class NotFoundError(Exception):
    """Nothing has this address; the message names the missing object."""


@dataclass
class ViewRequest:
    """A request for a page: parameters, facts, rows, and a record of the statements."""

    path: str
    query: Mapping[str, str]
    facts: Mapping[str, Any]
    source: Source
    statements: list[Statement] = field(default_factory=list)

    def rows(self, name: str, /, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a statement of the folder `sql`.

        Raises:
            StoreError: If it fails or takes too long.
        """
        started = time.perf_counter()
        table = self.source.ask(name, parameters)
        took = (time.perf_counter() - started) * 1000
        text = with_values(sql_text(name, parameters), parameters)
        self.statements.append(Statement(name, text, took, len(table)))
        return table

    def row(self, name: str, /, **parameters: Any) -> dict[str, Any]:
        """Return the first row of a statement; an empty one if it has none."""
        return next(iter(self.rows(name, **parameters)), {})

    def text(self, name: str) -> str | None:
        """Return a parameter of the address; None if it is missing or empty."""
        return self.query.get(name, "").strip() or None

    def whole(self, name: str) -> int | None:
        """Return a parameter that is a whole number; None if it is not one."""
        try:
            number = int(self.query.get(name, ""))
        except ValueError:
            return None
        # DuckDB's BIGINT has 64 bits; a larger number would make the statement fail.
        return number if abs(number) < 1 << 63 else None

    def real(self, name: str) -> float | None:
        """Return a parameter that is a number; None if it is not one."""
        try:
            return float(self.query.get(name, ""))
        except ValueError:
            return None

    def link(self, **changed: Any) -> str:
        """Return this address with some parameters changed; None removes one."""
        return address(self.path, **{**self.query, **changed})


def parse_query(query: str) -> dict[str, str]:
    """Return the parameters of a query; of a repeated one the last."""
    return {name: values[-1] for name, values in parse_qs(query).items()}


def address(path: str, /, **parameters: Any) -> str:
    """Return the address of a page.

    Args:
        path: Path below `/ui`, as the server gives it; parts that a user named by `segment`.
        parameters: Parameters; None and empty texts are left out.
    """
    query = {k: v for k, v in parameters.items() if v is not None and v != ""}
    return "/ui" + quote(path.rstrip("/")) + ("?" + urlencode(query) if query else "")


def segment(text: str) -> str:
    """Quote a text as one part of a path.

    `address` quotes it once more, because the HTTP server gives paths unquoted.
    """
    return quote(text, safe="")
