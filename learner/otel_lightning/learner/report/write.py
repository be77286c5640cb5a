"""Write the report: facts into sections, sections into one HTML file.

The file needs nothing beside itself: its style is inside and named by its hash in the content
policy, which allows nothing else. The same store gives the same bytes.
"""

import base64
import hashlib
import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from otel_lightning.collector.files.atomic import wanted_file
from otel_lightning.collector.show.rollout import Window, read_rollout
from otel_lightning.collector.show.text import TextStyle, as_text
from otel_lightning.collector.store import Sql, Store, StoreLike, opened
from otel_lightning.collector.terminal.quantities import decimal, significant
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.evaluate.confidence import ALPHA
from otel_lightning.learner.evaluate.gate import recorded_verdict
from otel_lightning.learner.evaluate.to_pass import what_would_pass
from otel_lightning.learner.report import plots
from otel_lightning.learner.report.doubts import Correlation, correlations
from otel_lightning.learner.report.facts import Facts, RecordedQueries, read_facts
from otel_lightning.learner.report.policy_facts import (
    MAX_TASKS,
    PolicyFacts,
    WorseTask,
    measured_since,
    read_policy,
)
from otel_lightning.learner.runs import family_error
from otel_lightning.learner.score.rules import name_of
from otel_lightning.learner.transitions.rewards import outcomes
from otel_lightning.learner.transitions.stage import stage_rewards

EXAMPLE = TextStyle(width=100)
EXAMPLE_STEPS = Window(0, 19)
VERDICTS = {"promoted": "Promoted", "passed": "Passed the gate", "refused": "Refused",
        "failed": "Failed"}  # fmt: skip
