from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

from otel_lightning.learner.cli import cli
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.task_splits import HELD_OUT, TRAIN
from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.transitions.splits import split

if TYPE_CHECKING:
    from conftest import Traces


def hash_of(task: str) -> int:
    return int.from_bytes(sha256(task.encode()).digest()[:8])


def splits(tasks: list[str], held_out: float) -> list[str]:
    hashes = pl.DataFrame({"task_hash": [hash_of(t) for t in tasks]}, {"task_hash": pl.UInt64})
    return hashes.select(split(held_out)).to_series().to_list()


def test_split_is_by_the_hash_of_the_task() -> None:
    # SHA-256 of nothing begins with e3b0c44298fc1c14, 0.889 of the way from 0 to 2**64.
    assert splits([""], held_out=0.88) == [TRAIN]
    assert splits([""], held_out=0.89) == [HELD_OUT]


def test_share_of_held_out_tasks_is_as_asked() -> None:
    held_out = splits([f"task-{i}" for i in range(2000)], 0.3).count(HELD_OUT)
    # Three binomial standard deviations of 2000 draws at 0.3 are 61.
    assert abs(held_out - 600) < 61


def test_all_or_nothing_can_be_held_out() -> None:
    tasks = [f"task-{i}" for i in range(200)]
    assert set(splits(tasks, 0.0)) == {TRAIN}
    assert set(splits(tasks, 1.0)) == {HELD_OUT}


def test_share_of_0_holds_out_no_hash_and_a_share_of_1_every_hash() -> None:
    ends = pl.DataFrame({"task_hash": [0, 2**64 - 1]}, {"task_hash": pl.UInt64})
    assert set(ends.select(split(0.0)).to_series()) == {TRAIN}
    assert set(ends.select(split(1.0)).to_series()) == {HELD_OUT}


def test_task_held_out_at_a_small_share_is_held_out_at_a_larger_one() -> None:
    tasks = [f"task-{i}" for i in range(200)]
    small, large = (splits(tasks, share) for share in (0.2, 0.4))
    assert all(b == HELD_OUT for a, b in zip(small, large, strict=True) if a == HELD_OUT)


def test_task_hash_in_the_store_is_the_beginning_of_the_sha_256(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 1.0)
    traces.task("a", "ticket-7")
    make_transitions(traces.store(), Settings())
    assert traces.ask("SELECT task_hash FROM transition_rows") == [
        {"task_hash": hash_of("ticket-7")}
    ]


@pytest.mark.parametrize(
    ("tasks", "reward", "options", "told"),
    [
        (1, None, (), "No task is held out, so no gate could judge"),
        (20, None, ("--held-out", "1"), "All tasks are held out, so there is nothing to learn"),
        (20, 0.5, (), "All advantages are 0.5, so nothing tells good calls from bad ones"),
        (20, None, ("--credit", "group"), "All advantages are 0, so nothing tells good calls"),
        (20, None, (), None),
    ],
)
def test_transitions_that_teach_or_judge_nothing_are_named(
    traces: "Traces", tasks: int, reward: float | None, options: tuple[str, ...], told: str | None
) -> None:
    for i in range(20):
        traces.call(f"r{i}")
        traces.task(f"r{i}", f"t{i % tasks}")
        traces.reward(f"r{i}", float(i % 2) if reward is None else reward)
    result = CliRunner().invoke(cli, ["transitions", "--store", traces.store(), *options])
    assert result.exit_code == 0
    notes = [line for line in result.output.splitlines() if line.startswith(("All ", "No "))]
    assert [told] == [note[: len(told)] for note in notes] if told else not notes


def test_misspelt_agent_is_told_before_a_rule_is_applied(traces: "Traces", tmp_path: Path) -> None:
    traces.call("a")
    rule = tmp_path / "rule.sql"
    rule.write_text("SELECT rollout_id, 1.0 AS value FROM rollouts")
    with pytest.raises(DataError, match="No call is of an agent 'nobody'"):
        make_transitions(traces.store(), Settings(agents=("nobody",), reward=str(rule)))
    assert traces.ask("SELECT * FROM scores") == []
