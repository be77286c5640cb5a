"""Simulated bandits: how often is a policy promoted that is truly worse than the live one?

    python tests/bench/policy.py [--seeds 100] [--only WORDS]

Each cell is a family of bandits; each seed draws one, logs it, learns and judges. Beside our gate
stand SNIPS without a gate, and a gate that compares SNIPS with the logged mean by a bootstrap over
rollouts, as the first version did. A cell fails if our gate passes truly worse policies in more
than 5 % of the seeds, beyond chance. The second table says how often intervals hold the true value.
"""

import argparse
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.estimates import estimated
from otel_lightning.learner.policy.candidate import NO_FEATURES
from otel_lightning.learner.policy.contextual import learn_shares as learn
from otel_lightning.learner.policy.evaluate import cross_fitted
from otel_lightning.learner.policy.judge import learn_and_judge
from otel_lightning.learner.policy.softmax import Choices, Settings

Draw = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]
SETTINGS = Settings(steps=300, learning_rate=3.0)
ENOUGH = 30
"""Intervals that must be given before a cell can say how often they hold."""
INTERVALS = ("normal", "bootstrap", "bernstein", "betting")


@dataclass(frozen=True)
class Family:
    """A family of bandits: how rewards are drawn, and their range."""

    draw: Draw
    mean: Callable[[np.ndarray], np.ndarray]
    range: tuple[float, float] | None


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
    """How the arms are logged: evenly, mostly one, or the better the rarer."""
    count = len(means)
    if kind == "uniform":
        return np.full(count, 1 / count)
    floor = min(0.03, 0.3 / count)
    shares = np.full(count, floor)
    favourite = int(rng.integers(count)) if kind == "skewed" else int(means.argmin())
    shares[favourite] = 1 - floor * (count - 1)
    return shares


@dataclass(frozen=True)
class World:
    """One bandit and its log."""

    choices: Choices
    means: np.ndarray
    live: np.ndarray
    in_train: np.ndarray


def world(family: Family, logging: str, arms: int, rng: np.random.Generator, n: int = 600) -> World:
    """Draw a bandit, log it for tasks of three rollouts, and make a good arm the live one."""
    level = rng.uniform(0.35, 0.65, arms)
    means = family.mean(level)
    shares = propensities(logging, means, rng)
    taken = rng.choice(arms, size=n, p=shares)
    live = np.full(arms, 0.05 / arms)
    order = np.argsort(means)
    live[order[-1 - int(rng.integers(min(arms, 2)))]] += 0.95
    tasks = np.arange(n) // 3
    choices = Choices(
        tuple(map(str, range(arms))), taken, shares[taken], family.draw(rng, taken, level), tasks
    )
    return World(choices, means, live, tasks % 10 >= 3)


def ours(one: World, limits: tuple[float, float] | None) -> tuple[np.ndarray, bool]:
    shares = dict(zip(one.choices.arms, one.live.tolist(), strict=True))
    judged = learn_and_judge(one.choices, one.in_train, shares, SETTINGS, (limits, 0.0))
    return judged.shares, judged.verdict.passed


def ungated(one: World) -> tuple[np.ndarray, bool]:
    train = one.choices.where(one.in_train)
    return learn(train, replace(SETTINGS, estimator="snips")), True


def first_gate(one: World) -> tuple[np.ndarray, bool]:
    """SNIPS against the logged mean, by a bootstrap over rollouts."""
    probabilities, _ = ungated(one)
    held = one.choices.where(~one.in_train)
    weights = probabilities[held.taken] / held.propensities
    if weights.sum() ** 2 < 10 * (weights**2).sum():
        return probabilities, False
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(weights), size=(300, len(weights)))
    earned, total = (weights * held.rewards)[drawn].sum(1), weights[drawn].sum(1)
    values = np.where(total > 0, earned / np.maximum(total, 1e-9), -np.inf)
    gains = values - held.rewards[drawn].mean(1)
    return probabilities, bool(np.quantile(gains, 0.05) > 0)


def promoted(one: World, answer: tuple[np.ndarray, bool]) -> tuple[bool, bool]:
    """Whether it passed, and whether it passed though it is worse."""
    probabilities, passed = answer
    worse = probabilities @ one.means < one.live @ one.means - 1e-9
    return passed, passed and bool(worse)


def cell(family: Family, logging: str, arms: int, seeds: int) -> dict[str, np.ndarray]:
    """Count, for each gate: promoted, and promoted though worse."""
    counts = {name: np.zeros(2) for name in ("ours", "no gate", "first gate")}
    for seed in range(seeds):
        one = world(family, logging, arms, np.random.default_rng(seed))
        answers = {
            "ours": ours(one, family.range),
            "no gate": ungated(one),
            "first gate": first_gate(one),
        }
        for name, answer in answers.items():
            counts[name] += promoted(one, answer)
    return {name: count / seeds for name, count in counts.items()}


def power(logging: str, rollouts: int, seeds: int) -> float:
    """Share of the seeds in which a policy that is truly better is promoted."""
    level, passed = np.array([0.4, 0.7, 0.4, 0.4]), 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        shares = propensities(logging, level, rng)
        taken = rng.choice(4, size=rollouts, p=shares)
        tasks = np.arange(rollouts) // 3
        rewards = binary(rng, taken, level)
        choices = Choices(tuple("abcd"), taken, shares[taken], rewards, tasks)
        one = World(choices, level, np.full(4, 0.25), tasks % 10 >= 3)
        passed += ours(one, (0.0, 1.0))[1]
    return passed / seeds


