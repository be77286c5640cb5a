"""Models small enough to learn in seconds."""

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
