"""TRL's trainers, run for one step, see the advantages that `group` computes."""

from pathlib import Path
from typing import Any

import pytest
from support.made_steps import Rollout, together

from otel_lightning.learner.credit import METHODS, Options

# TRL and transformers still use what they deprecate themselves.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

REWARDS = [1.0, 0.0, 0.25, 0.25, -2.0, 3.0, 0.5, 0.5]
"""Of eight rollouts, four a task."""


@pytest.fixture(scope="module")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 8}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **sizes,
        **heads,
    )
    path = str(tmp_path_factory.mktemp("model"))
    Qwen3ForCausalLM(config).save_pretrained(path)
    return path


def one_step(path: Path, model: str, tokenizer: Any, trainer: Any, config: Any) -> list[float]:
    """The advantages that a trainer logged for eight completions, whatever they say."""
    from datasets import Dataset

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return REWARDS[: len(completions)]

    arguments = config(
        str(path),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=1,
        max_steps=1,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trained = trainer(
        model=model,
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["refund 1", "return 2"]}),
        processing_class=tokenizer,
    )
    trained.train()
    return list(trained._logs["advantages"])


def ours(**options: Any) -> list[float]:
    rollouts = [Rollout([0.0], outcome=r, task=i // 4) for i, r in enumerate(REWARDS)]
    result: list[float] = METHODS["group"](together(rollouts), Options(**options)).tolist()
    return result


def test_group_with_mean_and_deviation_is_trls_grpo(
    tmp_path: Path, model: str, tokenizer: Any
) -> None:
    from trl import GRPOConfig, GRPOTrainer

    theirs = one_step(tmp_path, model, tokenizer, GRPOTrainer, GRPOConfig)
    # TRL adds 1e-4 to the standard deviation.
    assert theirs == pytest.approx(ours(baseline="mean", scale="std"), rel=3e-4)


def test_group_with_leave_one_out_is_trls_rloo(tmp_path: Path, model: str, tokenizer: Any) -> None:
    from trl import RLOOConfig, RLOOTrainer

    theirs = one_step(tmp_path, model, tokenizer, RLOOTrainer, RLOOConfig)
    assert theirs == pytest.approx(ours(baseline="leave_one_out", scale="none"), rel=1e-5)
