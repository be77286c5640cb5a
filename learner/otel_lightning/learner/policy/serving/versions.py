"""Policy versions in the store, and their promotions and rollbacks."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store, statement
from otel_lightning.instrumentation.attributes import POLICY_VERSION
from otel_lightning.learner.named_sql import append, arrow, read
from otel_lightning.learner.policy.serving import joint
from otel_lightning.learner.promotions import Row
from otel_lightning.learner.runs import TIME, to_json

TEXTS = "texts"
"""Key in the JSON of the column `before`: the texts of the flag in the file before the change.
`rollback` restores them."""
RECORD = "record"
"""Key in the JSON of the column `before`: what the store said before the change. It is restored if
the change was recorded and not made."""


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
    """Read the recorded changes, oldest first, and what restores the file and the record.

    Args:
        store: An open store.
        key: The flag; None reads the changes of all flags.
    """
    recorded = read(store, __package__, "promotions")
    rows = (recorded if key is None else recorded.filter(key=key)).to_dicts()
    changes = [
        row | {name: json.loads(row[name] or "null") for name in ("arms", "before", "after")}
        for row in rows
    ]
    # Changes that an older release recorded have neither of the two keys.
    return [
        change | {name: (change["before"] or {}).pop(name, {}) for name in (TEXTS, RECORD)}
        for change in changes
    ]


def known_versions(store: Store, key: str) -> dict[str, dict[str, float]]:
    """Read the arms' probabilities of a flag by policy version, except for contextual policies."""
    learned = {row["version"]: row["arms"] for row in policies_of(store, key)}
    served = {
        row["served_version"]: row["arms"]
        for row in promotions_of(store, key)
        if row["served_version"] and row["arms"]
    }
    # The recorded arms of a contextual version are means over inputs. They are not the propensity
    # of any rollout.
    in_context = {version for version, *_ in versions_in_context(store, key)}
    return {name: arms for name, arms in (learned | served).items() if name not in in_context}


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
    values = {"run_id": run_id, "outcome": "promoted", "artifact": str(file)}
    store.execute(statement(__package__, "set_outcome", **values))


@contextmanager
def promotion_recorded(
    store: Store, change: Row, status: str | None, promoted: tuple[str, Path] | None = None
) -> Iterator[None]:
    """Record a change of the flag file, and the new status of the policies, before the block.

    If the block raises, for example because the file cannot be replaced, the record is withdrawn.
    If the process is killed in the block, `settled.settle` withdraws it.

    Args:
        store: An open store.
        change: The columns of `promotions`.
        status: New status of the policy: `live` or `canary`. A new live policy retires the former
            live one, also those of keys that share a flag with it; a canary does not. None changes
            no status.
        promoted: The run that made the policy and the flag file, if the policy gets all traffic.
    """
    policies = _in_common(read(store, __package__, "policies"), str(change["key"]))
    changed = policies if status is None else _with_status(policies, change, status)
    record: Row = {
        "statuses": _differing_statuses(policies, changed),
        "run": _outcome(store, promoted),
    }
    before = json.loads(change.get("before") or "{}") | {RECORD: record}
    columns = change | {"before": to_json(before)}
    schema: dict[str, Any] = dict.fromkeys(columns, pl.String())
    row = pl.DataFrame([columns], schema=schema | {"time": TIME, "share": pl.Float64()})
    store.insert("promotions", arrow(row))
    try:
        _set_statuses(store, _differing_statuses(changed, policies))
        if promoted is not None:
            mark_promoted(store, *promoted)
        yield
    # Also on Ctrl-C: a record of a change that was never made would mislead rollback.
    except BaseException:
        withdraw(store, change | {RECORD: record})
        raise


def withdraw(store: Store, change: Row) -> None:
    """Delete the record of a change that was not made; the store says again what it said before.

    Args:
        store: An open store.
        change: The change as `promotions_of` returns it.
    """
    record = change[RECORD]
    _set_statuses(store, record.get("statuses") or {})
    if run := record.get("run"):
        store.execute(statement(__package__, "set_outcome", **run))
    # Last: if this process is killed before, the next one withdraws the change again.
    values = {"key": str(change["key"]), "time": str(change["time"])}
    store.execute(statement(__package__, "withdraw_promotion", **values))


def _in_common(policies: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return the policies of a key, and of those that share a flag with it.

    A change of `prompt+model` also changes what is live of `prompt`.
    """
    keys = [name for name in policies["key"].unique() if joint.in_common(name, key)]
    return policies.filter(pl.col("key").is_in(keys))


def _differing_statuses(policies: pl.DataFrame, others: pl.DataFrame) -> dict[str, str]:
    """Return the status of each policy that has another one in `others`."""
    rows = zip(policies["version"], policies["status"], others["status"], strict=True)
    return {version: status for version, status, other in rows if status != other}


def _set_statuses(store: Store, statuses: Mapping[str, str]) -> None:
    for version, status in statuses.items():
        store.execute(statement(__package__, "set_status", version=version, status=status))


def _outcome(store: Store, promoted: tuple[str, Path] | None) -> Row | None:
    """Return the outcome and the artifact that a run has now, or None if there is no such run."""
    if promoted is None:
        return None
    rows = read(store, __package__, "outcome", run_id=promoted[0]).to_dicts()
    return rows[0] if rows else None


def _with_status(policies: pl.DataFrame, change: Row, status: str) -> pl.DataFrame:
    replaced = ["live", "canary"] if status == "live" else ["canary"]
    chosen = pl.col("version") == pl.lit(change["version"])
    changed = policies.with_columns(
        status=pl.when(chosen.fill_null(value=False))
        .then(pl.lit(status))
        .when(pl.col("status").is_in(replaced))
        .then(pl.lit("retired"))
        .otherwise("status")
    )
    # A rollback of `prompt+model` may bring back a policy of `prompt` alone.
    for key, served in _of_each_flag(change).items():
        version, is_canary = served.split("@")[0], "@" in served
        is_served = (pl.col("key") == key) & (pl.col("version") == version)
        status_now = pl.when(is_served).then(pl.lit("canary" if is_canary else "live"))
        changed = changed.with_columns(status=status_now.otherwise("status"))
    return changed


def _of_each_flag(change: Row) -> dict[str, str]:
    """Return the version that each flag serves after a change of several flags together."""
    after = json.loads(change.get("after") or "{}")
    parts = (after.get("metadata") or {}).get(joint.FLAGS) or {}
    versions = {key: part["metadata"].get(POLICY_VERSION) for key, part in parts.items()}
    return {key: str(version) for key, version in versions.items() if version is not None}
