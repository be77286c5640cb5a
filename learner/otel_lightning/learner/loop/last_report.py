"""The last report: the first and the last state of the agent, on tasks that nobody has read."""

from pathlib import Path
from typing import Any

from otel_lightning.learner.evaluate.paired import compare_sides
from otel_lightning.learner.loop.config import POLICY
from otel_lightning.learner.loop.loop import Loop
from otel_lightning.learner.loop.state import DONE, Result
from otel_lightning.learner.rollout_runner import Report


def final_report(loop: Loop) -> Result:
    """Run the final tasks with the first and with the present version, and compare them.

    Without final tasks there is nothing to run. If nothing was promoted, only one of the two runs.
    """
    first = loop.state.details(0, "start")
    before = (first["arm"], first["model"])
    after = (loop.live, str(loop.model) if loop.model else None)
    details: dict[str, Any] = {"before": list(before), "after": list(after)}
    if not loop.split.final:
        return DONE, details
    learns_shares = POLICY in loop.config.learn.what
    changed = before != after or (learns_shares and _shares_changed(loop))
    old = _run(loop, "before", before)
    details |= {"tasks": len(loop.split.final), "before_mean": old.mean, "changed": changed}
    if not changed:
        return DONE, details
    new = _run(loop, "after", after)
    comparison = compare_sides(old.side("before", old.only_arm), new.side("after", new.only_arm))
    names = ("base_mean", "other_mean", "gain", "lower", "upper", "p_value", "pairs", "tasks")
    details |= {name: getattr(comparison, name) for name in names}
    return DONE, details | {"after_mean": new.mean, "said": str(comparison)}


def _run(loop: Loop, label: str, live: tuple[str | None, str | None]) -> Report:
    arm, model = live
    loop.serve(Path(model) if model else None)
    flag, learns_shares = loop.config.flag, POLICY in loop.config.learn.what
    flags = None
    if learns_shares and flag is not None:
        # Learned shares are compared as a whole: with the flag file of the beginning, and that of
        # now.
        flags = loop.folder / "first.json" if label == "before" else flag.flags
    return loop.run(
        f"final.{label}",
        loop.split.final,
        loop.config.gate.samples,
        arms=[arm] if arm and not learns_shares else [],
        flags=flags,
    )


def _shares_changed(loop: Loop) -> bool:
    flag = loop.config.flag
    return flag is not None and flag.flags.read_bytes() != (loop.folder / "first.json").read_bytes()
