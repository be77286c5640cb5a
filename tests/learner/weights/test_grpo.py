"""grpo's loss, computed a second time from the equations of the papers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.late import Late

from otel_lightning.learner.weights.algorithms import Row, grpo
from otel_lightning.learner.weights.settings import Training

jobs: Any = Late("otel_lightning.learner.weights.job")
torch: Any = Late("torch")
transformers: Any = Late("transformers")

LOW, HIGH = 0.2, 0.3
ADVANTAGES = (1.0, 0.5, 2.0, -1.0, -0.5, -2.0)
SHIFTS = (0.0, 1.0, -1.0, 0.0, 1.0, -1.0)
"""How much likelier the model finds the tokens than the behavior policy did, in nats per token, for
each advantage: so every branch of the clipped minimum is taken."""


def logprobs(model: Any, prompt: list[int], completion: list[int]) -> np.ndarray:
    """Logprob of each token of a completion, by the definition."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].double()
    places = torch.arange(len(prompt) - 1, len(prompt) + len(completion) - 1)
    chosen = logits.log_softmax(-1)[places, torch.tensor(completion)]
    return np.asarray(chosen.numpy(), dtype=np.float64)


def logged(model: Any) -> list[Row]:
    """Completions of one to six tokens, whose behavior logprobs scatter around the shift."""
    rng = np.random.default_rng(0)
    rows = []
    for number, (advantage, shift) in enumerate(zip(ADVANTAGES, SHIFTS, strict=True), 1):
        prompt, completion = (rng.integers(3, 31, size).tolist() for size in (9 - number, number))
        scattered = shift + rng.normal(0, 0.5, number)
        behavior = logprobs(model, prompt, completion) - scattered
        rows.append(
            {
                "prompt": "",
                "prompt_ids": prompt,
                "completion_ids": completion,
                "logprobs": behavior.tolist(),
                "advantage": advantage,
            }
        )
    return rows


def expected(model: Any, rows: list[Row], level: str) -> float:
    """Mean over completions of -min(r A, clip(r, 1 - low, 1 + high) A), of each its tokens' mean.

    Source:
        Of a token: Shao et al., DeepSeekMath (2024), eq. 3. Of a completion y: r = (probability /
        behavior probability)^(1 / |y|); Zheng et al., Group sequence policy optimization (2025,
        arXiv:2507.18071), eqs. 5 and 7.
    """
    losses = []
    for row in rows:
        now = logprobs(model, row["prompt_ids"], row["completion_ids"])
        before, advantage = np.array(row["logprobs"]), row["advantage"]
        ratios = np.exp(now - before)
        if level == "sequence":
            ratios = (np.exp(now.sum()) / np.exp(before.sum())) ** (1 / len(now))
        clipped = np.clip(ratios, 1 - LOW, 1 + HIGH)
        losses.append(np.mean(-np.minimum(ratios * advantage, clipped * advantage)))
    return float(np.mean(losses))


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_loss_is_that_of_the_papers(
    level: str, behavior_model: Path, tokenizer: Any, tmp_path: Path
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    rows = logged(model)
    values = {name: expected(model, rows, name) for name in ("token", "sequence")}
    assert abs(values["token"] - values["sequence"]) > 0.01
    losses: list[float] = []
    job = jobs.Job(
        model,
        tokenizer,
        Training(behavior_model, steps=1, batch_size=len(rows), dtype="float32", save_every=0),
        learning_rate=1e-4,
        folder=tmp_path,
        max_length=None,
        record=lambda _, metrics: losses.extend([metrics["loss"]] if "loss" in metrics else []),
        rows=len(rows),
    )
    settings = grpo.Settings(epsilon=LOW, epsilon_high=HIGH, loss="grpo", level=level)
    grpo.learn(job, rows, [], settings)
    assert losses == [pytest.approx(values[level], abs=1e-4)]
