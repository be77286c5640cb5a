"""Models small enough to learn in seconds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def untrained(
    folder: Path, tokenizer: Any, seed: int = 0, *, width: int = 64, layers: int = 2
) -> Path:
    """Save a model that has learned nothing: 80 thousand parameters by default.

    Args:
        folder: Where to save it, with its tokenizer.
        tokenizer: Its tokenizer.
        seed: Seed of its weights.
        width: Size of a hidden state, which all heads divide among them.
        layers: Number of layers and of attention heads.

    Returns:
        The folder.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=layers,
        num_key_value_heads=layers,
        head_dim=width // layers,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def taught(folder: Path, model: Path, tokenizer: Any, actions: Sequence[str]) -> Path:
    """Teach a model to answer the desk's requests with some actions, each as likely as another.

    Args:
        folder: Where to save it, with its tokenizer.
        model: The model to begin with.
        tokenizer: Its tokenizer.
        actions: What it shall answer, whatever it is asked.

    Returns:
        The folder.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from support.desk_bandit import REQUESTS, question

    torch.manual_seed(0)
    policy = AutoModelForCausalLM.from_pretrained(model)
    optimizer = torch.optim.AdamW(policy.parameters(), 5e-3)
    ids = tokenizer.convert_tokens_to_ids(list(actions))
    end = tokenizer.convert_tokens_to_ids("<end>")
    prompts = [question(tokenizer, r, n) for r in REQUESTS for n in range(30)]
    rows = torch.tensor([[*prompt, action, end] for prompt in prompts for action in ids])
    labels = rows.clone()
    labels[:, :-2] = -100
    for _ in range(60):
        policy(input_ids=rows, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
