"""Models small enough to learn in seconds."""

from pathlib import Path
from typing import Any

import pytest
from support.once import once
from support.untrained import untrained


@pytest.fixture(scope="session")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 80 thousand parameters that has learned nothing."""
    return untrained(tmp_path_factory.mktemp("model"), tokenizer)


@pytest.fixture(scope="session")
def behavior_model(model: Path, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that wrote the log: it chooses among the four actions at random."""
    return once(tmp_path_factory, "behavior", lambda path: train(model, tokenizer, path))


def train(model: Path, tokenizer: Any, path: Path) -> None:
    """Teach a model to answer with one of the four actions, each as likely as another."""
    import torch
    from support.desk_bandit import ACTIONS, REQUESTS, question
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_pretrained(model)
    optimizer = torch.optim.AdamW(policy.parameters(), 5e-3)
    actions = tokenizer.convert_tokens_to_ids(ACTIONS)
    end = tokenizer.convert_tokens_to_ids("<end>")
    prompts = [question(tokenizer, r, n) for r in REQUESTS for n in range(30)]
    rows = torch.tensor([[*prompt, action, end] for prompt in prompts for action in actions])
    labels = rows.clone()
    labels[:, :-2] = -100
    for _ in range(60):
        policy(input_ids=rows, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    policy.save_pretrained(path)
    tokenizer.save_pretrained(path)
