"""SQL text: read statements from `.sql` files, and write values as SQL literals."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import TypeAlias

from otel_lightning.collector.store.errors import StoreError, as_store_error

PLACEHOLDER = re.compile(r"\$([a-z_]+)\b")
"""A parameter such as `$table`. JSON paths such as `'$.key'` and `'$[0]'` do not match."""
COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
"""A line that is a comment."""
QUOTED_LINE = re.compile(r"\nLINE (\d+): (?!.*\nLINE \d+: )", re.DOTALL)
"""Where an error of DuckDB begins to quote a line of the statement."""


class Sql(str):
    """Trusted SQL, such as a condition, which is inserted into a statement without quotes."""

    __slots__ = ()


Value: TypeAlias = Sql | str | int | float | Iterable[str] | None


def quote_literal(text: str) -> str:
    """Write a text as a SQL literal.

    Example:
        >>> quote_literal("it's")
        "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Write a name, such as that of a table, as SQL.

    Example:
        >>> print(quote_name('my "table'))
        "my ""table"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(value: Value) -> str:
    """Write a value as SQL: text quoted, several texts as a list for `IN`, None as NULL.

    Example:
        >>> literal(["a", "b"])
        "('a', 'b')"
        >>> literal(True), literal(Sql("x > 1"))
        ('True', 'x > 1')
    """
    if isinstance(value, Sql):
        return str(value)
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return quote_literal(value)
    if isinstance(value, int | float):
        return repr(value)
    # `IN ()` is a syntax error. `IN (NULL)` is valid and matches nothing.
    return "(" + (", ".join(map(quote_literal, value)) or "NULL") + ")"


def list_literal(values: Iterable[Value]) -> str:
    """Write values as a SQL list.

    Example:
        >>> list_literal(["a", 2, None])
        "['a', 2, NULL]"
    """
    return "[" + ", ".join(map(literal, values)) + "]"


def wrapped(select: str, most_rows: int | None = None) -> str:
    """Wrap one SELECT as a source of rows; `without_wrapper` mends what an error quotes of it.

    The SELECT has lines of its own, since DuckDB's errors quote a line of the statement.

    Args:
        select: One SELECT without a semicolon at its end.
        most_rows: Most rows to return; None returns all.
    """
    limit = "" if most_rows is None else f" LIMIT {most_rows}"
    return f"FROM (\n{select}\n){limit}"


def without_wrapper(error: str) -> str:
    r"""Number the line that an error of DuckDB quotes as in the SELECT that was wrapped.

    Example:
        >>> without_wrapper("Binder Error: …\n\nLINE 2: SELECT x")
        'Binder Error: …\n\nLINE 1: SELECT x'
    """
    return QUOTED_LINE.sub(lambda match: f"\nLINE {max(int(match[1]) - 1, 1)}: ", error)


def is_select(sql: str) -> bool:
    """Return whether a text has exactly one statement and this statement only reads.

    Raises:
        StoreError: If the text is not valid SQL.
    """
    import duckdb  # only here: a statement is also written by those who do not run it

    try:
        sql.encode()
    except UnicodeEncodeError as error:  # a word of the command line may have any bytes
        raise StoreError(f"'{sql}' is not UTF-8 text. Write it as UTF-8.") from error
    with as_store_error():
        statements = duckdb.extract_statements(sql)
    readers = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    return len(statements) == 1 and statements[0].type in readers


def statement(package: str, name: str, **values: Value) -> str:
    """Read a statement from the folder `sql` of a package and fill in its parameters.

    Args:
        package: The caller's `__package__`.
        name: Name of the file, without `.sql`.
        values: One value for each `$name` in the file.

    Raises:
        KeyError: If a `$name` in the file has no value.
    """
    return PLACEHOLDER.sub(lambda match: literal(values[match[1]]), _text(package, name))


@cache
def _text(package: str, name: str) -> str:
    text = (resources.files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    # A comment may name parameters; a value with a line break would end it.
    return COMMENT.sub("", text)
