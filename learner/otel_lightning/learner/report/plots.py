"""The plots of a report. Blue is below, orange is above; never red against green."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from otel_lightning.learner.policy.arms import Arm
from otel_lightning.learner.report.svg import INK, to_svg

BLUE, ORANGE, GREY = "#3b82c4", "#d97706", "#8a8f98"
STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.spines.right": False,
    "axes.spines.top": False, "font.size": 10, "savefig.transparent": True, "svg.fonttype": "none",
    "svg.hashsalt": "lightning", "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.formatter.useoffset": False,
    "text.parse_math": False,  # names of arms may hold dollar signs
}  # fmt: skip
WIDTH = 7.2  # inches
MAX_POINTS = 1_000
MAX_NAME = 32  # characters; a longer name leaves no room for the plot

Draw = Callable[[Axes], None]


def interval(gate: Mapping[str, Any], confidence: str) -> str:
    """Draw the gain with its bounds, such as of `95 %` confidence, beside 0 and the least gain."""

    def draw(axes: Axes) -> None:
        lower, gain, upper = (_number(gate.get(name)) for name in ("lower", "gain", "upper"))
        color = ORANGE if lower > (gate.get("least_gain") or 0.0) else BLUE
        axes.axvline(0, color=INK, linewidth=1)
        if gate.get("least_gain"):
            axes.axvline(gate["least_gain"], color=GREY, linewidth=1, linestyle="--")
        axes.plot([lower, upper], [0, 0], color=color, linewidth=3, solid_capstyle="butt")
        axes.plot([gain], [0], "o", color=color, markersize=9)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-1, 1)
        axes.set_xlabel(f"gain in reward, with one-sided {confidence} bounds")

    return _plot("gain", "The gain and its bounds", 1.1, draw)


def bars(name: str, label: str, counts: Sequence[tuple[str, float]]) -> str:
    """Draw one horizontal bar per count, the first one on top."""

    def draw(axes: Axes) -> None:
        values = [value for _, value in counts]
        positions = range(len(counts))
        axes.barh(positions, values, color=BLUE, height=0.6)
        axes.set_yticks(positions, [text for text, _ in counts])
        axes.invert_yaxis()
        for y, value in enumerate(values):
            axes.annotate(f" {value:,.0f}", (value, y), va="center")
        axes.set_xlim(0, max([*values, 1]) * 1.15)
        axes.xaxis.set_visible(False)
        axes.spines["bottom"].set_visible(False)

    return _plot(name, label, 0.6 + 0.32 * len(counts), draw)


def arms(rows: Sequence[Arm]) -> str:
    """Draw the mean reward of each arm with its interval."""

    def draw(axes: Axes) -> None:
        for y, arm in enumerate(rows):
            if np.isfinite([arm.low, arm.high]).all():
                axes.plot([arm.low, arm.high], [y, y], color=BLUE, linewidth=3)
            axes.plot([arm.mean], [y], "o", color=BLUE, markersize=8)
        axes.set_yticks(range(len(rows)), [short(arm.name) for arm in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("mean reward, 95 % interval over tasks")

    return _plot("arms", "Mean reward of each arm", 0.9 + 0.35 * len(rows), draw)


def histogram(name: str, label: str, values: Sequence[float]) -> str:
    """Draw how often values occur, with a line at 1."""

    def draw(axes: Axes) -> None:
        axes.hist(values, bins=min(30, max(5, len(set(values)))), color=BLUE)
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_xlabel(label)
        axes.set_ylabel("rollouts")

    return _plot(name, label, 2.2, draw)


def quantiles(rows: Sequence[tuple[float, float]]) -> str:
    """Draw the quantiles of importance weights."""

    def draw(axes: Axes) -> None:
        axes.plot([q for q, _ in rows], [value for _, value in rows], "o-", color=BLUE)
        axes.axhline(1, color=INK, linewidth=1)
        axes.set_xlabel("share of the held-out rollouts, %")
        axes.set_ylabel("importance weight")

    return _plot("weights", "Quantiles of the importance weights", 2.2, draw)


def curve(name: str, steps: Sequence[tuple[int, float]]) -> str:
    """Draw a metric of a training run by step."""

    def draw(axes: Axes) -> None:
        axes.plot([step for step, _ in steps], [value for _, value in steps], color=BLUE)
        axes.set_xlabel("optimizer step")
        axes.set_title(name, loc="left", fontsize=10)

    return _plot(f"curve-{name.replace('/', '-')}", f"{name} by step", 1.9, draw)


def scatter(name: str, across: str, points: Sequence[tuple[float, float]]) -> str:
    """Draw outcomes against another measure; of many points a regular sample is drawn."""
    # At equal distances and not at random: the same report twice gives the same bytes.
    shown = [points[at] for at in np.linspace(0, len(points) - 1, MAX_POINTS, dtype=int)]
    shown = shown if len(points) > MAX_POINTS else list(points)

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*shown, strict=True), "o", color=BLUE, alpha=0.35, markersize=4)
        axes.set_xlabel(across)
        axes.set_ylabel("outcome")

    return _plot(name, f"Outcome against {across}", 2.4, draw)


def short(name: str) -> str:
    """Return a name that leaves room for the plot."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _plot(name: str, label: str, height: float, draw: Draw) -> str:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure.add_subplot())
        return to_svg(figure, name, label)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
