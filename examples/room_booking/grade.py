"""Reward the booked room: the best one, and name the first need that was ignored."""

import json

import polars as pl
from rooms import ROOMS

BY_NAME = {room.name: room for room in ROOMS}


def booked(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Give 1 for the best room, else 0."""
    judged = [
        _judge((output or "").strip(), expected)
        for output, expected in rollouts.select("output", "expected").rows()
    ]
    return rollouts.select("rollout_id").with_columns(
        value=pl.Series([value for value, _ in judged], dtype=pl.Float64),
        explanation=pl.Series([reason for _, reason in judged], dtype=pl.String),
    )


def _judge(output: str, expected: str | None) -> tuple[float | None, str | None]:
    if not expected:
        return None, None
    booking = json.loads(expected)
    if output == booking["room"]:
        return 1.0, None
    room = BY_NAME.get(output)
    if room is None:
        return 0.0, "no room was booked"
    if room.seats < booking["seats"]:
        return 0.0, f"ignored: {booking['seats']} people do not fit"
    missing = [need for need in booking["needs"] if need not in room.has]
    if missing:
        return 0.0, f"ignored: {missing[0]}"
    return 0.0, f"the room is larger or has more than needed; the best is {booking['room']}"
