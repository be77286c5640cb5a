"""Rules give rewards to stored rollouts: a Python function, a SELECT or a composition in TOML.

Scores have the name of their rule and a fingerprint of its text. Applying a rule again replaces
only its own scores. `transitions` and `policy` learn from them if `--reward` names the rule.

`apply_rule` is below; `python.py`, `sql.py` and `shaping.py` (with `composition.py`) run a rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from otel_lightning.collector.store import Store, StoreLike, opened
from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.score.rules import python, shaping, sql
from otel_lightning.learner.score.rules.outcome import Exclusion, Scored, checked
from otel_lightning.learner.score.rules.results import as_scores
from otel_lightning.learner.score.rules.spec import Rule, is_spec, name_of, read_rule
from otel_lightning.learner.score.table import replace_scores

__all__ = [
    "Applied",
    "Exclusion",
    "apply_rule",
    "grade_rollouts",
    "is_spec",
    "name_of",
    "resolve_reward",
]

KINDS = {".py": python.run, ".sql": sql.run, ".toml": shaping.run}


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of a rule: the name and number of its rewards, and the rollouts it left out."""

    name: str
    source: str
    scored: int
    left_out: tuple[Exclusion, ...]

    def __str__(self) -> str:
        scores = f"Rule '{self.name}' gave {number_of(self.scored, 'score')}."
        return "\n".join([scores, *map(str, self.left_out)])


def apply_rule(store: StoreLike, spec: str) -> Applied:
    """Score the stored rollouts by a rule, and replace the scores that it gave before.

    Args:
        store: Path of the store, or an open store.
        spec: `FILE.py:FUNCTION`, `FILE.sql` or `FILE.toml`.

    Returns:
        The name that selects its rewards, the number of scores, and the exclusions.

    Raises:
        DataError: If the rule cannot be read or run, or gives no score. Nothing is changed then.
        StoreError: If the store cannot be read or written.
    """
    rule = read_rule(spec)
    with opened(store) as db:
        return _apply(db, rule)


def grade_rollouts(
    store: Store, spec: str, rollouts: Sequence[str], given: pl.DataFrame | None = None
) -> Applied:
    """Score some rollouts by a rule, and replace only their scores.

    Rollouts that `lightning-learn run` attempted are scored even without a model call. It is no
    error if the rule scores none.

    Args:
        store: An open store.
        spec: `FILE.py:FUNCTION`, `FILE.sql` or `FILE.toml`.
        rollouts: Ids of the rollouts to score.
        given: Scores to write without asking the rule: columns rollout_id and value.

    Raises:
        DataError: If the rule cannot be read or run.
        StoreError: If the store cannot be read or written.
    """
    rule = read_rule(spec)
    _refuse_taken_name(store, rule)
    calls = read(store, __package__, "ids")
    calls_and_rollouts = pl.concat([calls, pl.DataFrame({"rollout_id": rollouts})], how="diagonal")
    is_python = rule.path.suffix == ".py"
    all_scored = (
        python.run(store, rule, rollouts) if is_python else KINDS[rule.path.suffix](store, rule)
    )
    # A rule in SQL or TOML scores the whole store; only this run's rollouts are replaced.
    own_scores = all_scored.scores.filter(pl.col("rollout_id").is_in(list(rollouts)))
    scored = checked(Scored(own_scores, all_scored.left_out), calls_and_rollouts)
    whole = scored.scores
    if given is not None and given.height:
        forced = as_scores(rule, given)
        whole = pl.concat([whole, forced])
    # The trace id of a scored call, which `scores` keeps beside the span id.
    traced = whole.with_columns(source=pl.lit(rule.source)).join(
        calls, on=["rollout_id", "span_id"], how="left"
    )
    among = [*rollouts, *(given["rollout_id"].to_list() if given is not None else ())]
    replace_scores(store, rule.prefix, traced, among)
    count = whole.filter(name=rule.name).height
    return Applied(rule.name, rule.source, count, scored.left_out)


def _apply(store: Store, rule: Rule) -> Applied:
    _refuse_taken_name(store, rule)
    calls, progress = read(store, __package__, "ids"), Progress(f"Rule {rule.name}", 2)
    scored = checked(KINDS[rule.path.suffix](store, rule), calls)
    progress.report(1, "scored")
    whole = scored.scores.filter(name=rule.name).height
    applied = Applied(rule.name, rule.source, whole, scored.left_out)
    if not whole:
        nothing = "The store has no rollouts." if calls.is_empty() else "It gave no row."
        reasons = " ".join(map(str, applied.left_out)) or nothing
        raise DataError(f"Rule '{rule.spec}' gives no score named '{rule.name}'. {reasons}")
    scores = scored.scores.with_columns(source=pl.lit(rule.source))
    traced = scores.join(calls, on=["rollout_id", "span_id"], how="left")
    replace_scores(store, rule.prefix, traced)
    progress.report(2, "written")
    return applied


def resolve_reward(store: Store, reward: str | None) -> tuple[str | None, Applied | None]:
    """Resolve `--reward`: the name of existing rewards, or a rule, which is applied now.

    Returns:
        The name of the rewards, and the result of the rule if there is one. A name of None means
        all received rewards.
    """
    if reward is None or not is_spec(reward):
        return reward, None
    applied = apply_rule(store, reward)
    return applied.name, applied


def _refuse_taken_name(store: Store, rule: Rule) -> None:
    """Refuse a rule with the name of rewards that come from elsewhere: they would mix."""
    own = f"{rule.prefix}@"
    others = read(store, __package__, "taken_name", reward=rule.name, own=own).row(0, named=True)
    if others["n"]:
        raise DataError(
            f"There are {others['n']} rewards named '{rule.name}' already, from "
            f"'{others['source']}', which the rule '{rule.spec}' would mix with its own. Rename "
            "the rule: its function, its file, or `name` in TOML."
        )
