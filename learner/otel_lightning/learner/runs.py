"""Rows of the table `runs`: a record of each run of the learner."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from secrets import token_hex
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store, StoreError, StoreLike, opened
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.named_sql import arrow, read

TIME = pl.Datetime("ns")
SELECTION = frozenset({
    "held_out", "missing", "propensities", "reward", "since", "task_by", "until",
})  # fmt: skip
"""Settings that choose the data: two runs of equal data learn the same, whatever these are."""
SAME_CANDIDATE = SELECTION | {
    "accumulate", "alpha", "checkpointing", "clip", "flags", "least_gain", "output", "promote",
    "report_to", "resume", "reward_range", "run_id", "save_every",
}  # fmt: skip
"""Settings by which two runs of equal data may differ that learn the same candidate."""
LONG_AGO = "0001-01-01"
OF_A_LOG = frozenset({"policy", "weights"})
"""Commands whose gate judges by the rollouts of a log. The log grows, and options may choose a part
of it, so two such runs may share held-out rollouts although their data differ."""


class JudgedRun(NamedTuple):
    """A run in which a gate judged a candidate."""

    command: str
    config: Mapping[str, Any]
    data: str | None
    """Fingerprint of the data that the run read."""
    started: datetime
    """In UTC, without a time zone."""


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
def recorded(store: StoreLike, run: Run) -> Iterator[None]:
    """Record a run with outcome `failed` if the block raises.

    If the record cannot be written either, only the first error is raised: it names the cause.
    """
    try:
        yield
    except Exception as error:
        # The store may be the cause of the error, such as one that another process holds.
        with suppress(StoreError), opened(store) as db:
            db.insert("runs", arrow(run.failed(error)))
        raise


def judged_before(store: Store, run: Run, data: str) -> int:
    """Count the other candidates of a command that a gate has judged by held-out data of a run.

    Args:
        store: An open store.
        run: The run of the present candidate.
        data: Fingerprint of its data.
    """
    before = read(store, __package__, "judged_before", command=run.command)
    others = [
        JudgedRun(run.command, json.loads(config), fingerprint, started)
        for config, fingerprint, started in before.iter_rows()
    ]
    started = run.started.replace(tzinfo=None)
    return other_candidates(
        JudgedRun(run.command, json.loads(to_json(run.config)), data, started), others
    )


def other_candidates(own: JudgedRun, others: Iterable[JudgedRun]) -> int:
    """Count the other candidates of runs that share held-out rollouts with one run.

    Runs with equal data and with equal settings for learning have the same candidate. So have runs
    whose settings are all equal: the data differ only because the log has grown. Controls with
    shuffled rewards are never promoted and do not count.

    Example:
        >>> time, kl = datetime(2026, 1, 1), {"kl_weight": 0.1}
        >>> own = JudgedRun("policy", kl, "data", time)
        >>> other = own._replace(config={"kl_weight": 0.2})
        >>> week = own._replace(config=kl | {"since": "2025-12-25"}, data="newest data")
        >>> other_candidates(own, [own, other, other._replace(data="grown data"), week])
        2
    """
    learned = [one for one in others if one.config.get("shuffle_rewards") is None]
    runs = [own, *(one for one in learned if _share_rollouts(own, one))]
    # Where the same data were chosen in several ways, the first way stands for all of them.
    chosen: dict[tuple[str | None, str], str] = {}
    for one in runs:
        chosen.setdefault((one.data, _learned_by(one.config)), _selection(one.config))
    return len({(settings, selection) for (_, settings), selection in chosen.items()}) - 1


def _share_rollouts(one: JudgedRun, other: JudgedRun) -> bool:
    """Return whether two runs of a command may have judged by some of the same rollouts."""
    if one.data == other.data:
        return True
    if one.command not in OF_A_LOG or _subject(one.config) != _subject(other.config):
        return False
    (since, until), (other_since, other_until) = _window(one), _window(other)
    return since < other_until and other_since < until


def _subject(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the flag of a policy, or the agent whose calls weights are learned from."""
    return config.get("key"), config.get("agent")


def _window(run: JudgedRun) -> tuple[datetime, datetime]:
    """Return the times between which the rollouts of a run began: none is newer than the run."""
    since, until = run.config.get("since"), run.config.get("until")
    ends = [datetime.fromisoformat(until)] if until else []
    return datetime.fromisoformat(since or LONG_AGO), min([run.started, *ends])


def candidates_warning(count: int, alpha: float, p_value: float | None, remedy: str) -> list[str]:
    """Warn of a choice among several candidates, as a list of no sentence or one.

    Args:
        count: Number of other candidates that were judged by the same held-out rollouts.
        alpha: Error probability of the gate.
        p_value: P-value of the gain of the present candidate; None if the gate refused it.
        remedy: How to confirm a candidate, as the end of a sentence.
    """
    if not count:
        return []
    were_judged = number_of(count, "other candidate was", "other candidates were")
    sentence = (
        f"{were_judged} judged by the same held-out rollouts, or by some of them, before. "
        f"{family_error(count + 1, alpha)} "
    )
    if p_value is not None and not math.isnan(p_value):
        passes = "passes" if p_value <= alpha / (count + 1) else "does not pass"
        sentence += f"At that level this one {passes} (p = {p_value:.2g}). "
    return [f"{sentence}Confirm one that passes {remedy}."]


def family_error(count: int, alpha: float, of: str = "candidates") -> str:
    """Say how probable it is that one of several candidates passes by chance, and what to do.

    It is at most the sum over the candidates (Boole's inequality), whatever they have in common.
    Bonferroni's correction divides the level by their number.

    Args:
        count: Number of candidates, or of comparisons.
        alpha: Error probability of one of them.
        of: What is counted.

    Example:
        >>> print(family_error(3, 0.05))
        With 3 candidates the probability that one passes by chance is up to 3 x 0.05 = 0.15, and \
not 0.05. To keep 0.05, judge each at the level 0.05 / 3 = 0.017 (Bonferroni).
    """
    level, total = f"{alpha:.3g}", min(count * alpha, 1.0)
    return (
        f"With {count} {of} the probability that one passes by chance is up to {count} x {level} = "
        f"{total:.3g}, and not {level}. To keep {level}, judge each at the level {level} / {count} "
        f"= {alpha / count:.2g} (Bonferroni)."
    )


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
        f"samples. {family_error(count + 1, alpha, 'comparisons')} Confirm a candidate that passes "
        "with new tasks."
    )


def _learned_by(config: Mapping[str, Any]) -> str:
    return _as_key({name: value for name, value in config.items() if name not in SAME_CANDIDATE})


def _selection(config: Mapping[str, Any]) -> str:
    return _as_key({name: config.get(name) for name in SELECTION})


def _as_key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


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
