"""Simulated bandits: how rewards are drawn, how arms are logged, and which policy is live."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.learner.policy.softmax.choice_arrays import Choices
from otel_lightning.learner.policy.softmax.features import Features

Draw = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]
Range = tuple[float, float] | None
LIVE_OF_THREE = np.array([0.9, 0.05, 0.05])


@dataclass(frozen=True)
class Family:
    """A family of bandits: how rewards are drawn, their mean, and their range if it is given."""

    draw: Draw
    mean: Callable[[np.ndarray], np.ndarray]
    range: Range


def binary(rng: np.random.Generator, taken: np.ndarray, level: np.ndarray) -> np.ndarray:
    return (rng.random(len(taken)) < level[taken]).astype(float)


def heavy(rng: np.random.Generator, taken: np.ndarray, level: np.ndarray) -> np.ndarray:
    return level[taken] + rng.standard_t(2.5, len(taken))


def lottery(rng: np.random.Generator, taken: np.ndarray, level: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(taken)) < level[taken] / 20, 20.0, 0.0)


def catastrophe(rng: np.random.Generator, taken: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Arm 0 is steady; the others give .7 usually and -10 in 3 %, worse than they look."""
    loss = rng.random(len(taken)) < 0.03
    return np.where(taken == 0, level[taken], np.where(loss, -10.0, 0.7))


def catastrophe_mean(level: np.ndarray) -> np.ndarray:
    means = np.full(len(level), 0.97 * 0.7 - 0.3)
    means[0] = level[0]
    return means


FAMILIES = {
    "binary": Family(binary, lambda level: level, (0.0, 1.0)),
    "heavy tails": Family(heavy, lambda level: level, None),
    "lottery": Family(lottery, lambda level: level, (0.0, 20.0)),
    "catastrophe": Family(catastrophe, catastrophe_mean, (-10.0, 1.0)),
    "catastrophe, range unknown": Family(catastrophe, catastrophe_mean, None),
}
LOGGING = ("uniform", "skewed", "adversarial")
ARMS = (2, 4, 10, 50)


