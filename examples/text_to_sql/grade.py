"""Reward a query by execution: it must return the rows of the right query, on two databases."""

import json
import sqlite3
from collections import Counter
from typing import Any

import polars as pl
from database import rows_of

PLACES = 6


def execution(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Give 1 if the agent's last line is a query with the rows of the right one, else 0.

    Rows are compared as a multiset, so a lost DISTINCT is an error. A rollout without a right
    query has no reward.
    """
    judged = [
        _judge(output, expected) for output, expected in rollouts["output", "expected"].rows()
    ]
    return rollouts.select("rollout_id").with_columns(
        value=pl.Series([value for value, _ in judged], dtype=pl.Float64),
        explanation=pl.Series([reason for _, reason in judged], dtype=pl.String),
    )


def _judge(output: str | None, expected: str | None) -> tuple[float | None, str | None]:
    if not expected:
        return None, None
    right: dict[str, Any] = json.loads(expected)
    query = (output or "").strip().rpartition("\n")[2]
    for database in right["databases"]:
        if problem := _problem(database, query, right["query"]):
            return 0.0, problem
    return 1.0, None


def _problem(database: str, query: str, right: str) -> str | None:
    """Say what is wrong with a query on one database, if anything is."""
    try:
        rows = rows_of(database, query)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return f"fails: {error}"
    expected_rows = rows_of(database, right)
    if len(rows) != len(expected_rows):
        return f"returns {len(rows)} rows, expected {len(expected_rows)}"
    return (
        None if _multiset(rows) == _multiset(expected_rows) else "returns other rows than expected"
    )


def _multiset(rows: list[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(round(cell, PLACES) if isinstance(cell, float) else cell for cell in row)
        for row in rows
    )
