"""Types of option values that click lacks: finite numbers, ranges, times, commands and shards."""

import math
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import click

FIRST_YEAR, LAST_YEAR = 1678, 2261
"""Whole years whose nanoseconds fit into the 64 bits of a time in the store."""
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Finite(click.FloatRange):
    """A finite number in a range. `click.FloatRange` accepts nan in every range, and inf."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Read a number, and refuse one that is not finite."""
        return _finite(self, super().convert(value, param, ctx), param, ctx)


class FiniteNumber(click.types.FloatParamType):
    """Any finite number. `float` accepts nan and inf."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Read a number, and refuse one that is not finite."""
        return _finite(self, super().convert(value, param, ctx), param, ctx)


def _finite(kind: click.ParamType[float], number: float, param: Any, ctx: Any) -> float:
    if not math.isfinite(number):
        kind.fail(f"{number} is not a finite number.", param, ctx)
    return number


class RangeOfRewards(click.ParamType[tuple[float, float]]):
    """The least and the greatest possible reward, separated by a comma."""

    name = "LOW,HIGH"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, float]:
        """Read `0,1` as (0.0, 1.0)."""
        try:
            low, high = map(float, str(value).split(","))
        except ValueError:
            self.fail(f"'{value}' is not two numbers such as 0,1.", param, ctx)
        if not (low < high and math.isfinite(high - low)):
            self.fail(
                f"'{value}' is no range. Give two finite numbers, the least first: 0,1", param, ctx
            )
        return low, high


class Since(click.ParamType[datetime]):
    """A time in UTC, or a duration before now, such as `7d`."""

    name = "TIME|AGO"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        """Read `2026-11-01`, `2026-11-01T12:00` or `7d` as a UTC time without a time zone."""
        ago = re.fullmatch(r"(\d+)([mhdw])", str(value))
        try:
            if ago:
                time = datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
            else:
                time = datetime.fromisoformat(str(value))
            utc = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
        except (ValueError, OverflowError):  # no time, or one before the year 1
            self.fail(
                f"'{value}' is no time. Give a date such as 2026-11-01, or an age such as 7d.",
                param,
                ctx,
            )
        if not FIRST_YEAR <= utc.year <= LAST_YEAR:
            self.fail(f"'{value}' is not in the years {FIRST_YEAR} to {LAST_YEAR}.", param, ctx)
        return utc


class CommandLine(click.ParamType[str]):
    """A command with its arguments in one text, which `shlex` can split into words."""

    name = "COMMAND"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """Check the text, such as `python worker.py`, and return it unchanged."""
        try:
            shlex.split(value)
        except ValueError as error:
            self.fail(f"'{value}' cannot be split into words: {error}.", param, ctx)
        return str(value)


class Shard(click.ParamType[tuple[int, int]]):
    """One part of several, such as `3/8`."""

    name = "I/N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int]:
        """Read `3/8` as (3, 8)."""
        if isinstance(value, tuple):
            return value
        parts = re.fullmatch(r"(\d+)/(\d+)", str(value))
        if not parts or not 1 <= int(parts[1]) <= int(parts[2]):
            self.fail(f"'{value}' is no part such as 3/8.", param, ctx)
        return int(parts[1]), int(parts[2])
