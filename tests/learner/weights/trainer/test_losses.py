"""The losses of each algorithm, beside TRL's own trainers on the same rows as text."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.late import Late

from otel_lightning.learner.weights import algorithms
from otel_lightning.learner.weights.algorithms import Row, awr, dpo, kto, reward_model, rft
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.settings import Training

datasets: Any = Late("datasets")
jobs: Any = Late("otel_lightning.learner.weights.job")
torch: Any = Late("torch")
transformers: Any = Late("transformers")
trl: Any = Late("trl")

# TRL and transformers still use what they deprecate themselves.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

STEPS = 3
RATE = 5e-3
"""Learning rate: after each step the model is another one, so later losses tell of gradients."""
END = 1


def examples() -> list[Example]:
    """Good and bad completions of one to five tokens, two of each state, all of which end."""
    rng = np.random.default_rng(0)
    found = []
    for state in range(4):
        prompt = tuple(rng.integers(8, 16, 2 + state).tolist())
        for number, advantage in enumerate((1.0, -0.7 if state == 0 else -0.5)):
            length = 1 + (state + number) % 4
            completion = (*rng.integers(16, 40, length).tolist(), END)
            name = f"{state}.{number}"
            found.append(
                Example(
                    rollout_id=name,
                    task=str(state),
                    split="train",
                    state_hash=None,
                    prompt=prompt,
                    completion=completion,
                    logprobs=None,
                    temperature=1.0,
                    reward=advantage,
                    outcome=advantage,
                    advantage=advantage,
                )
            )
    return found


class Trained:
    """Trains a fresh model for a few steps on one batch of all rows, and keeps the losses."""

    def __init__(self, model: Path, tokenizer: Any, folder: Path) -> None:
        self._model, self._tokenizer, self._folder = model, tokenizer, folder

    def job(self, rows: int, losses: list[float], *, scores: bool = False) -> Any:
        if scores:
            torch.manual_seed(0)  # of the head
            kind = transformers.AutoModelForSequenceClassification
            model = kind.from_pretrained(self._model, num_labels=1)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(self._model)
        training = Training(
            self._model,
            steps=STEPS,
            batch_size=rows,
            save_every=0,
            trl={"lr_scheduler_type": "constant"},
        )
        return jobs.Job(
            model,
            self._tokenizer,
            training,
            learning_rate=RATE,
            folder=self._folder,
            max_length=64,
            record=lambda _, told: losses.extend([told["loss"]] if "loss" in told else []),
            rows=rows,
        )

    def ours(self, algorithm: Any, settings: Any) -> list[float]:
        losses: list[float] = []
        rows = algorithm.rows(examples(), settings)
        job = self.job(len(rows), losses, scores=algorithm is reward_model)
        algorithm.learn(job, rows, [], settings)
        return losses

    def theirs(self, name: str, rows: list[Row], own: Mapping[str, Any]) -> list[float]:
        """Train by TRL's own class, which tokenizes the texts of the rows."""
        losses: list[float] = []
        job = self.job(len(rows), losses, scores=name == "Reward")
        arguments = getattr(trl, f"{name}Config")(**job.arguments(own))
        job.fit(getattr(trl, f"{name}Trainer"), arguments, rows, [])
        return losses

    def text(self, ids: tuple[int, ...]) -> str:
        return " ".join(self._tokenizer.convert_ids_to_tokens(list(ids)))

    def pairs(self) -> list[Row]:
        told = examples()
        return [
            {
                "prompt": self.text(good.prompt) + " ",
                "chosen": self.text(good.completion),
                "rejected": self.text(bad.completion),
            }
            for good, bad in zip(told[::2], told[1::2], strict=True)
        ]

    def labelled(self, threshold: float = 0.0) -> list[Row]:
        return [
            {
                "prompt": self.text(e.prompt) + " ",
                "completion": self.text(e.completion),
                "label": e.advantage > threshold,
            }
            for e in examples()
        ]


@pytest.fixture
def trained(behavior_model: Path, tokenizer: Any, tmp_path: Path) -> Trained:
    return Trained(behavior_model, tokenizer, tmp_path)


def logprobs(model: Any, e: Example) -> np.ndarray:
    """Logprob of each token of a completion, by the definition."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([e.prompt + e.completion])).logits[0].double()
    places = torch.arange(len(e.prompt) - 1, e.length - 1)
    chosen = logits.log_softmax(-1)[places, torch.tensor(e.completion)]
    return np.asarray(chosen.numpy(), dtype=np.float64)


Same = Callable[[Trained], tuple[list[float], list[float]]]


def good_rows(trained: Trained) -> list[Row]:
    return [
        {"prompt": row["prompt"], "completion": row["completion"]}
        for row in trained.labelled()
        if row["label"]
    ]


SAME: dict[str, Same] = {
    "rft": lambda trained: (
        trained.ours(rft, rft.Settings()),
        trained.theirs("SFT", good_rows(trained), {"max_length": None}),
    ),
    "dpo": lambda trained: (
        trained.ours(dpo, dpo.Settings(beta=0.3)),
        trained.theirs(
            "DPO",
            trained.pairs(),
            {"beta": 0.3, "loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 1.0]},
        ),
    ),
    "dpo, by length": lambda trained: (
        trained.ours(dpo, dpo.Settings(sft=0.0, normalize=True)),
        trained.theirs("DPO", trained.pairs(), {"beta": 0.1, "loss_type": ["sigmoid_norm"]}),
    ),
    # With one bad row of eight the mismatched completions become likelier too: the KL term counts.
    "kto": lambda trained: (
        trained.ours(kto, kto.Settings(threshold=-0.6, beta=0.3, sft=0.0)),
        trained.theirs("KTO", trained.labelled(-0.6), {"beta": 0.3, "undesirable_weight": 7.0}),
    ),
    "reward-model": lambda trained: (
        trained.ours(reward_model, reward_model.Settings()),
        trained.theirs(
            "Reward",
            [
                {side: row["prompt"] + row[side] for side in ("chosen", "rejected")}
                for row in trained.pairs()
            ],
            {"center_rewards_coefficient": 0.01, "max_length": 64},
        ),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_losses_are_those_of_trl_on_the_same_rows_as_text(name: str, trained: Trained) -> None:
    ours, theirs = SAME[name](trained)
    assert len(ours) == STEPS
    assert ours[0] != pytest.approx(ours[-1], rel=1e-3)
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_first_losses_are_those_of_the_papers(trained: Trained, behavior_model: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    told = examples()
    values = [logprobs(model, e) for e in told]
    tokens = [len(one) for one in values]
    weights = np.exp(np.minimum([e.advantage / 0.5 for e in told], math.log(10.0)))
    weights /= weights.mean()
    weighted = -sum(w * one.sum() for w, one in zip(weights, values, strict=True)) / sum(tokens)
    per_token = [one.sum() / count for one, count in zip(values, tokens, strict=True)]
    good = [one for one, e in zip(per_token, told, strict=True) if e.advantage > 0]
    expected = {
        awr: weighted,
        # The model is its own reference yet: its margin is 0.
        dpo: math.log(2) - sum(one.sum() for one in values[::2]) / sum(tokens[::2]),
        # Each row is worth sigmoid(0) less than it may be; the NLL is 0 for bad rows.
        kto: 0.5 - 0.5 * float(np.mean(good)),
    }
    for algorithm, loss in expected.items():
        found = trained.ours(algorithm, algorithm.Settings())
        assert found[0] == pytest.approx(loss, rel=1e-4), algorithm.__name__
    assert {algorithms.load(name) for name in ("awr", "dpo", "kto")} == set(expected)
