"""Read ages and sizes, as options have them: `30d`, `20GB`; write numbers with their noun."""

import re

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
BYTES = {
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip


def parse_age(text: str) -> float:
    """Read an age such as `30d` as seconds.

    Raises:
        ValueError: If it is not a number and one of s, m, h, d, w.

    Example:
        >>> parse_age("30d")
        2592000.0
    """
    return _quantity(text, SECONDS, "30d")


def parse_size(text: str) -> int:
    """Read a size such as `20GB` as bytes.

    Raises:
        ValueError: If it is not a number and one of KB, MB, GB, TB, KiB, MiB, GiB, TiB.

    Example:
        >>> parse_size("20GB")
        20000000000
    """
    return int(_quantity(text, BYTES, "20GB"))


def decimal(value: float, sign: str = "") -> str:
    """Write a number with four decimals; with four digits if these would be zeros, or too many.

    Args:
        value: The number. Below 1e-13 it counts as rounding of 0; rewards may be as small as 1e-9.
        sign: `+` to write the sign of positive numbers too.

    Example:
        >>> decimal(0.5), decimal(2e-10), decimal(2.5e7, "+"), decimal(1 - 0.9 - 0.1)
        ('0.5000', '2e-10', '+2.5e+07', '-0.0000')
    """
    four_digits = 1e-13 <= abs(value) < 1e-3 or 1e6 <= abs(value) < float("inf")  # noqa: PLR2004
    return f"{value:{sign}.4g}" if four_digits else f"{value:{sign}.4f}"


def significant(value: float, digits: int = 3) -> str:
    """Write a measured value with some significant digits; a larger number is whole, with commas.

    Args:
        value: The number.
        digits: Number of significant digits. Only numbers below 0.0001 and from 1e15 on have an
            exponent.

    Example:
        >>> significant(0.39051), significant(1.0), significant(999.7), significant(12345.6)
        ('0.391', '1', '1,000', '12,346')
    """
    # Half below: `g` would round such a number up to a power of ten, and write it as `1e+03`.
    if 10**digits - 0.5 <= abs(value) < 1e15:  # noqa: PLR2004  a whole number of 15 digits
        return f"{value:,.0f}"
    return f"{value:,.{digits}g}"


def number_of(count: int, one: str, several: str | None = None) -> str:
    """Write a number and its noun, which is plural unless the number is 1.

    Args:
        count: The number.
        one: The noun after 1; further words, such as a verb, may follow it.
        several: The words after any other number. By default `one` and an s.

    Example:
        >>> number_of(1, "rollout"), number_of(1200, "rollout")
        ('1 rollout', '1,200 rollouts')
        >>> number_of(0, "process is", "processes are")
        '0 processes are'
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def _quantity(text: str, units: dict[str, int], example: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if not match or match[2] not in units or not float(match[1]):
        raise ValueError(
            f"'{text}' is not a number above 0 and a unit. Known units: {', '.join(units)}. "
            f"Example: {example}"
        )
    return float(match[1]) * units[match[2]]
