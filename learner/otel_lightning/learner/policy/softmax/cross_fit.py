"""Importance weights of logged choices, with a model of the reward that is fitted by halves."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from otel_lightning.learner.arrays import Booleans, Floats, Integers
from otel_lightning.learner.evaluate.gains import per_task_counts
from otel_lightning.learner.evaluate.off_policy import METHODS, Fit, Logged, Method
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, reward_model
from otel_lightning.learner.policy.softmax.features import Features

MIN_RESIDUAL_SHARE = 0.5
"""Smallest share of a rollout's residual that its own leverage leaves, 1 - h: an arm with one
rollout has no residual to tell by."""


class Data(NamedTuple):
    """Logged choices, the policy to evaluate and the inputs of the reward model."""

    choices: Choices
    probabilities: Floats
    """Probability of each arm for each rollout, shape [N, K]."""
    inputs: Floats
    """Standardised features after a column of ones, shape [N, D + 1]."""
    counts: Floats
    """Number of rollouts of each one's task, shape [N]."""

    def where(self, mask: Booleans) -> "Data":
        """Select rollouts by a mask of shape [N]; `counts` stay those of all rollouts."""
        return Data(
            self.choices.where(mask),
            self.probabilities[mask],
            self.inputs[mask],
            self.counts[mask],
        )


def cross_fitted(choices: Choices, probabilities: Floats, features: Features) -> Logged:
    """Weigh choices by a policy; a reward model of each half of the tasks predicts the other half.

    Args:
        choices: The logged choices, shape [N]; tasks are numbered from 0 without gaps.
        probabilities: Probability of each arm for each rollout, shape [N, K].
        features: Features for the reward model, shape [N, D]; with D = 0 it is each arm's mean.

    Source:
        Chernozhukov et al., Double/debiased machine learning (2018), definition 3.1, with K = 2.
    """
    data = _data(choices, probabilities, features)
    modelled, fitted = np.zeros(probabilities.shape), np.zeros(len(choices.taken))
    methods = [method for method in METHODS.values() if method.depends_on_model]
    uses = {method.name: _uses_of_model(data, method) for method in methods}
    weights = {method.name: np.zeros(len(choices.taken)) for method in methods}
    # Each rollout is predicted by a model that saw none of its task, so that the model cannot have
    # learned the noise of the very reward that it corrects.
    for predicted, learned in _halves(choices.tasks):
        inside = data.where(learned)
        model = _reward_model(inside)
        modelled[predicted] = data.inputs[predicted] @ model.T
        fitted[learned] = (inside.inputs * model[inside.choices.taken]).sum(axis=1)
        for name, used in uses.items():
            # What the value takes from the model: the coefficients of theta, summed over the
            # predicted half.
            parts = used[predicted].T @ data.inputs[predicted]  # [K, D + 1]
            weights[name][learned] = _residual_weights(inside, parts)
    tried, inverse = choices.tried, choices.per_arm(1 / choices.propensities)
    logged = contextual.logged_under(choices, probabilities, modelled)
    return replace(
        logged,
        # By propensities each arm's sum of 1 / mu is N in expectation; the ratio says how far its
        # logged number is from that.
        expected=len(choices.taken) / inverse[choices.taken],
        fit=Fit(weights, fitted),
        unseen=float(probabilities[:, tried == 0].sum(axis=1).mean()),
    )


def _data(choices: Choices, probabilities: Floats, features: Features) -> Data:
    values = features.values if features.names else np.zeros((len(choices.taken), 0))
    inputs = contextual.Standardisation.of(values).apply(values)
    _, number = np.unique(choices.tasks, return_inverse=True)
    return Data(choices, probabilities, inputs, per_task_counts(choices.tasks)[number])


def _halves(tasks: Integers) -> Iterator[tuple[Booleans, Booleans]]:
    """Yield the rollouts to predict and those to fit the model on.

    With a single task both are all rollouts.
    """
    # Tasks are numbered by rank of their hash, so odd and even is as good as random, and the same
    # on every machine.
    half = tasks % 2 == 0
    if half.all() or not half.any():
        everything = np.ones(len(half), bool)
        yield everything, everything
        return
    yield half, ~half
    yield ~half, half


def _reward_model(data: Data) -> Floats:
    """Fit the reward of each arm, shape [K, D + 1]."""
    if data.inputs.shape[1] > 1:
        return contextual.reward_model(data.choices, data.inputs)
    return reward_model(data.choices)[:, None]


def _uses_of_model(data: Data, method: Method) -> Floats:
    """Compute how often a value counts the prediction of each arm, shape [N, K].

    A prediction counts with the policy's probability, less the weight of the correction: a large
    weight that is shrunk or left out lets the model's error through.
    """
    taken, rows = data.choices.taken, np.arange(len(data.counts))
    used = data.probabilities.copy()
    weights = used[rows, taken] / data.choices.propensities
    # For exact doubly robust weights both parts cancel in expectation; what is left is where a
    # method shrinks, clips or drops weights.
    used[rows, taken] -= method.weights(weights)
    return np.asarray(used / data.counts[:, None], dtype=np.float64)


def _residual_weights(learned: Data, parts: Floats) -> Floats:
    """Compute how much a value moves with each residual of the model's fit.

    The predictions add sum over arms of z[a] . theta[a] to the value, where z[a] is the mean over
    tasks of the inputs times their use, and theta[a] = (X'X + ridge)^-1 X'r is the regression of
    arm a. Without rollout j it loses z[a] . (X'X + ridge)^-1 x[j] / (1 - h[j]) times the residual
    of j, with its leverage h[j] = x[j] . (X'X + ridge)^-1 x[j]. These losses give the standard
    error (jackknife). They are scaled so that their mean over tasks, of means over a task's
    rollouts, is the change of the value.

    Args:
        learned: The rollouts that the model was fitted on, shape [M].
        parts: z times the number of tasks, shape [K, D + 1].

    Returns:
        The weights, shape [M].

    Source:
        Efron, The jackknife, the bootstrap and other resampling plans (1982), chapter 3; MacKinnon
        & White, Some heteroskedasticity-consistent covariance matrix estimators (1985), for the
        leverage.
    """
    taken, counts = learned.choices.taken, learned.counts
    if parts.shape[1] == 1:
        tried = np.maximum(learned.choices.tried, 1)
        # Without features X'X is the number of rollouts of the arm, and each one's leverage is 1 /
        # n.
        of_arm = parts[:, 0] / tried / np.maximum(1 - 1 / tried, MIN_RESIDUAL_SHARE)
        return np.asarray(counts * of_arm[taken], dtype=np.float64)
    weights = np.zeros(len(taken))
    for arm, part in enumerate(parts):
        rows = learned.inputs[taken == arm]
        solved = rows @ np.linalg.inv(contextual.gram(rows))  # [M of the arm, D + 1]
        free = np.maximum(1 - (solved * rows).sum(axis=1), MIN_RESIDUAL_SHARE)
        weights[taken == arm] = counts[taken == arm] * (solved @ part) / free
    return weights
