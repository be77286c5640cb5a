"""Families of bandits that were thought of once the gate was finished, to find what it misses."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from bandits import LIVE_OF_THREE, Range, World, binary, copied, live_of, with_log

Rng = np.random.Generator
LEVEL = np.array([0.52, 0.5, 0.5])
TWO = np.array([0.9, 0.1])


def logged(  # noqa: PLR0913 - the columns of a log
    rng: Rng,
    means: np.ndarray,
    shares: np.ndarray,
    live: np.ndarray,
    *,
    tasks: np.ndarray | None = None,
    value: np.ndarray | None = None,
) -> World:
    """Draw arms and rewards of 0 or 1 for means and shares of shape [N, K]."""
    rows = np.arange(len(means))
    taken = (rng.random((len(rows), 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=len(live) - 1)
    rewards = (rng.random(len(rows)) < means[rows, taken]).astype(float)
    tasks = rows // 3 if tasks is None else tasks
    value = means.mean(axis=0) if value is None else value
    return with_log(taken, shares[rows, taken], rewards, tasks, value, live, (0.0, 1.0))


def even(
    rng: Rng, taken: np.ndarray, rewards: np.ndarray, level: np.ndarray, limits: Range = (0.0, 1.0)
) -> World:
    """Take arms that were drawn evenly, for tasks of three rollouts."""
    told, tasks = np.full(len(taken), 1 / len(level)), np.arange(len(taken)) // 3
    return with_log(taken, told, rewards, tasks, level, live_of(level, rng), limits)


def explored_by_day(rng: Rng) -> World:
    """Rewards follow the hour, and so does the share of exploration."""
    wave = np.sin(np.arange(1200) / 240 * 2 * np.pi)[:, None]
    explored = 0.35 + 0.3 * wave
    shares = np.concatenate([1 - explored, explored / 2, explored / 2], axis=1)
    return logged(rng, LEVEL + 0.4 * wave, shares, LIVE_OF_THREE)


def two_keys(rng: Rng) -> World:
    """Two flags of three variants, drawn independently; an arm is a combination."""
    level = 0.5 + rng.normal(0, 0.05, (3, 1)) + rng.normal(0, 0.05, 3) + rng.normal(0, 0.1, (3, 3))
    level = np.clip(level, 0.05, 0.95).ravel()
    shares = np.outer([0.7, 0.2, 0.1], [0.6, 0.3, 0.1]).ravel()
    ones = np.ones((900, 1))
    return logged(rng, ones * level, ones * shares, live_of(level, rng))


def clipped(rng: Rng) -> World:
    """Rewards are negative or positive, and clipped at -1 and 1."""
    level, taken = rng.uniform(-0.2, 0.2, 3), rng.choice(3, size=900)
    rewards = np.clip(level[taken] + rng.normal(0, 0.8, 900), -1, 1)
    value = np.clip(level + rng.normal(0, 0.8, (200_000, 1)), -1, 1).mean(axis=0)
    return even(rng, taken, rewards, value, (-1.0, 1.0))


def scales_of_tasks(rng: Rng) -> World:
    """Each task has a scale of its own; some are a hundred times as large as others."""
    scale = np.minimum(np.exp(rng.normal(0, 1.5, 400)), 50)[np.arange(1200) // 3]
    taken, level = rng.choice(3, size=1200), rng.uniform(0.45, 0.55, 3)
    return even(rng, taken, scale * binary(rng, taken, level), level, (0.0, 50.0))


def small(rng: Rng, rollouts: int) -> World:
    """Two arms and a task for each of a few rollouts."""
    level, taken = rng.uniform(0.2, 0.8, 2), rng.choice(2, size=rollouts)
    tasks, told = np.arange(rollouts), np.full(rollouts, 0.5)
    rewards = binary(rng, taken, level)
    return with_log(taken, told, rewards, tasks, level, live_of(level, rng), (0.0, 1.0))


def many_arms(rng: Rng) -> World:
    """300 arms with about three rollouts each."""
    level, taken = rng.uniform(0.35, 0.65, 300), rng.choice(300, size=900)
    return even(rng, taken, binary(rng, taken, level), level)


def unknown_context(rng: Rng) -> World:
    """The logging policy saw how easy a task is; the propensities that it told do not say so."""
    easy = (rng.random(300) < 0.5)[np.arange(900) // 3]
    taken = (rng.random(900) < np.where(easy, 0.8, 0.2)).astype(int)
    level = LEVEL[:2]
    high = level[taken] + np.where(easy, 0.35, -0.35)
    rewards, told = (rng.random(900) < high).astype(float), np.full(900, 0.5)
    return with_log(taken, told, rewards, np.arange(900) // 3, level, TWO, (0.0, 1.0))


def told_in_part(rng: Rng) -> World:
    """The logging policy saw a feature, which its propensities say, and how easy a task is."""
    told, easy = 0.3 + 0.4 * rng.random(900), (rng.random(300) < 0.5)[np.arange(900) // 3]
    taken = (rng.random(900) < told + np.where(easy, 0.25, -0.25)).astype(int)
    level = LEVEL[:2]
    high = level[taken] + np.where(easy, 0.35, -0.35)
    rewards, mu = (rng.random(900) < high).astype(float), np.where(taken == 1, told, 1 - told)
    return with_log(taken, mu, rewards, np.arange(900) // 3, level, TWO, (0.0, 1.0))


def untold_hours(rng: Rng) -> World:
    """Arms have other shares by day and by night, and the mean share is told as propensity."""
    by_day = (np.arange(1200) % 240 < 120)[:, None]
    shares = np.where(by_day, [0.6, 0.2, 0.2], [0.3, 0.35, 0.35])
    means, mixed = LEVEL + np.where(by_day, -0.3, 0.3), rng.permutation(1200) // 3
    one = logged(rng, means, shares, LIVE_OF_THREE, tasks=mixed)
    mu = shares.mean(axis=0)[one.choices.taken]
    return replace(one, choices=replace(one.choices, propensities=mu))


def told(rng: Rng, drawn: list[float], said: list[float], rollouts: int) -> World:
    """Arms are drawn with other propensities than those that are told."""
    level = rng.uniform(0.4, 0.6, len(drawn))
    taken = rng.choice(len(drawn), size=rollouts, p=drawn)
    rewards, tasks = binary(rng, taken, level), np.arange(rollouts) // 3
    mu, live = np.array(said)[taken], live_of(level, rng)
    return with_log(taken, mu, rewards, tasks, level, live, (0.0, 1.0))


def added_later(rng: Rng) -> World:
    """A worse arm is added after a fifth of the log, just when all rewards rise by .4."""
    after = (np.arange(1200) >= 240)[:, None]
    means, shares = np.where(after, [0.72, 0.7], [0.32, 0.3]), np.where(after, 0.5, [1.0, 0.0])
    return logged(rng, means, shares, np.array([0.95, 0.05]))


def until_success(rng: Rng) -> World:
    """A task is tried up to four times, each time with a new arm, until it succeeds."""
    level = rng.uniform(0.35, 0.65, 3)
    taken = rng.choice(3, size=(400, 4))
    rewards = (rng.random((400, 4)) < level[taken]).astype(float)
    ran = np.cumsum(rewards, axis=1) - rewards == 0
    tasks = np.repeat(np.arange(400), 4)[ran.ravel()]
    mu, live = np.full(len(tasks), 1 / 3), live_of(level, rng)
    return with_log(taken[ran], mu, rewards[ran], tasks, level, live, (0.0, 1.0))


def jumped_late(rng: Rng) -> World:
    """The agent's world changed in the newest fifth of the log, and the end counts."""
    before, since = np.array([0.4, 0.65]), np.array([0.6, 0.45])
    means = np.where(np.arange(900)[:, None] < 720, before, since)
    mixed = rng.permutation(900) // 3
    return logged(rng, means, np.full((900, 2), 0.5), TWO, tasks=mixed, value=since)


