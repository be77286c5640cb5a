"""`lightning-learn weights`: transitions from the store, a fine-tuned model to a folder."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from otel_lightning.collector.files.atomic import new_folder
from otel_lightning.collector.store import Store, StoreLike, opened
from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.chat import CARRIED
from otel_lightning.learner.errors import DataError, no_transitions
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.gate import as_recorded
from otel_lightning.learner.model_folder import fingerprint as files_fingerprint
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.runs import (
    Run,
    candidates_warning,
    fingerprint,
    judged_before,
    recorded,
    to_json,
)
from otel_lightning.learner.weights.card import Card, model_card
from otel_lightning.learner.weights.curve import Curve
from otel_lightning.learner.weights.eligible import GATE_FILE
from otel_lightning.learner.weights.settings import Training
from otel_lightning.learner.weights.trainer.checkpoints import (
    checkpoint_folder,
    prepare,
    remove_incomplete,
)
from otel_lightning.learner.weights.trainer.distributed import is_main, shared
from otel_lightning.learner.weights.trainer.failures import explained

if TYPE_CHECKING:
    from otel_lightning.learner.weights.job import Record
    from otel_lightning.learner.weights.train import Learned

NEEDED = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
CARD_FILE = "README.md"
BY_RUNNING = "by running the agent with both models (lightning-learn evaluate --model)"
MAX_UNREWARDED = 0.05
"""Share of the rollouts that may lack a reward without a warning."""
TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
"""Variable of transformers."""
CHANGES_NOTHING = ("resume", "save_every", "report_to", "accumulate", "checkpointing")
"""Settings by which an interrupted training may differ from the one that continues it."""


def learn_weights(  # noqa: PLR0913 - what, with what, where to, and as which run
    store: StoreLike,
    algorithm: str,
    training: Training,
    output: Path,
    agent: str | None = None,
    *,
    run_id: str | None = None,
) -> "Learned":
    """Fine-tune a model on the transitions of a store, and let the gate judge it.

    The store is open only to read and to write, not while learning. A model that the gate refuses
    is kept for inspection; `gate.json` in its folder and its row in `runs` have the reasons. A run
    that fails leaves a row too.

    Args:
        store: Path of the store, or an open store.
        algorithm: A name in `ALGORITHMS`.
        training: Model and settings.
        output: Folder to make; it appears whole or not at all.
        agent: Learn from the calls of this agent only; None for all.
        run_id: Id of the run, if it must be known before; None makes a new one.

    Raises:
        DataError: If there is nothing to learn from, or the output is there already.
        StoreError: If the store cannot be read or written.
    """
    config = training.as_config(algorithm) | ({"agent": agent} if agent else {})
    run = Run("weights", config, name=run_id)
    if training.report_to:
        training = replace(training, trl={"run_name": run.run_id, **training.trl})
    with recorded(store, run) if is_main() else nullcontext():
        return _learn_weights(store, algorithm, training, output, run)


def agents(store: StoreLike) -> tuple[list[str], int]:
    """Name the agents whose calls are in the transitions of a store.

    Returns:
        The names, and the number of transitions that name no agent.

    Raises:
        DataError: If no transition names its agent.
        StoreError: If the store cannot be read.
    """
    rows = _rows(store, None)
    names = sorted(rows["agent"].drop_nulls().unique().to_list())
    if not names:
        raise DataError(
            f"None of the {len(rows):,} transitions names its agent, so --each-agent has nothing "
            "to separate. Leave it out to train one model."
        )
    return names, rows["agent"].null_count()


class _Input(NamedTuple):
    """The transitions that a model is trained on."""

    rows: pl.DataFrame
    """The columns of `sql/completions.sql`."""
    fingerprint: str
    """Hash of their rollouts, steps, splits and advantages."""
    control: int | None
    """Seed by which rewards were shuffled, here or in the transitions; None if they were not."""


def _learn_weights(
    store: StoreLike, algorithm: str, training: Training, output: Path, run: Run
) -> "Learned":
    checkpoints = checkpoint_folder(output)
    _check_installed()
    with explained(checkpoints, training):
        if not is_main():
            # The other processes of torchrun take part in training, and write nothing.
            data = _shared_input(store, run, training, checkpoints)
            return _train(data, algorithm, training, (None, checkpoints), _ignore)
        with ExitStack() as store_open:
            with _staged(output, checkpoints) as staging:
                data = _shared_input(store, run, training, checkpoints)
                with Curve(store, run.run_id) as curve, _tensorboard_beside(output):
                    folders = (staging, checkpoints)
                    learned = _train(data, algorithm, training, folders, curve.add)
                    # Before the folder gets its name, so that it has it with everything in it.
                    gate = _write_gate_and_card(staging, learned, run, training, data)
                    # Opened once, for the end of the curve and for the row of the run.
                    db = store_open.enter_context(opened(store))
                    curve.write(db)
                    learned = _with_warnings(db, run, data, learned)
            _record(db, run, data, learned, gate=gate, output=output)
    return learned


def _shared_input(store: StoreLike, run: Run, training: Training, checkpoints: Path) -> _Input:
    """Read the transitions in the main process, and give them to all processes.

    DuckDB lets one process write, and all processes need equal rows.
    """
    return shared(lambda: _read_input(store, run, training, checkpoints))


def _train(
    data: _Input,
    algorithm: str,
    training: Training,
    folders: tuple[Path | None, Path],
    record: "Record",
) -> "Learned":
    # Imported here, since it loads torch: what can be refused without it is refused first.
    from otel_lightning.learner.weights.train import Folders, train_and_judge

    return train_and_judge(
        data.rows, algorithm, training, Folders(*folders), record, control=data.control
    )


def _with_warnings(db: Store, run: Run, data: _Input, learned: "Learned") -> "Learned":
    """Add the warnings about missing rewards, and about other candidates of the same data."""
    warnings = [*learned.warnings, *_unrewarded(db)]
    if data.control is None:
        p_value = learned.verdict.p_value if learned.verdict.passed else None
        before = judged_before(db, run, data.fingerprint)
        warnings += candidates_warning(before, ALPHA, p_value, BY_RUNNING)
    return replace(learned, warnings=tuple(warnings))


def _record(  # noqa: PLR0913 - the columns of the row
    db: Store, run: Run, data: _Input, learned: "Learned", *, gate: dict[str, Any], output: Path
) -> None:
    """Write the row of the run."""
    row = run.ended(
        outcome="passed" if learned.verdict.passed else "refused",
        fingerprint=data.fingerprint,
        metrics=learned.metrics,
        gate=gate,
        artifact=str(output),
    )
    db.insert("runs", arrow(row))


def _read_input(store: StoreLike, run: Run, training: Training, checkpoints: Path) -> _Input:
    """Read the transitions, and prepare the folder of the checkpoints for them."""
    rows = _rows(store, run.config.get("agent"))
    data = fingerprint(rows.select("rollout_id", "step", "split", "advantage"))
    prepare(checkpoints, _input_hash(run.config, data), resume=training.resume)
    return _Input(rows, data, _shuffled(store, training))


def _write_gate_and_card(
    folder: Path, learned: "Learned", run: Run, training: Training, data: _Input
) -> dict[str, Any]:
    """Write the verdict and the model card beside a model; return the verdict as it is recorded."""
    gate = as_recorded(learned.verdict) | {
        "run_id": run.run_id,
        "against": str(training.model.resolve()),
        "fingerprint": files_fingerprint(folder),
        "shuffled": data.control,
    }
    (folder / GATE_FILE).write_text(to_json(gate) + "\n", encoding="utf-8")
    card = Card(run.run_id, run.config, data.fingerprint, learned.metrics, gate)
    (folder / CARD_FILE).write_text(model_card(card), encoding="utf-8")
    return gate


def _check_installed() -> None:
    """End the command before anything is written if a package is missing; importing is slow."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def _ignore(_: int, __: Mapping[str, float]) -> None:
    """Take metrics of a process whose metrics the main process has too."""


