"""DuckDB's syntax trees of statements, as JSON: written, read back, and walked.

They take any connection of DuckDB, which only parses: the statements are not run.
"""

from collections.abc import Iterator
from typing import Any

Node = dict[str, Any]
"""An object of a syntax tree."""


def serialize(connection: Any, sql: str) -> str:
    """Return the syntax tree of a text of SQL; its `error` tells whether it has one."""
    return _text(connection, "json_serialize_sql(?::VARCHAR)", sql)


def deserialize(connection: Any, tree: str) -> str:
    """Write a syntax tree as SQL."""
    return _text(connection, "json_deserialize_sql(?::JSON)", tree)


def nodes(tree: Any) -> Iterator[Node]:
    """Yield every object of a syntax tree, at any depth, without recursion."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _text(connection: Any, expression: str, argument: str) -> str:
    return str(connection.execute(f"SELECT {expression}", [argument]).fetchall()[0][0])
