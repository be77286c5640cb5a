"""Read the data that a policy is learned from, and refuse data without anything to learn."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.arrays import Booleans
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.drift import live_at_once
from otel_lightning.learner.policy.logged.choices import LoggedChoices, as_choices, read_choices
from otel_lightning.learner.policy.request import Request
from otel_lightning.learner.policy.serving import flag_document
from otel_lightning.learner.policy.serving.canary import stable_document
from otel_lightning.learner.policy.serving.settled import settle
from otel_lightning.learner.policy.serving.versions import known_versions, promotions_of
from otel_lightning.learner.policy.softmax.choice_arrays import Choices
from otel_lightning.learner.policy.softmax.features import Features, read_features
from otel_lightning.learner.score import rules
from otel_lightning.learner.task_splits import TRAIN


class LearningData(NamedTuple):
    """The data that a policy is learned from, and the live policy that it is compared with."""

    logged: LoggedChoices
    rows: pl.DataFrame
    """The choices with a reward, then those without one."""
    spec: dict[str, str]
    """SQL expression of each declared feature."""
    features: Features
    """Values of the features for each row."""
    document: dict[str, Any]
    """The flag file with the live policy: during a canary, the policy before the canary."""
    live: dict[str, float]
    """Share of the traffic that the live policy gives each arm."""
    rule: str | None
    """Report of the rule that gave the rewards; None without a rule."""

    @property
    def in_train(self) -> Booleans:
        """Whether each row is for training, shape [N]; the others are held out."""
        return (self.rows["split"] == TRAIN).to_numpy()


def read_learning_data(
    store: Store, request: Request, document: dict[str, Any], spec: dict[str, str]
) -> LearningData:
    """Read the logged choices, their features and the live policy.

    Args:
        store: An open store.
        request: The flag, the reward and the window.
        document: The content of the flag file.
        spec: SQL expression of each declared feature.

    Raises:
        DataError: If there are no usable choices, or two policies were live at once.
    """
    settle(store, request.key, request.flags)
    # The rule comes after all that can be refused without it: it may run for long.
    name, rule = rules.resolve_reward(store, request.reward)
    window = replace(request.window, reward=name)
    logged = read_choices(store, window, known_versions(store, request.key))
    _check_one_live(store, request.key, logged.rows)
    rows = logged.rows
    if logged.unrewarded.height:
        rows = pl.concat([rows, logged.unrewarded])
    stable = stable_document(store, request.key, document)
    return LearningData(
        logged=logged,
        rows=rows,
        spec=spec,
        features=read_features(store, spec, rows["rollout_id"]),
        document=stable,
        live=flag_document.live_shares(stable, request.key),
        rule=str(rule) if rule else None,
    )


def check_served(document: dict[str, Any], request: Request) -> None:
    """Refuse a flag that serves fewer than two variants: there is nothing to choose.

    Raises:
        DataError: If it does, or has no shares that can be compared with.
    """
    served = set(flag_document.variants(document, request.key))
    if len(served - flag_document.retired(document, request.key)) < 2:  # noqa: PLR2004 - a choice needs two
        raise DataError(
            f"Flag '{request.key}' in '{request.flags}' may serve fewer than two variants, so "
            "there is nothing to choose. Add a variant, or raise a weight of 0."
        )
    # The gain over a flag that serves nothing would be the whole value of the new policy.
    flag_document.check_serves(document, request.key, request.flags)


def number_arms(rows: pl.DataFrame, document: dict[str, Any], request: Request) -> Choices:
    """Number the arms: first the variants in the order of the file, then arms it no longer has.

    Args:
        rows: The logged choices.
        document: Content of the flag file.
        request: The flag and its file.

    Raises:
        DataError: If fewer than two arms were tried, or all rewards are equal.
    """
    logged_arms = set(rows["arm"].unique())
    tried = set(rows["arm"].filter(rows["outcome"].is_not_null()).unique())
    variants = flag_document.variants(document, request.key)
    retired = flag_document.retired(document, request.key)
    arms = variants + sorted(logged_arms - set(variants))
    served = np.array([arm in variants and arm not in retired for arm in arms], dtype=bool)
    may_serve = [arm for arm in variants if arm not in retired]
    flag_document.check_logged(tried, may_serve, request.key, request.flags)
    if len(tried) == 1:
        raise DataError(
            f"Only arm '{min(tried)}' of flag '{request.key}' was tried, by "
            f"{number_of(rows.height, 'rollout')}, so there is nothing to compare. Serve at least "
            "two variants, collect rollouts, then run this again."
        )
    # Equal rewards have no gradient and no variance; the estimators would divide by 0.
    if rows["outcome"].min() == rows["outcome"].max():
        raise DataError(
            f"All {rows.height:,} rewards for flag '{request.key}' are {rows['outcome'][0]:g}, so "
            "they say nothing about the arms. Choose another reward with --reward."
        )
    return replace(as_choices(rows, arms), served=served)


def _check_one_live(store: Store, key: str, rows: pl.DataFrame) -> None:
    """Refuse choices of two policies that were live at once: a gain needs one policy to beat."""
    changes = [(row["time"], row["action"]) for row in promotions_of(store, key)]
    if problem := live_at_once(rows, changes):
        raise DataError(
            f"{problem} Two flag files serve flag '{key}', so no policy can be compared with the "
            "live one. Serve one file, or give each agent a key of its own; then leave out with "
            "--since what came before."
        )
