"""SQL text: statements kept in `.sql` files, and values written as literals."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import TypeAlias

import duckdb

from otel_lightning.collector.store.errors import as_store_error

PLACEHOLDER = re.compile(r"\$([a-z_]+)\b")
"""A name to fill in; `'$.key'` and `'$[0]'`, which are JSON paths, are none."""


class Sql(str):
    """SQL of our own, such as a condition: a statement takes it as it is, unquoted."""

    __slots__ = ()


Value: TypeAlias = Sql | str | int | float | Iterable[str]


def quote_literal(text: str) -> str:
    """Write a text as a SQL literal.

    Example:
        >>> quote_literal("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def literal(value: Value) -> str:
    """Write a value as SQL: text quoted, several texts as a list for `IN`, numbers as they are.

    Example:
        >>> literal(["a", "b"])
        "('a', 'b')"
        >>> literal(True), literal(Sql("x > 1"))
        ('True', 'x > 1')
    """
    if isinstance(value, Sql):
        return str(value)
    if isinstance(value, str):
        return quote_literal(value)
    if isinstance(value, int | float):
        return repr(value)
    # `IN ()` is no SQL; nothing equals NULL.
    return "(" + (", ".join(map(quote_literal, value)) or "NULL") + ")"


def is_select(sql: str) -> bool:
    """Whether a text holds exactly one statement and that one only reads.

    Raises:
        StoreError: If it is not SQL.
    """
    with as_store_error():
        statements = duckdb.extract_statements(sql)
    readers = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    return len(statements) == 1 and statements[0].type in readers


def statement(package: str, name: str, **values: Value) -> str:
    """Read a statement from the folder `sql` of a package, with its values filled in.

    Args:
        package: The asker's `__package__`.
        name: Of the file, without `.sql`.
        values: One for each `$name` in the file.

    Raises:
        KeyError: If a `$name` in the file has no value.
    """
    return PLACEHOLDER.sub(lambda found: literal(values[found[1]]), _text(package, name))


@cache
def _text(package: str, name: str) -> str:
    return (resources.files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
