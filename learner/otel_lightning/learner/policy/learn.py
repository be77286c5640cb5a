"""`lightning-learn policy`: learn a policy from logged choices and judge it on held-out tasks."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from otel_lightning.collector.files.atomic import folder_for
from otel_lightning.collector.store import Store, StoreLike, opened
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError, RefusedError
from otel_lightning.learner.evaluate.gate import Requirements, Verdict, as_recorded
from otel_lightning.learner.evaluate.reward_range import Rewards, reward_range
from otel_lightning.learner.named_sql import append
from otel_lightning.learner.policy.arms import Arm, describe
from otel_lightning.learner.policy.assumptions.drift import drift
from otel_lightning.learner.policy.gate.judge import (
    ENOUGH_REWARDED,
    Judged,
    hold_new_arms,
    learn_and_judge,
    learn_and_judge_in_context,
)
from otel_lightning.learner.policy.learning_data import (
    LearningData,
    check_served,
    number_arms,
    read_learning_data,
)
from otel_lightning.learner.policy.logged.choices import LoggedChoices
from otel_lightning.learner.policy.request import Request
from otel_lightning.learner.policy.serving import flag_document, flag_file, joint
from otel_lightning.learner.policy.serving.promotion import promote
from otel_lightning.learner.policy.serving.served import features_of, shares_in_context
from otel_lightning.learner.policy.serving.versions import add_policy, forget_run, policies_of
from otel_lightning.learner.policy.softmax.choice_arrays import Choices
from otel_lightning.learner.policy.softmax.features import check_leaks, read_spec
from otel_lightning.learner.runs import (
    Run,
    candidates_warning,
    fingerprint,
    judged_before,
    recorded,
)

BY_NEW_ROLLOUTS = "with rollouts that begin after this run (--since)"


@dataclass(frozen=True, slots=True)
class Learned:
    """A learned policy and the gate's verdict."""

    version: str
    """Id of the run; also the policy's version in traces and in `policies`."""
    weights: dict[str, int]
    """Share of the traffic of each arm that may be served, in units of `SHARE_UNIT`."""
    verdict: Verdict
    learned_from: int
    """Number of training rollouts with a reward."""
    logged: LoggedChoices
    rewards: Rewards
    arms: tuple[Arm, ...]
    promoted: bool
    notes: tuple[str, ...] = ()
    """Sentences about the data: the rule that made the rewards, drift, retired arms."""


def learn_policy(store: StoreLike, request: Request) -> Learned:
    """Learn a policy over the arms of a flag, and compare it with the live policy.

    Args:
        store: Path of the store, or an open store.
        request: The flag, the reward, the data and the files.

    Returns:
        The policy and the verdict. The flag file changes only if the gate passed and
        `request.promote` is set. A failure leaves a row in `runs` that says why.

    Raises:
        DataError: If there is nothing to learn from, or the flag file cannot be used.
        StoreError: If the store cannot be read or written.
    """
    run = Run("policy", _config(request), name=request.run_id)
    with ExitStack() as made:
        with recorded(store, run):
            if request.promote:
                made.enter_context(folder_for(request.output))
            learned = _learn_policy(store, request, run)
        if learned.promoted:
            # After the record of the run: a policy that is served can always be looked up in the
            # store.
            _promote(store, request, learned)
    return learned


def _promote(store: StoreLike, request: Request, learned: Learned) -> None:
    key, flags, version = request.key, request.flags, learned.version
    try:
        with opened(store) as db:
            promote(db, key, flags, output=request.output, version=version)
    except OSError as error:
        raise DataError(
            f"Policy {version} passed the gate and is kept as a candidate, but "
            f"'{request.output}' cannot be written: {error.strerror}."
        ) from error
    except RefusedError as refusal:  # the flag was changed while this policy was learned
        raise DataError(str(refusal)) from refusal


def _learn_policy(store: StoreLike, request: Request, run: Run) -> Learned:
    document = flag_file.read_flag_file(request.flags, request.key)
    joint.check_alone(document["flags"], request.key, store)
    check_served(document, request)
    spec = read_spec(request.features) if request.features else {}
    with opened(store) as db:
        data = read_learning_data(db, request, document, spec)
    # The store is closed while learning computes, so that an ingester or another command can open
    # it.
    choices = number_arms(data.rows, document, request)
    rewarded = ~np.isnan(choices.rewards)
    if not data.in_train[rewarded].any():
        raise DataError(
            f"All {rewarded.sum():,} rollouts are held out, so there is nothing to learn from. "
            "Collect rollouts of more tasks, or lower --held-out."
        )
    judged, parameters = _learn_and_judge(choices, data, request)
    learned = _summarised(judged, choices, data, request, run.run_id)
    with opened(store) as db:
        return _record(db, run, learned, request, live=data.live, parameters=parameters)


def _summarised(
    judged: Judged, choices: Choices, data: LearningData, request: Request, version: str
) -> Learned:
    """Describe a judged policy with the shares that would be served, and the notes on the data.

    Args:
        judged: The policy and its verdict.
        choices: All logged choices, shape [N]; the reward is NaN where it is missing.
        data: The data that it was learned from.
        request: The settings.
        version: Version of the policy.
    """
    rewarded = ~np.isnan(choices.rewards)
    with_reward = choices if rewarded.all() else choices.where(rewarded)
    shares = zip(choices.arms, judged.shares.tolist(), choices.may_serve, strict=True)
    weights = flag_document.integer_weights({arm: share for arm, share, may in shares if may})
    # The shares as they will be served, in whole weights, so that `promote` prints the same ones.
    after = np.array([weights.get(arm, 0) / flag_document.WHOLE for arm in choices.arms])
    return Learned(
        version=version,
        weights=weights,
        verdict=judged.verdict,
        learned_from=int(data.in_train[rewarded].sum()),
        logged=data.logged,
        rewards=judged.rewards,
        arms=describe(with_reward, data.live, after),
        # Shuffled rewards are a control: what was learned from them is never served.
        promoted=judged.verdict.passed and request.promote and request.shuffle_rewards is None,
        notes=_notes(with_reward, data, request),
    )


