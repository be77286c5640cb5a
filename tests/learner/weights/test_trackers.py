"""The curve of a training, in the store and in trackers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.desk_bandit import fine_tune, log, run
from support.fine_tuning import FAST, curve

if TYPE_CHECKING:
    from conftest import Traces


@pytest.mark.slow
def test_every_step_of_the_curve_is_in_the_store(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    fine_tune(logged, behavior_model, tmp_path / "learned", *FAST, "--steps", "6")
    assert sorted(curve(logged)) == [1, 2, 3, 4, 5, 6]
    names = {row["name"] for row in logged.ask("SELECT DISTINCT name FROM run_steps")}
    assert {"learning_rate", "grad_norm", "importance_weight/q50"} <= names
    runs = logged.ask("SELECT run_id FROM runs WHERE command = 'weights'")
    assert logged.ask("SELECT DISTINCT run_id FROM run_steps") == runs


def test_events_for_tensorboard_stay_beside_the_model(
    logged: "Traces", behavior_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="--report-to tensorboard needs tensorboard")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    options = [*FAST, "--steps", "2", "--report-to", "tensorboard"]
    result = fine_tune(logged, behavior_model, tmp_path / "learned", *options)
    assert result.exit_code in {0, 3}, result.output
    (events,) = (tmp_path / "runs" / "learned").glob("events*")
    assert events.stat().st_size > 0
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ


@pytest.mark.slow
def test_each_training_is_a_run_of_its_own_at_wandb(
    traces: "Traces",
    tokenizer: Any,
    behavior_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("wandb", reason="--report-to wandb needs wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    log(traces, tokenizer, attempts=2, agent_name=["planner", "writer"])
    run("transitions", "--store", traces.store(), "--credit", "group")
    options = [*FAST, "--steps", "2", "--report-to", "wandb", "--each-agent"]
    fine_tune(traces, behavior_model, tmp_path / "learned", *options)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own libraries
def test_run_at_mlflow_has_the_name_of_our_run(
    logged: "Traces", behavior_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="--report-to mlflow needs mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    options = [*FAST, "--steps", "2", "--find-lr", "--report-to", "mlflow"]
    fine_tune(logged, behavior_model, tmp_path / "learned", *options)
    (ours,) = logged.ask("SELECT run_id FROM runs WHERE command = 'weights'")
    found = mlflow.search_runs(search_all_experiments=True, output_format="list")
    # One: the steps that probe learning rates are no run.
    assert [one.info.run_name for one in found] == [ours["run_id"]]
    assert found[0].data.metrics["loss"] > 0
