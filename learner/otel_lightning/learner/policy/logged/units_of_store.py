"""Read the values that rollouts share, and count rollouts with one draw as one task."""

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.learner.policy.assumptions.copies import drawn_together, with_telling_texts
from otel_lightning.learner.policy.assumptions.multiples import with_multiples_as_one
from otel_lightning.learner.policy.assumptions.units import (
    NO_UNITS,
    NOTHING_SHARED,
    Units,
    as_units,
    at_equal_times,
)
from otel_lightning.learner.policy.logged.staged import (
    SAMPLE,
    are_inputs_shared,
    known_keys,
    read_units,
    read_user_texts,
)
from otel_lightning.learner.policy.serving.joint import flags_of

PARTS = 4
"""Number of parts of a large log that are searched for kept arms, before all of it is read."""


def read_units_as_tasks(
    store: Store, choices: pl.DataFrame, key: str, *, by_user: bool
) -> tuple[pl.DataFrame, Units]:
    """Give all rollouts of a unit that keeps an arm, and all copies, a common task_hash.

    Args:
        store: An open store with staged choices.
        choices: The choices in time order.
        key: The flag, or several flags.
        by_user: Whether the user's texts may be read to find copies.
    """
    inputs = _copies(store, choices) if by_user else None
    shared = _shared(store, choices, flags_of(key, dict.fromkeys(known_keys(store))))
    return with_multiples_as_one(*as_units(choices, shared, inputs))


def read_copies_as_tasks(store: Store, choices: pl.DataFrame) -> tuple[pl.DataFrame, Units]:
    """Give all copies a common task_hash, and leave all other tasks as they are.

    Args:
        store: An open store with staged choices.
        choices: The choices in time order.
    """
    inputs = _copies(store, choices)
    return (choices, NO_UNITS) if inputs is None else as_units(choices, NOTHING_SHARED, inputs)


def _copies(store: Store, choices: pl.DataFrame) -> pl.DataFrame | None:
    """Read the inputs of copies: columns rollout_id and value; None if there are no copies.

    Whether there are copies is decided by a sample of the inputs, with all rollouts of each.
    """
    if not are_inputs_shared(store):
        return None
    tasks, every = choices["task"].n_unique(), max(choices.height // SAMPLE, 1)
    sample = choices.join(read_user_texts(store, every), on="rollout_id", maintain_order="left")
    if not drawn_together(with_telling_texts(sample, tasks)):
        return None
    with_texts = choices.join(read_user_texts(store, 1, staged=True), on="rollout_id")
    return with_telling_texts(with_texts, tasks).select("rollout_id", value="input")


def _shared(store: Store, choices: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Read the values that rollouts share.

    Some parts of a large log are read first, and the rest only if arms are kept in these parts.
    """
    equal, times = at_equal_times(choices), choices["time"].drop_nulls()
    if choices.height <= SAMPLE or len(times) <= SAMPLE:
        return pl.concat([read_units(store, keys), equal])
    size = SAMPLE // PARTS
    starts = np.linspace(0, len(times) - 1 - size, PARTS).astype(int).tolist()
    parts = [read_units(store, keys, between=(times[at], times[at + size])) for at in starts]
    # The choices are in time order, so a part of the time is a slice of them.
    sampled = pl.concat([choices.slice(at, size) for at in starts])
    kept_by = as_units(sampled, pl.concat(parts).unique())[1].names
    return pl.concat([read_units(store, keys, names=kept_by), equal]) if kept_by else equal
