"""Compose a reward from the measures, labels and shaping terms of a rollout, in polars.

All functions except `run` are pure. The reward is the sum of its parts:

- a measure adds `weight` times its value, mapped to [-1, 1]. If measures of a rollout are missing,
  the weights of the others are scaled up to the same total, so that rewards stay comparable.
- a label adds the amount in the settings.
- a shaping term adds its weight for each unit that it counts.
"""

from collections.abc import Iterator
from dataclasses import asdict

import polars as pl

from otel_lightning.collector.store import Store
from otel_lightning.learner.score.rules.composition import TERMS, Composition, Term, parse
from otel_lightning.learner.score.rules.frames import scan
from otel_lightning.learner.score.rules.outcome import SCORE_COLUMNS, Exclusion, Scored
from otel_lightning.learner.score.rules.spec import Rule

PART = ("rollout_id", "name", "value", "explanation")


def run(store: Store, rule: Rule) -> Scored:
    """Compose the reward of each stored rollout.

    Raises:
        DataError: If the settings are wrong.
    """
    composition = parse(rule)
    counted = ["rollout_id", *(TERMS[term.name] for term in composition.terms)]
    tokens = pl.col("input_tokens") + pl.col("output_tokens")
    rollouts = scan(store, "rollouts").with_columns(tokens=tokens).select(counted)
    # Without its own scores of a former run, which would feed on themselves.
    judgements = scan(store, "judgements").filter(
        ~pl.col("source").str.starts_with(f"{rule.prefix}@").fill_null(value=False)
    )
    return compose(composition, rollouts.collect(), judgements.collect(), rule.name)


def compose(
    composition: Composition, rollouts: pl.DataFrame, judgements: pl.DataFrame, name: str
) -> Scored:
    """Compose the reward of each rollout; its parts become scores named `<name>.<part>`.

    Args:
        composition: The measures, labels and terms, with their weights.
        rollouts: Column rollout_id, and the columns that the terms count.
        judgements: Columns rollout_id, span_id, name, value, label, in time order.
        name: Name of the composed reward.

    Returns:
        The scores. A rollout whose measures are all missing has no score and is an exclusion.
    """
    measured = measure(composition, judgements)
    # A value outside its range means that the range in the file is wrong; it is not clipped
    # silently.
    broken = measured.filter(~pl.col("value").is_between("low", "high"))
    parts = pl.concat([
        _measure_parts(composition, measured),
        _label_parts(composition, judgements),
        *(_term_part(term, rollouts) for term in composition.terms),
    ])  # fmt: skip
    without = without_data(composition, rollouts, measured, parts)
    judged = rollouts.select("rollout_id").join(
        pl.concat([broken.select("rollout_id"), without]), on="rollout_id", how="anti"
    )
    left_out = (*_outside_range(broken), *_missing(composition, without))
    return Scored(_scores(composition, judged, parts, name), left_out)


