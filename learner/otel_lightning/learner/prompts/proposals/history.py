"""The table `prompts`: earlier proposals and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from otel_lightning.collector.store import Store, quote_literal
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.prompts.serving.share import candidates_of
from otel_lightning.learner.runs import TIME

MOST_TRIED = 8
"""Number of earlier prompts that did not help which the model is shown."""
LISTS = {"records": pl.List(pl.String())}


@dataclass(frozen=True, slots=True)
class History:
    """Earlier proposals for a flag."""

    count: int
    """Number of answers that were read before: a new run asks for other samples."""
    hashes: frozenset[str]
    failed: tuple[str, ...]
    """Texts that were tried and are retired now, oldest first, at most `MOST_TRIED`."""


def history(store: Store, key: str, retired: frozenset[str]) -> History:
    """Read the earlier proposals for a flag.

    Args:
        store: An open store.
        key: The flag.
        retired: Variants that the flag does not serve any more.
    """
    rows = read(store, __package__, "proposals", key=key)
    # Only variants that were served and retired: a refused text was never tried.
    tried = rows.filter(pl.col("variant").is_in(sorted(retired)))["text"].drop_nulls().to_list()
    hashes = frozenset(rows["text_hash"].drop_nulls().to_list())
    return History(rows.height, hashes, tuple(tried[-MOST_TRIED:]))


def retired_variants(document: Mapping[str, Any], key: str, live: Mapping[str, float]) -> set[str]:
    """Return the proposed variants that the flag has but does not serve."""
    variants = document["flags"][key].get("variants") or {}
    return {name for name in candidates_of(document, key) if name in variants and name not in live}


def unfinished(store: Store, key: str) -> str | None:
    """Return the id of a run that recorded its proposals and was killed before it ended."""
    run_ids = read(store, __package__, "unfinished", key=key)["run_id"].to_list()
    return run_ids[0] if run_ids else None


def proposals_of(store: Store, run_id: str) -> list[dict[str, Any]]:
    """Read the proposals of a run in the order of their calls."""
    return read(store, __package__, "proposals_of_run", run_id=run_id).to_dicts()


def replace_proposals(store: Store, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of a run into the table `prompts`; its former rows are replaced."""
    if rows:
        schema: dict[str, Any] = dict.fromkeys(rows[0], pl.String())
        schema |= LISTS | {"call": pl.Int32(), "created": TIME}
        frame = pl.DataFrame(rows, schema=schema)
        store.replace("prompts", arrow(frame), f"run_id = {quote_literal(run_id)}")
