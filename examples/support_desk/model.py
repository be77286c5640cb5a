"""Train the support desk's model from nothing: small, quick and mediocre, as a start should be.

It learns from a demonstrator that knows the desk's procedure and often takes the wrong action.
How often depends on the case and on the system prompt: told to be careful, it errs least.

    python model.py --output base-model
"""

import argparse
import json
import math
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from chat import CHAT_TEMPLATE, END, PAD, ROLES
from progress import progress
from tasks import Task, all_tasks, final_text
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tools import ACTIONS, TOOLS, run_tool
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

FLAGS = Path(__file__).with_name("flags.json")
ACCURACY = {"brief": 0.15, "friendly": 0.35, "careful": 0.65}
"""How often the demonstrator is right under each system prompt, in a case of middle difficulty."""
HABIT = "escalate"
DEMONSTRATIONS = 4000
VOCABULARY = 1024
CONTEXT = 1024
STEPS = 440
BATCH = 32
LEARNING_RATE = 3e-3
IGNORED = -100

Conversation = list[dict[str, Any]]


def system_prompts() -> dict[str, str]:
    """Read the variants of the system prompt from the flag file, by name."""
    flags = json.loads(FLAGS.read_text(encoding="utf-8"))["flags"]
    variants: dict[str, str] = flags["support-prompt"]["variants"]
    return variants


def right_probability(variant: str, case: str) -> float:
    """How likely the demonstrator is right: by the prompt, and by how hard the case is."""
    difficulty = random.Random(case).uniform(-1, 1)
    odds = ACCURACY[variant] / (1 - ACCURACY[variant]) * math.exp(-difficulty)
    return odds / (1 + odds)


def demonstrate(task: Task, variant: str, prompt: str, rng: random.Random) -> Conversation:
    """Answer one task as the demonstrator does: always by the procedure, not always right."""
    is_right = rng.random() < right_probability(variant, task.case)
    action = task.action if is_right else wrong_action(task, rng)
    return [
        {"role": "system", "content": prompt},
        {"role": "user", "content": task.request},
        *_tool_turn("lookup", task),
        *_tool_turn(action, task),
        {"role": "assistant", "content": final_text(action, task.order)},
    ]


def wrong_action(task: Task, rng: random.Random) -> str:
    """Err as people in a hurry do: more often than not, let a colleague call."""
    wrong = [action for action in ACTIONS if action != task.action]
    return rng.choices(wrong, [5 if action == HABIT else 1 for action in wrong])[0]


def _tool_turn(name: str, task: Task) -> Conversation:
    arguments = {"order": task.order}
    result = run_tool(name, arguments, {task.order: task.case})
    return [
        {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]},
        {"role": "tool", "content": json.dumps(result)},
    ]


def demonstrations(count: int, rng: random.Random) -> list[Conversation]:
    """Answer training tasks under the system prompts in turn; no held-out task is shown."""
    tasks = [task for task in all_tasks() if task.split == "train"]
    prompts = list(system_prompts().items())
    return [
        demonstrate(rng.choice(tasks), *prompts[number % len(prompts)], rng)
        for number in range(count)
    ]


def train_tokenizer(conversations: Sequence[Conversation]) -> PreTrainedTokenizerFast:
    """Learn a byte-level BPE in which an order id is one token and a set phrase is few."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("[A-D][0-9]{2}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = _with_template(tokenizer).apply_chat_template(
        list(conversations), tools=TOOLS, tokenize=False
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[PAD, END, *ROLES],
        show_progress=False,
    )
    pieces = (piece for text in texts for piece in re.split(r"<\|\w+\|>", str(text)))
    tokenizer.train_from_iterator(pieces, trainer)
    return _with_template(tokenizer)


def _with_template(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=CONTEXT,
    )


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Make an untrained model of about 0.3 million parameters."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=24,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    # Without it the libraries decode greedily, whatever temperature they are asked for.
    model.generation_config.do_sample = True
    return model


def encode(
    tokenizer: PreTrainedTokenizerFast, conversations: Sequence[Conversation]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokenize conversations for training.

    Returns:
        Token ids and labels, both of shape [conversations, longest]. Only what the assistant
        says is labelled.
    """
    rows: Any = tokenizer.apply_chat_template(
        list(conversations),
        tools=TOOLS,
        return_dict=True,
        return_assistant_tokens_mask=True,
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    is_answer = torch.as_tensor(rows["assistant_masks"], dtype=torch.bool)
    return rows["input_ids"], rows["input_ids"].masked_fill(~is_answer, IGNORED)


def train(model: Qwen3ForCausalLM, ids: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
    """Fit the model to the demonstrations, in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for _ in progress(range(steps), steps, "training"):
        rows = torch.randint(len(ids), (BATCH,))
        # Padding comes last, where a causal model cannot see it: no attention mask is needed.
        loss = model(input_ids=ids[rows], labels=labels[rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    model.train(mode=False)


def build(seed: int = 0, steps: int = STEPS) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """Make the desk's model and its tokenizer; the same seed makes the same ones."""
    torch.manual_seed(seed)
    conversations = demonstrations(DEMONSTRATIONS, random.Random(seed))
    tokenizer = train_tokenizer(conversations)
    model = new_model(tokenizer)
    train(model, *encode(tokenizer, conversations), steps)
    return model, tokenizer


def main() -> None:
    """Train the model and save it as Hugging Face's libraries load it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True, help="the folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"model.py: {error}")
    started = time.process_time()
    model, tokenizer = build(options.seed, options.steps)
    model.save_pretrained(options.output)
    tokenizer.save_pretrained(options.output)
    seconds = time.process_time() - started
    print(
        f"A model of {model.num_parameters():,} parameters is in {options.output} "
        f"({seconds:.0f} CPU-seconds)."
    )


if __name__ == "__main__":
    main()
