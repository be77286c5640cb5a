import pytest

from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.preparation.baseline import baseline_warning, with_baseline


def examples(*rewards: float, split: str = "train", credit: float = 0.0) -> list[Example]:
    """One rollout of one call for each reward."""
    return [
        Example(
            rollout_id=f"{split}{place}",
            task=str(place),
            split=split,
            state_hash=None,
            prompt=(1,),
            completion=(2,),
            logprobs=None,
            temperature=1.0,
            reward=reward,
            outcome=reward,
            advantage=reward - credit,
        )
        for place, reward in enumerate(rewards)
    ]


def test_grades_above_0_count_from_the_mean_of_the_training_ones() -> None:
    given = [*examples(0.2, 0.4, 0.9), *examples(0.6, split="heldout")]
    found, mean = with_baseline(given, 0.0)
    assert mean == pytest.approx(0.5)
    assert [e.advantage for e in found] == pytest.approx([-0.3, -0.1, 0.4, 0.1])
    assert [e.reward for e in found] == [0.2, 0.4, 0.9, 0.6]
    assert "the mean of the training ones, 0.5, count as good" in baseline_warning(0.5)


def test_grades_below_0_have_good_ones_too() -> None:
    found, _ = with_baseline(examples(-3.0, -2.0, -1.0), 0.0)
    assert [e.advantage for e in found] == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "given",
    [
        examples(0.0, 1.0, 1.0),
        examples(0.2, 0.4, 0.9, credit=0.5),
        [],
        examples(0.2, 0.9, split="heldout"),
    ],
)
def test_rewards_of_0_and_1_and_advantages_with_a_baseline_stay(given: list[Example]) -> None:
    assert with_baseline(given, 0.0) == (given, None)


def test_threshold_that_was_chosen_stays() -> None:
    given = examples(0.2, 0.4, 0.9)
    assert with_baseline(given, 0.3) == (given, None)
