"""The plots of `evaluate`: values with intervals, segments, overlap and rewards over time."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from otel_lightning.collector.files.atomic import wanted_file
from otel_lightning.learner.evaluate.estimates import ValueEstimate
from otel_lightning.learner.policy.evaluate import Answer
from otel_lightning.learner.report.plots import BLUE, GREY, ORANGE, STYLE, WIDTH, short

ROW = 0.3
"""Height of one estimator or segment, in inches."""
CURVE = 2.2
"""Height of a plot of a curve, in inches."""
TITLE = 0.8
"""Height of a title and a label of an axis, in inches."""
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
"""Colours that colour-blind readers can tell apart (Okabe & Ito, 2008), one for each of the arms
with most rollouts; the rewards of further arms are not drawn over time."""

Panel = tuple[float, Callable[[Axes], None]]
"""Height in inches, and function that draws it."""


def save_plots(answer: Answer, path: Path) -> None:
    """Draw an evaluation as a picture: SVG, PNG or PDF by the name of the file.

    The file appears only when it is complete.

    The same evaluation gives the same bytes.

    Args:
        answer: The evaluation.
        path: The file to write; its name ends in .svg, .png or .pdf.

    Raises:
        OSError: If the file cannot be written.
    """
    panels = _panels(answer)
    # matplotlib writes the present time unless its field is None.
    date = {"CreationDate": None} if path.suffix == ".pdf" else {}
    date |= {"Date": None} if path.suffix == ".svg" else {}
    with mpl.rc_context(STYLE):
        heights = [height for height, _ in panels]
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        rows = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        for (_, draw), axes in zip(panels, rows[:, 0], strict=True):
            draw(axes)
        with wanted_file(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata=date, facecolor="white", transparent=False)


def _panels(answer: Answer) -> list[Panel]:
    named = [(estimate.method, estimate) for estimate in answer.estimates]
    panels = [_values(f"Value of {answer.policy}", named, answer.mean_reward)]
    if answer.segments:
        title = "Value in each segment (doubly robust)"
        panels.append(_values(title, list(answer.segments.items()), answer.mean_reward))
    panels.append((CURVE + TITLE, lambda axes: _overlap(axes, answer.weights)))
    if answer.history:
        panels.append((CURVE + TITLE, lambda axes: _history(axes, answer)))
    return panels


def _values(title: str, named: Sequence[tuple[str, ValueEstimate]], logged: float) -> Panel:
    def draw(axes: Axes) -> None:
        axes.axvline(logged, color=GREY, linewidth=1, linestyle="--", label="mean logged reward")
        for y, (_, estimate) in enumerate(named):
            thin = "betting" if not y else None
            thick = "bootstrap" if not y else None
            color = GREY if estimate.biased else BLUE
            if estimate.betting is not None:
                axes.plot(estimate.betting, [y, y], color=color, linewidth=1.2, label=thin)
            if estimate.bootstrap is not None:
                axes.plot(estimate.bootstrap, [y, y], color=color, linewidth=4, label=thick)
            axes.plot([estimate.value], [y], "o", color=ORANGE, markersize=6)
        names = [f"{short(name)}{' *' * estimate.biased}" for name, estimate in named]
        axes.set_yticks(range(len(named)), names)
        axes.set_ylim(len(named) - 0.4, -0.6)
        bias = "\n* biased: grey intervals are for the estimator's mean, not the policy's value"
        footnote = bias if any(estimate.biased for _, estimate in named) else ""
        axes.set_xlabel(f"reward; 95 % intervals, where they are reliable{footnote}", fontsize=8)
        axes.set_title(title, loc="left", fontsize=10)
        _legend(axes)

    return TITLE + ROW * len(named), draw


def _overlap(axes: Axes, weights: Sequence[float]) -> None:
    axes.plot(np.linspace(0, 100, len(weights)), weights, color=BLUE)
    axes.axhline(1, color=GREY, linewidth=1, linestyle="--")
    axes.set_xlabel("share of the rollouts with a smaller weight, %")
    axes.set_ylabel("importance weight")
    axes.set_title("Overlap: the policy's weight on each logged rollout", loc="left", fontsize=10)


def _history(axes: Axes, answer: Answer) -> None:
    by_count = sorted({row.arm: row.logged for row in answer.overlap}.items(), key=lambda x: -x[1])
    for color, (arm, _) in zip(COLORS, by_count, strict=False):
        parts = [part for part in answer.history if part.arm == arm]
        tenths, means = [part.part for part in parts], [part.mean for part in parts]
        axes.plot(tenths, means, "o-", color=color, markersize=4, label=short(arm))
    axes.set_xlabel("tenth of the logged rollouts, the oldest first")
    axes.set_ylabel("mean reward")
    axes.set_xticks(range(1, 11))
    axes.set_title("Drift: mean reward of each arm over time", loc="left", fontsize=10)
    _legend(axes)


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, frameon=False)
