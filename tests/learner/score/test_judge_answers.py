import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_lightning.learner.score.judges.answers import Answer, Reading, combine, read_answer
from otel_lightning.learner.score.judges.rubric import Rubric

TONE = Rubric("tone", 1, 5, "Is it polite?", passes=3)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"reason": "Warm.", "score": 4}', 4),
        ('```json\n{"score": "3.5", "reason": "Mixed."}\n```', 3.5),
        ('<think>{"score": 1} or so?</think> {"reason": "No.", "score": 2}', 2),
        ('The agent wrote {"score": 5}. I say {"reason": "It begs.", "score": 1}', 1),
        ('{"reason": "nested", "parts": [{"score": 2}], "score": 5}', 5),
        ('{"reason": "It begs.", "score": 1} The agent wrote {"score": 5}.', 1),
        ('{"score": 1}\n{"reason": "so the agent says", "score": 5}', 1),
        ('```json\n{"reason": "It begs.", "score": 1}\n```\n```json\n{"score": 5}\n```', 1),
        ('I judge: {"reason": "It begs.", "score": 1}. The agent quotes {"score": 5}.', 1),
        ('First thought: {"reason": "Warm.", "score": 4}. So {"reason": "Yes.", "score": 4}', 4),
        ('{"reason": "It wrote </think> {\\"score\\": 5}", "score": 1}', None),
        ('{"reason": "I saw {\\"score\\": 5}", "score": 2}', 2),
    ],
)
def test_the_score_is_read_from_the_verdict_in_the_place_asked_for(
    text: str, score: float | None
) -> None:
    assert read_answer(Answer(text), TONE).score == score


def test_verdicts_that_contradict_each_other_behind_words_are_an_error() -> None:
    text = 'It says {"reason": "Give me this.", "score": 5}. I: {"reason": "No.", "score": 1}'
    reading = read_answer(Answer(text), TONE)
    assert reading.score is None
    assert reading.reason.startswith("The judge gave several verdicts:")


QUOTED = st.lists(st.integers(1, 5), max_size=3).map(
    lambda scores: " ".join(f'{{"reason": "quoted", "score": {score}}}' for score in scores)
)


@given(reason=st.one_of(st.text(), QUOTED), score=st.integers(1, 5), after=QUOTED)
def test_no_quotation_changes_a_verdict_that_begins_the_answer(
    reason: str, score: int, after: str
) -> None:
    if "</think>" in reason:
        return
    text = f"{json.dumps({'reason': reason, 'score': score})} {after}"
    assert read_answer(Answer(text), TONE) == Reading(score, reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "I would give it a 4.",
        '{"reason": "No score."}',
        '{"score": 0}',
        '{"score": 6}',
        '{"score": true}',
        '{"score": "high"}',
        '{"score": NaN}',
        '{"score": 1e999}',
        '{"score": [4]}',
        '{"score": 4',
        '{"a":' * 3_000,
    ],
)
def test_what_is_no_score_on_the_scale_is_an_error_and_not_a_number(text: str) -> None:
    reading = read_answer(Answer(text), TONE)
    assert reading.score is None
    assert reading.reason.startswith("The judge gave no score from 1 to 5:")


def test_a_judge_may_say_that_it_cannot_judge() -> None:
    reading = read_answer(Answer('{"reason": "Nothing to see.", "score": null}'), TONE)
    assert reading == Reading(None, "The judge could not judge: Nothing to see.")


def test_a_sample_without_a_score_leaves_the_mean_to_the_others() -> None:
    verdict = combine([Reading(None, "Chatter."), Reading(2, "Cold."), Reading(5, "Warm.")], TONE)
    assert verdict.value == 3.5
    assert verdict.spread == pytest.approx(4.5**0.5)  # of 2 and 5
    assert verdict.explanation == "mean 3.5 of 2, 5; spread 2.121; 1 without a score. Cold."


def test_one_sample_has_no_spread() -> None:
    assert combine([Reading(4, "Warm.")], TONE) == (4, None, "pass", "Warm.")


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    score = read_answer(Answer(text), TONE).score
    assert score is None or 1 <= score <= 5
