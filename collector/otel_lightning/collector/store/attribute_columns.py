"""Promoted attributes: common keys that also have their own column in `spans`, beside the map.

DuckDB reads the whole map to get one key. So `attributes['gen_ai.request.model']` is answered from
the column `"gen_ai.request.model"`. The statement is rewritten in DuckDB's own syntax tree, never
as text. A statement that DuckDB cannot serialize, or that renames `attributes`, is not rewritten.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from otel_lightning.collector.store.syntax_tree import Node, deserialize, nodes, serialize

KEYS = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.system",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.conversation.id",
    "gen_ai.agent.name",
    "gen_ai.tool.name",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "openinference.span.kind",
    "llm.model_name",
    "session.id",
    "lightning.rollout.id",
    "lightning.task.id",
    "error.type",
)


def columns(attributes: pa.MapArray) -> dict[str, pa.Array]:
    """Extract each promoted key from the maps into its own column. Keys of a map are distinct.

    Args:
        attributes: Maps of text to text, shape [N].

    Returns:
        The values of each promoted key, shape [N]; NULL where a map does not have the key.
    """
    # Compare dictionary codes instead of texts: one integer comparison for each key and entry.
    codes = attributes.keys.dictionary_encode()
    numbers = codes.indices.to_numpy()
    code_of = {key: code for code, key in enumerate(codes.dictionary.to_pylist())}
    # owner[i] is the row whose map has entry i, for the entries of all maps in a row.
    owner = np.repeat(np.arange(len(attributes)), np.diff(attributes.offsets.to_numpy()))
    entries = {key: np.flatnonzero(numbers == code_of.get(key, -1)) for key in KEYS}
    return {
        key: _at(attributes.items, owner[places], places, len(attributes))
        for key, places in entries.items()
    }


def rewrite(sql: str, connection: Any) -> str:
    """Replace `attributes['a promoted key']` by the column of that key.

    Args:
        sql: One SELECT.
        connection: A connection of DuckDB, which parses the statement.

    Returns:
        An equivalent statement. It fails to bind for a table without these columns, such as
        `logs`; the caller then runs the original statement.
    """
    if "attributes" not in sql or not any(key in sql for key in KEYS):
        return sql
    tree = json.loads(serialize(connection, sql))
    if tree["error"] or _renames(tree):
        return sql
    for select in [node for node in nodes(tree) if "select_list" in node]:
        for expression in select["select_list"]:
            # Keep the name of the result column, which DuckDB derives from the expression.
            if not expression["alias"] and any(map(_key, nodes(expression))):
                expression["alias"] = _name(expression, connection)
    for node in list(nodes(tree)):
        if key := _key(node):
            _become_column(node, key)
    return deserialize(connection, json.dumps(tree))


def _at(values: pa.Array, rows: np.ndarray, places: np.ndarray, size: int) -> pa.Array:
    if not len(places):
        return pa.nulls(size, pa.string())
    # For each row the entry with its value; -1, which becomes NULL, where it has none.
    position = np.full(size, -1)
    position[rows] = places
    return values.take(pa.array(position, mask=position < 0))


def _key(node: Node) -> str | None:
    """Return the promoted key if a node is `attributes['key']` or `alias.attributes['key']`."""
    children = node.get("children") or []
    if node.get("type") != "ARRAY_EXTRACT" or len(children) != 2:  # noqa: PLR2004
        return None
    column, key = children
    if column.get("class") != "COLUMN_REF" or column["column_names"][-1].lower() != "attributes":
        return None
    value = key.get("value", {}).get("value") if key.get("class") == "CONSTANT" else None
    return value if value in KEYS else None


def _become_column(node: Node, key: str) -> None:
    column: Node = node["children"][0] | {"alias": node["alias"]}
    column["column_names"] = [*column["column_names"][:-1], key]
    node.clear()
    node.update(column)


def _renames(tree: Node) -> bool:
    """Return whether a statement uses `attributes` as an alias, so that it may not be the map."""
    return any(
        isinstance(value, str) and value.lower() == "attributes"
        for node in nodes(tree)
        for name, part in node.items()
        if name != "column_names"
        for value in _strings(part)
    )


def _strings(part: Any) -> list[Any]:
    if isinstance(part, list):
        return [item for item in part if isinstance(item, str)]
    return [part]


def _name(expression: Node, connection: Any) -> str:
    """Return the name that DuckDB gives to the column of an expression without an alias."""
    tree = json.loads(serialize(connection, "SELECT 1"))
    tree["statements"][0]["node"]["select_list"] = [expression]
    return deserialize(connection, json.dumps(tree)).removeprefix("SELECT ")
