"""The few places where TRL 1.16 has to do something else than it does, all in one module.

TRL's trainers tokenize messages and generate completions. Logged transitions are tokens already,
so the classes here skip both and leave losses, clipping, PEFT and distribution to TRL. They
override methods that TRL may change in any release:
`tests/learner/weights/trainer/test_trl_overrides.py` fails if it does, and pyproject.toml caps TRL.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from trl import (
    DPOTrainer,
    GRPOTrainer,
    KTOTrainer,
    SFTTrainer,
)
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling
from trl.trainer.utils import add_fused_lm_head, pad

from otel_lightning.learner.weights.trainer.row_order import RowOrder


def row_order(trainer: Any, dataset: Any = None, repeat: int = 1) -> RowOrder:
    """Make the order in which a trainer visits its training rows."""
    args = trainer.args
    parts = args.world_size * args.gradient_accumulation_steps
    rows = trainer.train_dataset if dataset is None else dataset
    return RowOrder(len(rows), args.per_device_train_batch_size * parts, args.seed, repeat)


def no_card(*_: Any, **__: Any) -> None:
    """Write no draft of a model card: TRL makes one with every checkpoint, we one at the end."""


def in_row_order(trainer: type[Any]) -> type[Any]:
    """Let a trainer of TRL visit its rows in our order, which several processes share evenly."""
    # Our own trainers define their order themselves.
    if "_get_train_sampler" in vars(trainer):
        return trainer

    class InRowOrder(trainer):  # type: ignore[misc]
        create_model_card = no_card

        def _get_train_sampler(self, train_dataset: Any = None) -> RowOrder:
            return row_order(self, train_dataset)

    InRowOrder.__name__ = trainer.__name__
    return InRowOrder


class WeightedCollator(DataCollatorForLanguageModeling):  # type: ignore[misc]
    """Carries each row's `weight` into the batch."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate token ids and labels as TRL does, and add the weights, shape [B]."""
        batch: dict[str, Any] = super().torch_call(examples)
        batch["weight"] = torch.tensor([row["weight"] for row in examples])
        return batch


class WeightedSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """Supervised fine-tuning in which each row's loss has a weight."""

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        # The trainer drops all columns of the data set that are not in this list.
        if "weight" not in self._signature_columns:
            self._signature_columns.append("weight")

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the signature is TRL's
        num_items_in_batch: Any = None,
    ) -> Any:
        """Compute -sum over tokens of w * logprob, divided by the number of tokens.

        The two factors at the end are those of SFTTrainer: the tokens of all processes are
        counted, while gradients are averaged over processes.
        """
        if return_outputs:
            raise ValueError("Weighted fine-tuning gives no outputs, only a loss.")
        weights = inputs.pop("weight")
        # No cache of keys and values: nothing is generated, and it would keep memory for every
        # layer.
        inputs["use_cache"] = False
        outputs = model(**inputs, fused_lm_head=True)
        count = outputs.label_mask.sum() if num_items_in_batch is None else num_items_in_batch
        # [B, T - 1] times [B, 1]. The log probs of masked positions are 0.
        loss = -(outputs.log_probs * weights[:, None]).sum() / torch.as_tensor(count).clamp(min=1)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes
        return loss


class TokenizedDPOTrainer(DPOTrainer):  # type: ignore[misc]
    """DPO on rows of `prompt_ids`, `chosen_ids` and `rejected_ids`."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset


class TokenizedKTOTrainer(KTOTrainer):  # type: ignore[misc]
    """KTO on rows of `prompt_ids`, `completion_ids` and `label`, with an SFT term on good ones.

    Args:
        sft: Weight of the SFT term; 0 is TRL's loss.
    """

    def __init__(self, *arguments: Any, sft: float = 0.0, **options: Any) -> None:
        self._sft = sft
        super().__init__(*arguments, **options)

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        """Add completions of other prompts, by which TRL estimates the KL term, as it does."""
        if not self.calculate_KL:
            return dataset
        # TRL rotates within a process's batch, so its estimate depends on the number of processes.
        return dataset.map(rotated_completions, batched=True, batch_size=None)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the signature is TRL's
        num_items_in_batch: Any = None,
    ) -> Any:
        """Add the SFT term to TRL's loss, from the logprobs that TRL computes for it.

        The term is the mean over rows of their negative log-likelihood per token, 0 for bad ones.
        """
        if return_outputs:
            raise ValueError("KTO with an SFT term gives no outputs, only a loss.")
        logprobs_of_passes: list[Any] = []
        hook = model.register_forward_hook(
            lambda *call: logprobs_of_passes.append(call[-1].log_probs)
        )
        try:
            loss = super().compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        finally:
            hook.remove()
        mask = inputs["completion_mask"][:, 1:]
        # The pass before the last one is for the KL term.
        logprobs = logprobs_of_passes[-1][:, -mask.shape[1] :]  # [B, T - 1]
        mean = logprobs.sum(-1) / mask.sum(-1).clamp(min=1).to(logprobs.device)
        good = torch.as_tensor(inputs["label"], device=mean.device).to(mean.dtype)
        return loss - self._sft * self.desirable_weight * (good * mean).mean()


def rotated_completions(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Give each row the completion of the row before it.

    Example:
        >>> rotated_completions({"completion_ids": [[1], [2], [3]]})["KL_completion_ids"]
        [[3], [1], [2]]
    """
    completions = rows["completion_ids"]
    return {**rows, "KL_completion_ids": [completions[-1], *completions[:-1]]}


class OfflineGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPO on logged completions: nothing is generated, and no reward function is called.

    Rows have `prompt_ids`, `completion_ids`, `advantage` and `logprobs`, the logprob of each token
    of the completion under the behavior policy.
    """

    create_model_card = no_card

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # GRPOTrainer refuses to start without a reward function; this one fails if it is ever
        # called.
        super().__init__(*args, reward_funcs=_no_reward, **kwargs)

    def _get_train_sampler(self, dataset: Any = None) -> RowOrder:
        """Visit every row equally often; groups may be of any size, since advantages are given."""
        return row_order(self, dataset, self.num_iterations * self.args.steps_per_generation)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return torch.utils.data.SequentialSampler(eval_dataset)

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = [
            "prompt",
            "prompt_ids",
            "completion_ids",
            "logprobs",
            "advantage",
        ]

    @torch.no_grad()
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Turn logged rows into the batch that TRL's loss reads.

        `old_per_token_logps` are the logged ones, so the clipped ratio is model / behavior policy.
        """
        # Prompts on the left and completions on the right, so that they meet in one column and the
        # completion's tokens are the last ones of the joined row.
        prompt_ids, prompt_mask = self._padded([row["prompt_ids"] for row in inputs], "left")
        completion_ids, completion_mask = self._padded(
            [row["completion_ids"] for row in inputs], "right"
        )
        device = self.accelerator.device
        logprobs = pad(
            [torch.tensor(row["logprobs"], dtype=torch.float32) for row in inputs],
            padding_value=0.0,
        ).to(device)
        batch = {
            "prompt_ids": prompt_ids,
            "prompt_mask": prompt_mask,
            "completion_ids": completion_ids,
            "completion_mask": completion_mask,
            "old_per_token_logps": logprobs,
            "advantages": torch.tensor([row["advantage"] for row in inputs], device=device),
            # Tokens of all processes: the loss types that average over tokens divide by it.
            "num_items_in_batch": self.accelerator.gather(completion_mask.sum()).sum(),
        }
        if self.beta != 0.0:
            batch["ref_per_token_logps"] = self._reference_logprobs(batch)
        return batch

    def _padded(
        self, rows: Sequence[Sequence[int]], side: str
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pad token ids to one length: the ids and their mask, both of shape [B, T]."""
        ids = [torch.tensor(row) for row in rows]
        device = self.accelerator.device
        padded = pad(ids, padding_value=self._tokenizer.pad_token_id, padding_side=side)
        mask = pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side=side)
        return padded.to(device), mask.to(device)

    def _reference_logprobs(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Compute the logprobs of the model before learning; with PEFT, without its adapter."""
        inputs = {
            "input_ids": torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
            "attention_mask": torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
            "logits_to_keep": batch["completion_ids"].size(1),
            "batch_size": self.args.per_device_train_batch_size,
        }
        if self.ref_model is not None:
            return self._logprobs(self.ref_model, inputs)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self._logprobs(self.model, inputs)

    def _logprobs(self, model: nn.Module, inputs: Mapping[str, Any]) -> torch.Tensor:
        logprobs: torch.Tensor
        logprobs, _, _ = self._get_per_token_logps_and_entropies(model, **inputs)
        return logprobs


def offline_grpo(accumulate: int) -> dict[str, Any]:
    """Say the settings without which GRPOTrainer would expect to generate groups."""
    return {"num_generations": 2, "num_iterations": 1, "steps_per_generation": accumulate}


def _no_reward(**_: Any) -> list[float]:
    raise AssertionError("Offline training calls no reward function.")


@contextmanager
def scoring(model: nn.Module, temperature: float) -> Iterator[nn.Module]:
    """Let a causal model give logprobs without holding its logits in memory.

    TRL's fused head multiplies hidden states and vocabulary in tiles of 4,096 x 32,768, so memory
    does not grow with batch, length or vocabulary. Inside the block,
    `model(..., labels=labels, fused_lm_head=True).log_probs` has shape [B, T - 1].

    Args:
        model: A causal language model, with or without PEFT.
        temperature: That logits are divided by.
    """
    inner: Any = model
    if hasattr(model, "get_base_model"):
        inner = cast("Any", model).get_base_model()
    # The fused head replaces `forward` on the instance. If a trainer has done so already, its
    # version is put back; otherwise deleting ours uncovers the one of the class.
    patched = "forward" in vars(inner)
    before = inner.forward
    add_fused_lm_head(inner, temperature=temperature)
    try:
        yield model
    finally:
        if patched:
            inner.forward = before
        else:
            del inner.forward