def looks(seeds: int) -> dict[str, np.ndarray]:
    """Twenty daily looks at growing data; a seed counts if any look promotes."""
    counts = {name: np.zeros(2) for name in ("ours", "no gate", "first gate")}
    family = FAMILIES["binary"]
    for seed in range(seeds):
        whole = world(family, "skewed", 3, np.random.default_rng(seed), n=1200)
        ever = {name: np.zeros(2, dtype=bool) for name in counts}
        for day in range(1, 21):
            kept = np.arange(1200) < 60 * day
            part = replace(whole, choices=whole.choices.where(kept), in_train=whole.in_train[kept])
            answers = {
                "ours": ours(part, family.range),
                "no gate": ungated(part),
                "first gate": first_gate(part),
            }
            for name, answer in answers.items():
                ever[name] |= promoted(part, answer)
        for name, any_day in ever.items():
            counts[name] += any_day
    return {name: count / seeds for name, count in counts.items()}


def missing(seeds: int) -> dict[str, np.ndarray]:
    """Failures of one arm leave no reward: refused, or it looks better than it is."""
    import polars as pl

    from otel_lightning.learner.policy.missing import check_missing

    counts = {name: np.zeros(2) for name in ("ours", "no gate", "first gate")}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        one = world(FAMILIES["binary"], "uniform", 3, rng)
        bad = int(one.means.argmin())
        lost = (one.choices.taken == bad) & (one.choices.rewards == 0) & (rng.random(600) < 0.7)
        part = replace(one, choices=one.choices.where(~lost), in_train=one.in_train[~lost])
        rewards = [None if gone else r for gone, r in zip(lost, one.choices.rewards, strict=True)]
        frame = pl.DataFrame({"arm": one.choices.taken.astype(str), "outcome": rewards})
        try:
            check_missing(frame, None)
            counts["ours"] += promoted(one, ours(part, (0.0, 1.0)))
        except DataError:
            pass
        counts["no gate"] += promoted(one, ungated(part))
        counts["first gate"] += promoted(one, first_gate(part))
    return {name: count / seeds for name, count in counts.items()}


def coverage(family: Family, logging: str, arms: int, seeds: int) -> dict[str, tuple[float, float]]:
    """Of each interval of the doubly robust value: how often given, and how often it holds."""
    given, held = dict.fromkeys(INTERVALS, 0), dict.fromkeys(INTERVALS, 0)
    for seed in range(seeds):
        one = world(family, logging, arms, np.random.default_rng(seed))
        truth = float(one.live @ one.means)
        even = np.broadcast_to(one.live, (len(one.choices.taken), arms))
        seen = cross_fitted(one.choices, even, NO_FEATURES)
        answer = estimated("doubly_robust", seen, one.choices.tasks, family.range or (-1e9, 1e9))
        for name in INTERVALS:
            interval = getattr(answer, name)
            given[name] += interval is not None
            held[name] += interval is not None and interval[0] <= truth <= interval[1]
    return {name: (given[name] / seeds, held[name] / max(given[name], 1)) for name in INTERVALS}


def main() -> int:
    """Print the tables; 1 if a cell is worse than it may be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--only", default="", help="cells whose name has these words")
    options = parser.parse_args()
    allowed = 0.05 + 2.33 * (0.05 * 0.95 / options.seeds) ** 0.5
    failed = 0
    print("promoted though truly worse (promoted at all), share of seeds")
    print(f"{'cell':<48}{'ours':>16}{'no gate':>16}{'first gate':>16}")
    cells: dict[str, Callable[[], dict[str, np.ndarray]]] = {}
    for (name, family), logging, arms in itertools.product(FAMILIES.items(), LOGGING, ARMS):
        cells[f"{name}, {logging}, {arms} arms"] = lambda f=family, g=logging, k=arms: cell(
            f, g, k, options.seeds
        )
    cells["20 looks at growing data"] = lambda: looks(max(10, options.seeds // 3))
    cells["missing rewards"] = lambda: missing(options.seeds)
    for name, run in cells.items():
        if options.only not in name:
            continue
        shares = run()
        failed += shares["ours"][1] > allowed
        shown = "".join(f"{worse:>8.1%} ({all_:>4.0%})" for all_, worse in shares.values())
        print(f"{name:<48}{shown}", flush=True)
    print("\npromoted where the live policy is uniform and the best arm is worth .3 more")
    for logging, rollouts in itertools.product(LOGGING, (600, 2400)):
        share = power(logging, rollouts, options.seeds)
        print(f"{f'binary, {logging}, 4 arms, {rollouts} rollouts':<48}{share:>8.0%}", flush=True)
    print("\n95 % intervals that hold the true value (given at all)")
    print(f"{'cell':<48}" + "".join(f"{name:>16}" for name in INTERVALS))
    for (name, family), logging, arms in itertools.product(FAMILIES.items(), LOGGING, (2, 10)):
        label = f"{name}, {logging}, {arms} arms"
        if family.range is None or options.only not in label:
            continue
        rates = coverage(family, logging, arms, options.seeds)
        for given, held in rates.values():
            count = given * options.seeds
            low = 0.93 - 2.33 * (0.95 * 0.05 / max(count, 1)) ** 0.5
            failed += count >= ENOUGH and held < low
        print(
            f"{label:<48}"
            + "".join(f"{held:>8.1%} ({given:>4.0%})" for given, held in rates.values())
        )
    print(f"\n{failed} cells fail." if failed else "\nNo cell fails.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