def measure(composition: Composition, judgements: pl.DataFrame) -> pl.DataFrame:
    """Return the value of each measure of each rollout: the mean if several calls were judged.

    Returns:
        Columns rollout_id, name, value, weight, low, high.
    """
    schema = {"name": pl.String, "weight": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    settings = pl.DataFrame([asdict(part) for part in composition.measures], schema=schema)
    return (
        _last(judgements.filter(pl.col("value").is_not_null()))
        .group_by("rollout_id", "name", maintain_order=True)
        .agg(pl.mean("value"))
        .join(settings, on="name", maintain_order="left")
    )


def without_data(
    composition: Composition, rollouts: pl.DataFrame, measured: pl.DataFrame, parts: pl.DataFrame
) -> pl.DataFrame:
    """Find the rollouts without data for the reward.

    The data are the measures if the composition has any; otherwise the counts of the terms;
    otherwise the labels.

    Returns:
        Column rollout_id.
    """
    counts = [TERMS[term.name] for term in composition.terms]
    if composition.measures:
        with_value = measured
    elif counts:
        with_value = rollouts.filter(pl.any_horizontal(pl.col(counts).is_not_null()))
    else:
        with_value = parts
    return rollouts.select("rollout_id").join(with_value, on="rollout_id", how="anti")


def _last(judgements: pl.DataFrame) -> pl.DataFrame:
    """Keep only the last judgement of each name on each rollout or call."""
    judged = ["rollout_id", "span_id", "name"]
    return judgements.unique(judged, keep="last", maintain_order=True)


def _measure_parts(composition: Composition, measured: pl.DataFrame) -> pl.DataFrame:
    value, low, high = pl.col("value"), pl.col("low"), pl.col("high")
    total = sum(part.weight for part in composition.measures)
    # Weights of the measures that are there add up to the total of all.
    weight = pl.col("weight") * total / pl.sum("weight").over("rollout_id")
    explanation = pl.format("{} of [{}, {}], weight {}", value, low, high, weight.round(4))
    # [low, high] to [-1, 1].
    mapped = 2 * (value - low) / (high - low) - 1
    return measured.with_columns(value=weight * mapped, explanation=explanation).select(PART)


def _label_parts(composition: Composition, judgements: pl.DataFrame) -> pl.DataFrame:
    rows = [(*key, amount) for key, amount in composition.labels.items()]
    schema = {"name": pl.String, "label": pl.String, "amount": pl.Float64}
    settings = pl.DataFrame(rows, schema=schema, orient="row")
    return (
        _last(judgements.filter(pl.col("label").is_not_null()))
        .select("rollout_id", "name", "label")
        .join(settings, on=["name", "label"], maintain_order="left")
        .with_columns(name=pl.format("{}={}", "name", "label"))
        .group_by("rollout_id", "name", maintain_order=True)
        .agg(value=pl.sum("amount"), explanation=pl.format("{} times", pl.len()))
        .select(PART)
    )


def _term_part(term: Term, rollouts: pl.DataFrame) -> pl.DataFrame:
    """Compute the part of a shaping term, for the rollouts whose count is above the limit."""
    count = pl.col(TERMS[term.name]).cast(pl.Float64)
    is_above = count > term.above
    # Without `per` the weight counts once; with it, once for each `per` above the limit.
    times = is_above.cast(pl.Float64) if term.per is None else (count - term.above) / term.per
    return (
        rollouts.filter(is_above)
        .with_columns(
            value=term.weight * times,
            explanation=pl.format(f"{TERMS[term.name]}: {{}}", count),
            name=pl.lit(term.name),
        )
        .select(PART)
    )


def _scores(
    composition: Composition, judged: pl.DataFrame, parts: pl.DataFrame, name: str
) -> pl.DataFrame:
    shown = parts.join(judged, on="rollout_id", how="semi")
    total = shown.group_by("rollout_id").agg(pl.sum("value"))
    # A left join: a rollout without any part has reward 0 and not none.
    whole = judged.join(total, on="rollout_id", how="left", maintain_order="left").select(
        "rollout_id", pl.col("value").fill_null(0.0), name=pl.lit(name)
    )
    if composition.clamp:
        whole = whole.with_columns(pl.col("value").clip(*composition.clamp))
    scores = [whole, shown.with_columns(name=pl.format(f"{name}.{{}}", "name"))]
    return pl.concat([pl.DataFrame(schema=SCORE_COLUMNS), *scores], how="diagonal")


def _outside_range(broken: pl.DataFrame) -> Iterator[Exclusion]:
    described = pl.format("{} is {}, outside [{}, {}]", "name", "value", "low", "high")
    reasons = broken.select("rollout_id", reason=described)
    for (reason,), group in reasons.group_by(["reason"], maintain_order=True):
        yield Exclusion(str(reason), tuple(group["rollout_id"]))


def _missing(composition: Composition, without: pl.DataFrame) -> Iterator[Exclusion]:
    measures = ", ".join(part.name for part in composition.measures)
    reason = f"none of {measures} is there" if measures else "none of its inputs is known"
    if without.height:
        yield Exclusion(reason, tuple(without["rollout_id"]))
