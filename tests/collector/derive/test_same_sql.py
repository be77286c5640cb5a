"""The same SQL gives the same answer for the same agent, whichever instrumentation watched it.

Captures whose truth is the same (what the provider was asked and what it answered) are the same
agent. Columns that one instrumentation does not send are NULL; those that two send must agree.
"""

import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.captures import load
from support.facts import Fact, facts

from otel_lightning.collector.load.from_files import derive_all, expand, load_file
from otel_lightning.collector.store import open_store

CAPTURES = Path(os.environ.get("CAPTURES", Path(__file__).parents[2] / "data"))
TEXTS = {"output reasoning"} | {
    f"{side} {what}"
    for side in ("input", "output")
    for what in ("texts", "tool calls", "tool results")
}

CALLS = """
    SELECT step, operation, provider, request_model, response_model, finish_reason,
        error_type IS NOT NULL AS failed,
        input_tokens, output_tokens, content
    FROM llm_calls ORDER BY step, span_id
"""
SAID = """
    SELECT step, side, message ->> 'role' AS role, part ->> 'type' AS kind, part ->> 'id' AS id,
        part ->> 'name' AS name, part ->> 'arguments' AS arguments,
        coalesce(part ->> 'content', part ->> 'response') AS content
    FROM (
        SELECT step, 'input' AS side, unnest(input_messages::JSON[]) AS message FROM llm_calls
        UNION ALL
        SELECT step, 'output', unnest(output_messages::JSON[]) FROM llm_calls
    ), unnest((message -> 'parts')::JSON[]) AS parts(part)
    ORDER BY ALL
"""


def agent_of(truth: dict[str, Any]) -> str:
    """Everything that the provider saw and said, without the ids that it made up."""
    told = ("api", "stream", "model_requested", "model_returned", "input_messages")
    said = ("output_messages", "finish_reasons", "usage", "usage_sent")
    calls = [{name: call.get(name) for name in (*told, *said)} for call in truth["llm_calls"]]
    return json.dumps(calls, sort_keys=True)


def same_agents() -> list[list[Path]]:
    groups: dict[str, list[Path]] = defaultdict(list)
    for truth in sorted(CAPTURES.glob("*/*.truth.json")):
        capture = load(truth)
        if capture.truth["llm_calls"] and all_texts_were_sent(truth):
            groups[agent_of(capture.truth)].append(truth)
    return [group for group in groups.values() if len({one.parent for one in group}) > 1]


@cache
def facts_of(truth: Path) -> list[Fact]:
    return list(facts(load(truth)))


def all_texts_were_sent(truth: Path) -> bool:
    found = [fact for fact in facts_of(truth) if fact.name in {*TEXTS, "call"}]
    return bool(found) and all(fact.verdict == "right" for fact in found)


def answers(truth: Path, folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Load a capture into a store of its own and ask it."""
    stem = truth.name.removesuffix(".truth.json")
    path = folder / f"{truth.parent.name}-{stem}.duckdb"
    with open_store(path) as store:
        for file in expand([*truth.parent.glob(f"{stem}.*.pb")]):
            load_file(store, file)
        derive_all(store, path)
        return store.query(CALLS).to_pylist(), store.query(SAID).to_pylist()


@pytest.mark.slow
def test_same_agent_gives_the_same_answers_under_any_dialect(tmp_path: Path) -> None:
    groups = same_agents()
    assert groups
    for group in groups:
        compare(group, tmp_path)


def compare(group: list[Path], tmp_path: Path) -> None:
    asked = {truth: answers(truth, tmp_path) for truth in group}
    first, *others = group
    for other in others:
        assert asked[other][1] == asked[first][1], f"{other} and {first}"
    steps = zip(*(calls for calls, _ in asked.values()), strict=True)
    for step, rows in enumerate(steps):
        for column in rows[0]:
            told = {
                truth: row[column]
                for truth, row in zip(asked, rows, strict=True)
                if row[column] is not None and not told_wrongly(truth, column)
            }
            assert len(set(told.values())) <= 1, f"{column} of step {step}: {told}"


def told_wrongly(truth: Path, column: str) -> bool:
    """Return whether the instrumentation itself says something else than the provider did."""
    return any(fact.name == column and fact.verdict != "right" for fact in facts_of(truth))
