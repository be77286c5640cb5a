"""Judging a model: it runs where the model is to be trained, and holds a part of its logits."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.running import finish

if TYPE_CHECKING:
    from conftest import Traces

VOCABULARY, LENGTH, BATCH = 151_936, 2_000, 4
"""Qwen's vocabulary, and a batch of long calls."""
JUDGE = f"""
import json, resource
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from otel_lightning.learner.weights.examples import Example
from otel_lightning.learner.weights.trainer.likelihood import token_logprobs

def example(length):
    tokens = tuple(range(10, 10 + length))
    return Example("a", "a", "train", None, tokens[:2], tokens[2:], None, 1.0, 1.0, 1.0, 1.0)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

shape = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size={VOCABULARY}, num_key_value_heads=1, **shape))
token_logprobs(model, [example(8)], 1, "Warm up")
before = peak()
rows = token_logprobs(model, [example({LENGTH})] * {BATCH}, {BATCH}, "Judge")
print(json.dumps({{"grown": peak() - before, "tokens": sum(map(len, rows))}}))
"""
LAUNCHER = """
import runpy, sys, traceback
from torch.nn.modules.module import register_module_forward_pre_hook

def tell(module, _):
    callers = {frame.name for frame in traceback.extract_stack()}
    device = next(module.parameters()).device.type
    print("judged" if "completion_logprobs" in callers else "trained", "on", device, flush=True)
    raise SystemExit

register_module_forward_pre_hook(tell)
runpy.run_module("otel_lightning.learner", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak has another unit there")
def test_memory_of_judging_does_not_hold_the_logits() -> None:
    output = json.loads(finish(sys.executable, "-c", JUDGE, check=True).stdout)
    assert output["tokens"] == BATCH * (LENGTH - 2)
    logits = BATCH * LENGTH * VOCABULARY * 4  # bytes
    assert output["grown"] < logits * 0.75


def test_the_model_is_judged_before_training_on_the_accelerator(
    logged: "Traces", behavior_model: Path, tmp_path: Path
) -> None:
    where = ["--store", logged.path, "--model", behavior_model, "--output", tmp_path / "learned"]
    words = ["-c", LAUNCHER, "weights", "--algorithm", "rft", *map(str, where)]
    # Torch's meta device, which keeps no numbers, stands for a GPU: accelerate chooses it.
    chosen = os.environ | {"ACCELERATE_TORCH_DEVICE": "meta"}
    process = finish(sys.executable, *words, env=chosen)
    assert process.stdout.splitlines()[-1:] == ["judged on meta"], process.stderr
