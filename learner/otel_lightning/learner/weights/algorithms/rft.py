"""Reward-filtered fine-tuning: supervised learning on the completions that earned a reward.

Of the offline algorithms it needs the least (no logprobs, no pairs) and breaks the least: it only
ever makes good completions likelier.

Source:
    Yuan et al., Scaling relationship on learning mathematical reasoning with large language
    models (2023); Dong et al., RAFT (2023).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import datasets
import polars as pl
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # trl exports lazily

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.progress import Progress
from otel_lightning.learner.transitions.splits import HELD_OUT, TRAIN
from otel_lightning.learner.weights.algorithms import Learned, Settings
from otel_lightning.learner.weights.examples import Example, tokenize
from otel_lightning.learner.weights.held_out import (
    Likelihoods,
    judge_weights,
    mean_token_logprobs,
    usable,
)
from otel_lightning.learner.weights.likelihood import completion_logprobs

MASKED = -100
"""Label of a token that is read, not learned."""


def learn(rows: pl.DataFrame, settings: Settings, output: Path) -> Learned:
    """Fine-tune a model on the completions of the train split above the threshold.

    Args:
        rows: The columns of `sql/completions.sql`.
        settings: Model, threshold and hyperparameters.
        output: Folder to save the model and its tokenizer in.

    Returns:
        Metrics, and the verdict on the held-out split.

    Raises:
        DataError: If no completion can be learned from, or another model wrote the tokens.
    """
    # Their bars would mix with ours, and fill logs where nobody watches.
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(settings.model, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        settings.model, dtype=torch.float32, local_files_only=True
    )
    examples, skipped = tokenize(rows, tokenizer)
    check_tokens(examples, model, settings.model)
    good = select(examples, settings.threshold)
    judging = [e for e in examples if e.split == HELD_OUT]
    held_out = usable(judging, skipped)

    size = settings.batch_size
    before = completion_logprobs(model, held_out, size, "Judging the model before")
    loss = train(model, tokenizer, good, settings, output)
    after = completion_logprobs(model, held_out, size, "Judging the model after")
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)

    likelihoods = Likelihoods(before, after)
    verdict = judge_weights(
        held_out,
        likelihoods,
        threshold=settings.threshold,
        clip=settings.clip,
    )
    token_before, token_after = mean_token_logprobs(held_out, likelihoods, settings.threshold)
    metrics = {
        "learned_from": len(good),
        "skipped": len(skipped),
        "held_out_left_out": len(judging) - len(held_out),
        "train_loss": loss,
        "good_token_logprob_before": token_before,
        "good_token_logprob_after": token_after,
    }
    return Learned(metrics, verdict)


def check_tokens(examples: Sequence[Example], model: PreTrainedModel, path: Path) -> None:
    """Refuse transitions that say nothing in this model's tokens.

    Raises:
        DataError: If there are no examples, or a token id that the model does not have.
    """
    if not examples:
        raise DataError(
            "No transition could be turned into tokens: none has token ids, and the chat template "
            f"of '{path}' cannot tell prompts from completions. Record token ids, or give --model "
            "the model that wrote these traces."
        )
    known = model.config.get_text_config().vocab_size
    largest = max(max(e.prompt + e.completion) for e in examples)
    if largest >= known:
        raise DataError(
            f"The store has token id {largest}, but the model in '{path}' has {known} tokens: "
            "another model wrote these traces. Give --model the one that did."
        )


def select(examples: Iterable[Example], threshold: float) -> list[Example]:
    """Keep what to learn from: good completions of the train split, each once in its state.

    Raises:
        DataError: If nothing is left.
    """
    train = [e for e in examples if e.split == TRAIN]
    good = [e for e in train if e.advantage > threshold]
    if not good:
        raise DataError(
            f"None of the {len(train)} completions of the train split has an advantage above "
            f"{threshold:g}. Lower --threshold, or collect rollouts that succeed."
        )
    return list({(e.state_hash or e.prompt, e.completion): e for e in good}.values())


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    good: Sequence[Example],
    settings: Settings,
    output: Path,
) -> float:
    """Fine-tune the model in place; prompts are read, completions learned.

    Returns:
        The mean loss over training.
    """
    rows = [
        {
            "input_ids": [*e.prompt, *e.completion],
            "labels": [MASKED] * len(e.prompt) + list(e.completion),
        }
        for e in good
    ]
    config = SFTConfig(
        output_dir=str(output),
        learning_rate=settings.learning_rate,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        max_length=None,
        seed=settings.seed,
        data_seed=settings.seed,
        bf16=False,
        activation_checkpointing=False,
        dataloader_pin_memory=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[ReportProgress(settings.steps)],
    )
    trainer.remove_callback(PrinterCallback)
    return float(trainer.train().training_loss)


class ReportProgress(TrainerCallback):
    """Reports each step and its loss."""

    def __init__(self, steps: int) -> None:
        self._progress = Progress("Learning", steps)

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the signature is the trainer's
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: dict[str, float] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Report the step that was just logged."""
        if logs and "loss" in logs:
            self._progress.report(state.global_step, f"loss {float(logs['loss']):.3f}")
