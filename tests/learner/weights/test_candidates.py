"""Other candidates that the same held-out rollouts have judged."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.desk_bandit import fine_tune, log, run
from support.fine_tuning import FAST

if TYPE_CHECKING:
    from conftest import Traces


def test_candidates_are_counted_also_if_the_log_has_grown(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=2, tasks=20)
    run("transitions", "--store", traces.store())
    first = fine_tune(traces, behavior_model, tmp_path / "one", *FAST, "--steps", "1")
    assert "other candidate" not in first.output
    other_data = "UPDATE transition_rows SET advantage = advantage / 2"
    traces.ask(other_data)
    again = fine_tune(traces, behavior_model, tmp_path / "again", *FAST, "--steps", "1")
    assert "other candidate" not in again.output
    traces.ask(other_data)
    second = fine_tune(traces, behavior_model, tmp_path / "two", *FAST, "--steps", "2")
    assert "1 other candidate was judged by the same held-out rollouts" in second.output
    assert "up to 2 x 0.05 = 0.1, and not 0.05" in second.output
