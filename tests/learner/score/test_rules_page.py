"""The files and tables of `docs/how-to/reward-rules.md`, each row of them executed."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.score import rules
from otel_lightning.learner.score.rules.frames import scan

if TYPE_CHECKING:
    from conftest import Traces

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "reward-rules.md").read_text()
Row = dict[str, str]
START = datetime(2026, 11, 1)  # noqa: DTZ001 - the store's UTC has no zone


def table(header: str) -> list[Row]:
    """Read the table whose header begins like this."""
    start = PAGE.index(f"\n| {header}") + 1
    lines = PAGE[start : PAGE.index("\n\n", start)].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def written(name: str, folder: Path) -> str:
    """Write the example of that name to a file."""
    comment = "--" if name.endswith(".sql") else "#"
    match = re.search(
        rf"^```\w+\n({comment} {re.escape(name)}\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    assert match, name
    file = folder / name
    file.write_text(match[1])
    return str(file)


def applied(traces: "Traces", spec: str) -> rules.Applied:
    with open_store(traces.store(), create=False) as store:
        return rules.apply_rule(store, spec)


def given(traces: "Traces", name: str) -> dict[str, Any]:
    rows = traces.ask(
        f"SELECT rollout_id, span_id, value, label FROM rewards WHERE name = '{name}'"
    )
    return {row["span_id"] or row["rollout_id"]: row for row in rows}


def left_out(done: rules.Applied) -> set[tuple[str, str]]:
    return {(name, exclusion.reason) for exclusion in done.left_out for name in exclusion.ids}


def said(rows: list[Row], column: str, key: str = "{rollout}") -> Iterator[tuple[str, str]]:
    prefix = "left out: "
    for row in rows:
        if row[column].startswith(prefix):
            yield key.format(**row), row[column].removeprefix(prefix)


def test_function_over_rollouts_gives_what_its_table_says(traces: "Traces", tmp_path: Path) -> None:
    rows = table("rollout | llm_calls | tool_errors")
    for row in rows:
        for step in range(int(row["llm_calls"])):
            traces.call(row["rollout"], step)
        for _ in range(int(row["tool_errors"])):
            traces.tool(row["rollout"], "lookup", error_type="timeout")
    done = applied(traces, written("rewards.py", tmp_path) + ":grade")
    assert (done.name, done.scored, done.left_out) == ("grade", len(rows), ())
    scores = given(traces, "grade")
    for row in rows:
        score = scores[row["rollout"]]
        assert (score["value"], score["label"]) == (float(row["value"]), row["label"])


def test_function_over_calls_gives_what_its_table_says(traces: "Traces", tmp_path: Path) -> None:
    rows = table("rollout | step | output_tokens")
    for row in rows:
        tokens = int(row["output_tokens"]) if row["output_tokens"] else None
        traces.call(row["rollout"], int(row["step"]), output_tokens=tokens)
    done = applied(traces, written("brevity.py", tmp_path) + ":brief")
    scores = given(traces, "brief")
    excluded = set(said(rows, "value", "{rollout}/{rollout}.{step}"))
    assert left_out(done) == excluded
    for row in rows:
        span = f"{row['rollout']}.{row['step']}"
        if f"{row['rollout']}/{span}" not in dict(excluded):
            assert scores[span]["value"] == float(row["value"])


def test_select_gives_what_its_table_says(traces: "Traces", tmp_path: Path) -> None:
    rows = table("rollout | refunds")
    for row in rows:
        traces.call(row["rollout"])
        for number in range(int(row["refunds"])):
            failed = number < int(row["failed refunds"])
            traces.tool(row["rollout"], "refund", error_type="declined" if failed else None)
    applied(traces, written("refunded.sql", tmp_path))
    scores = given(traces, "refunded")
    assert {key: score["value"] for key, score in scores.items()} == {
        row["rollout"]: float(row["value"]) for row in rows
    }


MEASURES = ("intent_resolution", "task_adherence", "task_completion")


def compose(traces: "Traces", folder: Path) -> rules.Applied:
    for row in table("rollout | intent_resolution"):
        rollout, tokens = row["rollout"], int(row["tokens"])
        ends = START + timedelta(seconds=int(row["seconds"]))
        traces.call(rollout, input_tokens=tokens, output_tokens=0, end_time=ends)
        for measure in MEASURES:
            if row[measure]:
                traces.reward(rollout, float(row[measure]), name=measure)
        if row["routing"]:
            traces.reward(rollout, None, name="routing", label=row["routing"])
        for _ in range(int(row["tool errors"])):
            traces.tool(rollout, "lookup", error_type="timeout")
    return applied(traces, written("quality.toml", folder))


def test_composition_gives_what_its_table_says(traces: "Traces", tmp_path: Path) -> None:
    done = compose(traces, tmp_path)
    rows = table("rollout | intent_resolution")
    excluded = set(said(rows, "reward"))
    assert left_out(done) == excluded
    scores = given(traces, "quality")
    assert len(scores) == len(rows) - len(excluded)
    for row in rows:
        if row["rollout"] not in dict(excluded):
            assert scores[row["rollout"]]["value"] == pytest.approx(float(row["reward"]), abs=1e-6)


def test_parts_of_a_composed_reward_are_those_of_the_table(
    traces: "Traces", tmp_path: Path
) -> None:
    compose(traces, tmp_path)
    parts = traces.ask(
        "SELECT name, value, explanation FROM rewards "
        "WHERE rollout_id = 'c' AND starts_with(source, 'rule:quality@')"
    )
    rows = {row["name"].strip("`"): row for row in table("name | value | explanation")}
    assert {part["name"] for part in parts} == set(rows)
    for part in parts:
        row = rows[part["name"]]
        assert part["value"] == pytest.approx(float(row["value"]))
        assert (part["explanation"] or "") == row["explanation"]


@pytest.mark.parametrize("frame", ["rollouts", "calls"])
def test_frame_has_the_columns_that_are_documented(traces: "Traces", frame: str) -> None:
    start = PAGE.index(f"\nOf `{frame}`:")
    listed = PAGE[start : PAGE.index("\n\n", start + 20 + len(frame))]
    names = re.findall(r"^\| (`.*?`) \|", listed, re.MULTILINE)
    documented = {name for line in names for name in re.findall(r"`(\w+)`", line)}
    with open_store(traces.store()) as store:
        columns = scan(store, frame).collect_schema().names()
    assert documented == set(columns)


def test_columns_that_nobody_looks_at_are_not_read(traces: "Traces") -> None:
    traces.call("a", input_messages="[]")
    with open_store(traces.store()) as store:
        narrow = scan(store, "rollouts").select("rollout_id", "seconds")
        plan = narrow.select("seconds").explain()
        assert re.search(r"PROJECT 1/\d+ COLUMNS", plan), plan
        assert narrow.collect().rows() == [("a", 1.0)]
        assert scan(store, "calls").select(pl.len()).collect().item() == 1
