"""Runs: the gate's verdict and reasons, what it needs to pass, a control run, curve, settings."""

import json
from collections.abc import Iterator
from typing import Any

from otel_lightning.collector.page import plots
from otel_lightning.collector.page.text import decimal
from otel_lightning.collector.page.view_request import (
    PAGE_ROWS,
    NotFoundError,
    View,
    ViewRequest,
    address,
    segment,
)
from otel_lightning.collector.page.views.gates import (
    as_object,
    confidence_of,
    gate_of,
    is_control,
)

OTHER_RUNS = 200
SHUFFLING = ("policy", "weights")
"""Commands that can shuffle rewards, as a control."""
HEADLINES = ("loss", "train_loss", "eval_loss", "learning_rate", "grad_norm", "entropy")


def show_all(ask: ViewRequest) -> View:
    """List the runs, newest first."""
    rows = ask.rows(
        "runs",
        command=ask.text("command"),
        after_ns=ask.whole("after"),
        after_id=ask.text("last"),
        rows=PAGE_ROWS + 1,
    )
    more = None
    if len(rows) > PAGE_ROWS:
        last = rows[PAGE_ROWS - 1]
        more = ask.link(after=last["started_ns"], last=last["run_id"], fragment=None)
    axis = plots.domain([g.get(k) for r in rows for g in [gate_of(r)] for k in ("lower", "upper")],
                        zero=True)  # fmt: skip
    values = {"rows": [_listed(row, axis) for row in rows[:PAGE_ROWS]], "more": more}
    if ask.text("fragment"):
        return View("runs_rows.html", "Runs", values)
    commands = [row["command"] for row in ask.rows("runs_commands")]
    return View("runs.html", "Runs", {**values, "commands": commands})


def show(ask: ViewRequest, run: str) -> View:
    """Show one run."""
    row = ask.row("run", run=run)
    if not row:
        raise NotFoundError(f"There is no run '{run}'.")
    other_runs = ask.rows(
        "runs", command=row["command"], after_ns=None, after_id=None, rows=OTHER_RUNS
    )
    gate, config = gate_of(row), as_object(row["config"])
    control = _control(row, config, other_runs)
    gates = [gate, gate_of(control) if control else {}]
    axis = plots.domain([g.get(k) for g in gates for k in ("lower", "upper")], zero=True)
    return View(
        "run.html",
        f"Run {run}",
        {
            "run": row,
            "gate": gate,
            "shuffled": is_control(row),
            "interval": _interval(gate, axis),
            "confidence": confidence_of(gate, config),
            "can_shuffle": row["command"] in SHUFFLING,
            "control": control and {**_listed(control, axis), "gate": gates[1]},
            "axis": axis,
            "curves": _curves(ask.rows("run_steps", run=run)),
            "weights": _weights(ask.rows("run_steps", run=run)),
            "config": _difference(config, _previous_config(row, other_runs)),
            "metrics": list(_metrics(as_object(row["metrics"]))),
            "policies": ask.rows("run_policies", run=run),
        },
    )


def _interval(gate: dict[str, Any], axis: tuple[float, float]) -> plots.Interval | None:
    return plots.interval(gate.get("lower"), gate.get("gain"), gate.get("upper"), axis)


def _listed(row: dict[str, Any], axis: tuple[float, float]) -> dict[str, Any]:
    gate = gate_of(row)
    return {
        **row,
        "gate": gate,
        "interval": _interval(gate, axis),
        "refusal": next(iter(gate.get("refusals", [])), None),
        "shuffled": is_control(row),
        "href": address(f"/runs/{segment(row['run_id'])}"),
    }


def _control(
    row: dict[str, Any], config: dict[str, Any], others: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the nearest run with shuffled rewards; for such a run, the nearest real one."""
    wants_control = not is_control(row)
    candidates = [
        other
        for other in others
        if other["run_id"] != row["run_id"]
        and is_control(other) == wants_control
        and all(
            as_object(other["config"]).get(name) == config.get(name) for name in ("key", "model")
        )
        and gate_of(other)
    ]
    return min(candidates, key=lambda o: abs(o["started_ns"] - row["started_ns"]), default=None)


def _previous_config(row: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    earlier = [one for one in others if one["started_ns"] < row["started_ns"]]
    return as_object(earlier[0]["config"]) if earlier else {}


def _difference(
    config: dict[str, Any], previous: dict[str, Any]
) -> list[tuple[str, str, str | None]]:
    """Return each setting with its value, and the run before's where that differs."""
    values, previous_values = _flat(config), _flat(previous)
    return [
        (
            name,
            value,
            previous_values.get(name, "unset")
            if previous_values and previous_values.get(name) != value
            else None,
        )
        for name, value in values.items()
    ]


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
    return flat


def _metrics(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each metric with its value as text; those of an object by their names in it."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _metrics(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return decimal(value)
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return " ".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False)


def _curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the metrics with more than one point, the usual ones first."""
    series: dict[str, list[tuple[float, float, float | None, str]]] = {}
    for row in rows:
        if not row["name"].startswith("importance_weight/"):
            label = f"step {row['step']}: {decimal(row['value'])}"
            series.setdefault(row["name"], []).append((row["step"], row["value"], None, label))
    ranked = sorted(series, key=lambda n: (HEADLINES.index(n) if n in HEADLINES else 99, n))
    return [
        {
            "name": name,
            "curve": plots.curve(series[name]),
            "ends": [series[name][0][3], series[name][-1][3]],
        }
        for name in ranked
        if len(series[name]) > 1
    ]


def _weights(rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Return the quantiles of the importance weights, from the least to the largest."""
    prefix = "importance_weight/q"
    weights = [(r["name"].removeprefix(prefix), r["value"]) for r in rows
             if r["name"].startswith(prefix)]  # fmt: skip
    weights.sort(key=lambda one: float(one[0]) if one[0].isdigit() else 0)
    return [(quantile.lstrip("0") or "0", weight) for quantile, weight in weights]
