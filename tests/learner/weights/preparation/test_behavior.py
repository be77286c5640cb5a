"""Behavior logprobs are those of the log, computed with the model that wrote it, or refused."""

import math
from pathlib import Path
from typing import Any

import pytest
from support.late import Late

from otel_lightning.learner.errors import DataError
from otel_lightning.learner.weights.examples import NO_LOGPROB, Example, Tokenized

transformers: Any = Late("transformers")
behavior: Any = Late("otel_lightning.learner.weights.preparation.behavior")
likelihood: Any = Late("otel_lightning.learner.weights.trainer.likelihood")

LOGGED = (math.log(0.5), math.log(0.25))


def example(name: str, **columns: Any) -> Example:
    row = {
        "rollout_id": name,
        "task": name,
        "split": "train",
        "state_hash": None,
        "prompt": (4, 9, 5),
        "completion": (20, 1),
        "logprobs": LOGGED,
        "temperature": 1.0,
        "reward": 1.0,
        "outcome": 1.0,
        "advantage": 1.0,
    }
    return Example(**(row | columns))


def found(model: Path, *examples: Example) -> tuple[Any, Tokenized]:
    tokenized = Tokenized(list(examples))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
    return behavior.with_behavior(tokenized, loaded, 2, "grpo"), tokenized


def test_logged_logprobs_are_kept_and_missing_ones_computed(behavior_model: Path) -> None:
    result, _ = found(behavior_model, example("a"), example("b", logprobs=None, model="m"))
    kept, computed = result.examples
    assert (result.recomputed, result.temperature) == (1, 1.0)
    assert kept.logprobs == LOGGED
    model = transformers.AutoModelForCausalLM.from_pretrained(behavior_model)
    (expected,) = likelihood.token_logprobs(model, [example("b")], 1, "Test")
    assert computed.logprobs == pytest.approx(expected.tolist())
    assert computed.logprobs != pytest.approx(LOGGED, abs=0.1)


def test_only_the_most_frequent_temperature_is_kept_and_computed_unless_it_is_1(
    behavior_model: Path,
) -> None:
    cool = [example(name, temperature=0.5) for name in "ab"]
    others = [example("c"), example("d", temperature=0.0)]
    result, tokenized = found(behavior_model, *cool, *others)
    assert (result.temperature, result.recomputed) == (0.5, 2)
    assert [e.rollout_id for e in result.examples] == ["a", "b"]
    assert all(e.logprobs != pytest.approx(LOGGED) for e in result.examples)
    assert (tokenized.skipped, tokenized.reasons[NO_LOGPROB]) == (["c", "d"], 2)


def test_greedy_completions_alone_are_refused(behavior_model: Path) -> None:
    with pytest.raises(DataError, match="All 1 completions were decoded greedily"):
        found(behavior_model, example("a", temperature=0.0))


def test_logprobs_of_several_models_cannot_be_computed(behavior_model: Path) -> None:
    without = [example(name, logprobs=None, model=name) for name in ("one", "two")]
    with pytest.raises(DataError, match=r"2 of 3 completions .* one \(1\), two \(1\)"):
        found(behavior_model, *without, example("c", model="three"))
