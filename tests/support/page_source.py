"""Pages written in the process of the test, over an open store."""

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from otel_lightning.collector.page.process import Answer, Request, bound
from otel_lightning.collector.page.routes import respond
from otel_lightning.collector.store import Store

FACTS = {
    "url": "http://localhost:4318", "console": True, "accepted": 0, "rate": None, "alarms": [],
    "spool_backlog_bytes": 0, "loader_lag_seconds": 0.0, "derive_lag_seconds": 0.0,
    "repeated_ids": 0,
}  # fmt: skip
VOID = {"meta", "link", "input", "br"}


class DirectSource:
    """Runs the statements of a page on an open store, and remembers them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: list[tuple[str, dict[str, Any], int]] = []

    def ask(self, name: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        cursor = self.store._connection.cursor()
        rows = cursor.execute(*bound(name, parameters)).to_arrow_table().to_pylist()
        self.asked.append((name, dict(parameters), len(rows)))
        return rows  # type: ignore[no-any-return]

    def ask_typed(self, select: str, rows: int) -> pa.Table:
        return self.store.query(f"FROM ({select}) LIMIT {rows + 1}")

    def get(self, address: str) -> Answer:
        """Answer a request for an address such as `/ui/runs?command=policy`."""
        path, _, query = address.partition("#")[0].partition("?")
        return respond(Request(unquote(path.removeprefix("/ui")) or "/", query, FACTS), self)


class Page(HTMLParser):
    """A page, read: its text, its links, and whether its tags are balanced."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.links: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.tags: set[str] = set()
        self._open: list[str] = []
        self._text: list[str] = []
        self.html = answer.body.decode()
        self.feed(self.html)
        self.close()
        assert self._open == [], self._open

    @property
    def text(self) -> str:
        return "".join(self._text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.links += [value for name, value in attrs if name == "href" and value]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in ("p", "li", "td", "tr") and tag not in self._open:
            return
        assert self._open, tag
        assert self._open[-1] == tag, f"</{tag}> closes <{self._open[-1]}> at {self.getpos()}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._text.append(data)
