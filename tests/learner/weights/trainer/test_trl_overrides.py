"""The contract with TRL 1.16: these tests fail loudly when what we override has changed."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.late import Late

from otel_lightning.learner.weights.examples import Example

torch: Any = Late("torch")
transformers: Any = Late("transformers")
trl: Any = Late("trl")
likelihood: Any = Late("otel_lightning.learner.weights.trainer.likelihood")
overrides: Any = Late("otel_lightning.learner.weights.trainer.trl_overrides")

OVERRIDDEN = {
    "WeightedSFTTrainer": ["_set_signature_columns_if_needed", "compute_loss"],
    "TokenizedDPOTrainer": ["_prepare_dataset"],
    "TokenizedKTOTrainer": ["_prepare_dataset", "compute_loss"],
    "OfflineGRPOTrainer": [
        "_get_train_sampler",
        "_get_eval_sampler",
        "_set_signature_columns_if_needed",
        "_generate_and_score_completions",
        "create_model_card",
    ],
}


@pytest.mark.parametrize("ours", OVERRIDDEN)
def test_trl_still_has_the_methods_that_we_override(ours: str) -> None:
    base = getattr(overrides, ours).__base__
    for method in OVERRIDDEN[ours]:
        assert callable(getattr(base, method, None)), f"TRL {trl.__version__}: {method}"


def test_trl_still_reads_our_batch_in_its_grpo_loss() -> None:
    source = inspect.getsource(trl.GRPOTrainer._compute_loss)
    for name in (
        "prompt_ids",
        "prompt_mask",
        "completion_ids",
        "completion_mask",
        "advantages",
        "old_per_token_logps",
        "ref_per_token_logps",
        "num_items_in_batch",
    ):
        assert f'"{name}"' in source, f"TRL {trl.__version__} does not read {name}"


def test_trl_still_names_the_columns_that_our_rows_have() -> None:
    columns = {
        trl.SFTTrainer: ["input_ids", "labels"],
        trl.DPOTrainer: ["prompt_ids", "chosen_ids", "rejected_ids"],
        trl.KTOTrainer: ["prompt_ids", "completion_ids", "KL_completion_ids", "label"],
    }
    for trainer, names in columns.items():
        source = inspect.getsource(trainer._set_signature_columns_if_needed)
        assert all(f'"{name}"' in source for name in names), trainer.__name__
    assert '"chosen_ids" in column_names' in inspect.getsource(trl.RewardTrainer._prepare_dataset)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (trl, "SFTTrainer"),
        (trl, "RewardTrainer"),
        (overrides, "WeightedSFTTrainer"),
        (overrides, "TokenizedDPOTrainer"),
        (overrides, "TokenizedKTOTrainer"),
        (overrides, "OfflineGRPOTrainer"),
    ],
)
def test_every_trainer_visits_rows_in_our_order(module: Any, name: str) -> None:
    trainer = getattr(module, name)
    ours = overrides.in_row_order(trainer)
    assert ours.__name__ == trainer.__name__
    assert "_get_train_sampler" in vars(ours)
    assert "_get_train_sampler" in inspect.getsource(transformers.Trainer.get_train_dataloader)
    assert ours.create_model_card is overrides.no_card
    assert "self.create_model_card(" in inspect.getsource(trainer._save_checkpoint)


def examples(count: int = 7) -> list[Example]:
    rng = np.random.default_rng(0)
    return [
        Example(
            str(i),
            str(i),
            "heldout",
            None,
            tuple(rng.integers(3, 31, rng.integers(1, 9)).tolist()),
            tuple(rng.integers(3, 31, rng.integers(1, 9)).tolist()),
            None,
            (1.0, 0.5)[i % 2],
            1.0,
            1.0,
            1.0,
        )
        for i in range(count)
    ]


def naive_logprob(model: Any, e: Example) -> float:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([e.prompt + e.completion])).logits[0].double()
    logprobs = (logits / e.temperature).log_softmax(-1)
    ids = e.prompt + e.completion
    places = range(len(e.prompt) - 1, e.length - 1)
    return float(sum(logprobs[t, ids[t + 1]] for t in places))


def test_judging_without_logits_gives_what_the_definition_gives(behavior_model: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    expected = [naive_logprob(model, e) for e in examples()]
    for size in (1, 3, 7):
        found = likelihood.completion_logprobs(model, examples(), batch_size=size, label="Test")
        assert found.tolist() == pytest.approx(expected, abs=1e-4)


def logits_bytes(model: Any, batch: list[Example]) -> int:
    """Bytes of the logits from which the completions' tokens get their logprobs, in float32."""
    positions = max(e.length for e in batch) - min(len(e.prompt) for e in batch) + 1
    return 4 * len(batch) * positions * int(model.config.vocab_size)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # PEFT's old name
@pytest.mark.parametrize("adapter", [False, True])
def test_logits_in_memory_and_in_tiles_give_the_same_logprobs(
    behavior_model: Path, monkeypatch: pytest.MonkeyPatch, *, adapter: bool
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    if adapter:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False))
    # One batch of prompts and completions of different lengths, so that rows are padded.
    batch = [e for e in examples(24) if e.temperature == 0.5 and len(e.prompt) > 1]
    assert len({(len(e.prompt), len(e.completion)) for e in batch}) > 5
    passes: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda *call: passes.append(call[-1]), with_kwargs=True)
    most = logits_bytes(model, batch)
    found = []
    for bound in (most, most - 1):
        monkeypatch.setattr("otel_lightning.learner.weights.trainer.likelihood.LOGITS_BYTES", bound)
        found.append(likelihood.token_logprobs(model, batch, len(batch), "Test"))
    assert ["fused_lm_head" in one for one in passes] == [False, True]
    assert passes[0]["logits_to_keep"] < max(e.length for e in batch)
    for small, large in zip(*found, strict=True):
        assert small.tolist() == pytest.approx(large.tolist(), abs=1e-6)


def test_a_model_that_computes_all_logits_is_judged_too(behavior_model: Path) -> None:
    class AllLogits(transformers.Qwen3ForCausalLM):  # type: ignore[misc]
        def forward(self, input_ids: Any, attention_mask: Any, *, use_cache: bool) -> Any:
            return super().forward(input_ids, attention_mask, use_cache=use_cache)

    usual = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    expected = [naive_logprob(usual, e) for e in examples()]
    model = AllLogits.from_pretrained(behavior_model)
    found = likelihood.completion_logprobs(model, examples(), batch_size=3, label="Test")
    assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_each_token_of_the_completion_has_its_logprob(behavior_model: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    rows = likelihood.token_logprobs(model, examples(), 4, "Test")
    assert [len(row) for row in rows] == [len(e.completion) for e in examples()]
    assert all((row <= 0).all() for row in rows)


def test_scoring_leaves_the_model_as_it_was(behavior_model: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    before = set(vars(model))
    with overrides.scoring(model, 0.7):
        assert "forward" in vars(model)
    assert set(vars(model)) == before
