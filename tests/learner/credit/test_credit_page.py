"""Every row of the worked examples in docs/explanation/credit.md, through the whole pipeline."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from otel_lightning.learner.credit import METHODS, Options
from otel_lightning.learner.transitions.make import Settings, make_transitions

if TYPE_CHECKING:
    from conftest import Traces

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "credit.md").read_text()
SENT = re.compile(
    r"([\d.]+)(?: (for the response|for the rollout|for the trace|on the way))?(, .*)?"
)
BEGIN = datetime(2026, 11, 1)  # noqa: DTZ001 - the store's UTC has no zone
SOON = BEGIN + timedelta(minutes=1)
NOTHING = "-"
FAILED = "nothing: the call failed"

Cells = dict[str, str]


@dataclass(frozen=True)
class Example:
    """One table: its heading, the settings above it, its rows by column."""

    title: str
    settings: str
    rows: list[Cells]

    @property
    def runs(self) -> list[str]:
        """The headings that name a credit method, and options of their own."""
        return [heading for heading in self.rows[0] if heading.startswith("`")]


def table(text: str) -> list[Cells]:
    """Read the first table of a text."""
    match = re.search(r"(^\|.*\n)+", text, re.MULTILINE)
    assert match
    lines = match[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def examples() -> Iterator[Example]:
    for part in PAGE.split("\n### Example: ")[1:]:
        title, _, rest = part.partition("\n")
        text = rest.split("\n## ")[0]
        [settings] = re.findall(r"^Settings: `(.*)`\.$", text, re.MULTILINE)
        yield Example(title, settings, table(text))


EXAMPLES = {example.title: example for example in examples()}
ROWS = [(title, i) for title, example in EXAMPLES.items() for i in range(len(example.rows))]


def options(text: str) -> dict[str, Any]:
    """Read `name=value` pairs, numbers as numbers."""
    pairs = dict(re.findall(r"(\w+)=(\S+)", text))
    numeric = {field.name for field in fields(Options) if isinstance(field.default, float)}
    return {name: float(value) if name in numeric else value for name, value in pairs.items()}


def call(row: Cells) -> dict[str, Any]:
    """What the store has of a row's model call."""
    columns = {"agent_name": row.get("agent"), "finish_reason": row.get("finish", "stop")}
    if "state" in row:
        saw = {"role": "user", "parts": [{"type": "text", "content": row["state"]}]}
        columns["input_messages"] = json.dumps([saw])
    if row["sent"] == FAILED:
        columns |= {"output_messages": None, "error_type": "timeout"}
    return columns


def judgements(row: Cells) -> list[dict[str, Any]]:
    """What the store has of what a row says was sent."""
    match = SENT.fullmatch(row["sent"])
    if not match:
        assert row["sent"] in {"", FAILED}
        return []
    value, target, how = match.groups()
    rollout, span = row["rollout"], f"{row['rollout']}.{row['call']}"
    call_end = BEGIN + timedelta(seconds=int(row["call"]) + 1)
    named = {
        None: {"trace_id": rollout, "span_id": span},
        "for the response": {"response_id": f"response-{span}"},
        "for the trace": {"trace_id": rollout},
        "for the rollout": {"rollout": rollout},
        "on the way": {"trace_id": rollout, "source": "log", "time": call_end},
    }[target]
    times = {
        None: [SOON],
        ", a day later": [SOON + timedelta(days=1)],
        ", twice": [SOON, SOON],
    }[how]
    return [{"rollout": None, "value": float(value), "time": time} | named for time in times]


def fill(traces: "Traces", example: Example) -> None:
    for row in example.rows:
        traces.call(row["rollout"], int(row["call"]), **call(row))
        for judged in judgements(row):
            traces.reward(**judged)
        for outcome in filter(None, row.get("tools", "").split(", ")):
            error = None if outcome == "ok" else outcome
            traces.tool(row["rollout"], "tool", step=int(row["call"]), error_type=error)
    for rollout, task in {(row["rollout"], row["task"]) for row in example.rows if "task" in row}:
        traces.task(rollout, task)


@pytest.fixture(scope="module")
def built(new_traces: "Callable[[], Traces]") -> Callable[[str, str], dict[Any, Any]]:
    """Build an example's transitions by one of its columns; a row for each rollout and call."""

    @cache
    def store(title: str) -> "Traces":
        traces = new_traces()
        fill(traces, EXAMPLES[title])
        traces.store()
        return traces

    @cache
    def build(title: str, run: str) -> dict[Any, Any]:
        _, credit, own = run.split("`")
        chosen = options(EXAMPLES[title].settings) | options(own)
        traces = store(title)
        make_transitions(str(traces.path), Settings(credit=credit, **chosen))
        rows = traces.ask("SELECT * FROM transitions")
        return {(row["rollout_id"], str(row["step"])): row for row in rows}

    return build


@pytest.mark.parametrize(
    ("title", "number"), ROWS, ids=lambda value: value if isinstance(value, str) else str(value + 1)
)
def test_row_of_an_example_is_what_the_pipeline_makes(
    built: Callable[[str, str], dict[Any, Any]], title: str, number: int
) -> None:
    expected = EXAMPLES[title].rows[number]
    for run in EXAMPLES[title].runs:
        row = built(title, run).get((expected["rollout"], expected["call"]))
        if expected["reward"] == NOTHING:
            assert (row, expected[run]) == (None, NOTHING)
            continue
        assert row is not None
        assert row["agent_name"] == expected.get("agent")
        assert row["reward"] == pytest.approx(float(expected["reward"]))
        assert row["advantage"] == pytest.approx(float(expected[run]), abs=5e-5), run
        if "`return_to_go`" in expected:
            assert row["return_to_go"] == pytest.approx(float(expected["`return_to_go`"]))


def test_examples_use_every_method() -> None:
    runs = {run.split("`")[1] for example in EXAMPLES.values() for run in example.runs}
    assert {name for run in runs for name in run.split("+")} == set(METHODS)


def test_every_method_and_option_is_explained() -> None:
    methods = set(re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE))
    assert methods == set(METHODS)
    defaults = {
        row["option"].strip("`"): row["default"] for row in table(PAGE.split("## Options")[1])
    }
    assert defaults.keys() == {field.name for field in fields(Options)}
    for field in fields(Options):
        assert defaults[field.name].strip("`") == str(field.default)
