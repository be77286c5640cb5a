import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.desk_bandit import fine_tune, held_out_tasks, log, right_share, run

from otel_lightning.learner.commands.weights import print_learned
from otel_lightning.learner.evaluate.gate import Verdict

if TYPE_CHECKING:
    from conftest import Traces

FAST = ["--learning-rate", "5e-3"]


def test_it_learns_what_is_right_also_for_held_out_tasks(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer)
    assert run("transitions", "--store", traces.store()).exit_code == 0
    output = tmp_path / "learned"
    result = fine_tune(traces, model, output, *FAST)
    assert result.exit_code == 0, result.output
    held_out = held_out_tasks(traces)
    assert right_share(model, tokenizer, held_out) < 0.5
    assert right_share(output, tokenizer, held_out) > 0.8
    gate = json.loads((output / "gate.json").read_text())
    assert gate["passed"] is True
    assert gate["lower"] > 0
    stored = traces.ask("SELECT outcome, artifact, gate FROM runs WHERE command = 'weights'")
    assert [(row["outcome"], row["artifact"]) for row in stored] == [("passed", str(output))]
    assert json.loads(stored[0]["gate"]) == gate


def test_shuffled_rewards_teach_nothing_and_the_gate_says_so(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer)
    run("transitions", "--store", traces.store(), "--shuffle-rewards", "1")
    result = fine_tune(traces, model, tmp_path / "learned", *FAST)
    assert result.exit_code == 3
    assert "The gate refused: the gain may be chance" in result.stderr
    gate = json.loads((tmp_path / "learned" / "gate.json").read_text())
    assert (gate["passed"], gate["shuffled"]) == (False, 1)
    assert traces.ask("SELECT outcome FROM runs WHERE command = 'weights'") == [
        {"outcome": "refused"}
    ]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--lora", "4")])
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # in PEFT
def test_same_seed_gives_the_same_weights(
    options: tuple[str, ...],
    traces: "Traces",
    tokenizer: Any,
    model: Path,
    tmp_path: Path,
) -> None:
    import torch

    log(traces, tokenizer, attempts=2)
    run("transitions", "--store", traces.store())
    for number, name in enumerate(("first", "second")):
        torch.manual_seed(number)  # what ran before in this process must not matter
        fine_tune(traces, model, tmp_path / name, "--steps", "3", *options)
    (first,), (second,) = (
        [file.read_bytes() for file in (tmp_path / name).glob("*model.safetensors")]
        for name in ("first", "second")
    )
    assert first == second


def test_rollouts_without_a_reward_are_told(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=1)
    for number in range(20):
        traces.call(f"silent-{number}")
    run("transitions", "--store", traces.store())
    (rows,) = traces.ask("SELECT count(*) AS rollouts FROM transition_rollouts")
    result = fine_tune(traces, model, tmp_path / "learned", "--steps", "1")
    assert f"20 of {rows['rollouts']} rollouts have no reward" in result.stderr


def test_failed_run_leaves_no_folder_behind(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=1)
    run("transitions", "--store", traces.store())
    result = fine_tune(traces, model, tmp_path / "out" / "learned", "--threshold", "9")
    assert result.exit_code == 1
    assert "has an advantage above 9. Collect rollouts" in result.stderr
    assert not (tmp_path / "out").exists()
    failed = traces.ask("SELECT metrics FROM runs WHERE (command, outcome) = ('weights', 'failed')")
    assert ["has an advantage above 9" in row["metrics"] for row in failed] == [True]


def test_output_that_exists_is_an_error(traces: "Traces", model: Path, tmp_path: Path) -> None:
    traces.call("a")
    result = fine_tune(traces, model, tmp_path)
    assert result.exit_code == 1
    assert f"'{tmp_path}' exists. Remove it, or choose another --output." in result.stderr


def test_no_transitions_is_an_error_that_says_how_to_build_them(
    traces: "Traces", model: Path, tmp_path: Path
) -> None:
    traces.call("a")
    result = fine_tune(traces, model, tmp_path / "learned", *FAST)
    assert result.exit_code == 1
    assert "Build them with: lightning-learn transitions --store" in result.stderr


def test_without_held_out_rollouts_their_measures_are_not_known(
    traces: "Traces", model: Path, tmp_path: Path
) -> None:
    for rollout, reward in (("a", 1.0), ("b", 0.0)):
        traces.call(
            rollout, prompt_token_ids=[3], completion_token_ids=[9, 1], output_messages="[]"
        )
        traces.reward(rollout, reward)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    result = fine_tune(traces, model, tmp_path / "learned", *FAST)
    assert result.exit_code == 3, result.output
    assert "Logprob per token of good held-out completions, before: not known\n" in result.stdout
    assert "nan" not in result.output


def test_token_ids_of_another_model_are_an_error(
    traces: "Traces", model: Path, tmp_path: Path
) -> None:
    traces.call("a", prompt_token_ids=[1, 2], completion_token_ids=[151_643])
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    result = fine_tune(traces, model, tmp_path / "learned", *FAST)
    assert result.exit_code == 1
    assert "The store has token id 151643, but the model in" in result.stderr


def test_transitions_that_cannot_be_tokens_are_an_error(
    traces: "Traces", model: Path, tmp_path: Path
) -> None:
    traces.call("a", input_messages=None)
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    result = fine_tune(traces, model, tmp_path / "learned", *FAST)
    assert result.exit_code == 1
    assert "No transition is left to learn from" in result.stderr


def test_large_numbers_of_rows_are_printed_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from otel_lightning.learner.weights.train import Learned  # imports torch

    verdict = Verdict("doubly_robust", 9, 3, 9.0, 0.5, 0.6, 0.1, 0.05, 0.15, ())
    metrics = {"learned_from": 41665, "logged_logprob_difference": 0.0000123456}
    assert print_learned(Learned(metrics, verdict), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "Training rows: 41,665" in lines
    assert "Difference between logged and computed logprobs, per token: 1.235e-05" in lines
