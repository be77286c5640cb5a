"""Rewrites statements for a reader process, which reads the tables of a served store.

Quack scans only one table at a time over one connection: a statement that joins two tables of one
attached database fails. And DuckDB's functions about the catalog describe the process that runs
them. So each table of a statement is read over a connection of its own, and what the serving
process says about its catalog is fetched first.
"""

import json
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.store.clients.bounded import ABOUT_THE_DATABASE
from otel_lightning.collector.store.sql_text import quote_literal, wrapped
from otel_lightning.collector.store.syntax_tree import Node, deserialize, nodes, serialize

REMOTE = "remote"
"""The attached database over whose connection one table can be read."""
MAIN = "main"


class Scans:
    """Attaches the store once for each table of a statement."""

    def __init__(self, connection: Any, address: str) -> None:
        """Use a connection that has the store attached.

        Args:
            connection: A connection of DuckDB.
            address: Address of the store's SQL server.
        """
        self._connection, self._address = connection, address
        self._attached = 0

    def spread(self, select: str) -> tuple[str, list[str] | None]:
        """Return a statement that reads each of its tables over a connection of its own.

        Returns:
            The statement, and the names of its columns if the new text would change them: an
            expression without an alias is named by its text.
        """
        tree = json.loads(serialize(self._connection, select))
        self._fetch_catalog(tree)
        scans = list(_tables(tree, frozenset()))
        for node in scans:
            node["catalog_name"], node["schema_name"] = "", ""
        _forget_schema(tree, {node["table_name"].lower() for node in scans})
        plain = deserialize(self._connection, json.dumps(tree))
        if len(scans) < 2:  # noqa: PLR2004  one table can be read over the first connection
            return plain, None
        names = self._connection.execute(f"DESCRIBE {wrapped(plain)}").fetchall()
        for number, node in enumerate(scans):
            node["catalog_name"], node["schema_name"] = self._database(number), MAIN
        spread = deserialize(self._connection, json.dumps(tree))
        return spread, [str(row[0]) for row in names]

    def _database(self, number: int) -> str:
        if number == self._attached:
            self._connection.execute(
                f"ATTACH {quote_literal(self._address)} AS {REMOTE}_{self._attached}"
            )
            self._attached += 1
        return f"{REMOTE}_{number}"

    def _fetch_catalog(self, tree: Node) -> None:
        """Replace the catalog's functions and views by tables that the serving process filled."""
        for number, node in enumerate(list(_about_the_catalog(tree))):
            source = dict(node, alias="", column_name_alias=[], sample=None)
            fetched = f"catalog_{number}"
            self._connection.execute(
                f"CREATE OR REPLACE TEMP TABLE {fetched} AS "
                f"FROM quack_query({quote_literal(self._address)}, ?)",
                [self._written(source)],
            )
            table = self._read(f"FROM temp.{MAIN}.{fetched}")["from_table"]
            table["alias"] = node["alias"] or _name(node)
            table["column_name_alias"] = node["column_name_alias"]
            node.clear()
            node.update(table)

    def _written(self, table: Node) -> str:
        statement = self._read("FROM t")
        statement["from_table"] = table
        whole = {"error": False, "statements": [{"node": statement, "named_param_map": []}]}
        return deserialize(self._connection, json.dumps(whole))

    def _read(self, select: str) -> Node:
        tree = json.loads(serialize(self._connection, select))
        node: Node = tree["statements"][0]["node"]
        return node


def _tables(tree: Any, hidden: frozenset[str]) -> Iterator[Node]:
    """Yield each reference to a table of the store.

    Args:
        tree: A part of a syntax tree.
        hidden: Lower-case names that mean common table expressions here.
    """
    if isinstance(tree, list):
        for one in tree:
            yield from _tables(one, hidden)
        return
    if not isinstance(tree, dict):
        return
    if tree.get("type") == "RECURSIVE_CTE_NODE":
        hidden |= {tree["cte_name"].lower()}
    if tree.get("type") == "BASE_TABLE" and _is_of_the_store(tree, hidden):
        yield tree
    # A common table expression sees those before it, and not itself unless it is recursive.
    for common in (tree.get("cte_map") or {}).get("map", ()):
        yield from _tables(common["value"], hidden)
        hidden |= {common["key"].lower()}
    for key, value in tree.items():
        if key != "cte_map":
            yield from _tables(value, hidden)


def _is_of_the_store(table: Node, hidden: frozenset[str]) -> bool:
    schema = table["schema_name"].lower()
    if table["catalog_name"] == "temp":  # fetched from the catalog
        return False
    return schema == MAIN or (not schema and table["table_name"].lower() not in hidden)


def _about_the_catalog(tree: Node) -> Iterator[Node]:
    for node in nodes(tree):
        kind = node.get("type")
        is_view = kind == "BASE_TABLE" and node["schema_name"].lower() not in {"", MAIN}
        if is_view or (kind == "TABLE_FUNCTION" and _name(node).startswith(ABOUT_THE_DATABASE)):
            yield node


def _name(table: Node) -> str:
    name = table["table_name"] if "table_name" in table else table["function"]["function_name"]
    return str(name).lower()


def _forget_schema(tree: Node, tables: set[str]) -> None:
    """Write `main.rewards.name` as `rewards.name`: each table has another database now."""
    for node in nodes(tree):
        names = node.get("column_names") or []
        for depth in (1, 2):  # main.rewards.name, or traces.main.rewards.name
            after = names[depth : depth + 1]
            is_qualified = len(names) > depth + 1 and names[depth - 1].lower() == MAIN
            if is_qualified and after[0].lower() in tables:
                del names[:depth]
                break
