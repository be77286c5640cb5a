"""Find a rollout by its id, the beginning of its id, a trace id or a response id."""

from otel_lightning.collector.store import Store, StoreError, statement
from otel_lightning.collector.terminal.next_command import next_command

NEWEST = "last"
MOST = 5
"""Number of ids that an error lists at most."""
SEARCHED = ("exact", "prefixed", "of_trace", "of_response")


def find_rollout(store: Store, name: str) -> str:
    """Return the id of the rollout that a name means.

    Args:
        store: Any store.
        name: `last`, a rollout id or its beginning, a trace id, or a response id.

    Raises:
        StoreError: If the name means no rollout, or several; the message lists the nearest ids.
    """
    _check_schema(store)
    if name == NEWEST:
        rows = _ask(store, "newest")
        if not rows:
            raise StoreError(
                "The store has no rollout yet. Send traces to `lightning-ingest`, or load a file "
                f"with: {next_command('lightning-ingest load FILE', store)}"
            )
        return rows[0]
    # The most exact meaning first: a whole id is never ambiguous, even if another id begins with
    # it.
    for query in SEARCHED:
        rows = _ask(store, query, asked=name, most=MOST)
        if len(rows) > 1:
            raise StoreError(
                f"'{name}' matches several rollouts. Write more of the id: {_listed(rows)}."
            )
        if rows:
            return rows[0]
    nearest = _ask(store, "nearest", asked=name, most=MOST)
    hint = f"The nearest ids: {_listed(nearest)}." if nearest else "The store has no rollout yet."
    raise StoreError(f"No rollout, trace or response is named '{name}'. {hint}")


def _check_schema(store: Store) -> None:
    has_rollout_rows = store.query(statement(__package__, "has_rollout_rows"))
    if not len(has_rollout_rows):
        raise StoreError(
            "This store has an older schema, without the table 'rollout_rows'. Bring it up to date "
            f"with: {next_command('lightning-ingest derive', store)}"
        )


def _listed(ids: list[str]) -> str:
    return ", ".join(ids[: MOST - 1]) + (", …" if len(ids) >= MOST else "")


def _ask(store: Store, query: str, /, **values: str | int) -> list[str]:
    rows = store.query(statement(__package__, query, **values))
    return [str(rollout) for rollout in rows["rollout_id"].to_pylist()]
