"""Access control for SQL clients: the writer token may do anything, the reader token only reads.

DuckDB's Quack server calls two functions of ours: one when a client connects, one for every
statement. A statement of the reader token is allowed if DuckDB's own parser says that it is one
SELECT, and if every function and table in it is on an allow-list. Everything unknown is refused.
There is a second wall: the served database has no access to files, network and extensions.
"""

import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from duckdb.func import FunctionNullHandling

from otel_lightning.collector.store import attribute_columns
from otel_lightning.collector.store.bounded import is_bounded
from otel_lightning.collector.store.sql_text import quote_literal

TABLE_FUNCTIONS = frozenset({
    "duckdb_columns", "duckdb_constraints", "duckdb_databases", "duckdb_functions",
    "duckdb_indexes", "duckdb_schemas", "duckdb_tables", "duckdb_types", "duckdb_views",
    "generate_series", "json_each", "json_tree", "pragma_table_info", "pragma_version", "range",
    "repeat", "unnest",
})  # fmt: skip
HARMLESS_VOLATILE = frozenset({"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})
NOT_FOR_READERS = frozenset({"current_setting", "getvariable", "json_serialize_plan", "pg_sleep"})
"""Functions without side effects that show state of the process, plan other statements, or wait."""
RELATION = re.compile(r"(?!(?:duckdb|pragma|pg)_)\w+", re.IGNORECASE)
"""The name of a table. DuckDB would read a name with a dot or slash as a file, and the excluded
prefixes are DuckDB's own state."""
EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?P<runs>ANALYZE\s+)?", re.IGNORECASE)
SENT_ROWS = re.compile(r"\s*INSERT\b", re.IGNORECASE)
"""The statement with which Quack announces rows that a client uploads. Only the answer None refuses
the rows; a replacement statement would not."""

LOCKED = "SELECT error('Settings cannot be changed: the configuration has been locked.')"
"""Replaces every SET of a client. The serving process itself still changes its memory limit, so
DuckDB's own lock cannot cover all settings."""

ACTIVE = """
    SELECT 1 FROM quack_active_connections()
    WHERE state = 'active' AND epoch(query_started_at) > epoch(now()) - 3600
"""
"""A statement whose client has gone in the middle of its answer is listed for ever, so old ones do
not count."""
STARTED_SECONDS = 0.1


class Tokens(NamedTuple):
    """The secrets of one served store: `reader` may only read, `writer` may do anything.

    `scanner` reads without limits. Only our own reader processes get it; they apply the limits.
    """

    reader: str
    writer: str
    scanner: str


class ReadOnlyGuard:
    """Authenticates the sessions and authorizes the statements of a Quack server."""

    def __init__(
        self,
        tokens: Tokens,
        parser: duckdb.DuckDBPyConnection,
        answer: Callable[..., str] | None = None,
    ) -> None:
        """Create a guard for one server.

        Args:
            tokens: The accepted tokens.
            parser: A separate database that only parses statements.
            answer: `LimitedReads.answer` if readers have limits: it runs a SELECT and returns the
                statement that reads its stored answer. None if readers have no limits.
        """
        self._tokens, self._parser, self._answer = tokens, parser, answer
        self._writers: set[str] = set()
        self._scanners: set[str] = set()
        self._gate = threading.Lock()
        self._running = 0
        self._ran_at = float("-inf")

    def authenticate(self, session: str, token: str, _served: str) -> bool:
        """Return whether a client has one of the tokens, and remember its role."""
        if _same(token, self._tokens.writer):
            self._writers.add(session)
            return True
        if _same(token, self._tokens.scanner):
            self._scanners.add(session)
            return True
        return _same(token, self._tokens.reader)

    def authorize(self, session: str, sql: str) -> str | None:
        """Return the statement that the server runs instead of this one; None refuses it."""
        with self.running():
            return self._decide(session, sql)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count a statement that this process runs for somebody; wait for the end of `alone`."""
        with self._gate:
            self._running += 1
        try:
            yield
        finally:
            with self._gate:
                self._running -= 1
                self._ran_at = time.monotonic()

    @contextmanager
    def alone(self, connection: duckdb.DuckDBPyConnection) -> Iterator[bool]:
        """Yield whether no client runs a statement. New statements wait until the block ends.

        Args:
            connection: A connection to the served database.
        """
        with self._gate:
            # The server lists a statement as active some time after it was authorized.
            is_starting = time.monotonic() - self._ran_at < STARTED_SECONDS
            if self._running or is_starting:
                yield False
            else:
                yield not connection.execute(ACTIVE).fetchall()

    def _decide(self, session: str, sql: str) -> str | None:
        if session in self._writers:
            return LOCKED if _changes_settings(sql) else sql
        reason = self.refusal(sql)
        if reason is None:
            return sql if session in self._scanners else self._limited(self._quicker(sql))
        if SENT_ROWS.match(sql):
            return None
        return f"SELECT error({quote_literal(reason)})"

    def refusal(self, sql: str) -> str | None:
        """Return the reason why a reader may not run a statement; None if it may."""
        if "\0" in sql:
            return "A statement cannot contain the character NUL."
        tree = self._parse(EXPLAIN.sub("", sql, count=1))
        if tree["error"]:
            return f"This token reads only, by one SELECT at a time: {tree['error_message']}"
        if len(tree["statements"]) != 1:
            return "This token reads only, by one SELECT at a time."
        return next(filter(None, map(self._objection, attribute_columns.nodes(tree))), None)

    def _limited(self, sql: str) -> str:
        explained = EXPLAIN.match(sql)
        if self._answer is None or (explained and not explained["runs"]):
            return sql
        if explained:
            return "SELECT error('EXPLAIN ANALYZE has no limits, so this token cannot use it.')"
        plain, bounded = self.normalized(sql)
        return self._answer(plain, bounded=bounded)

    def normalized(self, sql: str) -> tuple[str, bool]:
        """Return a SELECT without comments and semicolon, and whether its memory is bounded.

        Args:
            sql: A statement that `refusal` allows.
        """
        serialized = self._serialize(sql)
        return self._deserialize(serialized), is_bounded(json.loads(serialized))

    def _quicker(self, sql: str) -> str:
        """Rewrite common attributes to their own columns if the statement reads only `spans`.

        Other tables may lack these columns, and a served statement cannot be retried here.
        """
        tree = attribute_columns.nodes(self._parse(sql))
        tables = {node["table_name"] for node in tree if node.get("type") == "BASE_TABLE"}
        if tables != {"spans"}:
            return sql
        return attribute_columns.rewrite(sql, self._serialize, self._deserialize)

    def _objection(self, node: dict[str, Any]) -> str | None:
        if node.get("type") == "BASE_TABLE" and not RELATION.fullmatch(node["table_name"]):
            return f"This token reads only the tables of the store, not '{node['table_name']}'."
        if node.get("type") == "TABLE_FUNCTION":
            name = node["function"].get("function_name", "").lower()
            return None if name in TABLE_FUNCTIONS else _not_callable(name)
        name = node.get("function_name", "").lower()
        return None if not name or name in self._callable else _not_callable(name)

    @cached_property
    def _callable(self) -> frozenset[str]:
        found = self._parser.cursor().execute(
            "SELECT function_name FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'aggregate', 'macro') GROUP BY ALL"
            # One variant with side effects is enough to exclude a function's name.
            " HAVING NOT bool_or(coalesce(has_side_effects, false))"
        )
        names = {str(row[0]) for row in found.fetchall()} - NOT_FOR_READERS
        return TABLE_FUNCTIONS | HARMLESS_VOLATILE | names

    def _parse(self, sql: str) -> dict[str, Any]:
        tree: dict[str, Any] = json.loads(self._serialize(sql))
        return tree

    def _serialize(self, sql: str) -> str:
        return self._text("json_serialize_sql(?::VARCHAR)", sql)

    def _deserialize(self, tree: str) -> str:
        return self._text("json_deserialize_sql(?::JSON)", tree)

    def _text(self, expression: str, argument: str) -> str:
        found = self._parser.cursor().execute(f"SELECT {expression}", [argument])
        return str((found.fetchone() or ["{}"])[0])


def prepare(connection: duckdb.DuckDBPyConnection, guard: ReadOnlyGuard) -> None:
    """Install a guard and lock the database of a connection. Load its extensions before.

    From now on, the database has no access to other files, to the network or to extensions, and
    its settings cannot be changed.
    """
    connection.create_function(
        "lightning_authenticate",
        guard.authenticate,
        ["VARCHAR", "VARCHAR", "VARCHAR"],
        "BOOLEAN",
        side_effects=True,
    )
    connection.create_function(
        "lightning_authorize",
        guard.authorize,
        ["VARCHAR", "VARCHAR"],
        "VARCHAR",
        # `authorize` refuses by returning None. Without this DuckDB takes a NULL result for an
        # error.
        null_handling=FunctionNullHandling.SPECIAL,
        side_effects=True,
    )
    connection.execute("SET GLOBAL quack_authentication_function = 'lightning_authenticate'")
    connection.execute("SET GLOBAL quack_authorization_function = 'lightning_authorize'")
    connection.execute("SET GLOBAL enable_external_access = false")
    connection.execute("SET GLOBAL lock_configuration = true")


def attach_line(uri: str, server_file: Path) -> str:
    """Return the SQL with which any DuckDB 1.5 of this user attaches the store for reading.

    The SQL reads the token from the server file: a printed token would end up in logs.
    """
    path = quote_literal(str(server_file.resolve()))
    return (
        f"SET VARIABLE reader = (SELECT reader FROM read_json({path})); "
        f"ATTACH '{uri}' AS traces (TOKEN getvariable('reader'));"
    )


def _changes_settings(sql: str) -> bool:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error:  # not valid SQL: the server reports the error
        return False
    return any(statement.type == duckdb.StatementType.SET for statement in statements)


def _not_callable(name: str) -> str:
    return f"This token reads only: the function '{name}' is not among those it may call."


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())
