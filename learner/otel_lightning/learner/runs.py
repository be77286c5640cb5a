"""Rows of the table `runs`: a record of each run of the learner."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from secrets import token_hex
from typing import Any

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store, StoreError, StoreLike, opened
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.named_sql import arrow, read

TIME = pl.Datetime("ns")
SAME_CANDIDATE = frozenset({
    "accumulate", "alpha", "checkpointing", "clip", "flags", "held_out", "least_gain", "missing",
    "output", "promote", "propensities", "report_to", "resume", "reward", "reward_range", "run_id",
    "save_every", "since", "task_by", "until",
})  # fmt: skip
"""Settings by which two runs of equal data may differ that learn the same candidate."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command, created when the command starts."""

    command: str
    config: Mapping[str, Any]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    suffix: str = field(default_factory=lambda: token_hex(2))
    name: str | None = None
    """Id of the run if it must be known before, so that a killed run can go on."""

    @property
    def run_id(self) -> str:
        """Id of the run. Ids that are not given sort by start time."""
        return self.name or f"{self.started:%Y%m%dT%H%M%SZ}-{self.suffix}"

    def ended(
        self,
        *,
        outcome: str,
        fingerprint: str | None,
        metrics: Mapping[str, Any],
        gate: Mapping[str, Any] | None = None,
        artifact: str | None = None,
    ) -> pl.DataFrame:
        """Return the row of `runs` for a run that has ended."""
        row = {
            "run_id": self.run_id,
            "command": self.command,
            "config": to_json(self.config),
            "data_fingerprint": fingerprint,
            "started": self.started.replace(tzinfo=None),
            "ended": datetime.now(UTC).replace(tzinfo=None),
            "metrics": to_json(metrics),
            "gate": None if gate is None else to_json(gate),
            "outcome": outcome,
            "artifact": artifact,
        }
        schema = dict.fromkeys(row, pl.String()) | {"started": TIME, "ended": TIME}
        return pl.DataFrame([row], schema=schema)

    def failed(self, error: Exception) -> pl.DataFrame:
        """Return the row of `runs` for a run that failed, with the error."""
        return self.ended(outcome="failed", fingerprint=None, metrics={"error": str(error)})

    def policy(
        self, key: str, probabilities: Mapping[str, float], parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the columns of `policies`, except the status."""
        return {
            "key": key,
            "version": self.run_id,
            "arms": to_json(probabilities),
            "parameters": to_json(parameters),
            "run_id": self.run_id,
            "created": self.started.replace(tzinfo=None),
        }


@contextmanager
def recorded(run: Run, store: Store) -> Iterator[None]:
    """Record a run with outcome `failed` if the block raises."""
    try:
        yield
    except Exception as error:
        store.insert("runs", arrow(run.failed(error)))
        raise


@contextmanager
def recorded_in(location: StoreLike, run: Run) -> Iterator[None]:
    """Record a run with outcome `failed` if the block raises, in a store that may not be open.

    If the store cannot be opened either, only the first error is raised: it names the cause.
    """
    try:
        yield
    except Exception as error:
        # The store may be the cause of the error, such as one that another process holds.
        with suppress(StoreError), opened(location) as store:
            store.insert("runs", arrow(run.failed(error)))
        raise


def judged_before(store: Store, run: Run, data: str) -> int:
    """Count the other candidates of a command that a gate has judged by the same data.

    Candidates of equal settings are one: the same command again gives the same result.

    Args:
        store: An open store.
        run: The run of the present candidate.
        data: Fingerprint of its data.
    """
    rows = read(store, __package__, "judged_before", command=run.command, data=data)
    return other_candidates(json.loads(to_json(run.config)), map(json.loads, rows["config"]))


def other_candidates(own: Mapping[str, Any], configs: Iterable[Mapping[str, Any]]) -> int:
    """Count the different settings of other runs, without controls, which are never promoted.

    Example:
        >>> own, other = {"kl_weight": 0.1}, {"kl_weight": 0.2}
        >>> other_candidates(own, [own, other, other | {"promote": True}])
        1
    """
    learned = [config for config in configs if config.get("shuffle_rewards") is None]
    return len({_settings(config) for config in learned} - {_settings(own)})


def candidates_warning(count: int) -> list[str]:
    """Warn of a choice among several candidates, as a list of no sentence or one."""
    if not count:
        return []
    were_judged = number_of(count, "other candidate was", "other candidates were")
    sentence = (
        f"{were_judged} judged by the same held-out rollouts before. The gate's error probability "
        "is that of one candidate: among several, one may pass by chance. Confirm one that passes "
        "with new rollouts."
    )
    return [sentence]


def looks_warning(count: int, alpha: float) -> str | None:
    """Warn of several comparisons by the same tasks.

    Args:
        count: Number of other comparisons before this one.
        alpha: Error probability of one comparison.
    """
    if not count:
        return None
    others = number_of(count, "other comparison was", "other comparisons were")
    return (
        f"{others} judged by the same tasks before, with other candidates, seeds or numbers of "
        f"samples. The error probability of {alpha:g} is that of one comparison; for all "
        f"{count + 1} together each may have {alpha / (count + 1):.2g}. Confirm a candidate that "
        "passes with new tasks."
    )


def _settings(config: Mapping[str, Any]) -> str:
    learned_by = {name: value for name, value in config.items() if name not in SAME_CANDIDATE}
    return json.dumps(learned_by, sort_keys=True)


def fingerprint(frame: pl.DataFrame) -> str:
    """Hash the data that a run learned from; the order of the rows matters."""
    digest = sha256()
    for column in frame.iter_columns():
        # Names, types and lengths too, so that no two frames give the same bytes by moving values
        # from one column to the next.
        digest.update(f"{column.name} {column.dtype} {len(column)}".encode())
        for part in _bytes(column):
            digest.update(part)
    return digest.hexdigest()


def _bytes(column: pl.Series) -> Iterator[bytes | memoryview]:
    """Yield bytes that identify the values of a column.

    Numbers and texts are taken as they are in memory, because JSON of a million rows takes ten
    times longer.
    """
    if column.dtype.is_nested() or column.dtype == pl.Null:
        yield column.to_frame().write_ndjson().encode()
        return
    yield column.is_null().cast(pl.UInt8).to_numpy().data
    known = column.drop_nulls()
    if column.dtype == pl.String:
        # With the lengths: "ab", "c" and "a", "bc" have the same joined text.
        yield known.str.len_bytes().to_numpy().data
        yield _joined(known)
    elif column.dtype == pl.Boolean:
        yield known.cast(pl.UInt8).to_numpy().data
    else:
        yield known.to_physical().to_numpy().data


def _joined(texts: pl.Series) -> bytes | memoryview:
    """Join texts without nulls. Arrow keeps them in one buffer, so they are copied once."""
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, content = array.buffers()
    if content is None or not len(array):
        return b""
    # Arrow's large string: text i is content[ends[i] : ends[i + 1]]. The array may be a slice, so
    # its offset counts.
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(content)[ends[array.offset] : ends[array.offset + len(array)]]


def to_json(value: Any, *, ensure_ascii: bool = True) -> str:
    """Write a value as strict JSON: infinite numbers and NaN become null."""
    return json.dumps(_finite(value), allow_nan=False, ensure_ascii=ensure_ascii)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
