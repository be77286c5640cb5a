"""Compare models by running the user's own agent with each on the same held-out tasks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.store import open_store
from otel_lightning.collector.terminal.quantities import decimal, number_of
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.paired import Pair, PairedComparison, compare_sides
from otel_lightning.learner.evaluate.reward_range import check_failed_reward
from otel_lightning.learner.model_folder import fingerprint
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.rollout_runner.grading import Grading
from otel_lightning.learner.rollout_runner.models import (
    check_model,
    greedy_by_policy,
    is_url,
    serving,
)
from otel_lightning.learner.rollout_runner.plan import Job, run_name, runs_folder
from otel_lightning.learner.rollout_runner.report import Report
from otel_lightning.learner.rollout_runner.run import run_agent
from otel_lightning.learner.runs import Run, judged_before
from otel_lightning.learner.score.rules.frames import scan

SERVING, GREEDY = "serving", "greedy"
MAX_LENGTH_RATIO = 2.0
"""A candidate whose answers are more than this many times as long on average is refused."""
MIN_MODELS = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """The models to compare, and the requirements of the gate."""

    models: Sequence[str]
    """Folders or URLs: the model of now first, then candidates."""
    served_names: Sequence[str] = ()
    """Names by which the agent asks for its model; by default those of all folders."""
    least_gain: float = 0.0
    greedy: bool = True
    """Whether to run all tasks once more at temperature 0."""
    reward_range: tuple[float, float] | None = None
    """Least and greatest possible reward; the gate needs it unless all rewards are 0 or 1."""

    @property
    def names(self) -> Sequence[str]:
        """The names by which each model is served: an agent asks all of them for the same one.

        Example:
            >>> list(Trial(["models/base", "models/desk-2", "http://gpu:8000/v1"]).names)
            ['base', 'desk-2']
        """
        folders = (name for name in self.models if not is_url(name))
        return self.served_names or [Path(name).resolve().name for name in folders]


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """The gain of one candidate over the first model, and whether it passed the gate."""

    model: str
    gains: Mapping[str, PairedComparison]
    """The comparison at the serving temperature, and the greedy one if asked for."""
    formats: Mapping[str, PairedComparison]
    """Shares of rollouts whose tool calls parse, and that were not cut off, compared."""
    lengths: tuple[float, float]
    """Mean output tokens of a rollout: of the first model, and of this one."""
    refusals: tuple[str, ...]
    others: int = 0
    """Number of other comparisons that the same tasks have judged before."""

    @property
    def passed(self) -> bool:
        """Whether the gate passed."""
        return not self.refusals


def evaluate_models(
    store: str | Path, job: Job, grading: Grading, trial: Trial
) -> tuple[list[ModelVerdict], list[Report]]:
    """Run an agent with each model on the same tasks and seeds, and compare the models.

    At the serving temperature a candidate must gain more than `least_gain`. With greedy answers,
    and in the format of its answers, it must not be worse beyond chance.

    Args:
        store: Path of the store, which is created if it does not exist.
        job: The agent, its tasks and the limits.
        grading: How rollouts get their rewards.
        trial: The models, and what it takes to pass.

    Returns:
        A verdict for each candidate, and the report of each run.

    Raises:
        DataError: If a model cannot be served, the job cannot be run, or a reward is outside the
            given range.
        StoreError: If the store cannot be read or written.
    """
    folders = _checked_folders(trial.models)
    check_failed_reward(grading.failed_reward, trial.reward_range)
    # A folder may be trained again, and a pointer such as `models/live` moves. So the rollouts of a
    # model, and the verdict on it, belong to the files that it has now.
    prints = {name: fingerprint(Path(name)) for name in folders}
    config = {
        "models": list(trial.models),
        "folders": folders,
        "fingerprints": prints,
        "tasks": str(job.tasks),
        "samples": job.samples,
        "seed": job.seed,
    }
    record = Run("evaluate", config)
    reports: dict[tuple[str, str], Report] = {}
    # One model at a time: a GPU rarely has room for two.
    for setting in (SERVING, GREEDY) if trial.greedy else (SERVING,):
        for model in trial.models:
            of_model = replace(job, model=model, model_fingerprint=prints.get(model))
            reports[setting, model] = _run(Path(store), of_model, grading, trial, setting)
    verdicts = [_verdict(Path(store), trial, reports, candidate) for candidate in trial.models[1:]]
    tasks = reports[SERVING, trial.models[0]].fingerprint
    with open_store(store) as opened:
        others = judged_before(opened, record, tasks)
        row = record.ended(
            outcome="passed" if any(verdict.passed for verdict in verdicts) else "refused",
            fingerprint=tasks,
            metrics={f"{s}/{m}": report.mean for (s, m), report in reports.items()},
            gate={verdict.model: list(verdict.refusals) for verdict in verdicts},
        )
        opened.insert("runs", arrow(row))
    verdicts = [replace(verdict, others=others) for verdict in verdicts]
    return verdicts, list(reports.values())


def _checked_folders(models: Sequence[str]) -> dict[str, str]:
    """Return the resolved path of each model that is a folder.

    Raises:
        DataError: If there are not two different models, or one cannot be served. All are checked
            before the first is run, which may take hours.
    """
    folders = {name: str(Path(name).resolve()) for name in models if Path(name).is_dir()}
    distinct = {folders.get(name, name) for name in models}
    if len(models) < MIN_MODELS or len(distinct) != len(models):
        raise DataError("Comparing needs two different models or more: --model A --model B.")
    for name in models:
        check_model(name)
    return folders


def _run(store: Path, job: Job, grading: Grading, trial: Trial, setting: str) -> Report:
    model = str(job.model)
    name = f"{run_name(job)}-{setting}"
    folder = runs_folder(store) / name / "server"
    with serving(model, trial.names, folder, greedy=setting == GREEDY) as variables:
        model_job = replace(
            job,
            name=name,
            # Greedy answers are the same each time, so one sample tells all.
            samples=1 if setting == GREEDY else job.samples,
            environment={**(job.environment or {}), **variables},
        )
        report = run_agent(store, model_job, grading)
    if report.missing:
        raise DataError(
            f"Nothing is compared: of '{model}' ({setting}) "
            f"{number_of(report.missing, 'rollout is', 'rollouts are')} missing. To go on, give "
            "the same command again."
        )
    return report


def _verdict(
    store: Path, trial: Trial, reports: Mapping[tuple[str, str], Report], candidate: str
) -> ModelVerdict:
    base = trial.models[0]
    # Bonferroni: the chance that any candidate passes without being better stays at ALPHA.
    alpha = ALPHA / (len(trial.models) - 1)
    gains = {
        setting: compare_sides(
            reports[setting, base].side(base),
            reports[setting, candidate].side(candidate),
            trial.least_gain,
            alpha=alpha,
            reward_range=trial.reward_range,
        )
        for setting in (SERVING, GREEDY)
        if (setting, base) in reports
    }
    before = _formats(store, reports[SERVING, base])
    after = _formats(store, reports[SERVING, candidate])
    formats = {
        measure: compare_sides((base, before[measure]), (candidate, after[measure]))
        for measure in ("tool calls parse", "not cut off")
    }
    lengths = (_mean(before["tokens"]), _mean(after["tokens"]))
    verdict = ModelVerdict(candidate, gains, formats, lengths, ())
    not_greedy = _not_greedy(store, (base, candidate), reports)
    return replace(verdict, refusals=(*_refusals(verdict, reports, alpha), *not_greedy))


def _not_greedy(
    store: Path, models: Sequence[str], reports: Mapping[tuple[str, str], Report]
) -> Iterator[str]:
    """Yield a refusal for each model whose greedy run asked for another temperature than 0.

    For these models a policy asks for temperature 0. Only an agent that we trace follows it.
    """
    for model in models:
        if (GREEDY, model) in reports and greedy_by_policy(model):
            calls = _sampled_calls(store, reports[GREEDY, model])
            if calls:
                yield (
                    f"{GREEDY}: {number_of(calls, 'call')} of '{model}' had another temperature "
                    "than 0, because the agent is not traced by us"
                )


def _mean(tokens: Mapping[Pair, float]) -> float:
    """Return the mean; 0 where a server reported no tokens, and then lengths are not judged."""
    return sum(tokens.values()) / len(tokens) if tokens else 0.0


def _sampled_calls(store: Path, report: Report) -> int:
    """Count the model calls of a greedy run that asked for a temperature above 0."""
    with open_store(store) as opened:
        rows = read(opened, __package__, "sampled_calls", rollouts=list(report.tasks))
    return int(rows["calls"][0])


def _refusals(
    verdict: ModelVerdict, reports: Mapping[tuple[str, str], Report], alpha: float
) -> Iterator[str]:
    yield from (f"{SERVING}: {reason}" for reason in verdict.gains[SERVING].refusals)
    greedy = verdict.gains.get(GREEDY)
    if greedy is not None and _is_worse(reports, greedy, alpha):
        yield f"{GREEDY}: it loses {decimal(-greedy.gain)} beyond chance"
    for measure, compared in verdict.formats.items():
        # The whole interval of the change is below 0.
        if compared.upper < 0:
            yield (
                f"format: {measure} in {compared.other_mean:.1%} of the rollouts, "
                f"{compared.base_mean:.1%} before"
            )
    before, after = verdict.lengths
    if before > 0 and after > MAX_LENGTH_RATIO * before:
        yield f"format: {number_of(round(after), 'output token')} per rollout, {before:.0f} before"


def _is_worse(
    reports: Mapping[tuple[str, str], Report], greedy: PairedComparison, alpha: float
) -> bool:
    # The same test the other way round: is the base better than the candidate beyond chance?
    turned = compare_sides(
        (greedy.other, reports[GREEDY, greedy.other].pairs()),
        (greedy.base, reports[GREEDY, greedy.base].pairs()),
        alpha=alpha,
    )
    return turned.gain > 0 and turned.p_value < alpha


def _formats(store: Path, report: Report) -> dict[str, dict[Pair, float]]:
    """Measure the form of each rollout's answers: do tool calls parse, was the end cut off."""
    columns = ["rollout_id", "malformed_calls", "finish_reason", "output_tokens", "llm_calls"]
    with open_store(store) as opened:
        frame = scan(opened, "rollouts", list(report.tasks)).select(columns).collect()
    with_calls = frame.filter(pl.col("llm_calls") > 0)
    rows: list[dict[str, Any]] = with_calls.to_dicts()
    for row in rows:
        row["tool calls parse"] = not row["malformed_calls"]
        row["not cut off"] = row["finish_reason"] != "length"
        row["tokens"] = row["output_tokens"]

    places = report.places()

    def measured(value: str) -> dict[Pair, float]:
        return {
            places[row["rollout_id"]]: float(row[value]) for row in rows if row[value] is not None
        }

    return {name: measured(name) for name in ("tool calls parse", "not cut off", "tokens")}
