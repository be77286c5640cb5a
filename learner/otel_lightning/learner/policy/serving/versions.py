"""Policy versions in the store, and their promotions and rollbacks."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store, statement
from otel_lightning.collector.store.sql_text import list_literal
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.learner.named_sql import append, arrow, read
from otel_lightning.learner.policy.serving import joint
from otel_lightning.learner.runs import TIME

Row = dict[str, Any]
TEXTS = "texts"
"""Key in the JSON of the column `before`: the texts of the flag in the file before the change.
`rollback` restores them."""


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
    # The recorded arms of a contextual version are means over inputs. They are not the propensity
    # of any rollout.
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


def drawn_with_others(store: Store, key: str) -> list[str]:
    """List the served versions that drew a flag of this key together with a flag outside it.

    The rewards of such choices belong to combinations: no variant has earned them alone.
    """
    flags = set(key.split(joint.SEPARATOR))
    return sorted(
        {
            str(row["served_version"])
            for row in promotions_of(store, None)
            if row["action"] != "rollback"
            and row["key"] != key
            and joint.in_common(key, row["key"])
            and set(row["key"].split(joint.SEPARATOR)) - flags
        }
    )


def add_policy(store: Store, policy: Row) -> None:
    """Add a policy as a candidate."""
    schema: dict[str, Any] = dict.fromkeys(policy, pl.String()) | {"created": TIME}
    row = pl.DataFrame([policy | {"status": "candidate"}], schema=schema | {"status": pl.String()})
    append(store, "policies", row)


def forget_run(store: Store, run_id: str) -> None:
    """Delete the rows of a run that was killed, before it writes them again."""
    store.execute(statement(__package__, "forget_run", run_id=run_id))


def mark_promoted(store: Store, run_id: str, file: Path) -> None:
    """Record that what a run learned or judged is in the flag file now."""
    store.execute(statement(__package__, "mark_promoted", run_id=run_id, artifact=str(file)))


@contextmanager
def promotion_recorded(store: Store, change: Row, status: str | None) -> Iterator[None]:
    """Record a change of the flag file and the new status of the policies, before the block.

    If the block raises, for example because the file cannot be replaced, both are withdrawn.

    Args:
        store: An open store.
        change: The columns of `promotions`.
        status: New status of the policy: `live` or `canary`. A new live policy retires the former
            live one, also those of keys that share a flag with it; a canary does not. None changes
            no status.
    """
    schema: dict[str, Any] = dict.fromkeys(change, pl.String())
    row = pl.DataFrame([change], schema=schema | {"time": TIME, "share": pl.Float64()})
    # The rows as they were, to be restored if the block fails. `prompt+model` also changes what is
    # live of `prompt`.
    everything = read(store, __package__, "policies")
    keys = [key for key in everything["key"].unique() if joint.in_common(key, str(change["key"]))]
    former = everything.filter(pl.col("key").is_in(keys))
    of_keys = f"key IN {list_literal(keys)}"
    store.insert("promotions", arrow(row))
    try:
        if status is not None:
            store.replace("policies", arrow(_with_status(former, change, status)), of_keys)
        yield
    # Also on Ctrl-C: a record of a change that was never made would mislead rollback.
    except BaseException:
        withdrawn = statement(
            __package__, "withdraw_promotion", key=str(change["key"]), time=str(change["time"])
        )
        store.execute(withdrawn)
        if status is not None:
            store.replace("policies", arrow(former), of_keys)
        raise


def _with_status(policies: pl.DataFrame, change: Row, status: str) -> pl.DataFrame:
    former = ["live", "canary"] if status == "live" else ["canary"]
    chosen = pl.col("version") == pl.lit(change["version"])
    changed = policies.with_columns(
        status=pl.when(chosen.fill_null(value=False))
        .then(pl.lit(status))
        .when(pl.col("status").is_in(former))
        .then(pl.lit("retired"))
        .otherwise("status")
    )
    # A rollback of `prompt+model` may bring back a policy of `prompt` alone.
    for key, served in _of_each_flag(change).items():
        version, is_canary = served.split("@")[0], "@" in served
        mine = (pl.col("key") == key) & (pl.col("version") == version)
        now = pl.when(mine).then(pl.lit("canary" if is_canary else "live"))
        changed = changed.with_columns(status=now.otherwise("status"))
    return changed


def _of_each_flag(change: Row) -> dict[str, str]:
    """Return the version that each flag serves after a change of several flags together."""
    after = json.loads(change.get("after") or "{}")
    parts = (after.get("metadata") or {}).get(joint.FLAGS) or {}
    versions = {key: part["metadata"].get(POLICY_VERSION) for key, part in parts.items()}
    return {key: str(version) for key, version in versions.items() if version is not None}
