"""Train a small language model from nothing on demonstrations, with a tokenizer of its own.

The tokenizer is a byte-level BPE in which a frequent word is one token, and so is each fixed text
of an agent, such as a system prompt: a model of half a million parameters then sees a task in a
few dozen tokens, and about a minute of training is enough.
"""

import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from shared.recipe import TEMPLATE, Recipe

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
IGNORED = -100


def train(recipe: Recipe, seed: int, output: Path) -> str:
    """Train a model and save it as Hugging Face's libraries load it; return what it cost."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    started = time.process_time()
    tokenizer = train_tokenizer(recipe)
    model = new_model(recipe, tokenizer)
    loss = fit(model, encode(recipe, tokenizer), recipe, random.Random(seed))
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    seconds = time.process_time() - started
    return (
        f"{model.num_parameters():,} parameters, {recipe.steps} steps on "
        f"{len(recipe.demonstrations):,} demonstrations, loss {loss:.3f}, {seconds:.0f} CPU-seconds"
    )


def train_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """Learn the tokenizer from the demonstrations."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(recipe.words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[PAD, END, *ROLES],
        show_progress=False,
    )
    texts = _wrapped(tokenizer, recipe).apply_chat_template(
        list(recipe.demonstrations), tools=list(recipe.tools) or None, tokenize=False
    )
    between = re.compile("|".join([r"<\|\w+\|>", *map(re.escape, recipe.fixed_texts)]))
    tokenizer.train_from_iterator((part for text in texts for part in between.split(text)), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in recipe.fixed_texts])
    return _wrapped(tokenizer, recipe)


def _wrapped(tokenizer: Tokenizer, recipe: Recipe) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=TEMPLATE,
        padding_side="left",
        model_max_length=recipe.context,
    )


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Make an untrained model."""
    heads = 4
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.width * 5 // 2,
        num_hidden_layers=recipe.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=recipe.width // heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    # With the usual 0.02, a model this narrow needs many more steps until it copies words.
    config.initializer_range = 0.08
    model = Qwen3ForCausalLM(config)
    # Without it the libraries decode greedily, whatever temperature they are asked for.
    model.generation_config.do_sample = True
    return model


def encode(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> list[tuple[list[int], list[int]]]:
    """Tokenize the demonstrations.

    Returns:
        Token ids and labels of each. All text is labelled: also what a user or a tool says repeats
        names, and from that the model learns to copy.
    """
    rows: Any = tokenizer.apply_chat_template(
        list(recipe.demonstrations), tools=list(recipe.tools) or None, return_dict=True
    )
    return [(ids, ids) for ids in rows["input_ids"]]


def batch_of(
    rows: Sequence[tuple[list[int], list[int]]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows on the right to the longest: token ids and labels, both [rows, longest]."""
    width = max(len(ids) for ids, _ in rows)
    # A causal model cannot see padding that comes last: no attention mask is needed.
    return (
        torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows]),
        torch.tensor([labels + [IGNORED] * (width - len(labels)) for _, labels in rows]),
    )


def fit(
    model: Qwen3ForCausalLM,
    rows: Sequence[tuple[list[int], list[int]]],
    recipe: Recipe,
    rng: random.Random,
) -> float:
    """Fit the model to the demonstrations, in place; return the mean loss of the last steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.steps, pct_start=0.1
    )
    model.train()
    losses = []
    for _ in range(recipe.steps):
        ids, labels = batch_of(rng.choices(rows, k=recipe.batch))
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())
    model.train(mode=False)
    return sum(losses[-20:]) / len(losses[-20:])
