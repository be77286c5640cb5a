"""The training rows of each algorithm: only completions are learned, from the right transitions."""

import math
from pathlib import Path
from typing import Any

import pytest
from support.late import Late

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights import algorithms
from otel_lightning.learner.weights.algorithms import ALGORITHMS, awr, dpo, grpo, kto, rft
from otel_lightning.learner.weights.examples import Example, Tokenized
from otel_lightning.learner.weights.preparation.pairs import preference_pairs
from otel_lightning.learner.weights.settings import Training

train: Any = Late("otel_lightning.learner.weights.train")

PROMPT, GOOD, BAD = (4, 9, 5), (20, 1), (21, 1)


def example(completion: tuple[int, ...], advantage: float, **columns: Any) -> Example:
    row = {
        "rollout_id": "a",
        "task": "a",
        "split": "train",
        "state_hash": None,
        "prompt": PROMPT,
        "completion": completion,
        "logprobs": (math.log(0.25), 0.0),
        "temperature": 1.0,
        "reward": advantage,
        "outcome": advantage,
        "advantage": advantage,
    }
    return Example(**(row | columns))


EXAMPLES = [example(GOOD, 1.0), example(BAD, -0.5)]


@pytest.mark.parametrize("algorithm", [rft, awr])
def test_supervised_rows_learn_the_completion_and_only_read_the_prompt(algorithm: Any) -> None:
    for row in algorithm.rows(EXAMPLES, algorithm.Settings()):
        assert row["input_ids"][: len(PROMPT)] == list(PROMPT)
        assert row["labels"][: len(PROMPT)] == [-100] * len(PROMPT)
        assert row["labels"][len(PROMPT) :] == row["input_ids"][len(PROMPT) :]


@pytest.mark.parametrize("name", ["dpo", "kto", "grpo"])
def test_prompt_and_completion_stay_apart_where_the_trainer_masks_the_prompt(name: str) -> None:
    algorithm = algorithms.load(name)
    for row in algorithm.rows(EXAMPLES, algorithm.Settings()):
        assert row["prompt_ids"] == list(PROMPT)
        learned = [ids for column, ids in row.items() if column.endswith("_ids")]
        assert all(ids in ([*PROMPT], [*GOOD], [*BAD]) for ids in learned)


def test_rft_learns_a_completion_once_in_its_state_and_no_bad_one() -> None:
    again = example(GOOD, 1.0, rollout_id="b")
    kept = rft.rows([*EXAMPLES, again], rft.Settings())
    assert [row["input_ids"] for row in kept] == [[*PROMPT, *GOOD]]


def test_rft_leaves_out_what_earned_no_more_by_more_calls_in_the_same_state() -> None:
    direct, mended = example(GOOD, 1.0), example((22, 1), 1.0, later=2)
    only_way = example((22, 1), 1.0, later=2, prompt=(4, 8))
    kept = rft.rows([mended, direct, only_way], rft.Settings())
    assert [row["input_ids"] for row in kept] == [[*PROMPT, *GOOD], [4, 8, 22, 1]]


def test_rft_keeps_what_earned_more_by_more_calls() -> None:
    kept = rft.rows([example(GOOD, 0.5), example(BAD, 1.0, later=2)], rft.Settings())
    assert [row["input_ids"] for row in kept] == [[*PROMPT, *BAD], [*PROMPT, *GOOD]]


def test_rft_can_keep_every_good_completion() -> None:
    mended = example(BAD, 1.0, later=2)
    kept = rft.rows([example(GOOD, 1.0), mended], rft.Settings(fewest_calls=False))
    assert len(kept) == 2


def test_shuffled_rewards_take_the_number_of_later_calls_with_them() -> None:
    told = [example((i, 1), float(i % 2), later=10 * (i % 2)) for i in range(20)]
    mixed = train.shuffled(told, 1)
    assert {(e.advantage, e.reward, e.later) for e in mixed} == {(0.0, 0.0, 0), (1.0, 1.0, 10)}
    assert [e.completion for e in mixed] == [e.completion for e in told]
    assert [e.later for e in mixed] != [e.later for e in told]


