"""From transitions to a trained model in a folder, and the gate's verdict on it."""

import gc
import math
import random
import warnings as python_warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from otel_lightning.collector.terminal.quantities import number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.reward_range import reward_range
from otel_lightning.learner.task_splits import HELD_OUT, TRAIN, position
from otel_lightning.learner.weights import algorithms
from otel_lightning.learner.weights.algorithms import Algorithm, Row
from otel_lightning.learner.weights.examples import Example, Tokenized, tokenize
from otel_lightning.learner.weights.gate.expected_reward import rollouts_of
from otel_lightning.learner.weights.gate.held_out import (
    Likelihoods,
    divergence,
    judge_weights,
    logged_difference,
    mean_token_logprobs,
    rollout_weights,
    usable,
    weight_quantiles,
)
from otel_lightning.learner.weights.gate.scores import judge_scores
from otel_lightning.learner.weights.job import Job, Record, quiet
from otel_lightning.learner.weights.preparation.baseline import baseline_warning, with_baseline
from otel_lightning.learner.weights.preparation.behavior import with_behavior
from otel_lightning.learner.weights.preparation.checks import (
    check_rewards,
    check_template,
    check_tokens,
    rebuilt,
    sources,
    warnings,
)
from otel_lightning.learner.weights.settings import Training, algorithm_settings
from otel_lightning.learner.weights.trainer.distributed import world_size
from otel_lightning.learner.weights.trainer.learning_rate import (
    default_learning_rate,
    find_learning_rate,
)
from otel_lightning.learner.weights.trainer.likelihood import completion_logprobs
from otel_lightning.learner.weights.trainer.load import Loaded, load_model

if TYPE_CHECKING:
    from otel_lightning.learner.evaluate.gate import Verdict

VALIDATION_SHARE = 0.1
"""Share of the training tasks that only measure the validation loss, where one is needed."""
MAX_LOGPROB_DIFFERENCE = 0.1
"""Largest difference between logged and computed logprobs without a warning, in nats per token."""
PROBE_STEPS = 20
"""Optimizer steps of each learning rate that `--find-lr` tries."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of training: numbers about it, and the gate's verdict."""

    metrics: dict[str, Any]
    verdict: "Verdict"
    warnings: tuple[str, ...] = ()