def _rows(store: StoreLike, agent: str | None) -> pl.DataFrame:
    with opened(store) as db:
        rows = read(db, __package__, "completions", carried=CARRIED)
    if rows.is_empty():
        raise no_transitions(store)
    if agent is None:
        return rows
    of_agent = rows.filter(pl.col("agent") == agent)
    if of_agent.is_empty():
        names = ", ".join(f"'{name}'" for name in sorted(rows["agent"].drop_nulls().unique()))
        raise DataError(f"No transition is of agent '{agent}'. Known: {names or 'none is named'}.")
    return of_agent


def _unrewarded(db: Store) -> list[str]:
    """Warn of rollouts without a reward, which nothing is learned from or judged by."""
    ((missing, rollouts),) = read(db, __package__, "unrewarded").rows()
    if missing <= MAX_UNREWARDED * rollouts:
        return []
    sentence = (
        f"{missing:,} of {number_of(rollouts, 'rollout')} have no reward, so they are neither "
        "learned from nor judged by. If failures of one kind of answer get no reward, that kind "
        "looks better than it is: give failures a reward, or compare by running."
    )
    return [sentence]


def _shuffled(store: StoreLike, training: Training) -> int | None:
    """Return the seed of the control, if rewards are shuffled here or were in the transitions."""
    if training.shuffle_rewards is not None:
        return training.shuffle_rewards
    with opened(store) as db:
        seeds = read(db, __package__, "shuffled")["seed"].to_list()
    return seeds[0] if seeds else None


def _input_hash(config: Mapping[str, Any], data: str) -> str:
    """Hash the inputs that must be unchanged for an interrupted training to continue."""
    inputs = {name: value for name, value in config.items() if name not in CHANGES_NOTHING}
    return sha256((data + to_json(inputs)).encode()).hexdigest()


@contextmanager
def _tensorboard_beside(output: Path) -> Iterator[None]:
    """Let TensorBoard write to `runs/OUTPUT` beside the output, unless its variable says where.

    Its default is the folder of the checkpoints, which is removed with success.
    """
    if TENSORBOARD in os.environ:
        yield
        return
    os.environ[TENSORBOARD] = str(output.parent / "runs" / output.name)
    try:
        yield
    finally:
        del os.environ[TENSORBOARD]


@contextmanager
def _staged(output: Path, checkpoints: Path) -> Iterator[Path]:
    """Make a folder under another name, and give it its own once the block has ended well.

    Checkpoints are removed with success; after a failure only complete ones are kept.

    Raises:
        DataError: If the output is there already, or another process is making it.
    """
    if output.exists():
        raise DataError(f"'{output}' exists. Remove it, or choose another --output.")
    with ExitStack() as making:
        try:
            staging = making.enter_context(new_folder(output))
        except BlockingIOError:
            raise DataError(
                f"Another process is making '{output}'. Wait for it, or choose another --output."
            ) from None
        try:
            yield staging
        finally:
            remove_incomplete(checkpoints)
    rmtree(checkpoints, ignore_errors=True)
