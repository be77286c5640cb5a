"""What our job costs beside the bare TRL trainer, and what judging costs in memory.

    python tests/bench/weights_overhead.py ours|bare|tiles|logits FOLDER

Each measurement is a process of its own; the two ways take turns.
"""

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROWS, PROMPT, COMPLETION = 400, 100, 30
STEPS, BATCH = 100, 16
VOCABULARY, JUDGED, LENGTH = 150_000, 4, 512
Measured = dict[str, float]


def overhead_table(folder: Path, model: Path, rounds: int) -> Iterator[str]:
    """Compare CPU-seconds and peak memory of one training."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    rows = [[rng.randrange(8, 400) for _ in range(PROMPT + COMPLETION)] for _ in range(ROWS)]
    work = folder / "overhead"
    work.mkdir()
    (work / "rows.json").write_text(json.dumps(rows))
    (work / "model").symlink_to(model)
    found = _by_turns(("bare", "ours"), work, rounds)
    yield f"| {STEPS} steps of {BATCH} rows | CPU-s of training | peak MB |"
    yield "|---|---|---|"
    names = {"bare": "TRL's SFTTrainer", "ours": "our job with the same trainer"}
    yield from _lines(names, found)


def memory_table(rounds: int) -> Iterator[str]:
    """Compare the peak memory of judging by tiles of the vocabulary, and by all logits."""
    found = _by_turns(("logits", "tiles"), Path(), rounds)
    logits = JUDGED * LENGTH * VOCABULARY * 4 / 1e6
    yield (
        f"| {JUDGED} rows of {LENGTH} tokens, {VOCABULARY:,} words: logits of {logits:.0f} MB | "
        "CPU-s | MB above the loaded model |"
    )
    yield "|---|---|---|"
    yield from _lines({"logits": "log-softmax of all logits", "tiles": "ours, by tiles"}, found)


def _by_turns(ways: tuple[str, ...], folder: Path, rounds: int) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            words = [sys.executable, __file__, way, str(folder)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
            print(way, found[way][-1], file=sys.stderr, flush=True)
    return found


def _lines(names: dict[str, str], found: dict[str, list[Measured]]) -> Iterator[str]:
    for way, name in names.items():
        cpu, peak = (median(one[key] for one in found[way]) for key in ("cpu", "mb"))
        low, high = (f(one["cpu"] for one in found[way]) for f in (min, max))
        yield f"| {name} | {cpu:.1f} ({low:.1f} to {high:.1f}) | {peak:.0f} |"


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _train(way: str, folder: Path) -> Measured:
    import torch
    import trl
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from otel_lightning.learner.weights.job import Job, quiet
    from otel_lightning.learner.weights.settings import Training

    quiet()
    torch.set_num_threads(1)
    ids = json.loads((folder / "rows.json").read_text())
    rows = [{"input_ids": one, "labels": [-100] * PROMPT + one[PROMPT:]} for one in ids]
    model: Any = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "model")
    training = Training(folder / "model", steps=STEPS, batch_size=BATCH, save_every=0)
    job = Job(model, tokenizer, training, 1e-4, folder / way, None, rows=len(rows))
    arguments = trl.SFTConfig(**job.arguments({"max_length": None}))
    started = time.process_time()
    if way == "ours":
        job.fit(trl.SFTTrainer, arguments, rows, [])
    else:
        import datasets

        data = datasets.Dataset.from_list(rows)
        trl.SFTTrainer(model, arguments, train_dataset=data, processing_class=tokenizer).train()
    return {"cpu": time.process_time() - started, "mb": _peak_mb()}


def _judge(way: str) -> Measured:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from otel_lightning.learner.weights.examples import Example
    from otel_lightning.learner.weights.trainer.likelihood import completion_logprobs

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config)
    tokens = torch.randint(VOCABULARY, (JUDGED, LENGTH))
    rest = ("task", "heldout", None)
    judged = [
        Example(str(i), *rest, tuple(row[:8]), tuple(row[8:]), None, 1.0, 1.0, 1.0, 1.0)
        for i, row in enumerate(tokens.tolist())
    ]
    completion_logprobs(model, [judged[0]], 1, "Warm-up")
    loaded, started = _peak_mb(), time.process_time()
    if way == "tiles":
        completion_logprobs(model, judged, JUDGED, "Judging")
    else:
        with torch.no_grad():
            logprobs = model(input_ids=tokens).logits.float().log_softmax(-1)
            logprobs[:, :-1].gather(-1, tokens[:, 1:, None]).sum()
    return {"cpu": time.process_time() - started, "mb": _peak_mb() - loaded}


if __name__ == "__main__":
    asked, where = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(_judge(asked) if asked in {"tiles", "logits"} else _train(asked, where)))