def propensities(kind: str, means: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How the arms are logged: evenly, mostly one, or the worst one most."""
    count = len(means)
    if kind == "uniform":
        return np.full(count, 1 / count)
    floor = 0.002 if kind == "tiny" else min(0.03, 0.3 / count)
    shares = np.full(count, floor)
    favourite = int(means.argmin()) if kind == "adversarial" else int(rng.integers(count))
    shares[favourite] = 1 - floor * (count - 1)
    return shares


@dataclass(frozen=True)
class World:
    """One bandit and its log. `means` and `live` are [N, K] with features, and else [K]."""

    choices: Choices
    means: np.ndarray
    live: np.ndarray
    in_train: np.ndarray
    range: Range
    features: Features | None = None
    inputs: np.ndarray | None = None
    """Number of each rollout's input, where rollouts of different tasks may have the same."""
    users: np.ndarray | None = None
    """Number of the user, or of something else that was recorded, of each rollout."""
    recorded: bool = True
    """Whether propensities were recorded; else they are the frequencies of the arms."""

    def value(self, shares: np.ndarray) -> float:
        """The true value of a policy, shape [K] or [N, K]."""
        return float((shares * self.means).sum(axis=-1).mean())


def live_of(means: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Serve the best or the second best arm with 95 %: most of what is learned is worse."""
    count = len(means)
    live = np.full(count, 0.05 / count)
    live[np.argsort(means)[-1 - int(rng.integers(min(count, 2)))]] += 0.95
    return live


def world(family: Family, logging: str, arms: int, rng: np.random.Generator, n: int = 600) -> World:
    """Draw a bandit, log it for tasks of three rollouts, and make a good arm the live one."""
    level = rng.uniform(0.35, 0.65, arms)
    means = family.mean(level)
    shares = propensities(logging, means, rng)
    taken = rng.choice(arms, size=n, p=shares)
    live, tasks = live_of(means, rng), np.arange(n) // 3
    rewards = family.draw(rng, taken, level)
    return with_log(taken, shares[taken], rewards, tasks, means, live, family.range)


def with_log(  # noqa: PLR0913, PLR0917 - the columns of a log
    taken: np.ndarray,
    shares: np.ndarray,
    rewards: np.ndarray,
    tasks: np.ndarray,
    means: np.ndarray,
    live: np.ndarray,
    limits: Range,
    features: Features | None = None,
) -> World:
    """Make a world of a log with columns of shape [N], with three tenths of the tasks held out."""
    arms = tuple(map(str, range(means.shape[-1])))
    choices = Choices(arms, taken, shares, rewards, tasks)
    return World(choices, means, live, tasks % 10 >= 3, limits, features)


def in_context(kind: str, arms: int, rng: np.random.Generator, n: int = 900) -> World:
    """Arms that are good for some inputs; the live policy knows the best arm of most inputs."""
    values = np.concatenate([rng.integers(2, size=(n, 2)), rng.normal(size=(n, 1))], axis=1)
    shown = values[:, :2] if kind != "numbers" else values
    level = rng.uniform(0.4, 0.6, arms) + shown @ rng.uniform(-0.15, 0.15, (arms, shown.shape[1])).T
    means = np.clip(level, 0.02, 0.98)
    best, worst = means.argmax(axis=1), means.argmin(axis=1)
    shares = np.full((n, arms), 1 / arms)
    if kind in {"skewed", "adversarial"}:
        floor = min(0.05, 0.3 / arms)
        favourite = worst if kind == "adversarial" else np.full(n, rng.integers(arms))
        shares = np.full((n, arms), floor)
        shares[np.arange(n), favourite] = 1 - floor * (arms - 1)
    taken = (rng.random((n, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=arms - 1)
    rows = np.arange(n)
    rewards = (rng.random(n) < means[rows, taken]).astype(float)
    live = np.full((n, arms), 0.05 / arms)
    live[rows, best] += 0.95
    features = Features(tuple("xyz"[: shown.shape[1]]), shown)
    mu = shares[rows, taken]
    return with_log(taken, mu, rewards, np.arange(n) // 3, means, live, (0.0, 1.0), features)


def clustered(rng: np.random.Generator) -> World:
    """Tasks are easy or hard, from one rollout to a hundred, and decide most of each reward."""
    sizes = np.minimum((rng.pareto(0.9, 120) + 1).astype(int), 100)
    tasks = np.repeat(np.arange(120), sizes)
    level = rng.uniform(0.35, 0.65, 4)
    ease = rng.choice([-0.33, 0.33], 120)[tasks]
    shares = propensities("skewed", level, rng)
    taken = rng.choice(4, size=len(tasks), p=shares)
    rewards = (rng.random(len(tasks)) < level[taken] + ease).astype(float)
    return with_log(taken, shares[taken], rewards, tasks, level, live_of(level, rng), (0.0, 1.0))


def drifting(rng: np.random.Generator) -> World:
    """Every arm's mean moves during the log; a policy's value is its mean over that time."""
    start, end = rng.uniform(0.2, 0.8, (2, 4))
    share = np.linspace(0, 1, 600)[:, None]
    means = (1 - share) * start + share * end
    average = means.mean(axis=0)
    shares = propensities("skewed", average, rng)
    taken = rng.choice(4, size=600, p=shares)
    rewards = (rng.random(600) < means[np.arange(600), taken]).astype(float)
    tasks = rng.permutation(600) // 3
    return with_log(
        taken, shares[taken], rewards, tasks, average, live_of(average, rng), (0.0, 1.0)
    )


def adaptive(rng: np.random.Generator) -> World:
    """The logging policy followed its own results, so each propensity depends on the past."""
    level = rng.uniform(0.35, 0.65, 4)
    earned, tried = np.ones(4), np.full(4, 2.0)
    taken, shares, rewards = np.zeros(600, int), np.zeros(600), np.zeros(600)
    for i in range(600):
        pi = np.full(4, 0.15 / 4)
        pi[(earned / tried).argmax()] += 0.85
        arm = int(rng.choice(4, p=pi))
        taken[i], shares[i], rewards[i] = arm, pi[arm], float(rng.random() < level[arm])
        tried[arm] += 1
        earned[arm] += rewards[i]
    tasks = np.arange(600) // 3
    return with_log(taken, shares, rewards, tasks, level, live_of(level, rng), (0.0, 1.0))


def one_each(rng: np.random.Generator) -> World:
    """Two hundred arms, each logged about once: the best one is the luckiest."""
    return world(FAMILIES["binary"], "uniform", 200, rng, n=200)


def ties(rng: np.random.Generator) -> World:
    """All arms are equal and the live one is better by .005: every change is worse."""
    level = np.full(4, 0.5)
    level[0] += 0.005
    shares = np.full(4, 0.25)
    taken = rng.choice(4, size=900, p=shares)
    live = np.array([1.0, 0.0, 0.0, 0.0])
    rewards = binary(rng, taken, level)
    return with_log(taken, shares[taken], rewards, np.arange(900) // 3, level, live, (0.0, 1.0))


def jackpot(rng: np.random.Generator) -> World:
    """The live arm earns by 100 in .6 % of the rollouts; the others give a steady .5."""
    level = np.array([0.6, 0.5, 0.5])
    shares = np.array([0.2, 0.4, 0.4])
    taken = rng.choice(3, size=600, p=shares)
    won = rng.random(600) < 0.006
    rewards = np.where(taken == 0, np.where(won, 100.0, 0.0), 0.5)
    live = np.array([0.95, 0.025, 0.025])
    return with_log(taken, shares[taken], rewards, np.arange(600) // 3, level, live, (0.0, 100.0))


def unlogged(rng: np.random.Generator) -> World:
    """The live arm was hardly ever logged, and it is the best."""
    level = np.sort(rng.uniform(0.35, 0.65, 4))
    shares = np.array([0.33, 0.333, 0.333, 0.004])
    taken = rng.choice(4, size=600, p=shares)
    live = np.array([0.0, 0.0, 0.0, 1.0])
    rewards = binary(rng, taken, level)
    return with_log(taken, shares[taken], rewards, np.arange(600) // 3, level, live, (0.0, 1.0))


ODD: dict[str, Callable[[np.random.Generator], World]] = {
    "tasks of very different size and ease": clustered,
    "means that drift": drifting,
    "propensities that follow the results": adaptive,
    "200 arms with one rollout each": one_each,
    "ties, the live arm .005 better": ties,
    "jackpot of the live arm": jackpot,
    "best arm live and hardly logged": unlogged,
    "propensities of .002": lambda rng: world(FAMILIES["binary"], "tiny", 4, rng),
    "catastrophe, propensities of .002": lambda rng: world(FAMILIES["catastrophe"], "tiny", 4, rng),
    "lottery, propensities of .002": lambda rng: world(FAMILIES["lottery"], "tiny", 4, rng),
    "120 rollouts": lambda rng: world(FAMILIES["binary"], "skewed", 3, rng, n=120),
    "6,000 rollouts": lambda rng: world(FAMILIES["binary"], "skewed", 4, rng, n=6000),
}


def jumped(rng: np.random.Generator) -> World:
    """The agent's world changed after two thirds of the log; a policy is worth its value since."""
    before, since = np.array([0.4, 0.65]), np.array([0.6, 0.45])
    means = np.where(np.arange(900)[:, None] < 600, before, since)
    taken = rng.choice(2, size=900)
    rewards = (rng.random(900) < means[np.arange(900), taken]).astype(float)
    even, live = np.full(900, 0.5), np.array([0.9, 0.1])
    return with_log(taken, even, rewards, rng.permutation(900) // 3, since, live, (0.0, 1.0))


def scattered(rng: np.random.Generator) -> World:
    """Each rollout has propensities of its own, down to 1e-4 and less."""
    level = rng.uniform(0.35, 0.65, 4)
    shares = np.exp(rng.normal(0, 3, (1200, 4)))
    shares /= shares.sum(axis=1, keepdims=True)
    taken = (rng.random((1200, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=3)
    mu, rewards = shares[np.arange(1200), taken], binary(rng, taken, level)
    return with_log(
        taken, mu, rewards, np.arange(1200) // 3, level, live_of(level, rng), (0.0, 1.0)
    )


def clusters(rng: np.random.Generator) -> World:
    """40 tasks of 25 rollouts; each arm is good for other tasks, and the live one is .02 better."""
    tasks, level = np.repeat(np.arange(40), 25), np.array([0.52, 0.5, 0.5])
    means = np.clip(level + rng.normal(0, 0.25, (40, 3)), 0, 1)
    taken = rng.choice(3, size=1000)
    rewards = (rng.random(1000) < means[tasks, taken]).astype(float)
    live = np.array([0.9, 0.05, 0.05])
    return with_log(taken, np.full(1000, 1 / 3), rewards, tasks, level, live, (0.0, 1.0))


def duplicates(rng: np.random.Generator) -> World:
    """The same, but each rollout is told to be a task of its own."""
    one, own = clusters(rng), np.arange(1000)
    return replace(one, choices=replace(one.choices, tasks=own), in_train=own % 10 >= 3)


def hard_and_silent(rng: np.random.Generator) -> World:
    """Half of the tasks are hard, and those rarely get a reward, whatever the arm."""
    level, tasks = rng.uniform(0.4, 0.6, 3), np.arange(900) // 3
    hard = rng.random(300)[tasks] < 0.5
    shares = np.array([0.6, 0.2, 0.2])
    taken = rng.choice(3, size=900, p=shares)
    means = np.clip(level[taken] + np.where(hard, -0.35, 0.35), 0, 1)
    rewards = (rng.random(900) < means).astype(float)
    kept = rng.random(900) < np.where(hard, 0.3, 0.95)
    one = with_log(taken, shares[taken], rewards, tasks, level, live_of(level, rng), (0.0, 1.0))
    return replace(one, choices=one.choices.where(kept), in_train=one.in_train[kept])


def mistold(rng: np.random.Generator) -> World:
    """The propensities in the traces are wrong by a fifth."""
    return _told_wrongly(rng, told=np.array([0.36, 0.36, 0.28]), drawn=np.array([0.45, 0.3, 0.25]))


def graded(rng: np.random.Generator) -> World:
    """Graded rewards that are mostly near 0 or 1; of eight arms the live one is .01 better."""
    level = np.full(8, 0.3)
    level[0] += 0.01
    taken = rng.choice(8, size=2400)
    rewards = rng.beta(level[taken], 1 - level[taken])
    live = np.full(8, 0.05 / 8)
    live[0] += 0.95
    tasks = np.arange(2400) // 3
    return with_log(taken, np.full(2400, 1 / 8), rewards, tasks, level, live, (0.0, 1.0))


def by_the_hour(rng: np.random.Generator) -> World:
    """Rewards follow the hour of the day, and so do the shares of the arms, as they are logged."""
    hour = np.arange(900) % 24
    level = rng.uniform(0.4, 0.6, 3)
    means = np.clip(level + 0.3 * np.sin(hour[:, None] / 24 * 2 * np.pi), 0, 1)
    shares = np.where((hour < 12)[:, None], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8])
    taken = (rng.random((900, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=2)
    rows = np.arange(900)
    rewards = (rng.random(900) < means[rows, taken]).astype(float)
    average, tasks = means.mean(axis=0), rng.permutation(900) // 3
    mu, live = shares[rows, taken], live_of(average, rng)
    return with_log(taken, mu, rewards, tasks, average, live, (0.0, 1.0))


def ninety_nine(rng: np.random.Generator) -> World:
    """Two arms, of which one was logged in 1 %; the other one is live and .02 better."""
    level, shares = np.array([0.52, 0.5]), np.array([0.99, 0.01])
    taken = rng.choice(2, size=3000, p=shares)
    rewards, tasks = binary(rng, taken, level), np.arange(3000) // 3
    live = np.array([0.95, 0.05])
    return with_log(taken, shares[taken], rewards, tasks, level, live, (0.0, 1.0))


def costs(rng: np.random.Generator, *, pareto: bool) -> World:
    """Rewards are costs with a heavy tail, no range is given; the live arm costs least."""
    taken = rng.choice(3, size=900)
    scale = np.array([0.9, 1.0, 1.0])
    drawn = rng.pareto(1.6, 900) if pareto else rng.lognormal(0, 1.0, 900)
    mean = 1 / 0.6 if pareto else np.exp(0.5)
    live = np.array([0.9, 0.05, 0.05])
    even, tasks = np.full(900, 1 / 3), np.arange(900) // 3
    return with_log(taken, even, -scale[taken] * drawn, tasks, -scale * mean, live, None)


def other_mix(rng: np.random.Generator) -> World:
    """Arm 1 is better for an input that half of the older rollouts and a tenth of the newer had."""
    older = np.arange(1200) < 600
    first = rng.random(1200) < np.where(older, 0.5, 0.1)
    means = np.where(first[:, None], [0.4, 0.7], [0.6, 0.45])
    taken = rng.choice(2, size=1200)
    rewards = (rng.random(1200) < means[np.arange(1200), taken]).astype(float)
    since = np.array([0.1 * 0.4 + 0.9 * 0.6, 0.1 * 0.7 + 0.9 * 0.45])
    even, tasks, live = np.full(1200, 0.5), rng.permutation(1200) // 3, np.array([0.9, 0.1])
    return with_log(taken, even, rewards, tasks, since, live, (0.0, 1.0))


def recorded_twice(rng: np.random.Generator) -> World:
    """Each rollout was recorded five times, with a task id of its own each time."""
    level = np.array([0.52, 0.5, 0.5])
    taken = rng.choice(3, size=240)
    rewards = binary(rng, taken, level)
    order = rng.permutation(1200)
    again = np.repeat(np.arange(240), 5)[order]
    live, even = np.array([0.9, 0.05, 0.05]), np.full(1200, 1 / 3)
    tasks = np.arange(1200)
    return with_log(taken[again], even, rewards[again], tasks, level, live, (0.0, 1.0))


def copied(rng: np.random.Generator, copies: int, per_task: int = 1) -> World:
    """120 rollouts were recorded several times, each copy of a task with an id of its own."""
    level, n = np.array([0.52, 0.5, 0.5]), 120 * copies
    taken = rng.choice(3, size=120)
    rewards, order = binary(rng, taken, level), rng.permutation(n)
    again, copy = np.divmod(order, copies)
    inputs = again // per_task
    live, even = np.array([0.9, 0.05, 0.05]), np.full(n, 1 / 3)
    tasks = inputs * copies + copy
    one = with_log(taken[again], even, rewards[again], tasks, level, live, (0.0, 1.0))
    return replace(one, inputs=inputs)


def kept(rng: np.random.Generator) -> World:
    """40 inputs of 30 tasks each keep the arm that they drew once, and decide the reward."""
    inputs, level = np.repeat(np.arange(40), 30), np.array([0.52, 0.5, 0.5])
    taken, ease = rng.choice(3, size=40)[inputs], rng.choice([-0.45, 0.45], 40)[inputs]
    rewards = (rng.random(1200) < level[taken] + ease).astype(float)
    live, even, tasks = np.array([0.9, 0.05, 0.05]), np.full(1200, 1 / 3), np.arange(1200)
    one = with_log(taken, even, rewards, tasks, level, live, (0.0, 1.0))
    return replace(one, inputs=inputs)


def kept_for_users(  # noqa: PLR0913 - what differs between the cells
    rng: np.random.Generator,
    users: int = 40,
    each: int = 30,
    *,
    told: bool = True,
    kept: float = 1.0,
    in_turn: bool = False,
    ease: float = 0.45,
) -> World:
    """Users keep the arm that they drew once and decide the reward; each rollout is a task.

    Args:
        rng: The source of chance.
        users: Number of users.
        each: Number of rollouts of a user.
        told: Whether the user is recorded.
        kept: Share of the users that keep an arm; the others draw one for each rollout.
        in_turn: Whether the rollouts of a user come one after the other.
        ease: How much higher or lower the rewards of a user are.
    """
    n, level = users * each, np.array([0.52, 0.5, 0.5])
    user = np.repeat(np.arange(users), each)
    user = user if in_turn else rng.permutation(user)
    drawn, keeps = rng.choice(3, size=users)[user], (rng.random(users) < kept)[user]
    taken = np.where(keeps, drawn, rng.choice(3, size=n))
    high = level[taken] + rng.choice([-ease, ease], users)[user]
    rewards = (rng.random(n) < np.clip(high, 0, 1)).astype(float)
    even, tasks = np.full(n, 1 / 3), np.arange(n)
    one = with_log(taken, even, rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))
    return replace(one, users=user if told else None)


def by_user(rng: np.random.Generator) -> World:
    """25 users with 40 tasks each; a user likes one arm, and the live one is .01 better."""
    user = np.repeat(np.arange(25), 40)
    level = np.array([0.51, 0.5, 0.5])
    means = np.clip(level + rng.normal(0, 0.2, (25, 3)), 0, 1)
    taken = rng.choice(3, size=1000)
    rewards = (rng.random(1000) < means[user, taken]).astype(float)
    live, even = np.array([0.9, 0.05, 0.05]), np.full(1000, 1 / 3)
    return with_log(taken, even, rewards, np.arange(1000), level, live, (0.0, 1.0))


def rare_and_huge(rng: np.random.Generator) -> World:
    """Two arms look .1 better than the live one and lose 50 in .4 %; no range is given."""
    taken = rng.choice(3, size=900)
    lost = (rng.random(900) < 0.004) & (taken > 0)
    steady = np.where(taken == 0, 0.6, 0.7) + rng.normal(0, 0.05, 900)
    means, even = np.array([0.6, 0.5, 0.5]), np.full(900, 1 / 3)
    rewards, tasks = np.where(lost, -50.0, steady), np.arange(900) // 3
    return with_log(taken, even, rewards, tasks, means, LIVE_OF_THREE, None)


def changed_midway(rng: np.random.Generator) -> World:
    """Half-way the logging policy changes, and all rewards rise by .25."""
    level, older = rng.uniform(0.35, 0.65, 3), (np.arange(900) < 450)[:, None]
    shares = np.where(older, [0.8, 0.1, 0.1], [0.1, 0.1, 0.8])
    taken = (rng.random((900, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=2)
    means, rows = level + np.where(older, 0.0, 0.25), np.arange(900)
    rewards = (rng.random(900) < means[rows, taken]).astype(float)
    average, live = level + 0.125, live_of(level, rng)
    return with_log(taken, shares[rows, taken], rewards, rows // 3, average, live, (0.0, 1.0))


def fading(rng: np.random.Generator, n: int) -> World:
    """Arm 1 begins .25 better than the live one and ends .05 worse, and the end counts."""
    end = np.array([0.5, 0.45])
    means = np.linspace([0.5, 0.75], end, n)
    taken = rng.choice(2, size=n)
    rewards = (rng.random(n) < means[np.arange(n), taken]).astype(float)
    even, tasks = np.full(n, 0.5), rng.permutation(n) // 3
    return with_log(taken, even, rewards, tasks, end, np.array([0.9, 0.1]), (0.0, 1.0))


def three_lucky(rng: np.random.Generator) -> World:
    """One arm was tried about three times, each time with success; the live one is the best."""
    level, shares = np.array([0.55, 0.5, 0.5]), np.array([0.6, 0.397, 0.003])
    taken = rng.choice(3, size=900, p=shares)
    rewards = np.where(taken == 2, 1.0, binary(rng, taken, level))
    tasks = np.arange(900) // 3
    return with_log(taken, shares[taken], rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))


def by_the_day(rng: np.random.Generator) -> World:
    """One arm serves a whole day, drawn anew each morning, and the days differ in ease."""
    day, level = np.arange(900) // 30, np.array([0.51, 0.5, 0.5])
    taken, ease = rng.choice(3, size=30)[day], rng.normal(0, 0.2, 30)[day]
    rewards = (rng.random(900) < np.clip(level[taken] + ease, 0, 1)).astype(float)
    even, tasks = np.full(900, 1 / 3), np.arange(900)
    return with_log(taken, even, rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))


def told_too_early(rng: np.random.Generator) -> World:
    """A hundred choices after a change of the shares still had the old ones, but tell the new."""
    number, level = np.arange(1200)[:, None], rng.uniform(0.4, 0.6, 3)
    before, since = [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]
    true, told = np.where(number < 700, before, since), np.where(number < 600, before, since)
    taken = (rng.random((1200, 1)) > true.cumsum(axis=1)).sum(axis=1).clip(max=2)
    rows, rewards = np.arange(1200), binary(rng, taken, level)
    live = live_of(level, rng)
    return with_log(taken, told[rows, taken], rewards, rows // 3, level, live, (0.0, 1.0))


def zero_at_first(rng: np.random.Generator) -> World:
    """The newest fifth of the live arm's rewards are 0, since the right ones have not come yet."""
    level = np.array([0.55, 0.5, 0.5])
    taken = rng.choice(3, size=900)
    newest = (np.arange(900) >= 720) & (taken == 0)
    rewards = np.where(newest, 0.0, binary(rng, taken, level))
    even, tasks = np.full(900, 1 / 3), np.arange(900) // 3
    return with_log(taken, even, rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))


def rare_and_large(rng: np.random.Generator) -> World:
    """Rewards are up to 100 and above 50 in 1 %, a little more often for the live arm."""
    taken, large = rng.choice(3, size=1500), np.array([0.012, 0.01, 0.01])
    usual = np.array([1.0, 1.2, 1.2])
    won = rng.random(1500) < large[taken]
    rewards = np.where(won, rng.uniform(50, 100, 1500), rng.random(1500) * usual[taken])
    means, even = large * 75 + (1 - large) * usual / 2, np.full(1500, 1 / 3)
    tasks = np.arange(1500) // 3
    return with_log(taken, even, rewards, tasks, means, LIVE_OF_THREE, (0.0, 100.0))


def explored_for_some(rng: np.random.Generator) -> World:
    """Arm 1 was tried for one kind of input only, where it is better; for the other it is bad."""
    kind = rng.random(1200) < 0.5
    means = np.where(kind[:, None], [0.45, 0.65], [0.55, 0.2])
    share = np.where(kind, 0.5, 0.0)
    taken = (rng.random(1200) < share).astype(int)
    rewards = (rng.random(1200) < means[np.arange(1200), taken]).astype(float)
    told, tasks = np.where(taken == 1, share, 1 - share), np.arange(1200) // 3
    live = np.array([0.95, 0.05])
    return with_log(taken, told, rewards, tasks, means.mean(axis=0), live, (0.0, 1.0))


UNFORESEEN: dict[str, Callable[[np.random.Generator], World]] = {
    "means that jumped, and the end counts": jumped,
    "propensities of each rollout, down to 1e-4": scattered,
    "40 tasks of 25 rollouts, arms good for some": clusters,
    "near-duplicate tasks with ids of their own": duplicates,
    "hard tasks that rarely get a reward": hard_and_silent,
    "propensities wrong by a fifth": mistold,
    "graded rewards, the live arm .01 better": graded,
    "rewards and shares that follow the hour": by_the_hour,
    "shares of .99 and .01, the live arm .02 better": ninety_nine,
    "costs with Pareto's tail, no range": lambda rng: costs(rng, pareto=True),
    "lognormal costs, no range": lambda rng: costs(rng, pareto=False),
    "inputs whose mix changed, and the end counts": other_mix,
    "25 users who each like another arm": by_user,
    "each rollout recorded five times as five tasks": recorded_twice,
    "a loss of 50 in .4 %, no range": rare_and_huge,
    "logging and world change midway": changed_midway,
    "a gain that fades to a loss, 900 rollouts": lambda rng: fading(rng, 900),
    "a gain that fades to a loss, 6,000 rollouts": lambda rng: fading(rng, 6000),
    "an arm with three lucky rollouts": three_lucky,
    "one arm a day, and days differ": by_the_day,
    "new propensities told too early": told_too_early,
    "0 until the live arm's reward comes": zero_at_first,
    "rewards up to 100, large ones in 1 %": rare_and_large,
    "an arm that was tried for some inputs only": explored_for_some,
}
"""Families that were tried after the gate was built. Only the gates are judged by them: some have
no single true value that an interval of the whole log could hold."""


def with_missing(rng: np.random.Generator, lost: Callable[[World], np.ndarray]) -> World:
    """Three arms, logged evenly; `lost` gives the probability that each reward is missing."""
    one = world(FAMILIES["binary"], "uniform", 3, rng)
    gone = rng.random(len(one.choices.taken)) < lost(one)
    rewards = np.where(gone, np.nan, one.choices.rewards)
    return replace(one, choices=replace(one.choices, rewards=rewards))


def failures_of_one(one: World) -> np.ndarray:
    failed = one.choices.rewards == 0
    return np.where(failed & (one.choices.taken == one.means.argmin()), 0.7, 0.0)


def failures_of_all(one: World) -> np.ndarray:
    return np.where(one.choices.rewards == 0, 0.7, 0.0)


def as_often_of_each(one: World) -> np.ndarray:
    """A fifth of each arm's: failures of the worst arm, successes of the best one."""
    taken, means = one.choices.taken, one.means
    failed = one.choices.rewards == 0
    lost = np.full(len(taken), 0.2)
    worst, best = taken == means.argmin(), taken == means.argmax()
    lost[worst] = np.where(failed, 0.2 / (1 - means.min()), 0)[worst]
    lost[best] = np.where(failed, 0, 0.2 / means.max())[best]
    return lost


def late_failures(one: World) -> np.ndarray:
    """Successes are told at once; failures take a while, so the newest are not told yet."""
    newest = np.arange(len(one.choices.taken)) >= 500
    return np.where(newest & (one.choices.rewards == 0), 1.0, 0.0)


def late_by_arm(one: World) -> np.ndarray:
    """Of the newest, half of the best arm's successes and of the others' failures come later."""
    newest = np.arange(len(one.choices.taken)) >= 480
    best = one.choices.taken == one.means.argmax()
    late = np.where(best, one.choices.rewards == 1, one.choices.rewards == 0)
    return np.where(newest & late, 0.5, 0.0)


def of_another_flag(rng: np.random.Generator) -> World:
    """The recorded propensities are those of another flag, whose arms have the same names."""
    return _told_wrongly(rng, told=np.array([0.2, 0.2, 0.6]), drawn=np.array([0.6, 0.3, 0.1]))


def _told_wrongly(rng: np.random.Generator, told: np.ndarray, drawn: np.ndarray) -> World:
    """Three arms that are drawn with other propensities than those that are told."""
    level = rng.uniform(0.4, 0.6, 3)
    taken = rng.choice(3, size=1200, p=drawn)
    rewards, tasks = binary(rng, taken, level), np.arange(1200) // 3
    return with_log(taken, told[taken], rewards, tasks, level, live_of(level, rng), (0.0, 1.0))


def rounded(rng: np.random.Generator) -> World:
    """Propensities are rounded to two digits; one arm has .0149 and is told to have .01."""
    level, shares = rng.uniform(0.4, 0.6, 3), np.array([0.6601, 0.325, 0.0149])
    taken = rng.choice(3, size=3000, p=shares)
    rewards, tasks = binary(rng, taken, level), np.arange(3000) // 3
    told = np.round(shares - 0.0049 * (shares < 0.1), 2)
    return with_log(taken, told[taken], rewards, tasks, level, live_of(level, rng), (0.0, 1.0))


def kept_if_good(rng: np.random.Generator) -> World:
    """Half of the failures of all arms but the live one were not recorded."""
    level, n = np.array([0.55, 0.5, 0.5]), 1500
    taken = rng.choice(3, size=n)
    rewards, tasks = binary(rng, taken, level), np.arange(n)
    kept = (taken == 0) | (rewards == 1) | (rng.random(n) < 0.5)
    even = np.full(n, 1 / 3)
    one = with_log(taken, even, rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))
    return replace(one, choices=one.choices.where(kept), in_train=one.in_train[kept])


def kept_if_good_of_all(rng: np.random.Generator) -> World:
    """A failed rollout is run again with a new arm, and only its last run is recorded."""
    level, n = np.array([0.52, 0.5, 0.5]), 900
    taken = rng.choice(3, size=n)
    rewards = binary(rng, taken, level)
    for _ in range(2):
        again = np.where(rewards == 0, rng.choice(3, size=n), taken)
        rewards = np.where(rewards == 0, binary(rng, again, level), rewards)
        taken = again
    even, tasks = np.full(n, 1 / 3), np.arange(n) // 3
    return with_log(taken, even, rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))


def simpson(rng: np.random.Generator) -> World:
    """Easy and hard segments whose shares of the arms are opposite, and told for each segment."""
    easy = (rng.random(1200) < 0.5)[:, None]
    shares = np.where(easy, [0.1, 0.45, 0.45], [0.8, 0.1, 0.1])
    taken = (rng.random((1200, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=2)
    rows, level = np.arange(1200), np.array([0.52, 0.5, 0.5])
    means = level + np.where(easy, 0.35, -0.35)
    rewards = (rng.random(1200) < means[rows, taken]).astype(float)
    mu = shares[rows, taken]
    return with_log(taken, mu, rewards, rows // 3, level, LIVE_OF_THREE, (0.0, 1.0))


def of_neighbours(rng: np.random.Generator) -> World:
    """Interference: a rollout's reward depends on the arms of the four before it."""
    level, n = np.array([0.52, 0.5, 0.5]), 1200
    taken = rng.choice(3, size=n)
    crowd = np.convolve(taken == 1, np.ones(4), "full")[:n] / 4
    high = level[taken] + 0.3 * (1 / 3 - np.roll(crowd, 1))
    rewards = (rng.random(n) < np.clip(high, 0, 1)).astype(float)
    even, tasks = np.full(n, 1 / 3), np.arange(n) // 3
    # Arm 1 for everybody would be worse still.
    means = np.array([0.52, 0.3, 0.5])
    return with_log(taken, even, rewards, tasks, means, LIVE_OF_THREE, (0.0, 1.0))


def outages(rng: np.random.Generator) -> World:
    """All rewards of some hours are 0; rewards of rollouts that are near in time go together."""
    level, n = np.array([0.52, 0.5, 0.5]), 1200
    taken, down = rng.choice(3, size=n), (rng.random(40) < 0.3)[np.arange(n) // 30]
    rewards = np.where(down, 0.0, binary(rng, taken, level + 0.2))
    even, tasks = np.full(n, 1 / 3), np.arange(n)
    return with_log(taken, even, rewards, tasks, level, LIVE_OF_THREE, (0.0, 1.0))


def scale_of_user(rng: np.random.Generator) -> World:
    """A few users give up to 10, the others up to 1; arms are drawn anew."""
    user, level = rng.integers(40, size=1200), np.array([0.52, 0.5, 0.5])
    scale = np.where(user < 3, 10.0, 1.0)
    taken = rng.choice(3, size=1200)
    rewards = scale * binary(rng, taken, level)
    even, tasks = np.full(1200, 1 / 3), np.arange(1200)
    one = with_log(taken, even, rewards, tasks, level * scale.mean(), LIVE_OF_THREE, (0.0, 10.0))
    return replace(one, users=user)


def trending(rng: np.random.Generator) -> World:
    """Rewards rise all the time, and so does the share of the arms that are not live."""
    place, level = np.linspace(0, 1, 1200)[:, None], np.array([0.32, 0.3, 0.3])
    shares = np.concatenate([0.9 - 0.8 * place, 0.05 + 0.4 * place, 0.05 + 0.4 * place], axis=1)
    taken = (rng.random((1200, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(max=2)
    rows = np.arange(1200)
    rewards = (rng.random(1200) < (level + 0.4 * place)[rows, taken]).astype(float)
    mu, means = shares[rows, taken], level + 0.2
    return with_log(taken, mu, rewards, rows // 3, means, LIVE_OF_THREE, (0.0, 1.0))


KEPT: dict[str, Callable[[np.random.Generator], World]] = {
    "an arm kept for each of 40 users": kept_for_users,
    "the same, the users come in turn": lambda rng: kept_for_users(rng, in_turn=True),
    "the same, a third of the users draw anew": lambda rng: kept_for_users(rng, kept=0.67),
    "an arm kept for each of 300 sessions": lambda rng: kept_for_users(rng, 300, 4),
    "an arm kept for 40 users, nobody is recorded": lambda rng: kept_for_users(rng, told=False),
    "an arm kept for 80 users, nobody is recorded": (
        lambda rng: kept_for_users(rng, 80, 15, told=False)
    ),
    "an arm kept for 15 users, nobody is recorded": (
        lambda rng: kept_for_users(rng, 15, 60, told=False)
    ),
    "an arm kept for 30 rollouts, nothing tells": (
        lambda rng: kept_for_users(rng, told=False, in_turn=True)
    ),
    "an arm kept for 300 rollouts, nothing tells": (
        lambda rng: kept_for_users(rng, 10, 300, told=False, in_turn=True)
    ),
    "40 users who draw anew": lambda rng: kept_for_users(rng, kept=0),
    "propensities of another flag": of_another_flag,
    "propensities rounded to two digits": rounded,
    "failures not recorded, but those of the live arm": kept_if_good,
    "failed rollouts run again, the last recorded": kept_if_good_of_all,
    "segments with opposite shares": simpson,
    "rewards that depend on the arms before": of_neighbours,
    "hours in which every rollout fails": outages,
    "three users with ten times the reward": scale_of_user,
    "rewards and shares that rise": trending,
}
"""Logs in which what was drawn, or how, is not what the propensities say; and harmless ones."""

COPIED: dict[str, Callable[[np.random.Generator], World]] = {
    "120 rollouts, each under ten task ids": lambda rng: copied(rng, 10),
    "120 rollouts, each under fifty task ids": lambda rng: copied(rng, 50),
    "40 tasks of 3 rollouts, each under ten task ids": lambda rng: copied(rng, 10, 3),
    "an arm kept for each of 40 inputs, own task ids": kept,
}
"""Logs with inputs that tell which rollouts are copies."""

UNREWARDED: dict[str, Callable[[np.random.Generator], World]] = {
    "missing rewards of one arm's failures": lambda rng: with_missing(rng, failures_of_one),
    "missing rewards of all failures": lambda rng: with_missing(rng, failures_of_all),
    "a fifth missing of each arm, of other outcomes": lambda rng: with_missing(
        rng, as_often_of_each
    ),
    "failures of the newest rollouts come later": lambda rng: with_missing(rng, late_failures),
    "newest rewards late, by arm and outcome": lambda rng: with_missing(rng, late_by_arm),
}
"""Logs in which rewards are missing, NaN here."""


def easy_for_one(rng: np.random.Generator, share: float, per_task: int = 3) -> World:
    """Easy inputs got arm 1 with this probability, hard ones arm 0; frequencies are told."""
    tasks = np.arange(900) // per_task
    easy = rng.random(900)[tasks] < 0.5
    taken = (rng.random(900) < np.where(easy, share, 1 - share)).astype(int)
    level = np.array([0.52, 0.5])
    rewards = (rng.random(900) < level[taken] + np.where(easy, 0.35, -0.35)).astype(float)
    told = np.bincount(taken, minlength=2)[taken] / 900
    live = np.array([0.9, 0.1])
    one = with_log(taken, told, rewards, tasks, level, live, (0.0, 1.0))
    return replace(one, recorded=False)


BY_FREQUENCY: dict[str, Callable[[np.random.Generator], World]] = {
    "frequencies, easy inputs got one arm in 80 %": lambda rng: easy_for_one(rng, 0.8),
    "frequencies, easy inputs got one arm in 65 %": lambda rng: easy_for_one(rng, 0.65),
    "frequencies, easy inputs got one arm in 60 %": lambda rng: easy_for_one(rng, 0.6),
    "frequencies, easy inputs got one arm in 55 %": lambda rng: easy_for_one(rng, 0.55),
    "frequencies, the same, one rollout a task": lambda rng: easy_for_one(rng, 0.8, 1),
}
"""Logs without propensities whose arm followed the input, which has no words that tell it."""
