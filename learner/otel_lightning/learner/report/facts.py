"""Facts of a run for its report, read from the store."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from otel_lightning.collector.store import Store, statement
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.runs import JudgedRun, other_candidates

CURVES = ("loss", "eval_loss", "grad_norm", "learning_rate", "entropy", "mean_token_accuracy")
"""Metrics whose curve is drawn, in this order; the others are in the table of the last values."""
QUANTILE = "importance_weight/q"

PAGE = "otel_lightning.collector.page"
"""The package whose statement counts the data, so that the report and the page agree."""

Row = Mapping[str, Any]
Curve = list[tuple[int, float]]
"""Pairs of a step and the value of a metric at it."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of `runs`, with its JSON parsed."""

    run_id: str
    command: str
    outcome: str
    artifact: str | None
    data_fingerprint: str | None
    started_ns: int
    ended_ns: int | None
    config: Row
    metrics: Row
    gate: Row
    has_curve: bool
    """Whether steps of a training were recorded."""

    @property
    def has_findings(self) -> bool:
        """Whether it learned or measured something, which a run that failed mostly did not."""
        return self.outcome != "failed" or bool(self.gate) or self.has_curve

    @property
    def is_control(self) -> bool:
        """Whether rewards were shuffled."""
        return self.config.get("shuffle_rewards") is not None

    @property
    def subject(self) -> str:
        """The flag of a policy, or the base model of weights."""
        return str(self.config.get("key") or self.config.get("model") or self.command)

    @property
    def judged(self) -> JudgedRun:
        """The candidate that a gate judged."""
        started = datetime.fromtimestamp(self.started_ns / 1e9, UTC).replace(tzinfo=None)
        return JudgedRun(self.command, self.config, self.data_fingerprint, started)

    def is_like(self, other: "RunRow") -> bool:
        """Return whether another run learned the same kind of thing."""
        return (self.command, self.subject) == (other.command, other.subject)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that every kind of run has."""

    run: RunRow
    skipped: tuple[RunRow, ...]
    """Newer runs that failed and have nothing to report, the newest first."""
    previous: RunRow | None
    """The newest earlier run of the same kind, without shuffled rewards."""
    control: RunRow | None
    """The nearest run of the same kind with shuffled rewards."""
    other_candidates: int
    """Number of other candidates that were judged by some of the same held-out rollouts."""
    policy: Row | None
    funnel: Row
    """Counts from spans to transitions: those of the web page, then those of the splits."""
    excluded: tuple[Row, ...]
    curves: Mapping[str, Curve]
    quantiles: tuple[tuple[float, float], ...]
    """Pairs of a percentage and the importance weight at it."""
    queries: Mapping[str, str]
    """The SQL of each question, by name."""


class RecordedQueries:
    """Asks a store, and remembers the statements for the report."""

    def __init__(self, store: Store) -> None:
        """Take an open store."""
        self._store = store
        self.statements: dict[str, str] = {}

    def rows(
        self, query: str, /, package: str = __package__, **values: Any
    ) -> list[dict[str, Any]]:
        """Run a statement of a package's folder `sql`, by default of this package's."""
        sql = statement(package, query, **values)
        self.statements[query] = sql.strip()
        return self._store.rows(sql)


def read_facts(queries: RecordedQueries, run_or_command: str | None) -> Facts:
    """Read the facts of a run that every report shows.

    Args:
        queries: Asks the store.
        run_or_command: Id of the run; `policy` or `weights` for the newest of these with something
            to report; None for the newest of all.

    Raises:
        DataError: If there is no such run.
    """
    runs = [*_runs(queries.rows("runs"))]
    run, skipped = _choose(runs, run_or_command)
    curves: dict[str, Curve] = defaultdict(list)
    for row in queries.rows("curve", run_id=run.run_id):
        curves[row["name"]].append((row["step"], row["value"]))
    judged = [other for other in runs if other.gate]
    return Facts(
        run=run,
        skipped=skipped,
        previous=_previous(run, judged),
        control=None if run.is_control else _nearest_control(run, judged),
        other_candidates=other_candidates(
            run.judged, (other.judged for other in judged if other.command == run.command)
        ),
        policy=next(iter(queries.rows("policy", run_id=run.run_id)), None),
        funnel=queries.rows("data_counts", package=PAGE)[0] | queries.rows("transition_counts")[0],
        excluded=tuple(queries.rows("excluded")),
        curves={name: curves[name] for name in CURVES if len(curves.get(name, ())) > 1},
        quantiles=_quantiles(curves),
        queries=queries.statements,
    )


def _choose(runs: list[RunRow], run_or_command: str | None) -> tuple[RunRow, tuple[RunRow, ...]]:
    """Return the run to report on, and the newer ones that have nothing to report."""
    if not runs:
        raise DataError(
            "No policy or weights were learned in this store yet. Learn first, by the command "
            "`policy` or `weights` of lightning-learn."
        )
    matching = [run for run in runs if run_or_command in (None, run.run_id, run.command)]
    if not matching:
        newest_ids = ", ".join(f"{run.run_id} ({run.command})" for run in runs[-5:])
        raise DataError(
            f"No run has the id or the command '{run_or_command}'. The newest runs: {newest_ids}."
        )
    newest = list(reversed(matching))
    # If none has anything to report, the newest one says at least why it failed.
    index = next((n for n, run in enumerate(newest) if run.has_findings), 0)
    return newest[index], tuple(newest[:index])


def _runs(rows: Iterable[Row]) -> Iterator[RunRow]:
    """Yield the runs that learned; weights learn from rewards as the transitions have them."""
    shuffled = reward = None
    for row in rows:
        parsed = {name: json.loads(row[name] or "{}") for name in ("config", "metrics", "gate")}
        config = parsed["config"]
        if row["command"] == "transitions":
            # Rows are in time order: a training learned from the transitions that were built last
            # before it.
            if row["outcome"] == "done":
                shuffled, reward = config.get("shuffle_rewards"), config.get("reward")
            continue
        if row["command"] == "weights":
            config["reward"] = reward
            if config.get("shuffle_rewards") is None:
                config["shuffle_rewards"] = shuffled
        yield RunRow(**{**row, **parsed})


def _previous(run: RunRow, judged: Iterable[RunRow]) -> RunRow | None:
    """Return the newest earlier run of the same kind, without shuffled rewards."""
    alike = (other for other in judged if other.is_like(run) and not other.is_control)
    earlier = (other for other in alike if other.started_ns < run.started_ns)
    return max(earlier, key=lambda other: other.started_ns, default=None)


def _nearest_control(run: RunRow, judged: Iterable[RunRow]) -> RunRow | None:
    """Return the run of the same kind with shuffled rewards that is nearest in time."""
    controls = (other for other in judged if other.is_like(run) and other.is_control)
    return min(controls, key=lambda other: abs(other.started_ns - run.started_ns), default=None)


def _quantiles(curves: Mapping[str, Curve]) -> tuple[tuple[float, float], ...]:
    """Return the last quantiles of the importance weights: (percentage, weight) pairs, in order."""
    of_weights = {name: curve for name, curve in curves.items() if name.startswith(QUANTILE)}
    last = ((float(n.removeprefix(QUANTILE)), curve[-1][1]) for n, curve in of_weights.items())
    return tuple(sorted(last))