class Folders(NamedTuple):
    """Where a training writes to."""

    output: Path | None
    """The folder of the model; None in processes beside the main one."""
    checkpoints: Path


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to train: an algorithm with its settings, and the settings that all algorithms share."""

    name: str
    algorithm: Algorithm
    settings: Any
    training: Training
    control: int | None = None
    """Seed by which the rewards of the transitions themselves were shuffled, if they were."""

    @property
    def scores_text(self) -> bool:
        """Whether the trained model gives a score instead of text."""
        return algorithms.scores_text(self.algorithm)

    def learn(self, job: Job, data: "Data") -> float:
        """Train the model of a job in place; return the mean loss."""
        return self.algorithm.learn(job, data.train, data.validation, self.settings)


@dataclass(slots=True)
class Data:
    """Transitions prepared for one algorithm."""

    train: list[Row]
    validation: list[Row]
    held_out: list[Example]
    history: list[Example]
    """Transitions of the training tasks with their own rewards, also if others are learned from."""
    skipped: list[str]
    """Rollouts of transitions that were left out."""
    temperature: float
    max_length: int | None
    metrics: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def train_and_judge(  # noqa: PLR0913 - what to learn from, how, and where to
    rows: pl.DataFrame,
    name: str,
    training: Training,
    folders: Folders,
    record: Record,
    *,
    control: int | None = None,
) -> Learned:
    """Train a model on the transitions of the train split, and judge it by the held-out ones.

    Args:
        rows: The columns of `sql/completions.sql`.
        name: Name of the algorithm.
        training: Model and settings.
        folders: Where to save the model and its checkpoints.
        record: Takes the metrics of each step.
        control: Seed by which the rewards of the transitions themselves were shuffled, if they
            were.

    Raises:
        DataError: If nothing can be learned from the rows, or the model cannot be used.
    """
    quiet()
    algorithm = algorithms.load(name)
    settings = algorithm_settings(algorithm.Settings, name, training)
    recipe = Recipe(name, algorithm, settings, training, control)
    with _quiet_libraries():
        loaded = load_model(training, reward=recipe.scores_text)
        data = _prepare(rows, loaded, recipe)
        job = _job(loaded, data, recipe, folders.checkpoints)
        if training.find_lr:
            job.learning_rate = _find_learning_rate(job, data, recipe)
            # The probes trained copies of the model in place, so the real training begins with a
            # fresh one.
            job.model = load_model(training, reward=recipe.scores_text).model
        # Only now: the steps of the probes are no part of the run's curve.
        job.record = record
        data.metrics |= {"learning_rate": job.learning_rate, "processes": world_size()}
        train = _train_reward_model if recipe.scores_text else _train_language_model
        verdict = train(job, data, recipe)
        if job.best_step is not None:
            data.metrics["best_step"] = job.best_step
        if folders.output is not None:
            job.save(folders.output)
    return Learned(data.metrics, verdict, tuple(data.warnings))


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    with python_warnings.catch_warnings(), libraries_frozen():
        # TRL and PEFT use names that transformers has renamed; a user cannot change that.
        python_warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def libraries_frozen() -> Iterator[None]:
    """Spare the garbage collector, in the block, the objects that are there already.

    They are half a million of torch and other modules, and no garbage. accelerate collects before
    each training, which takes .3 CPU-seconds with them.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _prepare(rows: pl.DataFrame, loaded: Loaded, recipe: Recipe) -> Data:
    """Turn transitions into the algorithm's rows; report those left out, and suspicious data."""
    algorithm, settings, training = recipe.algorithm, recipe.settings, recipe.training
    max_length = training.max_length or _context_length(loaded.model)
    check_template(rows, loaded.tokenizer, training.model)
    tokenized = tokenize(rows, loaded.tokenizer, max_length)
    check_tokens(tokenized, rows, *loaded, training.model)
    check_rewards(tokenized.examples)
    if training.reward_range is not None:
        # Bounds of a gain hold only if no reward is outside.
        reward_range(rollouts_of(tokenized.examples).rewards, training.reward_range)
    tokenized.examples, mean = with_baseline(tokenized.examples, training.threshold)
    metrics: dict[str, Any] = sources(tokenized.examples)
    # Logged logprobs are of one temperature, which the trainer divides logits by as well.
    # `with_behavior` chooses it, and leaves out transitions of another.
    temperature = 1.0
    if algorithms.needs_behavior(algorithm):
        behavior = with_behavior(tokenized, loaded.model, training.batch_size, recipe.name)
        tokenized.examples, temperature, metrics["recomputed_logprobs"] = behavior
    train, validation, held_out = _split(tokenized, training, recipe.control)
    measured = _validation_rows(train, validation, recipe)
    train_rows = algorithm.rows(train, settings)
    return Data(
        train=train_rows,
        validation=measured,
        held_out=held_out,
        history=[e for e in tokenized.examples if e.split == TRAIN],
        skipped=tokenized.skipped,
        temperature=temperature,
        max_length=max_length,
        metrics={"learned_from": len(train_rows), "skipped": len(tokenized.skipped), **metrics},
        warnings=warnings(tokenized.examples, tokenized)
        + ([] if mean is None else [baseline_warning(mean)]),
    )


def _validation_rows(
    train: Sequence[Example], validation: Sequence[Example], recipe: Recipe
) -> list[Row]:
    """Make the rows that measure the validation loss, if an option needs one.

    Raises:
        DataError: If there is none: without a loss, no learning rate or step is better than others.
    """
    if not recipe.training.needs_validation:
        return []
    rows: list[Row] = []
    # The error would speak of the train split.
    with suppress(DataError):
        rows = recipe.algorithm.rows(validation, recipe.settings)
    if not rows or not train:
        measuring, learning = (len({e.task for e in part}) for part in (validation, train))
        raise DataError(
            "--find-lr and --stop-early measure the loss on a tenth of the training tasks, chosen "
            "by a hash, and learn from the others. One of the two parts has no row here "
            f"({number_of(measuring, 'task')} to measure by, {learning} to learn from). Collect "
            "rollouts of more tasks, or leave the option out."
        )
    return rows


