"""Controls of room booking: what a prompt that is written from shuffled rewards gains."""

import json
import random
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from otel_lightning.learner.prompts.logged.rollouts import Rollouts, choose
from otel_lightning.learner.score.rules import python
from otel_lightning.learner.score.rules.spec import read_rule

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from room_booking import task, writer  # noqa: E402 - the folder is no package
from room_booking.rooms import best_room  # noqa: E402

RECORDS, STEPS, DRAWS = 80, 3, 3


def books(prompt: str, request: task.Request, rng: random.Random) -> str:
    """Book as the demonstrator does, whom the example's model imitates."""
    lines = prompt.splitlines()
    about = {other: need for (need, other), line in task.LINES.items() if line in lines}
    asked = {
        about.get(need, need)
        for need in request.needs
        if rng.random() < (task.OBEYS if need in about else task.KNOWS)
    }
    return best_room(request.seats, asked)


def is_right(request: task.Request, room: str) -> bool:
    return room == best_room(request.seats, set(request.needs))


def success(prompt: str) -> float:
    """Success on held-out requests, always by the same draws."""
    held_out = [one for one in task.requests() if one.is_held_out] * DRAWS
    rng = random.Random(5)  # noqa: S311
    return float(np.mean([is_right(one, books(prompt, one, rng)) for one in held_out]))


def logged(seed: int) -> tuple[list[task.Request], pl.DataFrame]:
    """Rollouts of the first prompt, with rewards and explanations by the example's rule."""
    rng = random.Random(seed)  # noqa: S311
    requests = [one for one in task.requests() if not one.is_held_out]
    rng.shuffle(requests)
    expected = [
        {"room": best_room(one.seats, set(one.needs)), "seats": one.seats, "needs": one.needs}
        for one in requests
    ]
    names = [f"r{number}" for number in range(len(requests))]
    rows = {
        "rollout_id": names,
        "output": [books(task.PROMPT, one, rng) for one in requests],
        "expected": [json.dumps(one) for one in expected],
    }
    rule = python.load(read_rule(str(EXAMPLES / "room_booking/grade.py:booked")))
    judged = rule(pl.LazyFrame(rows)).select("rollout_id", outcome="value", why="explanation")
    return requests, judged.with_columns(arm=pl.lit("first"))


def written(seed: int, *, shuffled: bool) -> str:
    """The prompt that the writer makes of the first one, in three steps."""
    requests, judged = logged(seed)
    text = task.PROMPT
    for step in range(STEPS):
        rows = judged
        if shuffled:
            order = np.random.default_rng(100 * seed + step).permutation(rows.height).tolist()
            rows = rows.with_columns(rows.select("outcome", "why")[order])
        rows = rows.with_columns(
            failed=pl.col("outcome") < 0.5,
            kind=pl.col("why").str.replace_all(r"\d+", "#").fill_null(""),
        )
        chosen = choose(Rollouts(rows, 1, 0), "first", RECORDS, 0, seed)
        text, _ = writer.better(text, writer.records(lines(requests, rows, chosen)))
    return text


def lines(requests: Sequence[task.Request], rows: pl.DataFrame, chosen: Sequence[str]) -> str:
    """The records as the writer reads them."""
    by_name = {row["rollout_id"]: row for row in rows.iter_rows(named=True)}
    records = [
        {"outcome": "?", "input": requests[int(name[1:])].text}
        | ({"explanations": f"booked 0: {why}"} if (why := by_name[name]["why"]) else {})
        for name in chosen
    ]
    return "\n".join(map(json.dumps, records))


@pytest.mark.slow
def test_shuffled_rewards_teach_no_more_than_lines_drawn_at_random() -> None:
    before = success(task.PROMPT)
    drawn = combinations(task.LINES.values(), STEPS)
    by_chance = np.array([success(task.system_prompt(lines)) - before for lines in drawn])
    # Three random lines out of nine gain a little on average, and much or nothing by chance.
    assert 0 < by_chance.mean() < 0.05
    assert by_chance.std() > 0.1

    prompts = [written(seed, shuffled=True) for seed in range(60)]
    gains = np.array([success(prompt) - before for prompt in prompts])
    error = by_chance.std() / len(gains) ** 0.5
    assert abs(gains.mean() - by_chance.mean()) < 3 * error
    right = {task.LINES[need, need] for need in task.SAYINGS}
    said = [line in right for prompt in prompts for line in prompt.splitlines()[1:]]
    assert 1 / 3 - 0.1 < np.mean(said) < 1 / 3 + 0.1
    assert success(written(0, shuffled=False)) - before > 0.5


def test_interval_of_a_gain_covers_the_chance_of_each_repetition() -> None:
    from shared.study import Rewards, averaged, gain

    before = Rewards({f"t{n}": [0.5] for n in range(100)})
    shifts = (0.3, -0.2, 0.1, -0.1, 0.0)
    repeated = [Rewards({name: [0.5 + shift] for name in before.by_task}) for shift in shifts]
    mean, low, high = gain(averaged(repeated), before)
    assert mean == pytest.approx(0.02)
    # The mean of five draws of five numbers: their standard deviation by the root of five.
    error = float(np.std(shifts)) / 5**0.5
    assert (low, high) == pytest.approx((0.02 - 1.96 * error, 0.02 + 1.96 * error), abs=0.03)
    _, low, high = gain(repeated[0], before)
    assert (low, high) == pytest.approx((0.3, 0.3))


def test_curve_of_a_loop_has_the_interval_of_the_reward_beside_that_of_the_gain() -> None:
    from shared.loops import Round, curve
    from shared.study import Rewards

    rewards = Rewards({f"t{i}": [float(i % 4 == 0)] for i in range(40)})
    *_, line = curve([Round(1, rewards, (0.5, 0.4, 0.6), "promoted")])
    _, _, mean, ends, gain, gain_ends, *_ = (cell.strip() for cell in line.split("|"))
    low, high = map(float, ends.strip("[]").split(","))
    assert low < float(mean) == 0.25 < high
    assert (gain, gain_ends) == ("+0.500", "[+0.400, +0.600]")
