"""What fine-tuning models of real size costs on a GPU, and whether a GPU learns what a CPU learns.

    python tests/bench/weights_gpu.py [--only "0.6B, all weights"] [--tiny]

The models have the shapes of Qwen3 and random weights: what a step costs does not depend on the
weights. Each line is a process of its own. "Judging" is what computing the held-out completions'
likelihood takes, before and after training. `--tiny` takes models of 80 thousand parameters, to try
this program where there is no GPU.

Before it, each algorithm trains one small model in float32 on the CPU and on the GPU, with the same
rows and seed: their losses should be equal but for rounding.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import polars as pl
from support.untrained import untrained

from otel_lightning.learner.weights.settings import Training

Options = dict[str, Any]
VOCABULARY, TINY_VOCABULARY = 151_936, 500
SHAPES: dict[str, dict[str, int]] = {
    "0.6B": {"hidden": 1024, "inner": 3072, "layers": 28, "heads": 16, "tied": 1},
    "1.7B": {"hidden": 2048, "inner": 6144, "layers": 28, "heads": 16, "tied": 1},
    "8B": {"hidden": 4096, "inner": 12_288, "layers": 36, "heads": 32, "tied": 0},
    "tiny": {"hidden": 64, "inner": 128, "layers": 2, "heads": 2, "tied": 1},
}
"""Of Qwen3: the configurations that its authors published."""
WAYS: dict[str, tuple[str, Options]] = {
    "0.6B, all weights": ("0.6B", {}),
    "1.7B, all weights": ("1.7B", {}),
    "1.7B, all weights, --checkpointing": ("1.7B", {"checkpointing": True}),
    "8B, --lora 16": ("8B", {"lora": 16}),
    "8B, --lora 16 --checkpointing": ("8B", {"lora": 16, "checkpointing": True}),
    "8B, --lora 16 --four-bit": ("8B", {"lora": 16, "four_bit": True}),
}
TASKS, ATTEMPTS, PROMPT, COMPLETION = 40, 4, 900, 100
STEPS, BATCH, PARTS = 6, 16, 4
DEVICES = ("cpu", "cuda")
ALGORITHMS = ("rft", "awr", "dpo", "kto", "grpo")


@dataclass(slots=True)
class Steps:
    """When each optimizer step ended, and its loss."""

    at: list[float]
    losses: list[float]

    def add(self, _: int, metrics: Any) -> None:
        """Take the metrics of a step."""
        if "loss" in metrics:
            self.at.append(time.monotonic())
            self.losses.append(metrics["loss"])


def main() -> None:
    """Measure each way in a process of its own, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=WAYS, help="a line of the table")
    parser.add_argument("--tiny", action="store_true", help="use models of 80 thousand parameters")
    parser.add_argument("--one", help="for the program itself: measure this, print JSON")
    parser.add_argument("--device", help="for the program itself: cpu or cuda")
    asked = parser.parse_args()
    if asked.one:
        found = (
            losses(asked.one, asked.device)
            if asked.one in ALGORITHMS
            else measure(asked.one, tiny=asked.tiny)
        )
        print(json.dumps(found))
        return
    print("\n".join(parity()), flush=True)
    print(
        f"\n{STEPS} steps of {BATCH} rows of {PROMPT + COMPLETION} tokens in {PARTS} parts\n\n"
        "| model | tokens/s of training | training, peak GB | judging, rows/s | judging, peak GB | "
        "loading s | saving and the rest s |\n|---|---|---|---|---|---|---|"
    )
    for way in asked.only or WAYS:
        found = in_a_process("--one", way, *(["--tiny"] if asked.tiny else []))
        cells = ("speed", "train_gb", "judged", "judge_gb", "loading", "rest")
        told = found.get("error") or " | ".join(f"{found[cell]:,.1f}" for cell in cells)
        print(f"| {way} | {told} |", flush=True)


def in_a_process(*words: str) -> dict[str, Any]:
    """Run this program for one measurement; its error becomes the answer."""
    done = subprocess.run(
        [sys.executable, __file__, *words], check=False, capture_output=True, text=True
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1], "losses": []}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def parity() -> Iterator[str]:
    """Compare the losses of each algorithm on the CPU and on the GPU."""
    yield "| algorithm | steps | greatest difference of the loss | first loss | last loss |"
    yield "|---|---|---|---|---|"
    cells = list(product(ALGORITHMS, DEVICES))
    with ThreadPoolExecutor(len(cells)) as pool:
        answers = pool.map(lambda cell: in_a_process("--one", cell[0], "--device", cell[1]), cells)
        found_in = dict(zip(cells, answers, strict=True))
    for name in ALGORITHMS:
        of = {kind: found_in[name, kind] for kind in DEVICES}
        if errors := [found["error"] for found in of.values() if "error" in found]:
            yield f"| {name} | {errors[0]} |"
            continue
        pairs = list(zip(of["cpu"]["losses"], of["cuda"]["losses"], strict=True))
        apart = max(abs(a - b) for a, b in pairs)
        yield f"| {name} | {len(pairs)} | {apart:.1e} | {pairs[0][0]:.4f} | {pairs[-1][0]:.4f} |"