def test_rewards_that_were_shuffled_before_leave_no_length_to_learn_from() -> None:
    """A bad rollout goes on for longer; its reward was shuffled, its number of calls was not."""
    from otel_lightning.learner.weights.train import _split

    told = [example((i, 1), 1.0, later=2 * (i % 2), prompt=(4, i // 2)) for i in range(400)]
    training = Training(Path("model"))
    before, _, _ = _split(Tokenized(told), training)
    kept = rft.rows(before, rft.Settings())
    assert {row["input_ids"][-2] % 2 for row in kept} == {0}  # the short ones only
    after, _, _ = _split(Tokenized(told), training, control=1)
    short = [row["input_ids"][-2] % 2 == 0 for row in rft.rows(after, rft.Settings())]
    # Each state keeps one of two completions, or both; about half of them are the short ones.
    assert sum(short) / len(short) == pytest.approx(0.5, abs=4 * 0.5 / len(short) ** 0.5)


def test_shuffled_rewards_fall_on_good_calls_as_often_as_chance_has_it() -> None:
    """The number among 20 of 60 is hypergeometric: mean 20 / 3, standard deviation 1.74."""
    told = [example((i, 1), float(i < 20)) for i in range(60)]
    seeds = range(500)
    hits = [sum(e.reward for e in train.shuffled(told, seed)[:20]) for seed in seeds]
    assert sum(hits) / len(seeds) == pytest.approx(20 / 3, abs=4 * 1.74 / len(seeds) ** 0.5)


def test_rft_learns_the_best_of_a_task_up_to_its_cap() -> None:
    many = [example((20 + i, 1), i / 10, prompt=(4, i)) for i in range(1, 6)]
    kept = rft.rows(many, rft.Settings(per_task=2))
    assert [row["input_ids"] for row in kept] == [[4, 5, 25, 1], [4, 4, 24, 1]]


def test_awr_weights_follow_the_advantage_are_clipped_and_have_mean_one() -> None:
    rows = awr.rows([*EXAMPLES, example(GOOD, 99.0)], awr.Settings(temperature=1.0, most=5.0))
    weights = [row["weight"] for row in rows]
    raw = [math.exp(1.0), math.exp(-0.5), 5.0]
    assert weights == pytest.approx([3 * w / sum(raw) for w in raw])


def test_pairs_put_the_better_completion_first() -> None:
    (row,) = dpo.rows(EXAMPLES, dpo.Settings())
    assert (row["chosen_ids"], row["rejected_ids"]) == ([*GOOD], [*BAD])


def test_completions_of_different_states_are_no_pair() -> None:
    other = example(BAD, -0.5, prompt=(4, 8, 5))
    assert preference_pairs([EXAMPLES[0], other], per_state=4) == []


def test_completion_seen_with_good_and_bad_outcomes_counts_by_its_mean() -> None:
    lucky = [example(BAD, 1.0), example(BAD, -1.0), example(BAD, -1.0)]
    ((chosen, rejected),) = preference_pairs([example(GOOD, 0.5), *lucky], per_state=4)
    assert (chosen.completion, rejected.completion) == (GOOD, BAD)


def test_kto_leaves_ties_out() -> None:
    rows = kto.rows([*EXAMPLES, example(GOOD, 0.0)], kto.Settings())
    assert [row["label"] for row in rows] == [True, False]


def test_kto_takes_a_reward_of_0_as_bad_where_nothing_is_below_it() -> None:
    rows = kto.rows([example(GOOD, 1.0), example(BAD, 0.0)], kto.Settings())
    assert [row["label"] for row in rows] == [True, False]


def test_kto_names_the_option_where_all_rewards_are_above_the_threshold() -> None:
    graded = [example(GOOD, 0.75), example(BAD, 0.25)]
    with pytest.raises(DataError, match=r"above 0 \(the lowest is 0.25\)\. Say with --threshold"):
        kto.rows(graded, kto.Settings())
    rows = kto.rows(graded, kto.Settings(threshold=0.5))
    assert [row["label"] for row in rows] == [True, False]


def test_grpo_keeps_logged_logprobs_and_leaves_out_what_has_no_gradient() -> None:
    rows = grpo.rows([*EXAMPLES, example(GOOD, 0.0)], grpo.Settings())
    assert [row["advantage"] for row in rows] == [1.0, -0.5]
    assert rows[0]["logprobs"] == [math.log(0.25), 0.0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rft", "has an advantage above 0"),
        ("awr", "have the same advantage"),
        ("dpo", "so there are no pairs"),
        ("kto", "needs good and bad completions"),
        ("grpo", "so there is no gradient"),
        ("reward-model", "so there are no pairs"),
    ],
)
def test_nothing_to_learn_is_one_sentence(name: str, reason: str) -> None:
    algorithm = algorithms.load(name)
    with pytest.raises(DataError, match=reason):
        algorithm.rows([example(GOOD, 0.0), example(BAD, 0.0)], algorithm.Settings())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_the_names_that_its_how_to_lists(name: str) -> None:
    algorithm = algorithms.load(name)
    assert algorithm.LEARNING_RATE > 0
    algorithm.Settings()