def _learn_and_judge(
    choices: Choices, data: LearningData, request: Request
) -> tuple[Judged, dict[str, Any]]:
    """Learn and judge a contextual policy if features are declared, else one without features.

    Args:
        choices: All logged choices, shape [N]; the reward is NaN where it is missing.
        data: The features of the choices, and the live policy.
        request: The flag, the settings and the requirements of the gate.

    Returns:
        The policy with its verdict, and further parameters of the policy to record.
    """
    part = _live_part(data, request)
    rewards = reward_range(choices.rewards[~np.isnan(choices.rewards)], request.reward_range)
    wanted = Requirements(rewards, request.least_gain, request.alpha)
    if not data.spec:
        return learn_and_judge(choices, data.in_train, data.live, request.settings, wanted), {}
    check_leaks(data.features, choices.rewards)
    by_default = data.live if not part["targeting"] else {}
    live = shares_in_context(part, data.features, choices.arms, by_default)
    judged = learn_and_judge_in_context(
        choices, data.features, data.in_train, live, settings=request.settings, requirements=wanted
    )
    parameters = {
        "contextual": judged.policy.as_parameters() if judged.policy else {},
        "expressions": data.spec,
        "servable": data.features.binary,
    }
    return judged, parameters


def _live_part(data: LearningData, request: Request) -> dict[str, Any]:
    """Return the live policy's part of the flag; refuse if it sees an undeclared feature."""
    part = flag_document.flag_part(data.document, request.key)
    unknown = [name for name in features_of(part) if name not in data.features.names]
    if unknown:
        raise DataError(
            f"The live policy of flag '{request.key}' sees the feature '{unknown[0]}'. Declare it "
            "in --features, so that both policies can be compared."
        )
    return part


def _notes(choices: Choices, data: LearningData, request: Request) -> tuple[str, ...]:
    """Say in sentences what a user should know about the data.

    Args:
        choices: The choices with a reward.
        data: The data that the policy was learned from.
        request: The settings.
    """
    notes: list[str] = [data.rule] if data.rule else []
    if data.logged.without_propensity:
        count = number_of(data.logged.without_propensity, "choice")
        notes.append(f"{count} without a propensity left out.")
    notes += data.logged.notes
    if data.logged.missing.count:
        notes.append(str(data.logged.missing))
    notes += data.features.notes
    unserved = [a for a, may in zip(choices.arms, choices.may_serve, strict=True) if not may]
    if unserved:
        notes.append(f"Not served (retired, or gone from the file): {', '.join(unserved)}.")
    before = np.array([data.live.get(arm, 0.0) for arm in choices.arms])
    held = hold_new_arms(choices, before, request.settings.exploration)
    notes += [
        f"Arm '{arm}' is new: it keeps {share:.2%} of the traffic until {ENOUGH_REWARDED} rollouts "
        f"of it have a reward (now {count:.0f})."
        for arm, share, count in zip(held.arms, held.held, held.tried, strict=False)
        if not np.isnan(share)
    ]
    return (*notes, *drift(data.logged.rows))


def _record(  # noqa: PLR0913 - the result, and what it was compared with
    store: Store,
    run: Run,
    learned: Learned,
    request: Request,
    *,
    live: Mapping[str, float],
    parameters: dict[str, Any],
) -> Learned:
    """Record the run, and the policy as a candidate with its parent and data fingerprint."""
    data = fingerprint(learned.logged.rows.drop("policy_version", "time"))
    if request.shuffle_rewards is None:
        p_value = learned.verdict.p_value if learned.verdict.passed else None
        before = judged_before(store, run, data)
        warning = candidates_warning(before, request.alpha, p_value, BY_NEW_ROLLOUTS)
        learned = replace(learned, notes=(*learned.notes, *warning))
    probabilities = {arm: weight / flag_document.WHOLE for arm, weight in learned.weights.items()}
    policy = run.policy(request.key, probabilities, asdict(request.settings) | parameters)
    live_policies = [row for row in policies_of(store, request.key) if row["status"] == "live"]
    parent = live_policies[-1]["version"] if live_policies else None
    verdict = learned.verdict
    row = run.ended(
        outcome="passed" if verdict.passed else "refused",  # `promoted` once it is
        fingerprint=data,
        metrics={
            "learned_from": learned.learned_from,
            "without_propensity": learned.logged.without_propensity,
            "without_reward": learned.logged.missing.count,
            "notes": list(learned.notes),
        },
        gate=as_recorded(verdict) | {"live": dict(live), "shuffled": request.shuffle_rewards},
    )
    if request.run_id is not None:
        forget_run(store, request.run_id)
    append(store, "runs", row)
    add_policy(store, policy | {"parent": parent, "data_fingerprint": data})
    return learned


def _config(request: Request) -> dict[str, Any]:
    times = {name: str(getattr(request, name) or "") or None for name in ("since", "until")}
    files = {"flags": str(request.flags), "output": str(request.output)}
    files |= {"features": str(request.features)} if request.features else {}
    return asdict(request) | files | times
