"""The table `rounds`: which stages of a loop have ended, and with which result."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.store import open_store, quote_literal
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.runs import TIME, to_json

Details = dict[str, Any]
Result = tuple[str, Details]
"""The outcome of a stage, and what later stages need of it."""
WON, REFUSED, NOTHING, DONE = "promoted", "refused", "nothing", "done"
"""Outcomes of a stage."""


@dataclass(slots=True)
class State:
    """The ended stages of a loop, in the store. It is opened only for a moment each time."""

    store: Path
    loop: str
    ended: dict[tuple[int, str], Result]
    seconds: dict[tuple[int, str], float]
    """How long each stage took, the time when it was down not counted."""

    @classmethod
    def of(cls, store: Path, loop: str) -> "State":
        """Read the stages that have ended; the store is created if it does not exist."""
        with open_store(store) as db:
            rows = read(db, __package__ or "", "rounds", loop=loop).to_dicts()
        ended = {
            (row["round"], row["stage"]): (row["outcome"], json.loads(row["details"]))
            for row in rows
        }
        seconds = {(row["round"], row["stage"]): row["seconds"] for row in rows}
        return cls(store, loop, ended, seconds)

    def once(self, number: int, stage: str, run_stage: Callable[[], Result]) -> Result:
        """Run a stage unless it has ended, and write down its end.

        A stage that is killed runs again, so running it twice must be the same as once.

        Args:
            number: The round.
            stage: Name of the stage.
            run_stage: Runs the stage.
        """
        recorded = self.ended.get((number, stage))
        if recorded is not None:
            return recorded
        started = datetime.now(UTC).replace(tzinfo=None)
        outcome, details = run_stage()
        row: dict[str, Any] = {
            "loop": self.loop,
            "round": number,
            "stage": stage,
            "outcome": outcome,
            "details": to_json(details),
            "started": started,
            "ended": datetime.now(UTC).replace(tzinfo=None),
        }
        schema: dict[str, Any] = dict.fromkeys(row, pl.String())
        schema |= {"round": pl.Int32(), "started": TIME, "ended": TIME}
        condition = (
            f"loop = {quote_literal(self.loop)} AND round = {number} "
            f"AND stage = {quote_literal(stage)}"
        )
        with open_store(self.store) as db:
            # Replaced and not inserted: a stage has one row, also if it was recorded twice.
            db.replace("rounds", arrow(pl.DataFrame([row], schema=schema)), condition)
        # As it is read back after a restart, where tuples have become lists: both ways must be
        # equal.
        result = outcome, json.loads(row["details"])
        self.ended[number, stage] = result
        self.seconds[number, stage] = (row["ended"] - started).total_seconds()
        return result

    def hours(self, number: int) -> float:
        """Return how many hours the stages up to a round took."""
        return (
            sum(took for (of_round, _), took in self.seconds.items() if of_round <= number) / 3600
        )

    def details(self, number: int, stage: str) -> Details:
        """Return the details of a stage; empty if it has not ended."""
        return self.ended.get((number, stage), ("", {}))[1]

    def of_stage(self, stage: str) -> Mapping[int, Result]:
        """Return the results of a stage by round."""
        return {number: one for (number, name), one in sorted(self.ended.items()) if name == stage}
