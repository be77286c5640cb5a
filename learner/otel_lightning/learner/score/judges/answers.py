"""Parse the answers of a judge, and combine its samples for one rollout."""

import json
import math
import re
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from otel_lightning.learner.score.judges.rubric import Rubric

MAX_CHARACTERS = 20_000
"""Number of characters after the thinking that are searched for a verdict."""
QUOTED = 200
"""Number of characters of an answer that an error text quotes."""
THINKING = "</think>"
"""Marks the end of the thinking that some servers leave in the answer."""
# The opening fence of a Markdown code block, with or without its language.
FENCE = re.compile(r"```(?:json)?\s*")


class Answer(NamedTuple):
    """The answer to one question, and the tokens it took."""

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    refused: bool = False
    """Whether the endpoint refused this one question; `text` is the reason then."""


class Reading(NamedTuple):
    """A parsed answer: a score and its reason, or None and the reason for having no score."""

    score: float | None
    reason: str


class Verdict(NamedTuple):
    """The combined answers for one rollout: value, spread, label and explanation of a score."""

    value: float | None
    spread: float | None
    label: str | None
    explanation: str


def read_answer(answer: Answer, rubric: Rubric) -> Reading:
    """Parse the verdict: the JSON object at the beginning of the answer, as the prompt asks.

    JSON after it does not count, such as a score that the judge quotes from the record. If the
    answer begins with words, all verdicts in it must agree, because a quoted verdict looks like
    the judge's own. An answer without a clear verdict is an error, never a score of 0.

    Example:
        >>> tone = Rubric("tone", 1, 5, "Is it polite?")
        >>> read_answer(Answer('{"reason": "Warm.", "score": 4}'), tone)
        Reading(score=4.0, reason='Warm.')
        >>> read_answer(Answer("Great!"), tone).reason
        "The judge gave no score from 1 to 5: 'Great!'"
    """
    if answer.refused:
        return Reading(None, f"The judge was refused: {answer.text[:QUOTED]}")
    verdicts = _verdicts(answer.text)
    if not verdicts:
        return _unreadable(answer.text, rubric)
    # Equal verdicts may be repeated; different ones leave open which one is meant.
    if len({_comparable(verdict["score"]) for verdict in verdicts}) > 1:
        return Reading(None, f"The judge gave several verdicts: {answer.text[-QUOTED:]!r}")
    score, reason = verdicts[0]["score"], str(verdicts[0].get("reason") or "")
    if score is None:
        return Reading(None, f"The judge could not judge: {reason[:QUOTED]}")
    number = _number(score)
    if number is None or not rubric.lowest <= number <= rubric.highest:
        return _unreadable(answer.text, rubric)
    return Reading(number, reason)


def combine(readings: Sequence[Reading], rubric: Rubric) -> Verdict:
    """Combine the samples of one rollout: mean, spread and the first reason.

    The spread is the sample standard deviation; a single score has none.

    Example:
        >>> tone = Rubric("tone", 1, 5, "Is it polite?", passes=3)
        >>> combine([Reading(4, "Warm."), Reading(2, "Cold.")], tone)
        Verdict(value=3.0, spread=1.4142135623730951, label='pass', explanation='mean 3 of 4, 2; spread 1.414. Warm.')
    """  # noqa: E501 - what the doctest prints
    scores = [reading.score for reading in readings if reading.score is not None]
    errors = [reading.reason for reading in readings if reading.score is None]
    if not scores:
        return Verdict(None, None, "error", errors[0])
    value = fmean(scores)
    label = None if rubric.passes is None else "pass" if value >= rubric.passes else "fail"
    reason = next(reading.reason for reading in readings if reading.score is not None)
    if len(readings) == 1:
        return Verdict(value, None, label, reason)
    spread = stdev(scores) if len(scores) > 1 else None
    return Verdict(value, spread, label, f"{_heading(scores, value, spread, errors)} {reason}")


def _heading(
    scores: Sequence[float], value: float, spread: float | None, errors: Sequence[str]
) -> str:
    listed = ", ".join(f"{score:g}" for score in scores)
    of_spread = "" if spread is None else f"; spread {spread:.3f}"
    of_errors = f"; {len(errors)} without a score" if errors else ""
    return f"mean {value:.4g} of {listed}{of_spread}{of_errors}."


def _unreadable(text: str, rubric: Rubric) -> Reading:
    return Reading(None, f"The judge gave no score from {rubric.scale}: {text[-QUOTED:]!r}")


def _verdicts(text: str) -> list[dict[str, Any]]:
    """Find the object at the beginning; if the answer begins with words, all candidates in it.

    A verdict has a score and a reason. Objects with only a score count if there is no verdict.
    """
    # The last mark counts: thinking may quote the mark itself.
    body = text.rpartition(THINKING)[2].lstrip()
    if fence := FENCE.match(body):
        body = body[fence.end() :]
    scored = _scored(body[:MAX_CHARACTERS])
    if body.startswith("{"):
        first, _ = _decoded(body[:MAX_CHARACTERS], 0)
        # It begins like a verdict: if it cannot be read, no object inside of it may stand for it.
        return [first] if first is not None and "score" in first else []
    return [value for value in scored if "reason" in value] or scored


def _scored(text: str) -> list[dict[str, Any]]:
    objects, start = [], text.find("{")
    while start >= 0:
        value, end = _decoded(text, start)
        if value is not None and "score" in value:
            objects.append(value)
        start = text.find("{", end)
    return objects


def _decoded(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    try:
        return json.JSONDecoder().raw_decode(text, start)
    # RecursionError: thousands of nested brackets, which some models repeat without end.
    except (ValueError, RecursionError):
        return None, start + 1


def _comparable(score: Any) -> str:
    number = _number(score)
    return repr(score if number is None else number)


def _number(value: Any) -> float | None:
    # A text such as "4" counts as a number: some models quote it. True is no score of 1.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
