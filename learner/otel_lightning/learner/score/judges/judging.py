"""Judge the rollouts of a store: ask the questions that are not cached, then write the scores."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from otel_lightning.collector.store import StoreLike, opened
from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import arrow, read
from otel_lightning.learner.runs import Run, fingerprint, recorded
from otel_lightning.learner.score.judges.answers import combine, read_answer
from otel_lightning.learner.score.judges.asking import (
    Question,
    Session,
    Usage,
    answer_all,
    question_key,
    stopped,
)
from otel_lightning.learner.score.judges.cache import AnswerCache
from otel_lightning.learner.score.judges.endpoint import Judge
from otel_lightning.learner.score.judges.record import (
    Record,
    Selection,
    list_rollouts,
    read_records,
)
from otel_lightning.learner.score.judges.rubric import Rubric
from otel_lightning.learner.score.rewards import JUDGE
from otel_lightning.learner.score.table import replace_scores

AT_ONCE = 200
"""Number of rollouts that are in memory with their text."""
TEXTS = ("rollout_id", "trace_id", "span_id", "name", "label", "explanation", "source")
SCHEMA = {**dict.fromkeys(TEXTS, pl.String()), "value": pl.Float64(), "spread": pl.Float64()}
SPREAD = ".spread"
"""Suffix of the name under which the spread of a score is stored."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: rubrics, rollouts, number of samples, and settings of the requests."""

    rubrics: tuple[Rubric, ...]
    selection: Selection
    cache: Path
    samples: int = 1
    concurrency: int = 8
    retry_errors: bool = False

    def prefix(self, rubric: Rubric) -> str:
        """Return the source prefix of a rubric's scores, which new scores replace as a whole."""
        return "/".join([f"{JUDGE}{rubric.name}", *self.selection.agents])


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers about the scores of one rubric."""

    name: str
    scale: str
    judged: int
    errors: int
    mean: float | None
    mean_spread: float | None
    first_error: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """Numbers about a run: the scores by rubric, and the usage."""

    tallies: tuple[Tally, ...]
    without_text: int
    usage: Usage
    also_received: Mapping[str, int] = field(default_factory=dict)
    """Number of rewards from elsewhere that have the name of a rubric, by this name."""


def judge_rollouts(store: StoreLike, plan: Plan, judge: Judge) -> Report:
    """Judge rollouts, and replace the scores that the same judges gave before.

    Args:
        store: Path of the store, which is open only while it is read or written; or an open store.
        plan: Rubrics, rollouts and number of samples.
        judge: The judge that answers.

    Raises:
        DataError: If there is nothing to judge, or the judge stops answering. The answers so far
            stay in the cache, and the scores are unchanged.
        StoreError: If the store cannot be read or written.
    """
    sources = {rubric.name: source_of(rubric, plan, judge) for rubric in plan.rubrics}
    run = Run("judge", {**asdict(plan), "cache": str(plan.cache), "sources": sources})
    rollouts, without_text = list_rollouts(store, plan.selection)
    progress = Progress("Judge", len(rollouts) * len(plan.rubrics) * plan.samples)
    with closing(AnswerCache(plan.cache)) as cache:
        session = Session(judge, cache, progress, plan.concurrency, plan.retry_errors)
        try:
            rows = [
                row
                for start in range(0, len(rollouts), AT_ONCE)
                # `_read` takes the first `AT_ONCE` of the rest.
                for row in _judge(session, judge, plan, _read(store, plan, rollouts[start:]))
            ]
        except DataError as error:
            # `recorded` writes the failure into `runs` because the block raises.
            with recorded(store, run):
                raise stopped(session, error, "No score was changed.") from error
    scores = pl.DataFrame(rows, schema=SCHEMA)
    tallies = tuple(tally(rubric, scores.filter(name=rubric.name)) for rubric in plan.rubrics)
    report = Report(tallies, without_text, session.usage)
    return _write(store, plan, scores, run, report)


def source_of(rubric: Rubric, plan: Plan, judge: Judge) -> str:
    """Return the source of a judge's scores: its prefix and a hash of all inputs of its scores."""
    # The request for an empty record: it holds the model, the prompt and the temperature, that is,
    # all that scores depend on besides the rollout.
    nothing = Record("", "", "", (), (), "")
    shape = [judge.prepare(rubric, nothing), plan.samples, plan.selection.max_characters]
    mark = sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]
    return f"{plan.prefix(rubric)}@{mark}"


