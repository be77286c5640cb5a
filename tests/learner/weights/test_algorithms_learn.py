"""Every algorithm learns a bandit with a known best policy, also on tasks that it never saw."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.desk_bandit import fine_tune, held_out_tasks, log, right_share, run

from otel_lightning.learner.weights.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from learner.conftest import Traces

LEARNS = {
    "rft": (["--learning-rate", "5e-3"], 0.6),
    "awr": (["--learning-rate", "5e-3", "--set", "temperature=0.3"], 0.4),
    "dpo": (["--learning-rate", "3e-3"], 0.55),
    "kto": (["--learning-rate", "1e-3", "--steps", "80"], 0.4),
    "grpo": (["--learning-rate", "3e-3"], 0.4),
}
"""Options for a model this small, and the least share of right actions; by chance it is 0.25."""


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", LEARNS)
def test_it_learns_what_is_right_also_for_held_out_tasks(
    algorithm: str, logged: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    options, least = LEARNS[algorithm]
    output = tmp_path / "learned"
    result = fine_tune(logged, behavior_model, output, *options, algorithm=algorithm)
    assert result.exit_code in {0, 3}, result.output
    tasks = held_out_tasks(logged)
    assert 0.2 < right_share(behavior_model, tokenizer, tasks) < 0.3
    assert right_share(output, tokenizer, tasks) > least
    gate = json.loads((output / "gate.json").read_text())
    assert gate["gain"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_runs_with_the_defaults_of_all_commands(
    algorithm: str, traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=3)
    assert run("transitions", "--store", traces.store()).exit_code == 0
    output = tmp_path / "learned"
    where = ["--store", traces.store(), "--model", str(behavior_model), "--output", str(output)]
    result = run("weights", "--algorithm", algorithm, *where, "--steps", "2")
    assert result.exit_code in {0, 3}, result.output
    assert (output / "model.safetensors").exists()


@pytest.mark.slow
def test_reward_model_ranks_held_out_pairs(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer)
    run("transitions", "--store", traces.store(), "--credit", "group")
    output = tmp_path / "learned"
    options = ["--learning-rate", "3e-3", "--steps", "120"]
    result = fine_tune(traces, behavior_model, output, *options, algorithm="reward-model")
    assert result.exit_code == 0, result.output
    gate = json.loads((output / "gate.json").read_text())
    assert gate["value"] > 0.7
    assert gate["lower"] > 0
    assert " by chance, " in result.stdout
    assert "importance weight" not in result.stdout
    report = tmp_path / "report.html"
    assert run("report", "--store", traces.store(), "--output", str(report)).exit_code == 0
    assert "0.5000 by chance" in report.read_text()
    assert "which have no importance weights" in report.read_text()
