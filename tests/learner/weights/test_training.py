"""Training as long and as interrupted as real models need it."""

import gc
import json
import math
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file
from support.desk_bandit import TASKS, fine_tune, held_out_tasks, log, right_share, run
from support.late import Late
from support.running import LIMIT_S, background, eventually

from otel_lightning.learner.weights.algorithms import ALGORITHMS

if TYPE_CHECKING:
    from conftest import Traces

train: Any = Late("otel_lightning.learner.weights.train")

FAST = ["--learning-rate", "5e-3"]


@pytest.fixture
def logged(traces: "Traces", tokenizer: Any) -> "Traces":
    log(traces, tokenizer)
    assert run("transitions", "--store", traces.store(), "--credit", "group").exit_code == 0
    return traces


def curve(traces: "Traces", name: str = "loss") -> dict[int, float]:
    """A metric by its step, over all runs."""
    rows = traces.ask(f"SELECT step, value FROM run_steps WHERE name = '{name}'")
    return {row["step"]: row["value"] for row in rows}


def command(traces: "Traces", model: Path, output: Path, *options: str) -> list[str]:
    where = ["--store", str(traces.path), "--model", str(model), "--output", str(output)]
    return ["-m", "otel_lightning.learner", "weights", "--algorithm", "rft", *where, *options]


def output_of(*words: str) -> str:
    """Run Python to its end and return its output."""
    with started(*words, stdout=subprocess.PIPE) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    return str(output)