def tally(rubric: Rubric, scores: pl.DataFrame) -> Tally:
    """Count the scores of one rubric, and compute their means."""
    values, spreads = (scores[name].drop_nulls().to_list() for name in ("value", "spread"))
    errors = scores.filter(pl.col("value").is_null())["explanation"].to_list()
    return Tally(
        name=rubric.name,
        scale=rubric.scale,
        judged=len(values),
        errors=len(errors),
        mean=fmean(values) if values else None,
        mean_spread=fmean(spreads) if spreads else None,
        first_error=errors[0] if errors else None,
    )


def spreads(scores: pl.DataFrame) -> pl.DataFrame:
    """Return the spreads as separate scores, named `<name>.spread`, so that SQL can select them."""
    return scores.filter(pl.col("spread").is_not_null()).with_columns(
        name=pl.col("name") + SPREAD,
        value=pl.col("spread"),
        label=pl.lit(None, pl.String()),
        explanation=pl.lit("standard deviation of the samples"),
    )


def _judge(
    session: Session, judge: Judge, plan: Plan, records: Sequence[Record]
) -> Iterator[dict[str, Any]]:
    questions_by_judgement = {
        (record.rollout_id, rubric): _samples(record, rubric, plan, judge)
        for record in records
        for rubric in plan.rubrics
    }
    answers = answer_all(
        session, [question for some in questions_by_judgement.values() for question in some]
    )
    sources = {rubric: source_of(rubric, plan, judge) for rubric in plan.rubrics}
    for record in records:
        for rubric, source in sources.items():
            questions = questions_by_judgement[record.rollout_id, rubric]
            readings = [read_answer(answers[question.key], rubric) for question in questions]
            verdict = combine(readings, rubric)._asdict()
            yield {**_judged(record, plan), **verdict, "name": rubric.name, "source": source}


def _read(store: StoreLike, plan: Plan, rollouts: Sequence[str]) -> list[Record]:
    return read_records(store, rollouts[:AT_ONCE], plan.selection)


def _samples(record: Record, rubric: Rubric, plan: Plan, judge: Judge) -> list[Question]:
    payload = judge.prepare(rubric, record)
    return [Question(question_key(payload, i), payload, rubric) for i in range(plan.samples)]


def _judged(record: Record, plan: Plan) -> Mapping[str, Any]:
    """Return the ids that a score refers to: the rollout, or the last call of selected agents."""
    if not plan.selection.agents:
        return {"rollout_id": record.rollout_id}
    call = {"trace_id": record.trace_id, "span_id": record.span_id}
    return {"rollout_id": record.rollout_id, **call}


def _write(store: StoreLike, plan: Plan, scores: pl.DataFrame, run: Run, report: Report) -> Report:
    # All scores are written at the end: a run that fails leaves the former scores as they were.
    with opened(store) as db:
        for rubric in plan.rubrics:
            own = scores.filter(name=rubric.name)
            replace_scores(db, plan.prefix(rubric), pl.concat([own, spreads(own)]))
        names = [rubric.name for rubric in plan.rubrics]
        mixed = read(db, __package__, "also_received", names=names, judges=JUDGE)
        report = replace(report, also_received=dict(mixed.iter_rows()))
        ended = run.ended(
            outcome="done",
            fingerprint=fingerprint(scores),
            metrics=asdict(report),
            artifact="scores",
        )
        db.insert("runs", arrow(ended))
    return report
