"""Numbers, times and texts as a reader wants them; used as filters by the templates."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from otel_lightning.collector.terminal.quantities import number_of, significant

HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that change the direction of text: a reader must see them."""
SHORT = 24
NONE, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def number(value: float | None) -> str:
    """Write a count, with commas.

    Example:
        >>> number(1234567)
        '1,234,567'
    """
    return NONE if value is None else f"{value:,.0f}"


def counted(value: float | None, noun: str) -> str:
    """Write a count with its noun, which is plural unless the count is 1.

    Example:
        >>> counted(1, "visit"), counted(1200, "visit")
        ('1 visit', '1,200 visits')
    """
    return f"{NONE} {noun}s" if value is None else number_of(int(value), noun)


def decimal(value: float | None) -> str:
    """Write a measured value with three significant digits, without an exponent in usual ranges.

    Example:
        >>> decimal(0.39051), decimal(1.0), decimal(12345.6)
        ('0.391', '1', '12,346')
    """
    if value is None:
        return NONE
    return significant(value).replace("-", MINUS)


def signed(value: float | None) -> str:
    """Write a value with its sign, so that colour is not needed to read it.

    Example:
        >>> signed(0.62), signed(0.0)
        ('+0.62', '0')
    """
    return ("+" if value and value > 0 else "") + decimal(value)


def percent(value: float | None) -> str:
    """Write a share as a percentage.

    Example:
        >>> percent(0.0412)
        '4.1 %'
    """
    return NONE if value is None else f"{value * 100:.1f} %".replace("-", MINUS)


def duration(nanoseconds: float | None) -> str:
    """Write a duration in the unit that fits it.

    Example:
        >>> duration(1_200_000_000), duration(82_000_000), duration(999_700_000)
        ('1.2 s', '82 ms', '1 s')
        >>> duration(7_500_000_000_000)
        '2 h 5 min'
    """
    if nanoseconds is None:
        return NONE
    seconds = nanoseconds / 1e9
    if seconds < 0.9995:  # noqa: PLR2004  more is a second in three digits
        return f"{significant(seconds * 1000)} ms"
    if seconds < 60:  # noqa: PLR2004  seconds in a minute
        return f"{significant(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004


def took(row: Mapping[str, Any]) -> str:
    """Write the time between the start and the end of a row; a sender may leave either out.

    Example:
        >>> took({"start_ns": 5_000_000, "end_ns": 7_000_000})
        '2 ms'
    """
    start, end = row["start_ns"], row["end_ns"]
    return duration(None if start is None or end is None else end - start)


def moment(nanoseconds: int | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Write a time in UTC.

    Example:
        >>> moment(1_800_000_000_000_000_000)
        '2027-01-15 08:00:00'
    """
    if nanoseconds is None:
        return NONE
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime(form)


def visible(text: Any) -> str:
    """Replace characters that a browser does not show, or that turn text around, by their code.

    Example:
        >>> visible("a" + chr(0x1B) + "[2J" + chr(0x202E))
        'a⟨1B⟩[2J⟨202E⟩'
    """
    return HIDDEN.sub(lambda found: f"⟨{ord(found[0]):02X}⟩", str(text))


def short(text: str) -> str:
    """Shorten an id that is long, in its middle: ids of one sender often begin alike.

    Example:
        >>> short("support/s1"), short("unknown_service:node/session-17")
        ('support/s1', 'unknown_servi…session-17')
    """
    return text if len(text) <= SHORT else f"{text[: SHORT - 11]}…{text[-10:]}"


def readable(text: str | None) -> str:
    """Indent JSON; another text stays as it is."""
    try:
        return json.dumps(json.loads(text or ""), indent=2, ensure_ascii=False)
    except ValueError:
        return text or ""


FILTERS = {
    "number": number,
    "counted": counted,
    "decimal": decimal,
    "signed": signed,
    "percent": percent,
    "duration": duration,
    "took": took,
    "moment": moment,
    "visible": visible,
    "readable": readable,
    "short": short,
}