def kept_for_teams(rng: Rng) -> World:
    """An arm is kept for each of ten teams, of which only the users are recorded."""
    user = rng.permutation(np.repeat(np.arange(300), 4))
    taken, ease = rng.choice(3, size=10)[user // 30], rng.choice([-0.45, 0.45], 10)[user // 30]
    rewards, tasks = (rng.random(1200) < LEVEL[taken] + ease).astype(float), np.arange(1200)
    mu = np.full(1200, 1 / 3)
    one = with_log(taken, mu, rewards, tasks, LEVEL, LIVE_OF_THREE, (0.0, 1.0))
    return replace(one, users=user)


def copied_unevenly(rng: Rng) -> World:
    """Each of 40 tasks of three rollouts was recorded 1 to 19 times, under ids of its own."""
    taken = rng.choice(3, size=(40, 3))
    rewards = binary(rng, taken.ravel(), LEVEL).reshape(40, 3)
    again = rng.permutation(np.repeat(np.arange(40), rng.integers(1, 20, 40)))
    tasks, mu = np.repeat(np.arange(len(again)), 3), np.full(3 * len(again), 1 / 3)
    arms, outcomes = taken[again].ravel(), rewards[again].ravel()
    return with_log(arms, mu, outcomes, tasks, LEVEL, LIVE_OF_THREE, (0.0, 1.0))


def copied_in_part(rng: Rng) -> World:
    """Half of 120 rollouts with graded rewards were recorded ten times, under ids of its own."""
    taken = rng.choice(3, size=120)
    rewards = np.round(rng.beta(LEVEL[taken], 1 - LEVEL[taken]), 2)
    again = rng.permutation(np.repeat(np.arange(120), np.where(rng.random(120) < 0.5, 10, 1)))
    tasks, mu = np.arange(len(again)), np.full(len(again), 1 / 3)
    return with_log(taken[again], mu, rewards[again], tasks, LEVEL, LIVE_OF_THREE, (0.0, 1.0))


def without_texts(rng: Rng, copies: int, per_task: int) -> World:
    return replace(copied(rng, copies, per_task), inputs=None)


THREE = [0.5, 0.3, 0.2]
EXAMINED: dict[str, Callable[[Rng], World]] = {
    "40 tasks of 3, each under ten ids, no texts": lambda rng: without_texts(rng, 10, 3),
    "120 rollouts, each under ten ids, no texts": lambda rng: without_texts(rng, 10, 1),
    "120 rollouts, each under fifty ids, no texts": lambda rng: without_texts(rng, 50, 1),
    "40 tasks of 3, each 1 to 19 times, no texts": copied_unevenly,
    "graded rewards, half of them ten times, no texts": copied_in_part,
    "rewards and exploration that follow the hour": explored_by_day,
    "two keys, drawn independently": two_keys,
    "rewards clipped at -1 and 1": clipped,
    "tasks of very different scale": scales_of_tasks,
    "20 rollouts": lambda rng: small(rng, 20),
    "60 rollouts": lambda rng: small(rng, 60),
    "300 arms with three rollouts each": many_arms,
    "an arm for easy tasks, propensities do not say": unknown_context,
    "an arm for easy tasks, propensities vary": told_in_part,
    "arms that follow the hour, propensities do not": untold_hours,
    "propensities of .85 of the right ones": lambda rng: told(
        rng, THREE, [0.425, 0.255, 0.17], 1200
    ),
    "propensities of twice the right ones": lambda rng: told(rng, THREE, [1.0, 0.6, 0.4], 1200),
    "propensities cut to two digits, .0199 to .01": lambda rng: told(
        rng, [0.6601, 0.32, 0.0199], [0.66, 0.32, 0.01], 900
    ),
    "an arm that was added when rewards rose": added_later,
    "tasks tried until they succeed": until_success,
    "a world that changed in the newest fifth": jumped_late,
    "an arm kept for each of ten teams of users": kept_for_teams,
}
"""Logs that an examiner may think of. What nothing recorded can tell is not among them: see
`docs/explanation/off-policy.md`."""