def _context_length(model: Any) -> int | None:
    """Return the number of tokens that the model has positions for; None if it has no limit."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return None if limit is None else int(limit)


def _split(
    tokenized: Tokenized, training: Training, control: int | None = None
) -> tuple[list[Example], list[Example], list[Example]]:
    """Divide examples into those to train on, to validate by, and to judge by.

    The validation tasks are a tenth of the training tasks, by the hash of the task: tasks that
    are held out for the gate are used for nothing else.
    """
    train = [e for e in tokenized.examples if e.split == TRAIN]
    if training.shuffle_rewards is not None:
        train = shuffled(train, training.shuffle_rewards)
    elif control is not None:
        train = with_shuffled_lengths(train, control)
    held_out = [e for e in tokenized.examples if e.split == HELD_OUT]
    if not training.needs_validation:
        return train, [], held_out
    # The prefix makes this division independent of the one that holds tasks out.
    names = {e.task for e in train}
    tasks = {name for name in names if position(f"validation {name}") < VALIDATION_SHARE}
    validation = [e for e in train if e.task in tasks]
    return [e for e in train if e.task not in tasks], validation, held_out


def shuffled(examples: Sequence[Example], seed: int) -> list[Example]:
    """Permute what came of each call among transitions: a control from which nothing is learned.

    That is the reward, the advantage, and how many calls followed: a rollout that fails often goes
    on for longer, so the number of calls tells of the reward.
    """
    outcomes = [(e.reward, e.advantage, e.later) for e in examples]
    random.Random(seed).shuffle(outcomes)  # noqa: S311 - a permutation, not cryptography
    return [
        replace(e, reward=reward, advantage=advantage, later=later)
        for e, (reward, advantage, later) in zip(examples, outcomes, strict=True)
    ]


def with_shuffled_lengths(examples: Sequence[Example], seed: int) -> list[Example]:
    """Permute how many calls followed each call, where the rewards were permuted before.

    Shuffled rewards leave each rollout its number of calls, which tells of its own reward.
    """
    later = [e.later for e in examples]
    random.Random(seed).shuffle(later)  # noqa: S311 - a permutation, not cryptography
    return [replace(e, later=count) for e, count in zip(examples, later, strict=True)]


def _job(loaded: Loaded, data: Data, recipe: Recipe, checkpoints: Path) -> Job:
    training = recipe.training
    width = loaded.model.config.get_text_config().hidden_size
    default = default_learning_rate(width, lora=training.lora is not None)
    return Job(
        *loaded,
        training=training,
        learning_rate=training.learning_rate or default * recipe.algorithm.LEARNING_RATE,
        folder=checkpoints,
        max_length=data.max_length,
        temperature=data.temperature,
        rows=len(data.train),
    )


def _find_learning_rate(job: Job, data: Data, recipe: Recipe) -> float:
    """Look for a learning rate by short trainings, without the held-out tasks."""
    whole = job.training
    short = replace(
        whole, steps=PROBE_STEPS, save_every=0, stop_early=None, resume=False, report_to=()
    )

    def validation_loss(rate: float) -> float:
        model = load_model(whole, reward=recipe.scores_text).model
        probe = replace(job, model=model, training=short)
        probe.learning_rate, probe.measures = rate, True
        recipe.learn(probe, data)
        data.metrics[f"validation_loss_at_{rate:.3g}"] = probe.validation_loss
        return probe.validation_loss

    return find_learning_rate(job.learning_rate, validation_loss)


def _train_reward_model(job: Job, data: Data, recipe: Recipe) -> "Verdict":
    """Train a reward model, and judge it by the pairs of held-out states that it ranks right."""
    data.metrics["train_loss"] = recipe.learn(job, data)
    return judge_scores(job, data.held_out)


def _train_language_model(job: Job, data: Data, recipe: Recipe) -> "Verdict":
    """Train a language model, and judge it by its likelihood of held-out completions."""
    training = job.training
    held_out = usable(data.held_out, data.skipped)
    data.metrics["held_out_rebuilt_tokens"] = rebuilt(held_out)
    data.metrics["held_out_left_out"] = len(data.held_out) - len(held_out)
    size = training.batch_size
    # Before training, because `learn` changes the model in place.
    before = completion_logprobs(job.model, held_out, size, "Judging the model before")
    _compare_with_log(held_out, before, data, training)
    data.metrics["train_loss"] = recipe.learn(job, data)
    after = completion_logprobs(job.model, held_out, size, "Judging the model after")
    likelihoods = Likelihoods(before, after)
    # The likelihood of good completions shows a damaged format, which a gain of few rollouts may
    # hide.
    good_before, good_after = mean_token_logprobs(held_out, likelihoods, training.threshold)
    data.metrics |= {
        "good_token_logprob_before": good_before,
        "good_token_logprob_after": good_after,
        "kl_per_token": divergence(held_out, likelihoods),
    }
    if held_out:
        job.record(job.done, weight_quantiles(rollout_weights(held_out, likelihoods)))
    return judge_weights(
        held_out,
        likelihoods,
        threshold=training.threshold,
        clip=training.clip,
        reward_range=training.reward_range,
        least_gain=training.least_gain,
        history=data.history,
    )


def _compare_with_log(
    held_out: Sequence[Example], before: Any, data: Data, training: Training
) -> None:
    """Warn if the model gives other logprobs than the log: it may not have written the log."""
    difference = logged_difference(held_out, before)
    if not math.isnan(difference):
        data.metrics["logged_logprob_difference"] = difference
    if difference > MAX_LOGPROB_DIFFERENCE:
        data.warnings.append(
            f"Logged logprobs differ from those of '{training.model}' by {difference:.2f} nats per "
            "token: it may not be the model that wrote the log, so the gate's estimate may be "
            "wrong."
        )
