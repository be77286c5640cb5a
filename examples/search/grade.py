"""Reward an answer: mostly the name itself, and a little for the passages that were found."""

import json
import re
from collections.abc import Sequence
from typing import Any

import polars as pl

FOR_ANSWER = 0.9
"""Share of the answer in the shaped reward; the rest is for passages, each counted once."""


def answered(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Give 1 if the agent's output is the name that was asked for, else 0."""
    return _scores(rollouts, shaped=False)


def answered_and_found(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Give 0.9 for the right name, and 0.1 for the share of needed passages that were found."""
    return _scores(rollouts, shaped=True)


def _scores(rollouts: pl.DataFrame, *, shaped: bool) -> pl.DataFrame:
    columns = rollouts.select("output", "expected", "tools").rows()
    judged = [_judge(*row, shaped=shaped) for row in columns]
    return rollouts.select("rollout_id").with_columns(
        value=pl.Series([value for value, _ in judged], dtype=pl.Float64),
        explanation=pl.Series([reason for _, reason in judged], dtype=pl.String),
    )


def _judge(
    output: str | None, expected: str | None, tools: Sequence[Any] | None, *, shaped: bool
) -> tuple[float | None, str | None]:
    if not expected:
        return None, None
    truth = json.loads(expected)
    is_right = _normal(output or "") == _normal(truth["answer"])
    results = "\n".join(str(tool["result"]) for tool in tools or [])
    missing = [text for text in truth["passages"] if text not in results]
    reason = None if is_right else f"expected {truth['answer']}, got {(output or 'nothing')[:40]}"
    if missing and not is_right:
        reason = f"{reason}; never found: {missing[0]}"
    found_share = 1 - len(missing) / len(truth["passages"])
    return (
        FOR_ANSWER * is_right + (1 - FOR_ANSWER) * found_share if shaped else float(is_right)
    ), reason


def _normal(text: str) -> str:
    """Compare names as SQuAD does: without case, articles and punctuation."""
    words = re.sub(r"[^\w\s]", "", text.lower()).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))
