"""Policy versions in the store, and their promotions and rollbacks."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store, quote_literal, statement
from otel_lightning.learner.named_sql import append, arrow, read
from otel_lightning.learner.runs import TIME

Row = dict[str, Any]
TEXTS = "texts"
"""Name, in the column `before`, of how the flag was written before the change."""


def policies_of(store: Store, key: str | None = None) -> list[Row]:
    """Read the policies, oldest first, with `arms` as a dictionary and the gate's verdict.

    Args:
        store: An open store.
        key: The flag; None reads the policies of all flags.
    """
    gates = {
        row["run_id"]: json.loads(row["gate"]) if row["gate"] else {}
        for row in read(store, __package__, "gates").iter_rows(named=True)
    }
    return [
        {
            **row,
            "arms": json.loads(row["arms"] or "{}"),
            "learned": json.loads(row["parameters"] or "{}"),
            "gate": gates.get(row["run_id"], {}),
        }
        for row in read(store, __package__, "policies").iter_rows(named=True)
        if key in (None, row["key"])
    ]


def promotions_of(store: Store, key: str | None) -> list[Row]:
    """Read the recorded changes, oldest first, and the texts that rollback restores.

    Args:
        store: An open store.
        key: The flag; None reads the changes of all flags.
    """
    recorded = read(store, __package__, "promotions")
    rows = (recorded if key is None else recorded.filter(key=key)).to_dicts()
    found = [
        row | {name: json.loads(row[name] or "null") for name in ("arms", "before", "after")}
        for row in rows
    ]
    # Changes that an older release recorded have no texts.
    return [row | {TEXTS: (row["before"] or {}).pop(TEXTS, {})} for row in found]


def known_versions(store: Store, key: str) -> dict[str, dict[str, float]]:
    """Read the arms' probabilities of a flag by policy version, except for contextual policies."""
    known = {row["version"]: row["arms"] for row in policies_of(store, key)}
    served = {
        row["served_version"]: row["arms"]
        for row in promotions_of(store, key)
        if row["served_version"] and row["arms"]
    }
    # The recorded arms of a contextual version are means over inputs, which are nobody's
    # propensity.
    in_context = {version for version, *_ in versions_in_context(store, key)}
    return {name: arms for name, arms in (known | served).items() if name not in in_context}


def versions_in_context(store: Store, key: str) -> list[tuple[str, Row, dict[str, str]]]:
    """Read the contextual versions: name, targeting and metadata as served, SQL of the features."""
    specs = {row["version"]: row["learned"].get("expressions") for row in policies_of(store, key)}
    return [
        (row["served_version"], row["after"], specs[row["version"]])
        for row in promotions_of(store, key)
        if row["action"] != "rollback" and specs.get(row["version"])
    ]


def add_policy(store: Store, policy: Row) -> None:
    """Add a policy as a candidate."""
    schema: dict[str, Any] = dict.fromkeys(policy, pl.String()) | {"created": TIME}
    row = pl.DataFrame([policy | {"status": "candidate"}], schema=schema | {"status": pl.String()})
    append(store, "policies", row)


def forget_run(store: Store, run_id: str) -> None:
    """Delete the rows of a run that was killed, before it writes them again."""
    store.execute(statement(__package__, "forget_run", run_id=run_id))


@contextmanager
def promotion_recorded(store: Store, change: Row, status: str | None) -> Iterator[None]:
    """Record a change of the flag file and the new status of the policies, before the block.

    If the block raises, for example because the file cannot be replaced, both are withdrawn.

    Args:
        store: An open store.
        change: The columns of `promotions`.
        status: New status of the policy: `live` or `canary`. A new live policy retires the former
            live one; a canary does not. None changes no status.
    """
    schema: dict[str, Any] = dict.fromkeys(change, pl.String())
    row = pl.DataFrame([change], schema=schema | {"time": TIME, "share": pl.Float64()})
    of_key = f"key = {quote_literal(str(change['key']))}"
    # The rows as they were, to be restored if the block fails.
    former = read(store, __package__, "policies").filter(key=str(change["key"]))
    store.insert("promotions", arrow(row))
    try:
        if status is not None:
            store.replace("policies", arrow(_with_status(former, change, status)), of_key)
        yield
    # Also on Ctrl-C: a record of a change that was never made would mislead rollback.
    except BaseException:
        withdrawn = statement(
            __package__, "withdraw_promotion", key=str(change["key"]), time=str(change["time"])
        )
        store.execute(withdrawn)
        if status is not None:
            store.replace("policies", arrow(former), of_key)
        raise


def _with_status(policies: pl.DataFrame, change: Row, status: str) -> pl.DataFrame:
    former = ["live", "canary"] if status == "live" else ["canary"]
    chosen = pl.col("version") == pl.lit(change["version"])
    return policies.with_columns(
        status=pl.when(chosen.fill_null(value=False))
        .then(pl.lit(status))
        .when(pl.col("status").is_in(former))
        .then(pl.lit("retired"))
        .otherwise("status")
    )
