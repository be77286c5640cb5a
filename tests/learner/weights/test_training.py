"""The options of training: what they change, and what stays equal."""

import gc
import json
import math
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.desk_bandit import fine_tune, held_out_tasks, right_share, run
from support.fine_tuning import FAST, curve, last_curve
from support.late import Late

if TYPE_CHECKING:
    from conftest import Traces

train: Any = Late("otel_lightning.learner.weights.train")


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
    with train.libraries_frozen():
        assert gc.get_freeze_count() > spared
        made = weakref.ref(Ring())
        gc.collect()
        assert made() is None
    assert gc.get_freeze_count() == spared
    with pytest.raises(RuntimeError), train.libraries_frozen():
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
