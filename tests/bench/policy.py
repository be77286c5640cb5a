"""Simulated bandits: how often is a policy promoted that is truly worse than the live one?

    python tests/bench/policy.py [--seeds 60] [--coverage-seeds 150] [--only WORDS]

Each cell is a family of bandits; each seed draws one, logs it, learns and judges. Beside our gate
stand SNIPS without a gate, and a gate that compares SNIPS with the logged mean by a bootstrap over
rollouts, as the first version did. A cell fails if our gate passes truly worse policies in more
than 5 % of the seeds, beyond chance; the last lines judge all cells together. The second table says
how often intervals hold the true value. A cell fails where they do so in less than 93 %, beyond
chance. `policy_peer.py` compares with azure-agents-learning-sdk.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl

sys.path.append(str(Path(__file__).parent))

from bandits import (
    ARMS,
    BY_FREQUENCY,
    COPIED,
    FAMILIES,
    KEPT,
    LOGGING,
    ODD,
    UNFORESEEN,
    UNREWARDED,
    World,
    binary,
    in_context,
    propensities,
    world,
)
from bandits_examined import EXAMINED

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.estimates import estimate_value
from otel_lightning.learner.evaluate.gate import Requirements
from otel_lightning.learner.evaluate.reward_range import reward_range
from otel_lightning.learner.policy.assumptions.at_random import check_ease, check_random
from otel_lightning.learner.policy.assumptions.copies import drawn_together, with_telling_texts
from otel_lightning.learner.policy.assumptions.missing import check_missing
from otel_lightning.learner.policy.assumptions.multiples import with_multiples_as_one
from otel_lightning.learner.policy.assumptions.units import as_units, check_serial, check_shares
from otel_lightning.learner.policy.candidate import NO_FEATURES
from otel_lightning.learner.policy.gate.judge import (
    learn_and_judge,
    learn_and_judge_in_context,
)
from otel_lightning.learner.policy.softmax import contextual
from otel_lightning.learner.policy.softmax.choice_arrays import Choices, Settings
from otel_lightning.learner.policy.softmax.contextual import learn_shares
from otel_lightning.learner.policy.softmax.cross_fit import cross_fitted
from otel_lightning.learner.task_splits import TRAIN
from otel_lightning.learner.transitions.splits import split

SETTINGS = Settings(steps=300, learning_rate=3.0)
ENOUGH = 30
"""Intervals that must be given before a cell can say how often they hold."""
INTERVALS = ("normal", "bootstrap", "bernstein", "betting")
METHODS = ("ips", "snips", "doubly_robust")
GATES = ("ours", "no gate", "first gate")
HELD_OUT = (0.3, 0.5, 0.7)
"""Shares of the tasks that judge, as `--held-out` says; 0.3 is the default."""
Z = 2.33
"""99 % quantile of the normal distribution, for a cell of the gates."""
Z_OF_MANY = 3.1
"""99.9 % quantile, for an interval: there are several hundred of them."""
Answer = tuple[np.ndarray, bool]
Checks = Callable[[pl.DataFrame], None]


def ours(one: World) -> Answer:
    try:
        one = read_as_the_command(one)
    except DataError:
        return one.live, False
    rewarded = one.choices.rewards[~np.isnan(one.choices.rewards)]
    wanted = Requirements(reward_range(rewarded, one.range))
    if one.features is not None:
        judged = learn_and_judge_in_context(
            one.choices,
            one.features,
            one.in_train,
            one.live,
            settings=SETTINGS,
            requirements=wanted,
        )
        assert judged.policy is not None
        return judged.policy.probabilities(one.features.values), judged.verdict.passed
    shares = dict(zip(one.choices.arms, one.live.tolist(), strict=True))
    judged = learn_and_judge(one.choices, one.in_train, shares, SETTINGS, wanted)
    return judged.shares, judged.verdict.passed


def ungated(one: World) -> Answer:
    train, settings = one.choices.where(one.in_train), replace(SETTINGS, estimator="snips")
    if one.features is None:
        return learn_shares(train, settings), True
    values = one.features.values
    policy, _ = contextual.learn(train, values[one.in_train], one.features.names, settings)
    return policy.probabilities(values), True


def first_gate(one: World, answer: Answer) -> Answer:
    """SNIPS against the logged mean, by a bootstrap over rollouts."""
    probabilities = answer[0]
    held = one.choices.where(~one.in_train)
    if probabilities.ndim == 1:
        new = probabilities[held.taken]
    else:
        new = probabilities[~one.in_train][np.arange(len(held.taken)), held.taken]
    weights = new / held.propensities
    if weights.sum() ** 2 < 10 * (weights**2).sum():
        return probabilities, False
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(weights), size=(300, len(weights)))
    earned, total = (weights * held.rewards)[drawn].sum(1), weights[drawn].sum(1)
    values = np.where(total > 0, earned / np.maximum(total, 1e-9), -np.inf)
    gains = values - held.rewards[drawn].mean(1)
    return probabilities, bool(np.quantile(gains, 0.05) > 0)


def promoted(one: World, answer: Answer) -> np.ndarray:
    """Whether it passed, and whether it passed though it is worse."""
    shares, passed = answer
    worse = one.value(shares) < one.value(one.live) - 1e-9
    return np.array([passed, passed and worse])


def answers(one: World) -> dict[str, np.ndarray]:
    without = ungated(one)
    told = {"ours": ours(one), "no gate": without, "first gate": first_gate(one, without)}
    return {name: promoted(one, answer) for name, answer in told.items()}


Shares = dict[str, np.ndarray]


def cell(draw: Callable[[np.random.Generator], World], seeds: int) -> Shares:
    """Count, for each gate: promoted, and promoted though worse."""
    counts = {name: np.zeros(2) for name in GATES}
    for seed in range(seeds):
        for name, counted in answers(draw(np.random.default_rng(seed))).items():
            counts[name] += counted
    return {name: count / seeds for name, count in counts.items()}


def looks(seeds: int) -> Shares:
    """Twenty daily looks at growing data; a seed counts if any look promotes."""
    counts = {name: np.zeros(2) for name in GATES}
    for seed in range(seeds):
        whole = world(FAMILIES["binary"], "skewed", 3, np.random.default_rng(seed), n=1200)
        ever = {name: np.zeros(2, dtype=bool) for name in GATES}
        for day in range(1, 21):
            kept = np.arange(1200) < 60 * day
            part = replace(whole, choices=whole.choices.where(kept), in_train=whole.in_train[kept])
            for name, counted in answers(part).items():
                ever[name] |= counted.astype(bool)
        for name, any_day in ever.items():
            counts[name] += any_day
    return {name: count / seeds for name, count in counts.items()}


def tabulated(one: World) -> pl.DataFrame:
    """The choices as the command reads them: each has its arm, task and time; NaN is no reward."""
    count = len(one.choices.taken)
    return pl.DataFrame(
        {
            "rollout_id": [f"r{i}" for i in range(count)],
            "arm": one.choices.taken.astype(str),
            "policy_version": ["v1"] * count,
            "task": one.choices.tasks,
            "time": pl.Series(np.arange(count)).cast(pl.Datetime("ns")),
            "outcome": pl.Series(one.choices.rewards).fill_nan(None),
        }
    )


def refused_or_told(one: World, check: Callable[[pl.DataFrame], object]) -> dict[str, np.ndarray]:
    """Check the data first, as the command does. The other gates drop what has no reward."""
    rewarded = ~np.isnan(one.choices.rewards)
    part = replace(one, choices=one.choices.where(rewarded), in_train=one.in_train[rewarded])
    told = answers(part)
    try:
        check(tabulated(one))
        told["ours"] = promoted(one, ours(one))
    except DataError:
        told["ours"] = np.zeros(2)
    return told


def checked(draw: Callable[[np.random.Generator], World], seeds: int, check: Checks) -> Shares:
    """Count as `cell` does, for logs that the command may refuse to read."""
    counts = {name: np.zeros(2) for name in GATES}
    for seed in range(seeds):
        told = refused_or_told(draw(np.random.default_rng(seed)), check)
        for name, counted in told.items():
            counts[name] += counted
    return {name: count / seeds for name, count in counts.items()}


def check_rewards(rows: pl.DataFrame) -> None:
    """Check as the command does whether arms miss rewards equally often."""
    check_missing(rows, None)


def check_arms(rows: pl.DataFrame) -> None:
    """Check as `--propensities frequencies` does; every input has the same text."""
    words = pl.DataFrame({"rollout_id": rows["rollout_id"]})
    check_random(rows, words.with_columns(service_name=pl.lit("desk"), input=pl.lit("help")))


def read_as_the_command(one: World) -> World:
    """Count copies and kept arms as one task, and hold tasks out again, as the command does.

    Raises:
        DataError: If the arms were kept for a while, or are not as their propensities say.
    """
    choices = one.choices
    count = len(choices.taken)
    names = [int(sha256(b"%d" % n).hexdigest()[:16], 16) for n in choices.tasks]
    rows = pl.DataFrame(
        {
            "rollout_id": [f"r{i}" for i in range(count)],
            "task_hash": pl.Series(names, dtype=pl.UInt64),
            "input": np.full(count, None) if one.inputs is None else one.inputs,
            "arm": choices.taken,
            "outcome": choices.rewards,
            "propensity": choices.propensities,
            "policy_version": "v1",
            "time": pl.Series(np.arange(count)).cast(pl.Datetime("ns")),
        }
    )
    known = with_telling_texts(rows.drop_nulls("input"), len(set(names)))
    is_copied = known.height > 0 and drawn_together(known)
    users = one.users if one.users is not None else np.zeros(0, int)
    shared = rows.select("rollout_id", unit=pl.lit("user.id")).head(len(users))
    shared = shared.with_columns(value=pl.Series(users, dtype=pl.UInt64))
    inputs = known.select("rollout_id", value=pl.col("input").cast(pl.UInt64))
    read, units = with_multiples_as_one(*as_units(rows, shared, inputs if is_copied else None))
    check_serial(read)
    if one.recorded:
        check_ease(read)
        check_shares(read)
    if units.before == units.after:
        return one
    read = read.with_columns(split(HELD_OUT[0]))
    tasks = read["task_hash"].rank("dense").to_numpy().astype(np.int64) - 1
    in_train = (read["split"] == TRAIN).to_numpy()
    return replace(one, choices=replace(choices, tasks=tasks), in_train=in_train)


def power(logging: str, rollouts: int, seeds: int, held_out: float, lost: float = 0.0) -> float:
    """Share of the seeds in which a policy that is truly better is promoted."""
    level, passed = np.array([0.4, 0.7, 0.4, 0.4]), 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        shares = propensities(logging, level, rng)
        taken = rng.choice(4, size=rollouts, p=shares)
        tasks, even = np.arange(rollouts) // 3, np.full(4, 0.25)
        rewards = binary(rng, taken, level)
        rewards[rng.random(rollouts) < lost] = np.nan
        choices = Choices(tuple("abcd"), taken, shares[taken], rewards, tasks)
        in_train = tasks % 10 >= 10 * held_out
        passed += ours(World(choices, level, even, in_train, (0.0, 1.0)))[1]
    return passed / seeds


def coverage(draw: Callable[[np.random.Generator], World], seeds: int) -> dict[str, np.ndarray]:
    """Count, for each estimator and interval: given, and given though it misses the true value."""
    counts = {f"{method} {name}": np.zeros(2) for method in METHODS for name in INTERVALS}
    for seed in range(seeds):
        one = draw(np.random.default_rng(seed))
        truth, limits = one.value(one.live), one.range or (-1e9, 1e9)
        even = np.broadcast_to(one.live, (len(one.choices.taken), one.live.shape[-1]))
        seen = cross_fitted(one.choices, even, one.features or NO_FEATURES)
        for method in METHODS:
            answer = estimate_value(method, seen, one.choices.tasks, limits)
            for name in INTERVALS:
                interval = getattr(answer, name)
                if interval is not None:
                    held = interval[0] <= truth <= interval[1]
                    counts[f"{method} {name}"] += [1, not held]
    return counts


Cells = dict[str, Callable[[np.random.Generator], World]]


def plain_cells(arms: tuple[int, ...]) -> Cells:
    return {
        f"{name}, {logging}, {count} arms": (
            lambda rng, f=family, g=logging, k=count: world(f, g, k, rng)  # type: ignore[misc]
        )
        for (name, family), logging, count in itertools.product(FAMILIES.items(), LOGGING, arms)
    }


def context_cells() -> Cells:
    kinds = ("uniform", "skewed", "adversarial", "numbers")
    return {
        f"in context, {kind}, {count} arms": (
            lambda rng, g=kind, k=count: in_context(g, k, rng)  # type: ignore[misc]
        )
        for kind, count in itertools.product(kinds, (2, 4, 10))
    }


def gate_table(seeds: int, only: str) -> int:
    """Print how often each gate promotes a worse policy; return the number of failed cells."""
    allowed = 0.05 + Z * (0.05 * 0.95 / seeds) ** 0.5
    print("a cell: how often a gate promotes a truly worse policy (promotes any), of all seeds;")
    print(f"ours may do so in 5 %, and by chance of {seeds} seeds in {allowed:.1%}\n")
    print(f"{'cell':<52}{'ours':>16}{'no gate':>16}{'first gate':>16}")
    cells: dict[str, Callable[[], Shares]] = {
        name: (lambda d=draw: cell(d, seeds))  # type: ignore[misc]
        for name, draw in (
            plain_cells(ARMS) | context_cells() | ODD | UNFORESEEN | COPIED | KEPT | EXAMINED
        ).items()
    }
    cells["20 looks at growing data"] = lambda: looks(max(10, seeds // 3))
    for name, draw in UNREWARDED.items():
        cells[name] = lambda d=draw: checked(d, seeds, check_rewards)  # type: ignore[misc]
    for name, draw in BY_FREQUENCY.items():
        cells[name] = lambda d=draw: checked(d, seeds, check_arms)  # type: ignore[misc]
    worst, failed = dict.fromkeys(GATES, 0.0), 0
    for name, run in cells.items():
        if only not in name:
            continue
        shares = run()
        failed += shares["ours"][1] > allowed
        worst = {gate: max(worst[gate], shares[gate][1]) for gate in GATES}
        shown = "".join(f"{worse:>8.1%} ({all_:>4.0%})" for all_, worse in shares.values())
        print(f"{name:<52}{shown}", flush=True)
    print(f"{'worst cell':<52}" + "".join(f"{share:>8.1%}       " for share in worst.values()))
    return failed


def power_table(seeds: int) -> None:
    print(
        "\nthe price of safety: how often a truly better policy is promoted, where the live one is"
    )
    print("uniform and the best arm is worth .3 more\n")
    columns = "".join(f"{f'held out {share:.0%}':>16}" for share in HELD_OUT)
    print(f"{'':<52}{columns}")
    for logging, rollouts in itertools.product(LOGGING, (600, 2400)):
        shown = [power(logging, rollouts, seeds, share) for share in HELD_OUT]
        label = f"binary, {logging}, 4 arms, {rollouts} rollouts"
        print(f"{label:<52}" + "".join(f"{share:>16.0%}" for share in shown), flush=True)
    for lost in (0.02, 0.05, 0.1):
        shown = [power("uniform", 2400, seeds, share, lost) for share in HELD_OUT]
        label = f"uniform, 2400 rollouts, {lost:.0%} of the rewards missing"
        print(f"{label:<52}" + "".join(f"{share:>16.0%}" for share in shown), flush=True)
    print("\narms drawn at random: how often --propensities frequencies is refused by mistake\n")
    for name, draw in RANDOM_ARMS.items():
        print(f"{name:<52}{wrongly_refused(draw, seeds):>16.0%}", flush=True)


RANDOM_ARMS: dict[str, Callable[[np.random.Generator], World]] = {
    "binary, uniform, 4 arms": lambda rng: world(FAMILIES["binary"], "uniform", 4, rng),
    "binary, skewed, 4 arms": lambda rng: world(FAMILIES["binary"], "skewed", 4, rng),
    "heavy tails, uniform, 50 arms": lambda rng: world(FAMILIES["heavy tails"], "uniform", 50, rng),
    "tasks of very different size and ease": ODD["tasks of very different size and ease"],
}


def wrongly_refused(draw: Callable[[np.random.Generator], World], seeds: int) -> float:
    """Share of the seeds in which arms that were drawn at random are taken for others."""
    refused = 0
    for seed in range(seeds):
        try:
            check_arms(tabulated(draw(np.random.default_rng(seed))))
        except DataError:
            refused += 1
    return refused / seeds


def misses(counts: dict[str, np.ndarray]) -> Iterator[str]:
    """Name the intervals that miss the true value in more than 7 %, beyond chance."""
    for name, (given, missed) in counts.items():
        allowed = 0.07 + Z_OF_MANY * (0.05 * 0.95 / max(given, 1)) ** 0.5
        if given >= ENOUGH and missed > allowed * given:
            yield f"{name} {1 - missed / given:.1%} of {given:.0f}"


def coverage_table(seeds: int, only: str) -> int:
    """Print how often each interval holds; return the number of failed cells."""
    print("\n95 % intervals: how often they hold the true value, of those that are given (share of")
    print(f"the seeds with an interval), over {' '.join(METHODS)} together; empty: none is given.")
    print("Aim: 93 % or more. Few seeds have few intervals, so a cell fails only beyond chance.\n")
    print(f"{'cell':<48}" + "".join(f"{name:>16}" for name in INTERVALS))
    failed, total = 0, {f"{m} {name}": np.zeros(2) for m in METHODS for name in INTERVALS}
    for label, draw in (plain_cells((2, 10)) | context_cells() | ODD).items():
        if only not in label or draw(np.random.default_rng(0)).range is None:
            continue
        counts = coverage(draw, seeds)
        row = ""
        for name in INTERVALS:
            given, missed = sum(counts[f"{method} {name}"] for method in METHODS)
            shown = f"{1 - missed / given:.1%}" if given else ""
            row += f"{shown:>9} ({given / seeds / len(METHODS):>4.0%})"
        total = {name: total[name] + count for name, count in counts.items()}
        wrong = list(misses(counts))
        failed += bool(wrong)
        print(f"{label:<48}{row}" + "".join(f"  FAILS: {one}" for one in wrong), flush=True)
    print("\nover all cells: estimator and interval, held, given")
    for name, (given, missed) in total.items():
        print(f"{name:<48}{1 - missed / max(given, 1):>8.2%}{given:>10.0f}")
    return failed


def main() -> int:
    """Print the tables; 1 if a cell is worse than it may be."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=60, help="seeds of each cell of the gates")
    parser.add_argument("--coverage-seeds", type=int, default=150, help="of the intervals")
    parser.add_argument("--only", default="", help="cells whose name has these words")
    parser.add_argument("--table", choices=["gates", "power", "intervals"], help="only this one")
    options = parser.parse_args()
    wanted = [options.table] if options.table else ["gates", "power", "intervals"]
    failed = gate_table(options.seeds, options.only) if "gates" in wanted else 0
    if "power" in wanted and not options.only:
        power_table(options.seeds)
    if "intervals" in wanted:
        failed += coverage_table(options.coverage_seeds, options.only)
    print(f"\n{failed} cells fail." if failed else "\nNo cell fails.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