def losses(algorithm: str, kind: str) -> dict[str, Any]:
    """Train a small model in float32 on one kind of device; return the losses."""
    if kind == "cpu":
        hide_accelerators()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = words()
        model = untrained(Path(folder) / "model", tokenizer)
        rows = bandit(len(tokenizer), prompt=20, completion=4, logged=True)
        training = Training(model, steps=20, batch_size=16, dtype="float32", save_every=0)
        steps = Steps([], [])
        train(rows, algorithm, training, Path(folder), steps)
    return {"losses": steps.losses}


def measure(way: str, *, tiny: bool) -> dict[str, float]:
    """Train a model of one shape; return speed and memory."""
    from otel_lightning.learner.weights import train as module

    shape, options = WAYS[way]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        vocabulary = TINY_VOCABULARY if tiny else VOCABULARY
        path = random_model(Path(folder) / "model", "tiny" if tiny else shape, vocabulary)
        training = Training(
            path, steps=STEPS, batch_size=BATCH, accumulate=PARTS, save_every=0, **options
        )
        took: dict[str, list[float]] = {"load_model": [], "completion_logprobs": []}
        peaks: dict[str, list[float]] = {"load_model": [], "completion_logprobs": []}
        for name, seconds in took.items():
            setattr(module, name, timed(getattr(module, name), seconds, peaks[name]))
        steps, began = Steps([], []), time.monotonic()
        rows = bandit(vocabulary)
        train(rows, "rft", training, Path(folder), steps)
        whole = time.monotonic() - began
    held_out = rows.filter(pl.col("split") == "heldout").height
    # The first step also compiles kernels and fills caches.
    trained = steps.at[-1] - steps.at[0]
    tokens = (len(steps.at) - 1) * BATCH * (PROMPT + COMPLETION)
    judged = sum(took["completion_logprobs"])
    return {
        "speed": tokens / trained,
        # Since judging began, which resets the counter, and before it began again.
        "train_gb": peaks["completion_logprobs"][2] / 1e9,
        "judged": 2 * held_out / judged,
        "judge_gb": max(peaks["completion_logprobs"][1], peaks["completion_logprobs"][3]) / 1e9,
        "loading": took["load_model"][0],
        "rest": whole - judged - took["load_model"][0] - trained,
    }


def timed(function: Any, took: list[float], peaks: list[float]) -> Any:
    """Measure the calls of a function: seconds, and the peak of GPU memory before and in each."""
    import torch

    def peak() -> float:
        if not torch.cuda.is_available():
            return 0.0
        torch.cuda.synchronize()
        found = float(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        return found

    def call(*arguments: Any, **options: Any) -> Any:
        peaks.append(peak())
        began = time.monotonic()
        result = function(*arguments, **options)
        peaks.append(peak())
        took.append(time.monotonic() - began)
        return result

    return call


def train(
    rows: pl.DataFrame, algorithm: str, training: Training, folder: Path, steps: Steps
) -> None:
    """Train and judge as `lightning-learn weights` does, without a store."""
    from otel_lightning.learner.weights.train import Folders, train_and_judge

    (folder / "checkpoints").mkdir()
    (folder / "output").mkdir()
    folders = Folders(folder / "output", folder / "checkpoints")
    train_and_judge(rows, algorithm, training, folders, steps.add)


def bandit(
    vocabulary: int, prompt: int = PROMPT, completion: int = COMPLETION, *, logged: bool = False
) -> pl.DataFrame:
    """Make transitions of random tokens: half of the rollouts of each task earn a reward."""
    rng = random.Random(0)  # noqa: S311 - not cryptography
    rows = []
    for task in range(TASKS):
        asked = [rng.randrange(8, vocabulary) for _ in range(prompt)]
        for attempt in range(ATTEMPTS):
            said = [rng.randrange(8, vocabulary) for _ in range(completion)]
            row = {
                "rollout_id": f"{task:03}-{attempt}",
                "step": 0,
                "task": f"task-{task}",
                "split": "heldout" if task % 4 == 0 else "train",
                "state_hash": f"state-{task}",
                "agent": "agent",
                "model": "model",
                "messages": '[{"role": "user", "parts": []}]',
                "tools": None,
                "completion": '[{"role": "assistant", "parts": []}]',
                "temperature": 1.0,
                "prompt_token_ids": asked,
                "completion_token_ids": said,
                "completion_logprobs": [-3.0] * completion if logged else None,
                "reward": float(attempt % 2),
                "advantage": attempt % 2 - 0.5,
                "began": None,
                "content": "full",
                "is_carried": True,
            }
            rows.append(row)
    return pl.DataFrame(rows, schema_overrides={"tools": pl.String, "temperature": pl.Float64})


def random_model(folder: Path, shape: str, vocabulary: int) -> Path:
    """Save a model of a shape of Qwen3 with random weights, in bfloat16."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes, tokenizer = SHAPES[shape], words()
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["inner"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=min(8, sizes["heads"]),
        head_dim=min(128, sizes["hidden"] // sizes["heads"] * 2),
        max_position_embeddings=40_960,
        tie_word_embeddings=bool(sizes["tied"]),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()
    return folder


def words() -> Any:
    """Make a tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pad, end, unknown, *_ = names = ["<pad>", "<end>", "?", *(f"word-{n}" for n in range(400))]
    made = Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=pad, eos_token=end, unk_token=unknown
    )


def hide_accelerators() -> None:
    """Let torch find no accelerator in this process."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


if __name__ == "__main__":
    main()
