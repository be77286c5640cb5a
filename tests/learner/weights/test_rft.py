import json
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from click.testing import CliRunner, Result
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from otel_lightning.learner.cli import cli
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.likelihood import completion_logprobs

if TYPE_CHECKING:
    from conftest import Traces

REQUESTS = ["refund", "return", "status", "lookup"]
ACTIONS = ["left", "right", "up", "down"]
RIGHT = dict(zip(REQUESTS, ACTIONS, strict=True))


@pytest.fixture(scope="module")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 80 thousand parameters that has learned nothing."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    path = tmp_path_factory.mktemp("model")
    Qwen3ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def question(tokenizer: Any, request: str, number: int) -> list[int]:
    messages = [{"role": "user", "content": f"{request} {number}"}]
    ids: list[int] = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    return ids


def log(traces: "Traces", tokenizer: Any, attempts: int = 6) -> None:
    """Log uniform choices among four actions, of which the request makes one the right one."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for task in range(60):
        request, number = REQUESTS[task % 4], task // 4
        for attempt in range(attempts):
            rollout, action = f"{task:02}-{attempt}", rng.choice(ACTIONS)
            traces.call(
                rollout,
                prompt_token_ids=question(tokenizer, request, number),
                completion_token_ids=tokenizer.convert_tokens_to_ids([action, "<end>"]),
                completion_logprobs=[math.log(0.25), 0.0],
            )
            traces.task(rollout, f"task-{task}")
            traces.reward(rollout, float(action == RIGHT[request]))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def fine_tune(traces: "Traces", model: Path, output: Path, *options: str) -> Result:
    where = ["--store", traces.store(), "--model", str(model), "--output", str(output)]
    how = ["--algorithm", "rft", "--learning-rate", "5e-3", "--steps", "40", "--batch-size", "32"]
    return run("weights", *where, *how, *options)


def success(path: Path, tokenizer: Any, tasks: list[str]) -> float:
    """Greedy success on tasks by their names."""
    model = AutoModelForCausalLM.from_pretrained(path)
    right = 0
    for task in tasks:
        number = int(task.removeprefix("task-"))
        request = REQUESTS[number % 4]
        ids = torch.tensor([question(tokenizer, request, number // 4)])
        best = int(model(input_ids=ids).logits[0, -1].argmax())
        right += tokenizer.convert_ids_to_tokens(best) == RIGHT[request]
    return right / len(tasks)


def test_it_learns_what_is_right_also_for_held_out_tasks(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer)
    assert run("transitions", "--store", traces.store()).exit_code == 0
    output = tmp_path / "learned"
    result = fine_tune(traces, model, output)
    assert result.exit_code == 0, result.output
    rows = traces.ask("SELECT DISTINCT task_id FROM transitions WHERE split = 'heldout'")
    held_out = [row["task_id"] for row in rows]
    assert success(model, tokenizer, held_out) < 0.5
    assert success(output, tokenizer, held_out) > 0.9
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
    result = fine_tune(traces, model, tmp_path / "learned")
    assert result.exit_code == 3
    assert "The gate refused: the gain may be chance" in result.stderr
    assert json.loads((tmp_path / "learned" / "gate.json").read_text())["passed"] is False
    assert traces.ask("SELECT outcome FROM runs WHERE command = 'weights'") == [
        {"outcome": "refused"}
    ]


def test_same_seed_gives_the_same_weights(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=2)
    run("transitions", "--store", traces.store())
    for name in ("first", "second"):
        fine_tune(traces, model, tmp_path / name, "--steps", "3")
    first, second = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second")
    )
    assert first == second


def test_failed_run_leaves_no_folder_behind(
    traces: "Traces", tokenizer: Any, model: Path, tmp_path: Path
) -> None:
    log(traces, tokenizer, attempts=1)
    run("transitions", "--store", traces.store())
    result = fine_tune(traces, model, tmp_path / "out" / "learned", "--threshold", "9")
    assert result.exit_code == 1
    assert "has an advantage above 9. Lower --threshold" in result.stderr
    assert list((tmp_path / "out").iterdir()) == []
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
    result = fine_tune(traces, model, tmp_path / "learned")
    assert result.exit_code == 1
    assert "Build them with: lightning-learn transitions --store" in result.stderr


def test_token_ids_of_another_model_are_an_error(
    traces: "Traces", model: Path, tmp_path: Path
) -> None:
    traces.call("a", prompt_token_ids=[1, 2], completion_token_ids=[151_643])
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    result = fine_tune(traces, model, tmp_path / "learned")
    assert result.exit_code == 1
    assert "The store has token id 151643, but the model in" in result.stderr


def test_likelihood_is_the_sum_of_token_logprobs_at_the_temperature(model: Path) -> None:
    network = AutoModelForCausalLM.from_pretrained(model)
    prompts = [((4, 9), (30, 1)), ((4, 9, 12, 1), (28,))]
    examples = [
        Example("a", "a", "train", None, prompt, completion, None, 0.5, 1.0, 1.0)
        for prompt, completion in prompts
    ]
    expected = []
    for prompt, completion in prompts:
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([prompt + completion])).logits[0] / 0.5
        logprobs = logits.log_softmax(-1).tolist()
        places = range(len(prompt) - 1, len(prompt + completion) - 1)
        expected.append(sum(logprobs[t][(prompt + completion)[t + 1]] for t in places))
    measured = completion_logprobs(network, examples, batch_size=2, label="Test")
    assert measured.tolist() == pytest.approx(expected, abs=1e-4)


def test_transitions_that_cannot_be_tokens_are_an_error(
    traces: "Traces", model: Path, tmp_path: Path
) -> None:
    traces.call("a", input_messages=None)
    traces.reward("a", 1.0)
    run("transitions", "--store", traces.store(), "--held-out", "0")
    result = fine_tune(traces, model, tmp_path / "learned")
    assert result.exit_code == 1
    assert "No transition could be turned into tokens" in result.stderr