OUTLINE = (
    ("verdict", "Verdict"), ("reasons", "Reasons, and what would change them"), ("data", "Data"),
    ("overlap", "Overlap"), ("learned", "What was learned"), ("doubts", "Doubts"),
    ("examples", "Examples"), ("how", "How"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """The report that was written."""

    path: Path
    run_id: str
    outcome: str
    size: int
    skipped: Mapping[str, str]
    """Newer runs that failed and have nothing to report, and the error of each."""


def write_report(
    store: StoreLike, output: Path, *, run: str | None = None, examples: int = 0
) -> Written:
    """Write the report about a run.

    Args:
        store: A store or its path.
        output: The HTML file.
        run: Id of the run, `policy` or `weights` for the newest of these that has something to
            report; None for the newest of all that has. A run that failed before it learned has
            nothing; if all have failed so, the newest is reported with its error.
        examples: Number of rollouts to show that did best, and as many that did worst. Reports are
            mailed around, so by default they hold no text of a conversation.

    Raises:
        DataError: If there is no such run.
        StoreError: If the store cannot be read.
    """
    with opened(store) as db:
        html, facts = _report(db, run, examples)
    with wanted_file(output) as temporary:
        temporary.write_text(html, encoding="utf-8")
    skipped = {newer.run_id: str(newer.metrics.get("error", "")) for newer in facts.skipped}
    return Written(output, facts.run.run_id, facts.run.outcome, len(html.encode()), skipped)


def _report(store: Store, run: str | None, examples: int) -> tuple[str, Facts]:
    queries = RecordedQueries(store)
    facts = read_facts(queries, run)
    policy = read_policy(store, facts)
    related = correlations(_outcomes(queries, facts, policy))
    values = {
        "run": facts.run,
        "facts": facts,
        "verdict": VERDICTS.get(facts.run.outcome, facts.run.outcome),
        "sentence": _sentence(facts),
        "would_pass": _would_pass(facts),
        "family_error": family_error(facts.other_candidates + 1, _alpha(facts)),
        "policy": policy,
        "related": related,
        "since": measured_since(store, facts),
        "worse": _worse_of_weights(store, queries, facts) if policy is None else None,
        "control": facts.control,
        "config": _config(facts),
        "versions": {"otel-lightning": version("otel-lightning")},
        "examples": _examples(store, queries, policy, examples),
        "plots": _plots(facts, policy, related),
        "queries": dict(sorted(queries.statements.items())),
        **_outline(has_examples=bool(examples)),
    }
    return render(values), facts


def _outline(*, has_examples: bool) -> Mapping[str, Any]:
    outline = [section for section in OUTLINE if has_examples or section[0] != "examples"]
    numbers = {name: number for number, (name, _) in enumerate(outline, start=1)}
    return {"outline": outline, "numbers": numbers}


def render(values: Mapping[str, Any]) -> str:
    """Render the template; every value but our own plots is escaped."""
    folder = resources.files(__package__)
    style = (folder / "report.css").read_text(encoding="utf-8")
    # The content policy allows the style by its hash, so no other style or script can be added.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["pretty"] = _pretty
    environment.filters["decimal"] = _decimal
    environment.filters["quoted"] = _quoted
    template = environment.from_string((folder / "report.html.j2").read_text(encoding="utf-8"))
    return template.render(**values, style=Markup(style), digest=digest)  # noqa: S704  our own file


def _sentence(facts: Facts) -> str:
    gate, run = facts.run.gate, facts.run
    if not gate:
        error = run.metrics.get("error")
        return str(error) if error else "The run has no verdict."
    if not gate["tasks"]:
        return "No rollout was held out, so nothing was judged."
    bounds = f"at least {decimal(gate['lower'], '+')} and at most {decimal(gate['upper'], '+')}"
    compared = "by chance" if gate["effective_sample_size"] is None else "as it was"
    return (
        f"On {gate['rollouts']:,} held-out rollouts of {gate['tasks']:,} tasks the value is "
        f"{decimal(gate['behavior_value'])} {compared} and {decimal(gate['value'])} as learned "
        f"({gate['estimator']}): a gain of {decimal(gate['gain'], '+')}, with "
        f"{_confidence(facts)} confidence each {bounds}."
    )


def _confidence(facts: Facts) -> str:
    """Write the confidence of each bound; a loop divides its error probability among its gates."""
    return f"{100 * (1 - _alpha(facts)):.4g} %"


def _alpha(facts: Facts) -> float:
    return float(facts.run.config.get("alpha", ALPHA))


def _would_pass(facts: Facts) -> str | None:
    gate = facts.run.gate
    if not gate or gate.get("passed"):
        return None
    return what_would_pass(recorded_verdict(gate), facts.run.command)


def _worse_of_weights(
    store: Store, queries: RecordedQueries, facts: Facts
) -> Mapping[str, Any] | None:
    """Compare base and fine-tuned model on the same tasks, if both were served since.

    Rewards are those of the run: of the same name, and added up in the same way.
    """
    model, artifact = facts.run.config.get("model"), facts.run.artifact
    if not model or not artifact:
        return None
    names = {"before": Path(model).name, "after": Path(artifact).name}
    if names["before"] == names["after"]:  # traces cannot tell the two apart
        return None
    try:
        stage_rewards(store, name_of(facts.run.config.get("reward")))
    except DataError:  # the rewards are gone
        return None
    rewards = pl.DataFrame(
        queries.rows("rewards_by_model", models=[*names.values()]), infer_schema_length=None
    )
    if rewards.is_empty():
        return None
    compared = _by_task(rewards.lazy(), names)
    if compared.is_empty():
        return None
    worse = compared.filter(pl.col("after") < pl.col("before"))
    tasks = [WorseTask(**row) for row in worse.head(MAX_TASKS).iter_rows(named=True)]
    return {**names, "compared": compared.height, "number": worse.height, "tasks": tasks}


def _by_task(rewards: pl.LazyFrame, models: Mapping[str, str]) -> pl.DataFrame:
    """Average the outcomes of two models on each task that both ran, the greatest loss first.

    Args:
        rewards: Columns of `placed_rewards`, task and model.
        models: Name of the model `before` and of the one `after`.

    Returns:
        Columns task, before, after and rollouts.
    """
    of_rollouts = rewards.unique("rollout").select("rollout", "task", "model")
    outcome = pl.col("outcome")
    means = {
        name: outcome.filter(pl.col("model") == model).mean() for name, model in models.items()
    }
    return (
        outcomes(rewards)
        .join(of_rollouts, on="rollout", maintain_order="left")
        .group_by("task", maintain_order=True)
        .agg(**means, rollouts=pl.len())
        .drop_nulls()
        .sort(pl.col("after") - pl.col("before"), "task")
        .collect()
    )


def _config(facts: Facts) -> list[tuple[str, str, str | None]]:
    """List the settings, each with its value in the run before if that was another."""
    config, previous = facts.run.config, facts.previous.config if facts.previous else None
    rows = []
    for name in sorted({*config, *(previous or {})}):
        value = json.dumps(config.get(name), ensure_ascii=False)
        previous_value = (
            None if previous is None else json.dumps(previous.get(name), ensure_ascii=False)
        )
        rows.append((name, value, previous_value if previous_value != value else None))
    return rows


def _outcomes(
    queries: RecordedQueries, facts: Facts, policy: PolicyFacts | None
) -> list[dict[str, Any]]:
    """Read outcomes with lengths and judges; those of a policy need no transitions."""
    if policy is not None:
        beside = queries.rows("lengths_and_judges", keys=policy.keys)
        joined = pl.DataFrame(beside, infer_schema_length=None).join(policy.outcomes, "rollout_id")
        return joined.to_dicts()
    return [] if facts.policy else queries.rows("rewards_and_lengths")


def _farthest(outcomes: pl.DataFrame, side: pl.Expr, count: int) -> list[dict[str, Any]]:
    """Choose the rollouts of a policy that are farthest from the mean of their task."""
    compared = outcomes.with_columns(
        difference=pl.col("outcome") - pl.mean("outcome").over("task_hash")
    ).filter(side)
    by_distance = [-pl.col("difference").abs(), pl.col("rollout_id")]
    return compared.sort(by_distance).head(count).drop("task_hash").to_dicts()


def _examples(
    store: Store, queries: RecordedQueries, policy: PolicyFacts | None, count: int
) -> list[Mapping[str, Any]]:
    if not count:
        return []
    if policy is None:
        sides = {"best": Sql("difference > 0"), "worst": Sql("difference < 0")}
        chosen = {n: queries.rows("examples", side=side, most=count) for n, side in sides.items()}
    else:
        apart = pl.col("difference")
        chosen = {
            name: _farthest(policy.outcomes, side, count)
            for name, side in (("best", apart > 0), ("worst", apart < 0))
        }
    # As many good as bad ones: a report with more of one kind would give a wrong impression.
    equally = min(map(len, chosen.values()))
    return [
        {**row, "side": side, "text": as_text(_first_steps(store, row["rollout_id"]), EXAMPLE)}
        for side, rows in chosen.items()
        for row in rows[:equally]
    ]


def _first_steps(store: Store, rollout: str) -> Any:
    return read_rollout(store, rollout, EXAMPLE_STEPS)


def _plots(
    facts: Facts, policy: PolicyFacts | None, related: list[Correlation]
) -> Mapping[str, Markup]:
    funnel = facts.funnel
    counts = [("rollouts", funnel["rollouts"])]
    counts += [("with a received reward", funnel["received_reward"])]
    if funnel["looked_at"]:  # a policy is learned without transitions
        counts += [("kept", funnel["kept"])]
    drawn = {"funnel": plots.bars("funnel", "From rollouts to transitions", counts)}
    if facts.run.gate and facts.run.gate.get("lower") is not None:
        drawn["gain"] = plots.interval(facts.run.gate, _confidence(facts))
    if policy is not None:
        drawn["arms"] = plots.arms(policy.arms)
        if policy.weights:
            label = "importance weight of a held-out rollout"
            drawn["weights"] = plots.histogram("weights", label, policy.weights)
    elif facts.quantiles:
        drawn["weights"] = plots.quantiles(facts.quantiles)
    drawn |= {f"curve {name}": plots.curve(name, steps) for name, steps in facts.curves.items()}
    for number, correlation in enumerate(related):
        drawn[f"related {correlation.measure}"] = plots.scatter(
            f"related{number}", correlation.measure, correlation.points
        )
    return {name: Markup(svg) for name, svg in drawn.items()}  # noqa: S704  made by plots


def _decimal(value: float) -> str:
    """Write a reward as the commands print it; nothing for one that is not known."""
    return "" if math.isnan(value) else decimal(value)


def _quoted(rollout: str) -> str:
    """Quote an id for a shell, and keep one that begins with a dash from being an option."""
    return ("-- " if rollout.startswith("-") else "") + shlex.quote(rollout)


def _pretty(value: Any) -> str:
    """Write a number for a table."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return significant(value, 4) if isinstance(value, float) else str(value)
