"""Models small enough to learn in seconds."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 80 thousand parameters that has learned nothing."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

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
        bos_token_id=None,
    )
    path = tmp_path_factory.mktemp("model")
    Qwen3ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def behavior_model(model: Path, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that wrote the log: it chooses among the four actions at random."""
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
    path = tmp_path_factory.mktemp("behavior")
    policy.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
