"""The names of arms in the plots of a report, which users choose."""

import re
from typing import Any

from support.late import Late

from otel_lightning.learner.policy.arms import Arm

plots: Any = Late("otel_lightning.learner.report.plots")


def test_names_of_arms_are_shown_as_they_are_and_leave_room_for_the_plot() -> None:
    names = ["costs $5 or $6", "$x_$", "word" * 80]
    # A warning, as of matplotlib for a plot without room, is an error.
    drawn = plots.arms([Arm(name, 9, 0.5, 0.4, 0.6, 0.3, 0.4) for name in names])
    texts = re.findall(r">([^<]+)</text>", drawn)
    assert set(names[:2]) < set(texts)
    (cut,) = (text for text in texts if text.endswith("…"))
    assert names[2].startswith(cut[:-1])
