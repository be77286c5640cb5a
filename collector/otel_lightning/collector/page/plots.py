"""Geometry of the plots; the macros in `plots.html` draw it as SVG.

All plots have a fixed coordinate system and scale with the page. Colours are CSS classes, so that
they follow the colour scheme.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 480.0, 120.0
LEVELS = 4  # shades of an advantage, on each side of 0
DOMAIN_MARGIN = 0.08
WIDEST_CELL = 16.0


class Bar(NamedTuple):
    """A bar and the text of its tooltip."""

    x: float
    y: float
    width: float
    height: float
    title: str


class Bars(NamedTuple):
    """Bars side by side, and the value of the highest one."""

    bars: list[Bar]
    top: float


class Point(NamedTuple):
    """A point with an interval; `low` and `high` are None without one."""

    x: float
    y: float
    low: float | None
    high: float | None
    title: str


class Curve(NamedTuple):
    """A curve: its points as SVG wants them, its band, and the values at its top and bottom."""

    line: str
    band: str
    points: list[Point]
    top: float
    bottom: float


class Scatter(NamedTuple):
    """Points, and the values at the borders."""

    points: list[Point]
    left: float
    right: float
    top: float
    bottom: float


class Interval(NamedTuple):
    """An interval on a common axis, in the coordinates of the plot."""

    low: float
    middle: float
    high: float
    zero: float | None


class Cell(NamedTuple):
    """A cell of the strip: position, colour class, the step it leads to, and its value."""

    x: float
    width: float
    level: str
    step: int
    value: float

    @property
    def drawn(self) -> float:
        """The width that is drawn: a gap follows."""
        return round(self.width * 0.94, 2)


def bars(values: Sequence[tuple[str, float]], height: float = HEIGHT) -> Bars | None:
    """Place bars of `(title, value)` side by side; values are not negative. None without values."""
    if not values:
        return None
    width, top = WIDTH / len(values), max(value for _, value in values) or 1.0
    placed = [
        Bar(
            round(i * width + width * 0.1, 2),
            round(height - height * value / top, 2),
            round(width * 0.8, 2),
            round(height * value / top, 2),
            title,
        )
        for i, (title, value) in enumerate(values)
    ]
    return Bars(placed, top)


def curve(values: Sequence[tuple[float, float, float | None, str]]) -> Curve | None:
    """Place `(x, y, half width of the interval, title)`, in the order of x; None without values."""
    if not values:
        return None
    lows = [y - (half or 0) for _, y, half, _ in values]
    highs = [y + (half or 0) for _, y, half, _ in values]
    bottom, top = min(lows), max(highs)
    # All values are equal: a scale of 1 around them, with the line in the middle.
    if bottom == top:
        bottom, top = bottom - 0.5, top + 0.5
    first, last = values[0][0], values[-1][0]

    def across(x: float) -> float:
        return round(10 + (WIDTH - 20) * ((x - first) / (last - first) if last > first else 0.5), 2)

    def up(y: float) -> float:
        return round(8 + (HEIGHT - 16) * (top - y) / (top - bottom), 2)

    points = [
        Point(across(x), up(y), up(y - half) if half else None, up(y + half) if half else None, t)
        for x, y, half, t in values
    ]
    line = " ".join(f"{p.x},{p.y}" for p in points)
    edge = [f"{p.x},{p.high or p.y}" for p in points]
    # The band is one polygon: along the upper bounds, and back along the lower ones.
    edge += [f"{p.x},{p.low or p.y}" for p in reversed(points)]
    return Curve(line, " ".join(edge), points, top, bottom)


def domain(values: Sequence[float | None], *, zero: bool = False) -> tuple[float, float]:
    """Return the axis on which all values lie, with a margin; with `zero`, 0 too."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    finite += [0.0] * (zero or not finite)
    low, high = min(finite), max(finite)
    margin = (high - low) * DOMAIN_MARGIN or 0.5
    return low - margin, high + margin


def interval(
    low: float | None, middle: float | None, high: float | None, axis: tuple[float, float]
) -> Interval | None:
    """Place an interval on an axis of `WIDTH`; None if a bound is unknown."""
    if low is None or middle is None or high is None:
        return None
    start, end = axis

    def across(x: float) -> float:
        return round(min(max((x - start) / (end - start), 0), 1) * WIDTH, 2)

    return Interval(
        across(low), across(middle), across(high), across(0.0) if start <= 0 <= end else None
    )


def strip(values: Sequence[tuple[int, float]]) -> list[Cell]:
    """Place cells of `(step, value)` side by side; a class from b4 (below 0) to o4 (above)."""
    largest = max((abs(value) for _, value in values), default=0.0) or 1.0
    width = min(WIDTH / max(len(values), 1), WIDEST_CELL)
    return [
        Cell(round(i * width, 2), round(width, 2), _level(value, largest), step, value)
        for i, (step, value) in enumerate(values)
    ]


def heat(logprobs: Sequence[float]) -> list[Cell]:
    """Place cells of token log-probabilities; darker is less likely, -6 and below darkest."""
    width = min(WIDTH / max(len(logprobs), 1), WIDEST_CELL)
    return [
        Cell(round(i * width, 2), round(width, 2), f"h{min(int(-value / 1.5), LEVELS)}", i, value)
        for i, value in enumerate(logprobs)
    ]


def scatter(values: Sequence[tuple[float, float, str]]) -> Scatter | None:
    """Place points of `(x, y, title)` whose values are finite; None without any."""
    values = [one for one in values if math.isfinite(one[0]) and math.isfinite(one[1])]
    if not values:
        return None
    left, right = min(x for x, _, _ in values), max(x for x, _, _ in values)
    bottom, top = min(y for _, y, _ in values), max(y for _, y, _ in values)
    # Where all values are equal, any width does: the points lie at the start.
    width, height = right - left or 1.0, top - bottom or 1.0
    points = [
        Point(
            round(10 + (x - left) / width * (WIDTH - 20), 1),
            round(8 + (top - y) / height * (HEIGHT - 16), 1),
            None, None, title,
        )
        for x, y, title in values
    ]  # fmt: skip
    return Scatter(points, left, right, top, bottom)


def _level(value: float, largest: float) -> str:
    if not value:
        return "z"
    shade = max(1, math.ceil(abs(value) / largest * LEVELS))  # the largest value has the darkest
    return f"{'o' if value > 0 else 'b'}{shade}"
