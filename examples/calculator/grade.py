"""Reward the last number of an answer."""

import math
import re

import polars as pl

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def numeric(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Give 1 if the last number of the agent's output is the expected one, else 0."""
    judged = [
        _judge(output or "", expected)
        for output, expected in rollouts.select("output", "expected").rows()
    ]
    return rollouts.select("rollout_id").with_columns(
        value=pl.Series([value for value, _ in judged], dtype=pl.Float64),
        explanation=pl.Series([reason for _, reason in judged], dtype=pl.String),
    )


def _judge(output: str, expected: str | None) -> tuple[float | None, str | None]:
    if expected is None:
        return None, None
    numbers = NUMBER.findall(output)
    if not numbers:
        return 0.0, f"expected {expected}, got no number"
    got = float(numbers[-1].replace(",", ""))
    is_right = math.isclose(got, float(expected), rel_tol=1e-6)
    return float(is_right), None if is_right else f"expected {expected}, got {got:g}"
