"""The arithmetic that a page shows gives the advantages that the learner computes."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.desk_store import make_desk_store
from support.page_source import DirectSource, Page

from otel_lightning.collector.page.advantage_terms import METHODS, explain
from otel_lightning.collector.store import open_store
from otel_lightning.learner import credit
from otel_lightning.learner.credit import Options, Steps, advantages
from otel_lightning.learner.credit.methods.return_to_go import return_to_go
from otel_lightning.learner.transitions.settings import Settings

LENGTHS = (3, 1, 5, 3, 2, 4)
TASKS = (0, 0, 0, 0, 1, 2)
"""The task of each rollout: four of one task, and two that are alone in theirs."""
OPTIONS = (
    {},
    {"gamma": 0.9, "baseline": "mean", "scale": "std", "lam": 0.5, "step_weight": 0.3},
    {"gamma": 0.8, "value": "fitted", "length": "rollout", "tool_reward": 0.7},
)
COLUMNS = {
    "transition_rows": "* EXCLUDE (state_hash, tools), span_id AS trace_id",
    "transition_rollouts": "DISTINCT rollout_id, task_hash, 1 AS fingerprint",
    "llm_calls": "rollout_id, step, span_id, span_id AS trace_id, state_hash",
    "tool_calls": """rollout_id, span_id AS llm_span_id, span_id AS trace_id,
        unnest(range(abs(tools))) AS tool_call_id, if(tools < 0, 'e', NULL) AS error_type""",
}
"""What each table gets of the made calls."""
CREDITS = (*METHODS, "group+anchor_state", "identical+gae")


def made_steps() -> Steps:
    """Calls with rewards on the way, outcomes, tools, states that repeat, and truncated ends."""
    random = np.random.default_rng(7)
    rollouts = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    last = np.append(rollouts[1:] != rollouts[:-1], True)
    outcomes = np.where(last, random.integers(0, 3, len(rollouts)).astype(float), 0.0)
    return Steps(
        rewards=outcomes + random.integers(-1, 2, len(rollouts)),
        outcomes=outcomes,
        tools=random.integers(-2, 3, len(rollouts)).astype(float),
        rollouts=rollouts,
        tasks=np.array(TASKS)[rollouts],
        states=random.integers(0, 4, len(rollouts)),
        truncated=last & (rollouts % 2 == 1),
    )


def fill(source: DirectSource, name: str, options: Options, steps: Steps) -> pl.DataFrame:
    """Store the calls with their advantages, as the learner does; every second step is no row."""
    place = np.arange(len(steps.rollouts)) - np.searchsorted(steps.rollouts, steps.rollouts)
    rows = pl.DataFrame({
        "rollout_id": steps.rollouts, "step": place * 2, "span_id": np.arange(len(place)),
        "reward": steps.rewards, "return_to_go": return_to_go(steps, options),
        "advantage": advantages(name, steps, options), "truncated": steps.truncated,
        "task_hash": steps.tasks, "state_hash": steps.states, "tools": steps.tools.astype(int),
    })  # fmt: skip
    connection = source.store._connection
    connection.register("made", rows.to_arrow())
    for table, columns in COLUMNS.items():
        connection.execute(f"DELETE FROM {table}")
        connection.execute(f"INSERT INTO {table} BY NAME SELECT {columns} FROM made")
    return rows


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectSource]:
    with open_store(tmp_path_factory.mktemp("why") / "t.duckdb") as store:
        yield DirectSource(store)


@pytest.mark.parametrize("options", OPTIONS, ids=["defaults", "scaled", "fitted"])
@pytest.mark.parametrize("name", CREDITS)
def test_the_terms_give_the_advantage_that_the_learner_computed(
    name: str, options: dict[str, float], source: DirectSource
) -> None:
    settings = Settings(credit=name, **options)  # type: ignore[arg-type]
    for row in fill(source, name, settings, made_steps()).iter_rows(named=True):
        place = {"rollout": str(row["rollout_id"]), "step": row["step"]}
        (found,) = source.ask("why", place)
        (visits,) = source.ask("why_visits", {**place, "state": str(row["state_hash"])})
        why = explain(asdict(settings), {**found, **visits})
        assert why is not None
        assert why.total == pytest.approx(row["advantage"], abs=1e-9)
        assert why.agrees


def test_every_credit_method_has_its_terms() -> None:
    assert set(METHODS) == set(credit.METHODS)


def test_a_change_of_the_store_since_the_build_is_shown(source: DirectSource) -> None:
    fill(source, "group", Options(), made_steps())
    source.store.execute("UPDATE transition_rows SET reward = reward + 1 WHERE rollout_id = '2'")
    found = source.ask("why", {"rollout": "0", "step": 0})[0]
    why = explain(asdict(Settings(credit="group")), found)
    assert why is not None
    assert not why.agrees


def test_the_page_shows_the_terms_of_a_step(tmp_path: Path) -> None:
    with open_store(make_desk_store(tmp_path / "t.duckdb", 9)) as store:
        source = DirectSource(store)
        text = Page(source.get("/ui/rollouts/rollout-0003/steps/1?part=state")).text
        assert "return of the rollout" in text
        assert "mean return of the task's 3 rollouts" in text
        assert "The stored advantage is" not in text
        store.execute("UPDATE runs SET config = '{}' WHERE command = 'transitions'")
        text = Page(source.get("/ui/rollouts/rollout-0003/steps/1?part=state")).text
        assert "The settings of the last build are not known" in text
