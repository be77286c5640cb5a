"""`lightning-learn weights`: transitions from the store, a fine-tuned model to a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from otel_lightning.collector.store import open_store
from otel_lightning.learner.errors import DataError, no_transitions
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.runs import Run, fingerprint, recorded_in, to_json
from otel_lightning.learner.weights import algorithms
from otel_lightning.learner.weights.algorithms import Learned, Settings

GATE_FILE = "gate.json"


def learn_weights(store: str, algorithm: str, settings: Settings, output: Path) -> Learned:
    """Fine-tune a model on the transitions of a store, and let the gate judge it.

    The store is open only to read and to write, not while learning. Refused, the model is kept
    for inspection: `gate.json` beside it and its row in `runs` say so. What fails leaves a row too.

    Args:
        store: Location of the store.
        algorithm: A name in `ALGORITHMS`.
        settings: Model and hyperparameters.
        output: Folder to make; it appears whole or not at all.

    Raises:
        DataError: If there is nothing to learn from, or the output is there already.
        StoreError: If the store cannot be read or written.
    """
    config = asdict(settings) | {"algorithm": algorithm, "model": str(settings.model)}
    run = Run("weights", config)
    with recorded_in(store, run):
        return _learn_weights(store, algorithm, settings, output, run)


def _learn_weights(
    store: str, algorithm: str, settings: Settings, output: Path, run: Run
) -> Learned:
    if output.exists():
        raise DataError(f"'{output}' exists. Remove it, or choose another --output.")
    with open_store(store, create=False) as opened:
        rows = read(opened, __package__, "completions")
    if rows.is_empty():
        raise no_transitions(store)
    learn = import_module(f"{algorithms.__name__}.{algorithm}").learn
    with _staged(output) as staging:
        learned: Learned = learn(rows, settings, staging)
        gate = asdict(learned.verdict) | {"passed": learned.verdict.passed}
        (staging / GATE_FILE).write_text(to_json(gate) + "\n", encoding="utf-8")
    row = run.ended(
        outcome="passed" if learned.verdict.passed else "refused",
        fingerprint=fingerprint(rows.select("rollout_id", "step", "split", "advantage")),
        metrics=learned.metrics,
        gate=gate,
        artifact=str(output),
    )
    with open_store(store, create=False) as opened:
        opened.insert("runs", arrow(row))
    return learned


@contextmanager
def _staged(output: Path) -> Iterator[Path]:
    """Make a folder under another name, and give it its own once the block has ended well."""
    output.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(mkdtemp(prefix=f".{output.name}-", dir=output.parent))
    try:
        yield staging
        staging.chmod(0o755)
        staging.rename(output)
    finally:
        rmtree(staging, ignore_errors=True)
