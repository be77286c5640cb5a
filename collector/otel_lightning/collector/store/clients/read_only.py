"""Access control for SQL clients: the writer token may do anything, the reader token only reads.

DuckDB's Quack server calls two functions of ours: one when a client connects, one for every
statement. A statement of the reader token is allowed if DuckDB's own parser says that it is one
SELECT, and if every function and table in it is on an allow-list. Everything unknown is refused.
There is a second wall: the served database has no access to files, network and extensions.
"""

import hmac
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from duckdb.func import FunctionNullHandling

from otel_lightning.collector.store import attribute_columns
from otel_lightning.collector.store.clients.bounded import is_bounded
from otel_lightning.collector.store.clients.cancellation import Cancellation
from otel_lightning.collector.store.clients.statement_gate import ClosedGateError, StatementGate
from otel_lightning.collector.store.sql_text import quote_literal
from otel_lightning.collector.store.syntax_tree import Node, deserialize, nodes, serialize

logger = logging.getLogger(__name__)

TABLE_FUNCTIONS = frozenset({
    "duckdb_columns", "duckdb_constraints", "duckdb_databases", "duckdb_functions",
    "duckdb_indexes", "duckdb_schemas", "duckdb_tables", "duckdb_types", "duckdb_views",
    "generate_series", "json_each", "json_tree", "pragma_table_info", "pragma_version", "range",
    "repeat", "unnest",
})  # fmt: skip
HARMLESS_VOLATILE = frozenset({"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})
NOT_FOR_READERS = frozenset({"current_setting", "getvariable", "json_serialize_plan", "pg_sleep"})
"""Functions without side effects that show state of the process, plan other statements, or wait."""
RELATION = re.compile(r"(?!(?:duckdb|pragma|pg)_)[^./\\:*?\[\]]+", re.IGNORECASE)
"""The name of a table. DuckDB would read a name with a dot or slash as a file if there is no such
table, and the excluded prefixes are DuckDB's own state."""
EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?P<runs>ANALYZE\s+)?", re.IGNORECASE)
SENT_ROWS = re.compile(r"\s*INSERT\b", re.IGNORECASE)
"""The statement with which Quack announces rows that a client uploads. Only the answer None refuses
the rows; a replacement statement would not."""

LOCKED = "SELECT error('Settings cannot be changed: the configuration has been locked.')"
"""Replaces every SET of a client. The serving process itself still changes its memory limit, so
DuckDB's own lock cannot cover all settings."""

FUNCTIONS = "system.main"
"""Database and schema of the functions that Python gives to DuckDB."""
ACTIVE = f"""
    SELECT 1 FROM quack_active_connections()
    WHERE state = 'active' AND epoch(query_started_at) > epoch(now()) - 3600
    AND NOT starts_with(query, 'SELECT {FUNCTIONS}.lightning_')
"""
"""Whether a statement runs, other than a call of one of our own functions.

A statement whose client has gone in the middle of its answer is listed for ever, so old ones do
not count."""
STARTED_SECONDS = 0.1
MOST_LOGGED = 20
"""Reasons why statements could not be judged that are logged, each once."""
SUFFIXES = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""Suffixes of the names of a database's files: DuckDB makes further ones beside the first."""


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
        self.tokens, self._parser, self._answer = tokens, parser, answer
        self._writers: set[str] = set()
        self._scanners: set[str] = set()
        self._logged: set[str] = set()
        self.gate = StatementGate()
        """Each statement passes it, also those of the page."""

    def authenticate(self, session: str, token: str, _served: str) -> bool:
        """Return whether a client has one of the tokens, and remember its role."""
        if _same(token, self.tokens.writer):
            self._writers.add(session)
            return True
        if _same(token, self.tokens.scanner):
            self._scanners.add(session)
            return True
        return _same(token, self.tokens.reader)

    def authorize(self, session: str, sql: str) -> str | None:
        """Return the statement that the server runs instead of this one; None refuses it."""
        cancellation = Cancellation()
        try:
            if session in self._writers and _writes(sql):
                self.gate.wait_to_write()
            with self.gate.running(cancellation):
                return self._decide(session, sql, cancellation)
        except ClosedGateError as error:
            return _refused(sql, str(error))
        except Exception as error:  # noqa: BLE001  Quack would only say "Authorization failed"
            self._log_once(repr(error))
            return _refused(sql, f"lightning-ingest could not judge the statement: {error}")

    def _log_once(self, reason: str) -> None:
        """Log why statements cannot be judged, each reason once: there may be many a second."""
        if reason in self._logged or len(self._logged) >= MOST_LOGGED:
            return
        self._logged.add(reason)
        # Without a traceback: a statement that is nested very deeply is one reason.
        logger.error("A statement could not be judged, as others like it: %s", reason)

    @contextmanager
    def alone(self, connection: duckdb.DuckDBPyConnection) -> Iterator[bool]:
        """Yield whether no client runs a statement. New statements wait until the block ends.

        Args:
            connection: A connection to the served database.
        """
        with self.gate.closed() as is_idle:
            yield is_idle and not self.is_active(connection)

    def is_active(self, connection: duckdb.DuckDBPyConnection) -> bool:
        """Return whether the server runs a statement that was authorized.

        Args:
            connection: A connection to the served database.
        """
        # The server lists a statement as active some time after it was authorized.
        is_starting = self.gate.seconds_since_end < STARTED_SECONDS
        return is_starting or bool(connection.execute(ACTIVE).fetchall())

    def _decide(self, session: str, sql: str, cancellation: Cancellation) -> str | None:
        if session in self._writers:
            return LOCKED if _changes_settings(sql) else sql
        if reason := self.refusal(sql):
            return _refused(sql, reason)
        if session in self._scanners:
            return sql
        return self._limited(self._quicker(sql), cancellation)

    def refusal(self, sql: str) -> str | None:
        """Return the reason why a reader may not run a statement; None if it may."""
        if "\0" in sql:
            return "A statement cannot contain the character NUL."
        tree = self._parse(EXPLAIN.sub("", sql, count=1))
        if tree["error"]:
            return f"This token reads only, by one SELECT at a time: {tree['error_message']}"
        if len(tree["statements"]) != 1:
            return "This token reads only, by one SELECT at a time."
        return next(filter(None, map(self._objection, nodes(tree))), None)

    def _limited(self, sql: str, cancellation: Cancellation) -> str:
        explained = EXPLAIN.match(sql)
        if self._answer is None or (explained and not explained["runs"]):
            return sql
        if explained:
            return "SELECT error('EXPLAIN ANALYZE has no limits, so this token cannot use it.')"
        plain, bounded = self.normalized(sql)
        return self._answer(plain, cancellation, bounded=bounded)

    def normalized(self, sql: str) -> tuple[str, bool]:
        """Return a SELECT without comments and semicolon, and whether its memory is bounded.

        Args:
            sql: A statement that `refusal` allows.
        """
        cursor = self._parser.cursor()
        serialized = serialize(cursor, sql)
        return deserialize(cursor, serialized), is_bounded(json.loads(serialized))

    def _quicker(self, sql: str) -> str:
        """Rewrite common attributes to their own columns if the statement reads only `spans`.

        Other tables may lack these columns, and a served statement cannot be retried here.
        """
        tree_nodes = nodes(self._parse(sql))
        tables = {node["table_name"] for node in tree_nodes if node.get("type") == "BASE_TABLE"}
        if tables != {"spans"}:
            return sql
        return attribute_columns.rewrite(sql, self._parser.cursor())

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
        rows = self._parser.cursor().execute(
            "SELECT function_name FROM duckdb_functions()"
            " WHERE function_type IN ('scalar', 'aggregate', 'macro') GROUP BY ALL"
            # One variant with side effects is enough to exclude a function's name.
            " HAVING NOT bool_or(coalesce(has_side_effects, false))"
        )
        names = {str(row[0]) for row in rows.fetchall()} - NOT_FOR_READERS
        return TABLE_FUNCTIONS | HARMLESS_VOLATILE | names

    def _parse(self, sql: str) -> Node:
        tree: Node = json.loads(serialize(self._parser.cursor(), sql))
        return tree


def prepare(
    connection: duckdb.DuckDBPyConnection, guard: ReadOnlyGuard, may_open: Sequence[Path] = ()
) -> None:
    """Install a guard and lock the database of a connection. Load its extensions before.

    From now on, the database has no access to other files, to the network or to extensions, and
    its settings cannot be changed.

    Args:
        connection: A connection to the database.
        guard: The guard.
        may_open: Further databases that may be attached.
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
    # With their whole names: for a shorter one DuckDB would look in the store's file first, and a
    # statement that waits would keep the file open, which `forget` replaces.
    for setting, name in (("authentication", "authenticate"), ("authorization", "authorize")):
        connection.execute(f"SET GLOBAL quack_{setting}_function = '{FUNCTIONS}.lightning_{name}'")
    allowed = ", ".join(quote_literal(f"{path}{end}") for path in may_open for end in SUFFIXES)
    connection.execute(f"SET GLOBAL allowed_paths = [{allowed}]")
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
    return duckdb.StatementType.SET in _types(sql)


def _writes(sql: str) -> bool:
    return not _types(sql) <= {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}


def _types(sql: str) -> set[duckdb.StatementType]:
    try:
        return {statement.type for statement in duckdb.extract_statements(sql)}
    except duckdb.Error:  # not valid SQL: the server reports the error
        return set()


def _refused(sql: str, reason: str) -> str | None:
    if SENT_ROWS.match(sql):
        logger.warning("A client sent rows that were refused, and is not told why: %s", reason)
        return None
    return f"SELECT error({quote_literal(reason)})"


def _not_callable(name: str) -> str:
    return f"This token reads only: the function '{name}' is not among those it may call."


def _same(token: str, secret: str) -> bool:
    return hmac.compare_digest(token.encode(), secret.encode())
