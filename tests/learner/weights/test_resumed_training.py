"""Training in several processes, and training that is killed and resumed."""

import json
import runpy
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file
from support.desk_bandit import fine_tune, log, run
from support.fine_tuning import FAST, command, last_curve, output_of, started
from support.running import LIMIT_S, eventually

from otel_lightning.learner.weights.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from conftest import Traces


def is_whole(file: Path) -> bool:
    """Say whether a JSON file was written to its end, and is still there."""
    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return True


def losses_of_last_runs(traces: "Traces") -> dict[str, list[float]]:
    """The losses of the last run of each algorithm."""
    rows = traces.ask(
        "SELECT r.config ->> 'algorithm' AS name, s.value FROM run_steps s JOIN "
        f"(FROM runs WHERE command = 'weights' ORDER BY run_id DESC LIMIT {len(ALGORITHMS)}) r "
        "USING (run_id) WHERE s.name = 'loss' ORDER BY s.step"
    )
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row["value"])
    return found


# Trains with every algorithm in turn; the metrics count the processes.
EVERY_ALGORITHM = """
import sys
from pathlib import Path
from otel_lightning.learner.weights.algorithms import ALGORITHMS
from otel_lightning.learner.weights.learn import learn_weights
from otel_lightning.learner.weights.settings import Training

def train(store, model, output):
    for name in ALGORITHMS:
        training = Training(model, steps=5, batch_size=8, learning_rate=1e-3, save_every=0)
        learned = learn_weights(store, name, training, output / name)
        print(name, "ran in", learned.metrics["processes"], "processes")

if __name__ == "__main__":
    train(*map(Path, sys.argv[1:4]))
"""


def gpus() -> int:
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


@pytest.mark.slow
def test_more_processes_than_gpus_are_refused(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    if not gpus():
        pytest.skip("there is no GPU")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(gpus() + 1)]
    how = [*FAST, "--steps", "2"]
    output = output_of(*torchrun, *command(logged, behavior_model, tmp_path / "new", *how))
    assert f"torchrun starts {gpus() + 1} processes on this machine" in output
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    if gpus() == 1:
        pytest.skip("each process needs a GPU, and there is one")
    # 17 tasks have fewer rows than two batches, so batches of all kinds go across passes.
    log(traces, tokenizer, tasks=17)
    assert run("transitions", "--store", traces.store(), "--credit", "group").exit_code == 0
    script = tmp_path / "train.py"
    script.write_text(EVERY_ALGORITHM)
    runpy.run_path(str(script))["train"](traces.path, behavior_model, tmp_path / "1")
    one = losses_of_last_runs(traces)
    words = [str(script), str(traces.path), str(behavior_model), str(tmp_path / "2")]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    output = output_of(*torchrun, *words)
    assert all(f"{name} ran in 2 processes" in output for name in ALGORITHMS), output
    two = losses_of_last_runs(traces)
    assert two == {name: pytest.approx(losses, rel=1e-4) for name, losses in one.items()}


@pytest.mark.slow
def test_training_killed_at_any_moment_resumes_with_the_same_losses(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    how = [*FAST, "--steps", "40", "--batch-size", "8", "--save-every", "4"]
    output = output_of(*command(logged, behavior_model, tmp_path / "whole", *how))
    assert (tmp_path / "whole").exists(), output
    whole = last_curve(logged)
    checkpoints, quiet = tmp_path / ".killed.checkpoints", subprocess.DEVNULL
    with started(
        *command(logged, behavior_model, tmp_path / "killed", *how), stdout=quiet
    ) as process:
        deadline = time.monotonic() + LIMIT_S
        while not any(map(is_whole, checkpoints.glob("checkpoint-*/trainer_state.json"))):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)  # else it might end meanwhile
        again = fine_tune(logged, behavior_model, tmp_path / "killed", *how)
        assert "Another process is making" in again.stderr
    assert not (tmp_path / "killed").exists()
    assert not list(checkpoints.rglob("README.md"))  # TRL's draft of a card
    output = output_of(*command(logged, behavior_model, tmp_path / "killed", *how, "--resume"))
    assert (tmp_path / "killed").exists(), output
    resumed = last_curve(logged)
    assert min(resumed) > 1
    assert resumed == pytest.approx({step: whole[step] for step in resumed})
    weights = load_file(tmp_path / "killed" / "model.safetensors")
    for name, value in load_file(tmp_path / "whole" / "model.safetensors").items():
        assert (weights[name] == value).all()
    assert sorted(path.name for path in tmp_path.glob("*killed*")) == ["killed"]


@pytest.mark.slow
def test_training_that_needs_less_memory_can_be_resumed_by_the_same_losses(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    # In bfloat16 the order of adding shows in each loss, not only in the last ones.
    how = [*FAST, "--steps", "60", "--batch-size", "8", "--dtype", "float32"]
    fine_tune(logged, behavior_model, tmp_path / "whole", *how)
    whole = last_curve(logged)
    words = command(logged, behavior_model, tmp_path / "cut", *how, "--save-every", "4")
    with started(*words, stdout=subprocess.DEVNULL) as process:
        states = "checkpoint-*/trainer_state.json"
        checkpoints = tmp_path / ".cut.checkpoints"
        eventually(lambda: any(map(is_whole, checkpoints.glob(states))), LIMIT_S)
        process.kill()
    less = ["--accumulate", "4", "--checkpointing", "--resume"]
    result = fine_tune(logged, behavior_model, tmp_path / "cut", *how, *less)
    assert result.exit_code in {0, 3}, result.output
    resumed = last_curve(logged)
    assert min(resumed) > 1
    # Smaller micro-batches add in another order, which the last small losses show.
    expected = {step: whole[step] for step in resumed}
    assert resumed == pytest.approx(expected, rel=1e-4, abs=1e-5)