@contextmanager
def started(*words: str, **pipes: int) -> Iterator[subprocess.Popen[str]]:
    """Run Python for the block; what still runs at the end is killed with its children."""
    options: dict[str, Any] = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "text": True}
    options |= {"stderr": subprocess.STDOUT, "start_new_session": True} | pipes
    with background(sys.executable, *words, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def is_whole(file: Path) -> bool:
    """Say whether a JSON file was written to its end, and is still there."""
    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return True


def last_curve(traces: "Traces") -> dict[int, float]:
    """The losses of the last run."""
    last = "(SELECT max(run_id) FROM run_steps)"
    rows = traces.ask(f"SELECT step, value FROM run_steps WHERE name = 'loss' AND run_id = {last}")
    return {row["step"]: row["value"] for row in rows}


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
@pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing:FutureWarning"
)  # PEFT uses the old name
def test_adapter_is_saved_for_peft_and_can_be_trained_again(
    logged: "Traces", behavior_model: Path, tokenizer: Any, tmp_path: Path
) -> None:
    from peft import AutoPeftModelForCausalLM

    options = ["--learning-rate", "2e-2", "--lora", "8"]
    live = tmp_path / "live"
    live.symlink_to(behavior_model)
    fine_tune(logged, live, tmp_path / "first", *options)
    config = json.loads((tmp_path / "first" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(behavior_model)
    files = {path.name for path in (tmp_path / "first").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "README.md"} <= files
    assert "model.safetensors" not in files
    adapted = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "first")
    assert adapted.active_adapter == "default"
    first = right_share(tmp_path / "first", tokenizer, held_out_tasks(logged))
    assert first > 0.35
    options = ["--learning-rate", "1e-3", "--steps", "1"]
    again = fine_tune(logged, tmp_path / "first", tmp_path / "second", *options)
    assert again.exit_code in {0, 3}, again.output
    second = right_share(tmp_path / "second", tokenizer, held_out_tasks(logged))
    assert second == pytest.approx(first, abs=0.05)


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


@pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing:FutureWarning"
)  # PEFT uses the old name
def test_four_bits_have_the_same_gradient_before_and_after_judging(behavior_model: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="--four-bit needs bitsandbytes")
    import torch

    from otel_lightning.learner.weights.settings import Training
    from otel_lightning.learner.weights.trainer.load import load_model

    model, _ = load_model(Training(behavior_model, lora=4, four_bit=True), reward=False)
    ids = torch.tensor([[3, 8, 9, 10, 1]], device=model.device)

    def gradients() -> list[torch.Tensor]:
        model.train()
        model.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    with torch.no_grad():  # a new adapter's second matrix is 0, so the first has no gradient yet
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    before = gradients()
    model.train(mode=False)
    with torch.no_grad():
        model(input_ids=ids)
    after = gradients()
    assert len(before) == len(after) > 0
    for expected, found in zip(before, after, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_early_stopping_keeps_the_model_of_the_lowest_validation_loss(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    options = [*FAST, "--steps", "60", "--stop-early", "2"]
    fine_tune(logged, behavior_model, tmp_path / "learned", *options)
    losses = curve(logged, "eval_loss")
    assert len(losses) >= 3
    best = min(losses, key=losses.__getitem__)
    assert max(losses) in {best + 12, 60}
    rows = logged.ask("SELECT metrics ->> 'best_step' AS best FROM runs WHERE command = 'weights'")
    assert rows == [{"best": str(best)}]


@pytest.mark.slow
def test_probing_learning_rates_takes_the_one_of_the_lowest_loss(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    fine_tune(logged, behavior_model, tmp_path / "learned", "--find-lr", "--steps", "2")
    (row,) = logged.ask("SELECT metrics FROM runs WHERE command = 'weights'")
    metrics = json.loads(row["metrics"])
    prefix = "validation_loss_at_"
    tried = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
    assert len(tried) == 5
    assert float(min(tried, key=tried.__getitem__)) == pytest.approx(
        metrics["learning_rate"], rel=0.01
    )


@pytest.mark.slow
def test_each_agent_gets_its_own_adapter_in_one_command(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=2, agent_name=["planner", "writer"])
    run("transitions", "--store", traces.store(), "--credit", "group")
    output = tmp_path / "adapters"
    options = [*FAST, "--steps", "2", "--lora", "4", "--each-agent"]
    result = fine_tune(traces, behavior_model, output, *options)
    assert result.exit_code in {0, 3}, result.output
    assert (output / "planner" / "adapter_model.safetensors").exists()
    assert (output / "writer" / "adapter_model.safetensors").exists()
    told = traces.ask("SELECT config ->> 'agent' AS agent FROM runs WHERE command = 'weights'")
    assert sorted(row["agent"] for row in told) == ["planner", "writer"]
    there = fine_tune(traces, behavior_model, output, *options)
    assert f"'{output / 'planner'}' exists." in there.stderr
    # As if it had been killed before the second one.
    shutil.rmtree(output / "writer")
    first = (output / "planner" / "adapter_model.safetensors").stat().st_mtime_ns
    again = fine_tune(traces, behavior_model, output, *options, "--resume")
    assert again.exit_code in {0, 3}, again.output
    assert (output / "writer" / "adapter_model.safetensors").exists()
    assert (output / "planner" / "adapter_model.safetensors").stat().st_mtime_ns == first
    unknown = fine_tune(traces, behavior_model, tmp_path / "no", "--agent", "nobody")
    assert unknown.exit_code == 1
    assert "No transition is of agent 'nobody'. Known: 'planner', 'writer'" in unknown.stderr


def test_agents_that_finished_are_reported_if_a_later_one_fails(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=2, tasks=20, agent_name=["planner", "writer"])
    run("transitions", "--store", traces.store())
    traces.ask(
        "UPDATE transition_rows SET advantage = 1 "
        "WHERE span_id IN (SELECT span_id FROM llm_calls WHERE agent_name = 'writer')"
    )
    traces.ask("UPDATE llm_calls SET agent_name = NULL WHERE rollout_id = '000-0'")
    options = [*FAST, "--steps", "1", "--each-agent"]
    result = fine_tune(traces, behavior_model, tmp_path / "learned", *options)
    assert result.exit_code == 1
    assert "1 transition names no agent, so no model learns from them." in result.stderr
    assert "have the advantage 1: nothing tells good from bad" in result.stderr
    assert (tmp_path / "learned" / "planner").is_dir()
    (header, rows, *_) = result.stdout.splitlines()
    assert header == "Agent planner:"
    assert rows.startswith("Training rows: ")
    assert "Held out: " in result.stdout


def test_agent_is_judged_by_the_reward_of_the_rollout_that_another_agent_ended(
    traces: "Traces", tokenizer: Any, behavior_model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, agent_name=["planner"])
    for task, attempt in product(range(TASKS), range(4)):
        traces.call(
            f"{task:03}-{attempt}",
            1,
            agent_name="reporter",
            prompt_token_ids=tokenizer.convert_tokens_to_ids(["<user>", "<end>", "<assistant>"]),
            completion_token_ids=tokenizer.convert_tokens_to_ids(["<end>"]),
            completion_logprobs=[0.0],
        )
    run("transitions", "--store", traces.store(), "--credit", "group")
    result = fine_tune(traces, behavior_model, tmp_path / "learned", *FAST, "--agent", "planner")
    assert result.exit_code == 0, result.output
    gate = json.loads((tmp_path / "learned" / "gate.json").read_text())
    (row,) = traces.ask(
        "SELECT avg(value) AS value FROM rewards WHERE rollout_id IN "
        "(SELECT rollout_id FROM transitions WHERE split = 'heldout')"
    )
    assert gate["behavior_value"] == pytest.approx(row["value"])


def test_agent_whose_name_leads_out_of_the_output_gets_no_folder(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=1, tasks=2, agent_name=["../planner"])
    run("transitions", "--store", traces.store())
    refused = fine_tune(traces, model, tmp_path / "adapters", "--each-agent")
    assert refused.exit_code == 1
    assert "No folder can have the name of agent '../planner'." in refused.stderr
    assert not (tmp_path / "adapters").exists()


def test_any_argument_of_the_trainer_can_be_given_in_a_file(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('[trl]\nlr_scheduler_type = "constant"\n[algorithm]\nper_task = 1\n')
    options = [*FAST, "--warmup", "0", "--steps", "3", "--settings", str(settings)]
    fine_tune(logged, behavior_model, tmp_path / "learned", *options)
    assert set(curve(logged, "learning_rate").values()) == {5e-3}
    (row,) = logged.ask("SELECT config FROM runs WHERE command = 'weights'")
    assert json.loads(row["config"])["algorithm_settings"] == {"per_task": 1}


def test_shuffled_rewards_teach_nothing_and_the_gate_says_so(
    logged: "Traces", behavior_model: Path, tokenizer: Any, tmp_path: Path
) -> None:
    output = tmp_path / "learned"
    result = fine_tune(logged, behavior_model, output, *FAST, "--shuffle-rewards", "1")
    assert result.exit_code == 3
    assert right_share(output, tokenizer, held_out_tasks(logged)) < 0.4


class Ring:
    """Refers to itself, so that only the garbage collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_of_a_training_is_collected_while_the_libraries_are_spared() -> None:
    spared = gc.get_freeze_count()
    with train.libraries_kept():
        assert gc.get_freeze_count() > spared
        made = weakref.ref(Ring())
        gc.collect()
        assert made() is None
    assert gc.get_freeze_count() == spared
    with pytest.raises(RuntimeError), train.libraries_kept():
        raise RuntimeError
    assert gc.get_freeze_count() == spared


@pytest.mark.slow
def test_less_memory_gives_the_same_losses(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    short = [*FAST, "--steps", "4", "--batch-size", "8"]
    fine_tune(logged, behavior_model, tmp_path / "plain", *short)
    plain = last_curve(logged)
    for name, options in {"parts": ["--accumulate", "4"], "twice": ["--checkpointing"]}.items():
        result = fine_tune(logged, behavior_model, tmp_path / name, *short, *options)
        assert result.exit_code in {0, 3}, result.output
        assert last_curve(logged) == pytest.approx(plain, rel=1e-4), name


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


@pytest.mark.slow
def test_packed_rows_see_only_themselves(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    # All rows in one batch: the loss of the first step is before any change of the weights.
    short = [*FAST, "--steps", "1", "--batch-size", "512"]
    losses = []
    for name, options in {"plain": [], "packed": ["--packing", "--max-length", "64"]}.items():
        result = fine_tune(logged, behavior_model, tmp_path / name, *short, *options)
        assert result.exit_code in {0, 3}, result.output
        losses.append(last_curve(logged)[1])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    ["rft --dtype bfloat16", "dpo --set normalize=true", "grpo --set beta=0.05"],
)
def test_options_of_other_numbers_and_losses_learn(
    options: str,
    logged: "Traces",
    behavior_model: Path,
    tokenizer: Any,
    tmp_path: Path,
) -> None:
    algorithm, *more = options.split()
    rate = ["--learning-rate", "3e-3"]
    fine_tune(logged, behavior_model, tmp_path / "new", *rate, *more, algorithm=algorithm)
    assert right_share(tmp_path / "new", tokenizer, held_out_tasks(logged)) > 0.35
    if "beta=" in options:
        assert max(curve(logged, "kl").values()) > 0


@pytest.mark.slow
def test_epochs_are_passes_over_the_training_rows(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    where = ["--store", logged.store(), "--model", str(behavior_model)]
    where += ["--output", str(tmp_path / "learned"), "--batch-size", "32", "--epochs", "2"]
    assert run("weights", *where).exit_code in {0, 3}
    (row,) = logged.ask(
        "SELECT config ->> 'algorithm' AS algorithm, metrics ->> 'learned_from' AS rows FROM runs "
        "WHERE command = 'weights'"
    )
    assert row["algorithm"] == "rft"  # by default
    assert max(last_curve(logged)) == 2 * math.ceil(float(row["rows"]) / 32)


@pytest.mark.slow
def test_tokenizer_and_chat_template_stay_as_they_are(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    fine_tune(logged, behavior_model, tmp_path / "learned", *FAST, "--steps", "1")
    for name in ("tokenizer.json", "chat_template.jinja"):
        before = (behavior_model / name).read_bytes()
        assert (tmp_path / "learned" / name).read_bytes() == before


@pytest.mark.slow
def test_gate_demands_the_least_gain_and_allows_for_the_range_of_rewards(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    gates, codes = [], []
    for number, options in enumerate([[], ["--least-gain", "0.9"], ["--reward-range", "-4,5"]]):
        output = tmp_path / f"learned-{number}"
        result = fine_tune(logged, behavior_model, output, *FAST, "--steps", "20", *options)
        codes.append(result.exit_code)
        gates.append(json.loads((output / "gate.json").read_text()))
    plain, demanding, wide = gates
    assert codes[:2] == [0, 3]
    (refusal,) = demanding["refusals"]
    assert refusal.endswith("which is not above the least gain of 0.9")
    assert demanding["gain"] == plain["gain"]
    assert (plain["reward_range"], wide["reward_range"]) == ([0, 1], [-4, 5])
    # The same gain, but a rare loss of 4 may not have been logged.
    assert wide["lower"] < plain["lower"] - 0.1


@pytest.mark.slow
def test_card_says_where_the_model_comes_from(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    fine_tune(logged, behavior_model, tmp_path / "learned", *FAST, "--steps", "2")
    card = (tmp_path / "learned" / "README.md").read_text()
    (row,) = logged.ask("SELECT run_id, data_fingerprint FROM runs WHERE command = 'weights'")
    for told in (row["run_id"], row["data_fingerprint"], "**refused**", "not declared"):
        assert told in card
    assert not list((tmp_path / "learned").glob("*.bin"))
